"""suppress(until_time_limit): updates wait in a buffer until time has moved on, or until the buffer is full.

Per update, in the order forwarded (SEMANTICS 6.2): stream time grows to the update's timestamp (the wall clock has
moved when the batch began); the key's entry is made or replaced; entries whose time has come leave, oldest first, ties
in the order of their serialized keys; then the bound is checked. Once a key has left, nothing about it is remembered.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import MAX_MS
from tidegate.kernel import frames, grouping, results
from tidegate.kernel.batch import Batch, unite
from tidegate.kernel.buffers import TIMES, byte_sizes, full, prior_bytes
from tidegate.kernel.grouping import array, ints
from tidegate.kernel.hashing import hash64
from tidegate.kernel.layout import Layout
from tidegate.kernel.panes import Ints
from tidegate.kernel.shelf_index import NOWHERE
from tidegate.kernel.shelves import SINCE, Shelves, newest, settle
from tidegate.kernel.state import State
from tidegate.kernel.store import Store
from tidegate.spec.suppressed import UntilTimeLimit
from tidegate.spec.windows import SessionWindows

_BUFFER = "buffer"
_SIZE = "__size"


@dataclass
class _Entry:
    """What waits for a key: its newest update is row `row` of the rows at hand."""

    time: int
    row: int
    size: int


def run(layout: Layout, state: State, batch: Batch, rows: pa.Table, end_of_input: bool) -> tuple[pa.Table, int | None]:
    """Take forwarded rows into the buffer; gives those that leave, and the wall clock at which the next ones are due.

    By the wall clock every row of a batch comes at the same time, that of the batch. At the end of the input
    everything leaves. Raises BufferFullError if the buffer shuts down when full and is.
    """
    how = layout.op.limit
    assert how is not None
    updates, wall = layout.op.emits == "updates", how.clock == "wall"
    if updates and layout.op.aggregations and sum(chunk.rows for chunk in batch.chunks) > 1:
        # Updates of many records come in timestamp order, however tasks and partitions made them. What one record
        # forwards, final results and changes of a table have an order already.
        rows = rows.sort_by([("__timestamp", "ascending")])
    times = np.full(rows.num_rows, state.wall_clock) if wall else ints(rows["__timestamp"])
    # Every record that moved stream time was forwarded, by this task or another. Final results are older than that:
    # their own timestamps are the time of what is behind them.
    end = state.wall_clock if wall else state.stream_time if updates else -1
    held, shelves, now = _load(layout, state.store)
    clocks = np.maximum.accumulate(np.concatenate([[now], times, [end]]))[1:]
    now = int(clocks[-1])
    if end_of_input:
        clocks[-1] = MAX_MS
    since = ints(rows["__start"]) if how.measured_from == "window_start" and layout.op.windows is not None else times
    rows = rows.append_column(SINCE, pa.array(since))
    if how.buffer.bounded:
        rows, entries = _in_memory(layout, state, unite([held, *_entries(layout, shelves)]), rows, clocks)
        shelves.forget(list(shelves.logs))
        due = min(ints(entries[SINCE]).tolist(), default=None)
    else:
        rows = _on_shelves(layout, shelves, held, rows, clocks)
        entries, due = held.slice(0, 0), shelves.earliest()
    meta = {"stream_time": now, **shelves.saved()}
    state.store.put(_BUFFER, frames.encode(frames.SEGMENT, meta, entries))
    state.due = None if due is None else (due + how.limit_ms, now)
    wakes = wall and due is not None and due <= MAX_MS - how.limit_ms
    return rows.select(layout.result_schema.names), due + how.limit_ms if wakes and due is not None else None


def first_due(layout: Layout, store: Store) -> tuple[int, int, int] | None:
    """How many keys are held back, when the first is to leave and what the clock shows; None if there is none."""
    how, (held, shelves, now) = layout.op.limit, _load(layout, store)
    assert how is not None
    entries = unite([held, *_entries(layout, shelves)])
    if not entries.num_rows:
        return None
    return len(np.unique(_codes(layout, entries))), int(ints(entries[SINCE]).min()) + how.limit_ms, now


def waiting(layout: Layout, store: Store) -> pa.Table:
    """What is held back: the rows that would leave, and since when by the clock of the limit (`shelves.SINCE`)."""
    held, shelves, _ = _load(layout, store)
    return unite([held.drop_columns([_SIZE]), *_newest(layout, shelves)])


def _load(layout: Layout, store: Store) -> tuple[pa.Table, Shelves, int]:
    """The entries of a buffer with a bound, the shelves of one without, and what the clock has shown so far."""
    frame = store.get(_BUFFER)
    if frame is None:
        schema = layout.result_schema
        empty = schema.append(pa.field(SINCE, pa.int64())).append(pa.field(_SIZE, pa.int64())).empty_table()
        return empty, Shelves(store), -1
    meta, (table,) = frames.decode(frames.SEGMENT, frame)
    return table, Shelves.load(store, meta), meta["stream_time"]


def _on_shelves(layout: Layout, shelves: Shelves, held: pa.Table, rows: pa.Table, clocks: Ints) -> pa.Table:
    """Take rows in where nothing has to leave before its time; gives those that leave, in order."""
    how = layout.op.limit
    assert how is not None
    restarts = how.measured_from == "latest_update"
    until = MAX_MS if clocks[-1] == MAX_MS else int(clocks[-1]) - how.limit_ms
    where = shelves.find(_hashes(layout, rows))
    # A row so old that it is due itself makes its shelf due: it may be what its key waits since from now on.
    old = where[(where != NOWHERE) & (ints(rows[SINCE]) <= until)]
    due = sorted({*shelves.due(until), *old.tolist()})
    # Rows of keys on shelves that are not due only follow those that wait there.
    follow = (where != NOWHERE) & ~np.isin(where, due)
    step = np.arange(rows.num_rows)
    many = shelves.append(where[follow], rows.filter(pa.array(follow))) if follow.any() else []
    for number in many:
        whole = unite(shelves.read([number]))
        at, since = newest(_codes(layout, whole), ints(whole[SINCE]), restarts)
        shelves.replace(number, _since(whole.take(pa.array(at)), since))
    waited = [held.drop_columns([_SIZE]), *shelves.read(due)]
    both = pa.concat_tables([*waited, rows.filter(pa.array(~follow))], promote_options="default")
    steps = np.concatenate([np.full(both.num_rows - int((~follow).sum()), -1), step[~follow]])
    gone, rest = settle(_codes(layout, both), steps, ints(both[SINCE]), clocks, how.limit_ms, restarts)
    shelves.forget(due)
    entries = _since(both.take(pa.array(rest[0])), rest[1])
    shelves.place(entries, _hashes(layout, entries), how.limit_ms, due)
    return both.take(pa.array(gone[0])).take(_in_order(layout, both.take(pa.array(gone[0])), gone[1], gone[2]))


def _entries(layout: Layout, shelves: Shelves) -> list[pa.Table]:
    """What is on all shelves as a buffer with a bound holds it."""
    out = []
    for rows in _newest(layout, shelves):
        keys, values = _key_sizes(layout, rows), _value_sizes(layout, rows)
        out.append(rows.append_column(_SIZE, pa.array(entry_bytes(keys, prior_bytes(layout), 0, values))))
    return out


def _newest(layout: Layout, shelves: Shelves) -> list[pa.Table]:
    """What is on all shelves, one row per key."""
    how = layout.op.limit
    assert how is not None
    tables = shelves.read(sorted(shelves.logs))
    if not tables:
        return []
    whole = unite(tables)
    at, since = newest(_codes(layout, whole), ints(whole[SINCE]), how.measured_from == "latest_update")
    return [_since(whole.take(pa.array(at)), since)]


def _since(rows: pa.Table, since: Ints) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(SINCE), SINCE, pa.array(since))


def _names(layout: Layout) -> list[str]:
    """The columns that are the key of a row, in the order of the serialized key (a session's end before its start)."""
    if layout.op.windows is None:
        return list(layout.op.key)
    return [*layout.op.key, *(["__end"] if isinstance(layout.op.windows, SessionWindows) else []), "__start"]


def _codes(layout: Layout, rows: pa.Table) -> Ints:
    return grouping.codes([rows[name] for name in _names(layout)])


def _hashes(layout: Layout, rows: pa.Table) -> Any:
    hashed = np.zeros(rows.num_rows, np.uint64)
    for name in _names(layout):
        hashed = hashed * np.uint64(31) + hash64(array(rows[name]))
    return hashed


def _in_order(layout: Layout, rows: pa.Table, step: Ints, since: Ints) -> pa.Array:
    """Indices that sort rows as they leave: by step, then by (buffer time, key)."""
    by: dict[str, Any] = {"s": step, "t": since} | {f"k:{n}": results.serial(rows[n]) for n in _names(layout)}
    return pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])


