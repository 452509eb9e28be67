"""The time bucket of each buffered key: one number per key, 32 bits of its hash and up to 16 for the time bucket.

The store holds a sorted base, in chunks of three or four bytes a key (`kernel.suppress.key_index_table`), and a log of
later entries. When the log has grown to a part of the base, or to many batches, the index merges both. A worker keeps
the index of a task that it has read. The store also holds tokens, each a digest of everything written before it: they
tell the worker whether its copy is current, and from where on to read. The keys of a dropped time bucket are dropped
with it.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.kernel.columns.arrays import Hashes, Ints, Words
from tidegate.kernel.state import frames
from tidegate.kernel.state.store import Store
from tidegate.kernel.state.tables import KEY_INDEX_BASE, KEY_INDEX_RECENT
from tidegate.kernel.suppress.key_index_table import CODES, HIGH, LOW, Table

NOWHERE = -1
"""The bucket of a key that does not wait."""

_FEW, _MANY, _BYTES = 4, 256, 32 << 20
"""A process keeps so few indexes however large they are, and up to so many as long as they have so many bytes."""

_LISTED, _KEYS_LISTED = 1_000, 500
"""The meta frame lists up to so many tokens and buckets that are gone, or one for so many keys if these are more: each
batch reads and writes the list, and a merge of the log forgets them."""

_NONE: Words = np.zeros(0, np.uint64)


@dataclass
class _Content:
    """The index itself: `bounds[i]` is the least number that belongs into `chunks[i]`; `recent` overrides them."""

    tokens: list[str] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0])
    chunks: list[Table] = field(default_factory=lambda: [Table.of(_NONE)])
    recent: Words = field(default_factory=lambda: _NONE)
    used: float = 0.0
    """The time of the last use (`time.monotonic`, in seconds)."""

    @property
    def memory(self) -> int:
        """The bytes of the numbers."""
        return self.recent.nbytes + sum(chunk.memory for chunk in self.chunks)

    def find(self, wanted: Words) -> Ints:
        """The code of each wanted hash, -1 if it is not there."""
        found = np.zeros(len(wanted), np.int64)
        chunk = np.searchsorted(np.array(self.bounds, np.uint64), wanted, side="right") - 1
        for number in np.unique(chunk):
            mine = chunk == number
            found[mine] = self.chunks[number].find(wanted[mine])
        recent = _code(self.recent, wanted)
        return np.where(recent >= 0, recent, found)


_cache: dict[str, _Content] = {}


def drop_unused(seconds: float) -> None:
    """Drop the indexes of this process that no step used for so many seconds."""
    last = time.monotonic() - seconds
    for owner in [owner for owner, content in _cache.items() if content.used <= last]:
        del _cache[owner]


@dataclass
class Index:
    """The part of an index in the meta frame; `buckets` has the bucket of each code."""

    tokens: list[str] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0])
    chunks: int = 0
    rows: int = 0
    owner: str = ""

    def saved(self) -> dict[str, Any]:
        """The fields for the meta frame; the numbers are in the store."""
        return dict(vars(self))

    @staticmethod
    def short(hashes: Hashes) -> Hashes:
        """The bits of the hashes that the index keeps."""
        return hashes & HIGH

    def find(self, store: Store, hashes: Hashes) -> Ints:
        """The bucket last noted for each key, NOWHERE if none ever was; the bucket may be gone."""
        if not self.tokens or not len(hashes):
            return np.full(len(hashes), NOWHERE, np.int64)
        content = self._content(store)
        buckets = np.array([*self.buckets, NOWHERE], np.int64)
        # In pieces: the search needs several times the memory of the numbers.
        step = store.tuning.piece_rows
        pieces = (hashes[low : low + step] for low in range(0, len(hashes), step))
        return np.concatenate([buckets[content.find(self.short(piece))] for piece in pieces])

    def add(self, store: Store, hashes: Hashes, numbers: Ints, live: list[int]) -> None:
        """Note the buckets of these keys; `live` are all existing buckets."""
        if not len(hashes):
            return
        content = self._content(store)
        known = {bucket: code for code, bucket in enumerate(self.buckets)}
        fresh = [bucket for bucket in np.unique(numbers).tolist() if bucket not in known]
        if len(self.buckets) + len(fresh) > CODES:
            self._fold(store, content, live)
            known = {bucket: code for code, bucket in enumerate(self.buckets)}
            if len(self.buckets) + len(fresh) > CODES:
                raise CheckpointError(
                    f"The rows of a time limit wait in more than {CODES:,} time buckets, and the index of their keys "
                    "has no number for another one. Nothing of this batch was stored. This is a bug in tidegate; a "
                    "shorter limit needs fewer buckets."
                )
        known |= {bucket: len(self.buckets) + i for i, bucket in enumerate(fresh)}
        self.buckets += fresh
        names, which = np.unique(numbers, return_inverse=True)
        codes = np.array([known[bucket] for bucket in names.tolist()], np.uint64)[which]
        packed = self.short(hashes) | codes
        store.write(KEY_INDEX_RECENT.place(0), max(len(self.tokens) - 1, 0), _encode(packed))
        if not self.tokens:
            self.tokens = ["empty"]
        self.tokens.append(_token(self.tokens[-1], packed))
        self.owner = self.owner or self.tokens[-1]
        content.recent = _override(content.recent, packed)
        self._keep(content)
        listed = len(self.tokens) + len(self.buckets) - len(live)
        many = listed > max(_LISTED, self.rows // _KEYS_LISTED)
        if many or len(content.recent) > max(store.tuning.fold_rows, self.rows // 8):
            self._fold(store, content, live)

    def rename(self, buckets: dict[int, int]) -> None:
        """Give each live bucket another number, perhaps one for several; the others are gone."""
        self.buckets = [buckets.get(bucket, NOWHERE) for bucket in self.buckets]

    def clear(self, store: Store) -> None:
        """Remove the index: no key waits any more."""
        for segment in range(self.chunks):
            store.remove(KEY_INDEX_BASE.place(0), segment)
        for segment in range(max(len(self.tokens) - 1, 0)):
            store.remove(KEY_INDEX_RECENT.place(0), segment)
        _cache.pop(self.owner, None)
        self.tokens, self.buckets, self.bounds, self.chunks, self.rows, self.owner = [], [], [0], 0, 0, ""

    def _content(self, store: Store) -> _Content:
        content = _cache.pop(self.owner, None)
        if content is None or not content.tokens or content.tokens != self.tokens[: len(content.tokens)]:
            # The old content is freed before the new one is read: both together would take twice the memory.
            content = _Content(self.tokens[:1], list(self.bounds))
            content.chunks = [
                Table.decode(store.read(KEY_INDEX_BASE.place(0), i)) for i in range(self.chunks)
            ] or content.chunks
        for segment in range(len(content.tokens) - 1, len(self.tokens) - 1):
            content.recent = _override(content.recent, _decode(store.read(KEY_INDEX_RECENT.place(0), segment)))
        if self.tokens:
            self._keep(content)
        return content

    def _keep(self, content: _Content) -> None:
        content.tokens, content.used = list(self.tokens), time.monotonic()
        _cache.pop(self.owner, None)
        _cache[self.owner] = content
        # A worker runs many tasks in turns, and to read an index anew takes time by all waiting keys.
        memory = sum(one.memory for one in _cache.values())
        while len(_cache) > _MANY or (len(_cache) > _FEW and memory > _BYTES):
            memory -= _cache.pop(next(iter(_cache))).memory

    def _fold(self, store: Store, content: _Content, live: list[int]) -> None:
        """Merge the log into the base, without the keys whose buckets are gone."""
        kept = sorted(set(live) & set(self.buckets))
        code = {bucket: i for i, bucket in enumerate(kept)}
        recode = np.array([code.get(bucket, CODES) for bucket in self.buckets], np.uint64)
        cuts = np.searchsorted(content.recent, np.array(content.bounds[1:], np.uint64)).tolist()
        lows, highs = [0, *cuts], [*cuts, len(content.recent)]
        content.tokens = []  # so that the content does not count as current if this fails half-way
        bounds: list[int] = []
        chunks: list[Table] = []
        token = ""
        for bound, low, high in zip(content.bounds, lows, highs, strict=True):
            whole = _override(content.chunks.pop(0).numbers(), content.recent[low:high])
            codes = recode[(whole & LOW).astype(np.int64)]
            whole = ((whole & HIGH) | codes)[codes < np.uint64(CODES)]
            parts = np.array_split(whole, max(1, -(-len(whole) // store.tuning.chunk_rows)))
            bounds += [bound, *(int(part[0] & HIGH) for part in parts[1:])]
            chunks += [Table.of(part) for part in parts]
            token = _token(token, whole)
        for segment, part in enumerate(chunks):
            store.write(KEY_INDEX_BASE.place(0), segment, part.encode())
        for segment in range(len(chunks), self.chunks):
            store.remove(KEY_INDEX_BASE.place(0), segment)
        for segment in range(len(self.tokens) - 1):
            store.remove(KEY_INDEX_RECENT.place(0), segment)
        self.tokens, self.buckets, self.bounds = [token], kept, bounds
        self.chunks, self.rows = len(chunks), sum(len(part.rest) for part in chunks)
        content.chunks, content.bounds, content.recent = chunks, list(bounds), _NONE
        self._keep(content)


def _code(numbers: Words, wanted: Words) -> Ints:
    """The code of each wanted hash in sorted numbers, -1 if it is not there."""
    if not len(numbers):
        return np.full(len(wanted), -1, np.int64)
    found = numbers[np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)]
    return np.where((found & HIGH) == wanted, (found & LOW).astype(np.int64), -1)


def _override(numbers: Words, packed: Words) -> Words:
    """Sorted numbers with `packed` merged in; of one hash the last number counts."""
    if not len(packed):
        return numbers
    backwards = packed[::-1]
    hashes, last = np.unique(backwards & HIGH, return_index=True)
    new = backwards[last]
    if not len(numbers):
        return new
    at = np.asarray(np.searchsorted(numbers, hashes))
    known = (numbers[np.minimum(at, len(numbers) - 1)] & HIGH) == hashes
    changed = np.insert(numbers, at[~known], new[~known])
    changed[np.searchsorted(changed, hashes[known])] = new[known]
    return changed


def _encode(numbers: Words) -> bytes:
    return frames.encode(frames.SEGMENT, {}, pa.table({"number": pa.array(numbers, pa.uint64())}))


def _decode(frame: bytes) -> Words:
    return frames.decode(frames.SEGMENT, frame)[1][0]["number"].to_numpy()


def _token(before: str, numbers: Words) -> str:
    return hashlib.blake2b(before.encode() + numbers.tobytes(), digest_size=12).hexdigest()
