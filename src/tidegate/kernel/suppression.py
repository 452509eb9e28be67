"""suppress(until_time_limit): updates wait in a buffer until time has moved on, or until the buffer is full.

Per update, in the order forwarded (SEMANTICS 6.2): stream time grows to the update's timestamp (the wall clock has
moved when the batch began); the key's entry is made or replaced; entries whose time has come leave, oldest first, ties
in the order of their serialized keys; then the bound is checked. Once a key has left, nothing about it is remembered.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.kernel import frames
from tidegate.kernel.batch import Batch
from tidegate.kernel.buffers import TIMES, byte_sizes, full
from tidegate.kernel.grouping import array, ints
from tidegate.kernel.layout import Layout
from tidegate.kernel.state import State
from tidegate.kernel.store import Store
from tidegate.spec.suppressed import UntilTimeLimit
from tidegate.spec.windows import SessionWindows

_BUFFER = "buffer"
_TIME, _SIZE = "__buffer_time", "__size"


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
    held, before = _load(layout, state.store)
    updates = layout.op.emits == "updates"
    if updates and layout.op.aggregations and sum(chunk.rows for chunk in batch.chunks) > 1:
        # Updates of many records come in timestamp order, however tasks and partitions made them. What one record
        # forwards, final results and changes of a table have an order already.
        rows = rows.sort_by([("__timestamp", "ascending")])
    known = held.select(rows.schema.names) if held.num_rows else held.select(rows.schema.names).slice(0, 0)
    both = pa.concat_tables([known, rows], promote_options="default")
    buffer = _Buffer(layout, state, how, both, before)
    for row in range(held.num_rows):
        buffer.restore(row, held[_TIME][row].as_py(), held[_SIZE][row].as_py())
    leaving: list[int] = []
    wall = how.clock == "wall"
    times = [state.wall_clock] * rows.num_rows if wall else ints(rows["__timestamp"]).tolist()
    for i, time in enumerate(times):
        leaving += buffer.take(held.num_rows + i, time)
    if wall:
        leaving += buffer.advance(state.wall_clock)
    elif updates:
        # Every record that moved stream time was forwarded, by this task or another. Final results are older than
        # that: their own timestamps are the time of what is behind them.
        leaving += buffer.advance(state.stream_time)
    if end_of_input:
        leaving += buffer.drain()
    _save(state.store, both, buffer)
    return both.take(pa.array(leaving, pa.int64())), buffer.due() if wall else None


def _load(layout: Layout, store: Store) -> tuple[pa.Table, int]:
    """The entries, and what the clock of the limit has shown so far."""
    frame = store.get(_BUFFER)
    if frame is None:
        schema = layout.result_schema
        return schema.append(pa.field(_TIME, pa.int64())).append(pa.field(_SIZE, pa.int64())).empty_table(), -1
    meta, (table,) = frames.decode(frames.SEGMENT, frame)
    return table, meta["stream_time"]


def _save(store: Store, rows: pa.Table, buffer: _Buffer) -> None:
    entries = list(buffer.entries.values())
    table = rows.take(pa.array([entry.row for entry in entries], pa.int64()))
    table = table.append_column(_TIME, pa.array([entry.time for entry in entries], pa.int64()))
    table = table.append_column(_SIZE, pa.array([entry.size for entry in entries], pa.int64()))
    store.put(_BUFFER, frames.encode(frames.SEGMENT, {"stream_time": buffer.now}, table))


class _Buffer:
    """The entries by serialized key, and a heap of (buffer time, key) in which stale items are passed over."""

    def __init__(self, layout: Layout, state: State, how: UntilTimeLimit, rows: pa.Table, now: int) -> None:
        self.how = how
        self.bound = how.buffer.share(state.task, state.tasks)
        self.layout = layout
        self.state = state
        self.keys = list(_serialized(layout, rows))
        self.starts = rows["__start"].to_pylist() if layout.op.windows is not None else []
        self.key_sizes = _widths(rows, layout.op.key) + (8 if layout.op.windows is not None else 0)
        self.value_sizes = _widths(rows, list(layout.result_types))
        self.entries: dict[bytes, _Entry] = {}
        self.heap: list[tuple[int, bytes]] = []
        self.size = 0
        self.now = now

    def restore(self, row: int, time: int, size: int) -> None:
        """Take back an entry as it was stored."""
        self._put(self.keys[row], _Entry(time, row, size))

    def take(self, row: int, now: int) -> Iterator[int]:
        """Take an update in that came at `now` by the clock of the limit; gives the rows that leave."""
        key = self.keys[row]
        old = self.entries.get(key)
        first = self.starts[row] if self.how.measured_from == "window_start" and self.starts else now
        keeps = old is not None and self.how.measured_from != "latest_update"
        grown = int(self.value_sizes[old.row]) if old is not None else 0
        size = TIMES + int(self.key_sizes[row]) + grown + int(self.value_sizes[row])
        self._put(key, _Entry(old.time if old is not None and keeps else first, row, size))
        yield from self.advance(now)
        yield from self._shrink()

    def advance(self, now: int) -> Iterator[int]:
        """The rows whose time limit is reached if the clock of the limit shows at least `now`, oldest first."""
        self.now = max(self.now, now)
        while (oldest := self._oldest()) is not None and oldest[0] <= self.now - self.how.limit_ms:
            yield self._pop(oldest[1])

    def drain(self) -> Iterator[int]:
        """All rows, oldest first."""
        while (oldest := self._oldest()) is not None:
            yield self._pop(oldest[1])

    def due(self) -> int | None:
        """When the next row is to leave by the clock of the limit, None if nothing waits."""
        oldest = self._oldest()
        return None if oldest is None else oldest[0] + self.how.limit_ms

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


def _widths(rows: pa.Table, names: Any) -> Any:
    total: Any = 0
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