def _in_memory(layout: Layout, state: State, held: pa.Table, rows: pa.Table, clocks: Ints) -> tuple[pa.Table, pa.Table]:
    """Take rows into a buffer with a bound; gives those that leave, in order, and the entries that stay."""
    how = layout.op.limit
    assert how is not None
    both = pa.concat_tables([held, rows], promote_options="default")
    buffer = _Buffer(layout, state, how, both)
    for row in range(held.num_rows):
        buffer.restore(row, held[_SIZE][row].as_py())
    leaving: list[int] = []
    for row, now in enumerate(clocks[:-1].tolist(), held.num_rows):
        leaving += buffer.take(row, now)
    leaving += buffer.advance(int(clocks[-1]))
    entries = list(buffer.entries.values())
    stay = both.take(pa.array([entry.row for entry in entries], pa.int64())).drop_columns([_SIZE])
    stay = _since(stay, np.array([entry.time for entry in entries], np.int64))
    stay = stay.append_column(_SIZE, pa.array([entry.size for entry in entries], pa.int64()))
    return both.take(pa.array(leaving, pa.int64())), stay


class _Buffer:
    """The entries by serialized key, and a heap of (buffer time, key) in which stale items are passed over."""

    def __init__(self, layout: Layout, state: State, how: UntilTimeLimit, rows: pa.Table) -> None:
        self.how = how
        self.bound = how.buffer.share(state.task, state.tasks)
        self.layout = layout
        self.state = state
        self.keys = list(_serialized(layout, rows))
        self.since = ints(rows[SINCE]).tolist()
        self.key_sizes = _key_sizes(layout, rows)
        self.value_sizes = _value_sizes(layout, rows)
        self.prior = prior_bytes(layout)
        self.entries: dict[bytes, _Entry] = {}
        self.heap: list[tuple[int, bytes]] = []
        self.size = 0

    def restore(self, row: int, size: int) -> None:
        """Take back an entry as it was stored."""
        self._put(self.keys[row], _Entry(self.since[row], row, size))

    def take(self, row: int, now: int) -> Iterator[int]:
        """Take an update in that came when the clock of the limit had reached `now`; gives the rows that leave."""
        key = self.keys[row]
        old = self.entries.get(key)
        keeps = old is not None and self.how.measured_from != "latest_update"
        grown = int(self.value_sizes[old.row]) if old is not None else 0
        size = entry_bytes(int(self.key_sizes[row]), self.prior, grown, int(self.value_sizes[row]))
        self._put(key, _Entry(old.time if old is not None and keeps else self.since[row], row, size))
        yield from self.advance(now)
        yield from self._shrink()

    def advance(self, now: int) -> Iterator[int]:
        """The rows whose time limit is reached when the clock of the limit shows `now`, oldest first."""
        until = MAX_MS if now == MAX_MS else now - self.how.limit_ms
        while (oldest := self._oldest()) is not None and oldest[0] <= until:
            yield self._pop(oldest[1])

    def _shrink(self) -> Iterator[int]:
        while self._over():
            if self.bound.strategy == "shut_down":
                remedy = "a larger bound, a shorter limit or emit_early_when_full()"
                raise full(self.layout, self.state, len(self.entries), self.size, remedy)
            oldest = self._oldest()
            assert oldest is not None
            yield self._pop(oldest[1])

    def _over(self) -> bool:
        buffer = self.bound
        if not buffer.bounded:
            return False
        many = buffer.max_records is not None and len(self.entries) > buffer.max_records
        return many or (buffer.max_bytes is not None and self.size > buffer.max_bytes)

    def _put(self, key: bytes, entry: _Entry) -> None:
        old = self.entries.get(key)
        self.size += entry.size - (old.size if old is not None else 0)
        self.entries[key] = entry
        if old is None or old.time != entry.time:
            heapq.heappush(self.heap, (entry.time, key))

    def _oldest(self) -> tuple[int, bytes] | None:
        while self.heap:
            time, key = self.heap[0]
            entry = self.entries.get(key)
            if entry is not None and entry.time == time:
                return time, key
            heapq.heappop(self.heap)
        return None

    def _pop(self, key: bytes) -> int:
        entry = self.entries.pop(key)
        self.size -= entry.size
        return entry.row


