"""Which shelf a key's rows are on: one number of 64 bits per key, 48 of its hash and 16 for the shelf.

What is stored is a sorted base, in chunks, and a log of what came since; when the log has grown to a part of the base,
they are put together. A worker keeps the index of a task that it has read: stored tokens, each made of all that was
written before it, say whether that is still what the store holds, and from where on to read. A shelf that is gone makes
its keys gone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel import frames
from tidegate.kernel.panes import Ints
from tidegate.kernel.store import Store

INDEX, RECENT = -1, -2
"""Windows that cannot exist, under which the store keeps base and log."""

NOWHERE = -1
"""The shelf of a key that does not wait."""

CHUNK_ROWS = 500_000
FOLD_ROWS = 200_000
"""The log is put together with the base when it has more rows than this and a quarter of the base."""

_CODES = 1 << 16
_HIGH = np.uint64(2**64 - _CODES)
_LOW = np.uint64(_CODES - 1)
_CACHED = 4

Numbers = npt.NDArray[np.uint64]


@dataclass
class _Content:
    """The numbers themselves: `bounds[i]` is the least that belongs into `chunks[i]`; `recent` overrides them."""

    tokens: list[str] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0])
    chunks: list[Numbers] = field(default_factory=lambda: [np.zeros(0, np.uint64)])
    recent: Numbers = field(default_factory=lambda: np.zeros(0, np.uint64))


_cache: dict[str, _Content] = {}


@dataclass
class Index:
    """What the meta frame knows of an index; `shelves` has the shelf that each code stands for."""

    tokens: list[str] = field(default_factory=list)
    shelves: list[int] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0])
    chunks: int = 0
    rows: int = 0
    owner: str = ""

    @classmethod
    def load(cls, meta: dict[str, Any] | None) -> Index:
        """The index as `saved` told it, or an empty one."""
        return cls(**meta) if meta else cls()

    def saved(self) -> dict[str, Any]:
        """What to remember of it; its numbers are in the store."""
        return vars(self)

    @staticmethod
    def short(hashes: Numbers) -> Numbers:
        """The part of the hashes that the index tells apart."""
        return hashes & _HIGH

    def find(self, store: Store, hashes: Numbers) -> Ints:
        """The shelf last noted for each key, NOWHERE if none ever was; it may be gone."""
        if not self.tokens or not len(hashes):
            return np.full(len(hashes), NOWHERE, np.int64)
        content = self._content(store)
        wanted = self.short(hashes)
        found = np.zeros(len(wanted), np.int64)
        chunk = np.searchsorted(np.array(content.bounds, np.uint64), wanted, side="right") - 1
        for number in np.unique(chunk):
            mine = chunk == number
            found[mine] = _code(content.chunks[number], wanted[mine])
        recent = _code(content.recent, wanted)
        found = np.where(recent >= 0, recent, found)
        shelves = np.array([*self.shelves, NOWHERE], np.int64)
        return shelves[np.where(found >= 0, found, len(self.shelves))]

    def add(self, store: Store, hashes: Numbers, numbers: Ints, live: list[int]) -> None:
        """Note the shelves of these keys; `live` are all shelves that there are."""
        if not len(hashes):
            return
        content = self._content(store)
        known = {shelf: code for code, shelf in enumerate(self.shelves)}
        fresh = [shelf for shelf in np.unique(numbers).tolist() if shelf not in known]
        if len(self.shelves) + len(fresh) > _CODES:
            self._fold(store, content, live)
            known = {shelf: code for code, shelf in enumerate(self.shelves)}
        known |= {shelf: len(self.shelves) + i for i, shelf in enumerate(fresh)}
        self.shelves += fresh
        names, which = np.unique(numbers, return_inverse=True)
        codes = np.array([known[shelf] for shelf in names.tolist()], np.uint64)[which]
        packed = self.short(hashes) | codes
        store.write(RECENT, max(len(self.tokens) - 1, 0), _encode(packed))
        if not self.tokens:
            self.tokens = ["empty"]
        self.tokens.append(_token(self.tokens[-1], packed))
        self.owner = self.owner or self.tokens[-1]
        content.recent = _override(content.recent, packed)
        self._keep(content)
        if len(content.recent) > max(FOLD_ROWS, self.rows // 4):
            self._fold(store, content, live)

    def clear(self, store: Store) -> None:
        """Forget everything: nothing waits."""
        for segment in range(self.chunks):
            store.remove(INDEX, segment)
        for segment in range(max(len(self.tokens) - 1, 0)):
            store.remove(RECENT, segment)
        _cache.pop(self.owner, None)
        self.tokens, self.shelves, self.bounds, self.chunks, self.rows, self.owner = [], [], [0], 0, 0, ""

    def _content(self, store: Store) -> _Content:
        content = _cache.pop(self.owner, None)
        if content is None or not content.tokens or content.tokens != self.tokens[: len(content.tokens)]:
            # What was kept is let go before the new one is read: the two together would be twice the memory.
            content = _Content(self.tokens[:1], list(self.bounds))
            content.chunks = [_decode(store.read(INDEX, i)) for i in range(self.chunks)] or content.chunks
        for segment in range(len(content.tokens) - 1, len(self.tokens) - 1):
            content.recent = _override(content.recent, _decode(store.read(RECENT, segment)))
        if self.tokens:
            self._keep(content)
        return content

    def _keep(self, content: _Content) -> None:
        content.tokens = list(self.tokens)
        _cache.pop(self.owner, None)
        _cache[self.owner] = content
        while len(_cache) > _CACHED:
            del _cache[next(iter(_cache))]

    def _fold(self, store: Store, content: _Content, live: list[int]) -> None:
        """Put the log into the base, without the keys whose shelves are gone."""
        kept = sorted(set(live) & set(self.shelves))
        code = {shelf: i for i, shelf in enumerate(kept)}
        recode = np.array([code.get(shelf, _CODES) for shelf in self.shelves], np.uint64)
        cuts = np.searchsorted(content.recent, np.array(content.bounds[1:], np.uint64)).tolist()
        lows, highs = [0, *cuts], [*cuts, len(content.recent)]
        content.tokens = []  # so that nobody takes it for whole if this fails half-way
        bounds: list[int] = []
        chunks: list[Numbers] = []
        token = ""
        for bound, low, high in zip(content.bounds, lows, highs, strict=True):
            whole = _override(content.chunks.pop(0), content.recent[low:high])
            codes = recode[(whole & _LOW).astype(np.int64)]
            whole = ((whole & _HIGH) | codes)[codes < np.uint64(_CODES)]
            parts = np.array_split(whole, max(1, -(-len(whole) // CHUNK_ROWS)))
            bounds += [bound, *(int(part[0] & _HIGH) for part in parts[1:])]
            chunks += [part.copy() for part in parts]
            token = _token(token, whole)
        for segment, part in enumerate(chunks):
            store.write(INDEX, segment, _encode(part))
        for segment in range(len(chunks), self.chunks):
            store.remove(INDEX, segment)
        for segment in range(len(self.tokens) - 1):
            store.remove(RECENT, segment)
        self.tokens, self.shelves, self.bounds = [token], kept, bounds
        self.chunks, self.rows = len(chunks), sum(map(len, chunks))
        content.chunks, content.bounds, content.recent = chunks, list(bounds), np.zeros(0, np.uint64)
        self._keep(content)


def _code(numbers: Numbers, wanted: Numbers) -> Ints:
    """The code of each wanted hash in sorted numbers, -1 if it is not there."""
    if not len(numbers):
        return np.full(len(wanted), -1, np.int64)
    found = numbers[np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)]
    return np.where((found & _HIGH) == wanted, (found & _LOW).astype(np.int64), -1)


def _override(numbers: Numbers, packed: Numbers) -> Numbers:
    """Sorted numbers with these in them, the last one of each hash."""
    if not len(packed):
        return numbers
    backwards = packed[::-1]
    hashes, last = np.unique(backwards & _HIGH, return_index=True)
    new = backwards[last]
    if not len(numbers):
        return new
    at = np.asarray(np.searchsorted(numbers, hashes))
    known = (numbers[np.minimum(at, len(numbers) - 1)] & _HIGH) == hashes
    changed = np.insert(numbers, at[~known], new[~known])
    changed[np.searchsorted(changed, hashes[known])] = new[known]
    return changed


def _encode(numbers: Numbers) -> bytes:
    return frames.encode(frames.SEGMENT, {}, pa.table({"number": pa.array(numbers, pa.uint64())}))


def _decode(frame: bytes) -> Numbers:
    return frames.decode(frames.SEGMENT, frame)[1][0]["number"].to_numpy()


def _token(before: str, numbers: Numbers) -> str:
    return hashlib.blake2b(before.encode() + numbers.tobytes(), digest_size=12).hexdigest()
