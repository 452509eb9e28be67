"""A micro-batch in one task: the rows of all map tasks, with the stream time that each row sees in the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, Ints, concat_tables, ints, with_column
from tidegate.kernel.columns.sorting import by_columns
from tidegate.kernel.exchange import time_progress
from tidegate.kernel.exchange.blobs import Blob
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.record_times import arrival_times
from tidegate.kernel.rows.results import serial
from tidegate.kernel.time import window_graces
from tidegate.kernel.time.record_graces import RecordGraces, Rule
from tidegate.kernel.time.stream_time import NEVER, Chunk, Fold
from tidegate.spec.windows import TimeWindows

MOST_PARTITIONS = 64


class Batch:
    """The decoded blobs of one micro-batch for one task."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.chunks: list[Chunk] = []
        self.fold = Fold([], NEVER)
        self.task = 0
        self.has_records = False
        self.wall_clock = NEVER
        self.closed_through = NEVER
        """Windows had closed up to this stream time (ms) before the batch: later than the fold's if grace grew."""
        self.newest_before = NEVER
        """The largest timestamp of all records before the batch (ms), or stream time, if idle input moved it on."""
        self.dropped_late = 0
        """Records that the operator has dropped as late, as far as the caller has taken its rows."""
        self.late: list[tuple[int, int, int]] = []
        """Records that keyed windows dropped: (place in `records`, start, end of the closed window)."""
        self.made: MadeWindows | None = None
        """Sliding windows that were made of other windows, where a buffer counts their prior values."""
        self._dense: list[pa.Table] = []
        self._scattered: list[pa.Table] = []
        self._full_records: list[pa.Table] = []
        self._skipped: list[pa.Table] = []
        self._progress: list[pa.Table] = []
        self._growing: list[pa.Table] = []
        self._counted: list[pa.Table] = []
        rule = Rule.of(layout.op) if layout.op.reports_graces else None
        self.needed = None if rule is None else RecordGraces(rule)
        """The graces that its records needed, where the operator reports them (`kernel.time.record_graces`)."""

    def receive(self, blob: Blob) -> None:
        """Add the headers and the rows of a blob."""
        base = len(self.chunks)
        self.chunks += blob.chunks
        self.take(base, blob.sections)
        if blob.counted is not None:
            # A copy: columns that share the memory of the blob would keep all of it.
            own = pa.table({name: ints(blob.counted[name]).copy() for name in blob.counted.schema.names})
            self._counted.append(_shifted(own, base))

    def take(self, base: int, tables: Sequence[pa.Table]) -> None:
        """Add the sections of a blob, whose chunks are numbered from `base` on.

        Sections: rows of dense chunks, of scattered chunks; whole records and skipped ones, if kept; time progress, for
        a time limit and for a join.
        """
        op = self.layout.op
        sections = [self._dense, self._scattered]
        sections += [self._full_records, self._skipped] if op.keeps_late else []
        sections += [self._progress] if op.buffers_by_stream_time else []
        sections += [self._growing] if op.sends_time_progress else []
        for section, rows in zip(sections, tables, strict=True):
            if rows.num_rows:
                section.append(_shifted(rows, base))

    def take_records(self, base: int, rows: pa.Table) -> None:
        """Add rows of dense chunks alone, which are numbered from `base` on."""
        self._dense += [_shifted(rows, base)] if rows.num_rows else []

    def release(self) -> list[pa.Table]:
        """The rows of dense chunks; the batch releases them, unless the plan keeps records."""
        dense = self._dense
        if not self.layout.op.keeps_late:
            self._dense = []
        return dense

    def note_records(self, meta: dict[str, Any]) -> None:
        """Note whether a blob with this metadata has any record."""
        self.has_records = self.has_records or meta["has_records"]

    @property
    def single(self) -> bool:
        """Whether the micro-batch, over all tasks, is one record: caching never combines updates of one record."""
        return sum(chunk.rows for chunk in self.chunks) == 1

    def partials(self) -> tuple[pa.Table | None, int]:
        """Combined rows (key, pane, open, n, ts, state), without rows late by other chunks; and the number dropped.

        Call this once: the batch releases the rows, so that memory holds them no longer than the caller does.
        """
        dense, scattered = self._dense, self._scattered
        self._dense, self._scattered = [], []
        kept: list[pa.Table] = []
        late = 0
        if self.layout.op.windows is None:
            return (concat_tables(dense).drop_columns(["chunk"]) if dense else None), 0
        for rows, before in ((rows, self._before_chunks(rows)) for rows in dense):
            rows, dropped = self._drop(rows, before)
            kept, late = [*kept, rows.drop_columns(["chunk"])], late + dropped
        for rows, before in ((rows, self._before_rows(rows)) for rows in scattered):
            rows, dropped = self._drop(rows, before)
            kept, late = [*kept, rows.drop_columns(["chunk", "offset"])], late + dropped
        some = [rows for rows in kept if rows.num_rows]
        return (concat_tables(some) if some else None), late

    def records(self) -> pa.Table | None:
        """The records (key, values, ts, closing_time), in the order (arrival time, partition, offset).

        `closing_time`: stream time (ms) that decides which windows are closed for a record. `arrival_time`: stream time
        (ms) when it arrived; present only after the grace was lengthened.

        Without partition and offset a batch is taken in timestamp order, ties in the order of keys and values.
        Call this once, as `partials`; only if the plan keeps records does the batch hold them, for `full_records`.
        """
        return self._in_order(self.release())

    def arrived(self) -> pa.Table | None:
        """`records` as they came, with `chunk` and `offset`; `order` sorts them."""
        dense = self.release()
        if self.layout.op.stream.ordered:
            # The rows of a map task are in order. Now the tables are too, unless their offsets overlap.
            dense = sorted(dense, key=self._first_place)
        return self._closing(concat_tables(dense)) if dense else None

    def _first_place(self, rows: pa.Table) -> tuple[int, int]:
        partition, offset = self._places(rows.slice(0, 1))
        return int(partition[0]), int(offset[0])

    def order(self, rows: pa.Table) -> Ints:
        """The places that put rows of `arrived` in the order of `records`."""
        if not self._has_positions:
            return self._by_content(rows)
        arrival_time = ints(arrival_times(rows))
        partition, offset = self._places(rows)
        ahead, behind = slice(1, None), slice(-1)
        same = (partition[ahead] == partition[behind]) & (offset[ahead] >= offset[behind])
        if (same | (partition[ahead] > partition[behind])).all():
            return np.argsort(arrival_time, kind="stable")  # merges runs that are in order
        return np.lexsort((offset, partition, arrival_time))

    def full_records(self) -> pa.Table | None:
        """The records that were read, with all their columns, where the plan keeps them."""
        return self._in_order(self._full_records) if self.layout.op.pre_aggregates else self.records()

    def skipped(self) -> pa.Table | None:
        """The records that were skipped, with all their columns and the `reason`, where the plan keeps them."""
        return self._in_order(self._skipped)

    def progress(self) -> time_progress.TimeProgress:
        """The progress of stream time within the batch, for a time limit."""
        if not self._progress:
            return time_progress.TimeProgress(np.zeros(0, np.int64), np.zeros(0, np.uint64))
        rows = concat_tables(self._progress)
        return time_progress.of_batch(self.layout, rows, self._arrival_time(rows), self._partitions(rows))

    def movers(self) -> Movers:
        """The records of all map tasks that may move stream time, for a time limit behind a join."""
        if not self._progress:
            nothing = np.zeros(0, np.int64)
            return Movers(nothing, np.zeros((0, 2), np.int64), np.zeros(0, np.uint64))
        rows = concat_tables(self._progress)
        # A record that sees a later time than its own moves nothing.
        rows = rows.filter(pa.array(ints(rows["time"]) == self._arrival_time(rows)))
        return Movers(ints(rows["time"]), self.positions(rows), rows["key"].to_numpy())

    def partition_times(self) -> list[list[int | str]]:
        """[partition, largest timestamp (ms)] of partitions with records in the batch: the MOST_PARTITIONS that lag
        most, for people who look for the slowest one.
        """
        times: dict[int | str, int] = {}
        for chunk in self.chunks:
            if chunk.partition is not None and chunk.rows:
                times[chunk.partition] = max(times.get(chunk.partition, NEVER), chunk.max_ts)
        return [[name, time] for name, time in sorted(times.items(), key=lambda one: one[1])[:MOST_PARTITIONS]]

    @property
    def reports_graces(self) -> bool:
        """Whether this task reports the graces that records needed: for time windows one task, for other windows every
        task with records.
        """
        return bool(self._counted) or (self.needed is not None and self.needed.records > 0)

    def graces(self) -> list[int]:
        """The histogram of the graces that the records of the batch needed (`kernel.time.window_graces.encoded`)."""
        if self.needed is not None:
            return self.needed.histogram(self.late)
        windows = self.layout.op.windows
        assert isinstance(windows, TimeWindows)
        rows = concat_tables(self._counted)
        return window_graces.histogram(windows, ints(rows["pane"]), self._arrival_time(rows), ints(rows["n"]))

    def running_max_points(self) -> Points:
        """The records of all map tasks at which the time of this input grows, for joins that need them."""
        if not self._growing:
            nothing = np.zeros(0, np.int64)
            return Points(nothing, nothing, np.zeros((0, 2), np.int64), nothing)
        rows = concat_tables(self._growing)
        times = ints(rows["time"])
        positions = self.positions(rows) if self._has_positions else _by_time(times)
        return Points(times, self._arrival_time(rows), positions, ints(rows["chunk"]))

    def positions_beside_points(self, rows: pa.Table) -> Ints:
        """(partition, offset) of each row of `arrived`, to compare with those of `running_max_points`.

        Without them, the timestamp stands for the offset: rows are then in the order of their timestamps. Changes of a
        table that another operator forwards are in the order in which they left, so it is the largest one so far.
        """
        if self._has_positions:
            return self.positions(rows)
        return _by_time(ints(rows["o:rank" if "o:rank" in rows.schema.names else "ts"]))

    def positions(self, rows: pa.Table) -> Ints:
        """(partition, offset) of each row, with partitions numbered among all; zeros where the source has none.

        With several inputs, the offset of a row of another operator is its place among such rows. Beside such rows, the
        offset of a record without partition and offset is its place among such records.
        """
        if not self._has_positions:
            return np.zeros((rows.num_rows, 2), np.int64)
        return np.stack(self._places(rows), axis=1)

    @property
    def _has_positions(self) -> bool:
        """Whether rows have a partition and an offset."""
        stream = self.layout.op.stream
        return not stream.forwarded and (stream.ordered or self._has_forwarded)

    def _places(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Partition and offset of each row, as `positions` has them."""
        offset = ints(rows["offset"])
        if self._has_forwarded and "ts" in rows.schema.names:
            forwarded = self.fold.forwarded[ints(rows["chunk"])]
            at, offset = np.flatnonzero(forwarded), offset.copy()
            offset[at[self._as_forwarded(rows.take(pa.array(at)))]] = np.arange(len(at))
            if not self.layout.op.stream.ordered:
                mine = np.flatnonzero(~forwarded)
                offset[mine[self._by_content(rows.take(pa.array(mine)))]] = np.arange(len(mine))
        return self._partitions(rows), offset

    @property
    def _has_forwarded(self) -> bool:
        """Whether some of the records, in one of several inputs, are rows of another operator."""
        return bool(self.fold.forwarded.any())

    def _in_order(self, tables: list[pa.Table]) -> pa.Table | None:
        if not tables:
            return None
        rows = self._closing(concat_tables(tables))
        return rows.take(pa.array(self.order(rows))).drop_columns(["chunk", "offset"])

    def _closing(self, rows: pa.Table) -> pa.Table:
        """Rows with `closing_time` in the place of `chunk_time`, and with `arrival_time` where fewer windows are closed
        than had closed before.
        """
        arrival_time = closing_time = self._arrival_time(rows)
        if self.closed_through > self.fold.before_batch:
            closing_time = np.maximum(arrival_time, self.closed_through)
            rows = rows.append_column("arrival_time", pa.array(arrival_time))
        at = rows.schema.get_field_index("chunk_time")
        return rows.set_column(at, "closing_time", pa.array(closing_time))

    def _arrival_time(self, rows: pa.Table) -> Ints:
        """The stream time (ms) when each row arrived, from that of its chunk (`chunk_time`)."""
        time: Ints = np.maximum(ints(rows["chunk_time"]), self._before_rows(rows))
        if (ceilings := self.fold.ceilings) is not None:
            time = np.maximum(np.minimum(time, ceilings[ints(rows["chunk"])]), self.fold.before_batch)
        return time

    def _partitions(self, rows: pa.Table) -> Ints:
        """The number of each row's partition among all."""
        return self.fold.partition_numbers[ints(rows["chunk"])]

    def _by_content(self, rows: pa.Table) -> Ints:
        if self.layout.op.stream.forwarded:
            return self._as_forwarded(rows)
        ties = [name for name in [*self.layout.keys, *self.layout.values] if _sortable(rows.schema.field(name).type)]
        first = ["rank", "offset", "ts"] if self.layout.op.stream.changes else ["ts"]
        return by_columns(rows.select([*first, *ties])).to_numpy()

    def _as_forwarded(self, rows: pa.Table) -> Ints:
        """The places that sort rows of another operator."""
        by = {name: serial(rows[name]) for name in rows.schema.names if name.startswith("o:")}
        # Rows of a table stay in the order in which they left; records of a stream are sorted by their timestamps.
        by = {"o:rank": by.pop("o:rank"), **by} if "o:rank" in by else {"ts": rows["ts"], **by}
        return by_columns(pa.table(by | {"offset": rows["offset"]})).to_numpy()

    def _before_chunks(self, rows: pa.Table) -> Ints:
        return self.fold.before_each[ints(rows["chunk"])]

    def _before_rows(self, rows: pa.Table) -> Ints:
        # No other task reads inside a dense chunk, so the stream time before its first record is enough.
        before, number = self._before_chunks(rows), ints(rows["chunk"])
        loose = np.flatnonzero(self.fold.scattered[number])
        if not len(loose):
            return before
        offset, chunk = ints(rows["offset"]), number[loose]
        order = np.argsort(chunk, kind="stable")
        for mine in np.split(loose[order], np.flatnonzero(np.diff(chunk[order])) + 1):
            before[mine] = self.fold.before_offsets(self.chunks[number[mine[0]]].partition, offset[mine])
        return before

    def _drop(self, rows: pa.Table, before: Ints) -> tuple[pa.Table, int]:
        panes = self.layout.panes
        pane, first_open = ints(rows["pane"]), ints(rows["open"])
        ceilings = self.fold.ceilings
        if ceilings is None and panes.first_open(max(int(before.max()), self.closed_through)) <= first_open.min():
            return rows, 0  # as for most rows
        opens = panes.first_open(before)
        if ceilings is not None:
            # Only here it is known how far other partitions, or the previous operator, hold stream time back.
            held_back = np.minimum(np.maximum(first_open, opens), panes.first_open(ceilings)[ints(rows["chunk"])])
            opens = np.maximum(held_back, panes.first_open(self.fold.before_batch))
            if self.layout.op.stream.clock.slowest:
                first_open = panes.first_window(pane)
                rows = with_column(rows, "open", pa.array(first_open))
        opens = np.maximum(opens, panes.first_open(self.closed_through))
        if not np.any(opens > first_open):
            return rows, 0
        last = panes.last_window(pane)
        late = panes.closed(first_open, last, opens) * ints(rows["n"])
        moved = np.maximum(first_open, opens)
        rows = with_column(rows, "open", pa.array(moved))
        return rows.filter(pa.array(moved <= last)), int(late.sum())


def _by_time(times: Ints) -> Ints:
    return np.stack([np.zeros(len(times), np.int64), times], axis=1)


class Points(NamedTuple):
    """Records at which the time of an input grows: timestamps, arrival times (ms), (partition, offset), and chunks."""

    times: Ints
    arrival_times: Ints
    order: Ints
    chunks: Ints


class MadeWindows(NamedTuple):
    """Sliding windows that the updates of a batch made of other windows (`kernel.suppress.prior_values`).

    began  their prior values (`kernel.windows.lineage.prior_values_of_made`)
    again  the updates that make such a window again (`kernel.windows.lineage.made_again`)
    """

    began: pa.Table
    again: pa.Table


class Movers(NamedTuple):
    """Records that may move stream time: timestamps (ms), (partition, offset), and the hashes of their keys."""

    times: Ints
    order: Ints
    keys: Hashes


def _shifted(rows: pa.Table, base: int) -> pa.Table:
    """Rows whose chunk numbers are shifted by `base`."""
    return with_column(rows, "chunk", pa.array(ints(rows["chunk"]) + base))


def _sortable(kind: pa.DataType) -> bool:
    """Whether Arrow sorts values of this type."""
    types = pa.types
    unsorted = (types.is_nested, types.is_null, types.is_float16, types.is_interval)
    return not any(is_one(kind) for is_one in unsorted)