def entry_bytes(key: Any, prior: Any, old: Any, new: Any) -> Any:
    """The bytes that an entry counts, of those of its parts (SEMANTICS 14.9).

    `prior` is what the aggregation gave before its first record: what a key had been given before it came to wait is
    not known here. `old` is 0 for a first update, where it equals prior.
    """
    return TIMES + key + prior + old + new


def _key_sizes(layout: Layout, rows: pa.Table) -> Ints:
    return _widths(rows, layout.op.key) + (8 if layout.op.windows is not None else 0)


def _value_sizes(layout: Layout, rows: pa.Table) -> Ints:
    return _widths(rows, layout.result_types)


def _widths(rows: pa.Table, names: Iterable[str]) -> Ints:
    total = np.zeros(rows.num_rows, np.int64)
    for name in names:
        total = total + byte_sizes(array(rows[name]))
    return total


def _serialized(layout: Layout, rows: pa.Table) -> Iterator[bytes]:
    """Keys as bytes that sort as Kafka's do: key columns, then the window's start; of a session its end and start."""
    columns = [[_bytes(value) for value in rows[name].to_pylist()] for name in layout.op.key]
    if layout.op.windows is not None:
        bounds = ["__end", "__start"] if isinstance(layout.op.windows, SessionWindows) else ["__start"]
        columns += [[struct.pack(">Q", value) for value in rows[name].to_pylist()] for name in bounds]
    # Between columns a zero byte: a shorter key comes before the ones that it begins.
    return (b"\0".join(parts) for parts in zip(*columns, strict=True))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return (value % 2**64).to_bytes(8, "big")
    if isinstance(value, float):
        return struct.pack(">d", value)
    return value if isinstance(value, bytes) else str(value).encode()
