"""The map step: work that needs no state is done before the shuffle, and its result is packed into a blob per task.

    input rows -> skip (null key, bad timestamp) -> chunks -> panes -> drop rows late inside their own chunk
               -> aggregate per key, pane and chunk (or keep record by record, in order) -> route by key -> blobs

Every blob carries the headers of all chunks, so that a task without records still learns the stream time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.instants import MAX_MS
from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Flags, Hashes, Ints, decoded, ints, pieces
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.exchange import blobs, chunk_headers, hash_ranges, partial_aggregates, slices, time_progress
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.compact import compacted
from tidegate.kernel.time import window_graces
from tidegate.kernel.time.stream_time import NEVER, Chunk


def pack(
    layout: Layout, batches: Iterable[pa.RecordBatch], tasks: Sequence[int], contiguous: bool = False
) -> Iterator[tuple[int, bytes]]:
    """(task, blob) pairs for everything in `batches`, the input of one map task.

    `contiguous`: the source promises that no other map task reads an offset between two of these, in any partition, and
    that the batches come in the order of their offsets. Missing offsets then cost nothing. Without the promise the
    result is exact as well, whatever the other map tasks have read.

    Raises InputError for a row without partition or offset where the stream has both.
    """
    for table in slices.tables_of(layout, batches):
        shared, routes = _routes(layout, table, len(tasks), contiguous)
        del table  # The blobs take as much memory again.
        steps = chunk_headers.steps(shared.chunks)
        for number, task in enumerate(tasks):
            # Counts go to the first task only; otherwise every task would report them.
            first = number == 0
            if number < 2:  # all tasks but the first get the same
                headers = chunk_headers.described(shared.chunks, counts=first)
                points = chunk_headers.points(shared.chunks, counts=first)
            meta: dict[str, Any] = {
                "plan": layout.digest,
                "tasks": len(tasks),
                "chunks": headers,
                "drops": shared.drops if first else {},
                "first": first,
                "task": number,
                "has_records": shared.has_records,
            }
            if layout.op.side is not None:
                meta["side"] = layout.op.side
            if shared.wall_clock is not None:
                meta["wall_clock"] = shared.wall_clock
            more = {"counted": shared.counted if first else None, "steps": steps if first else None, "points": points}
            yield task, blobs.encode(meta, [route[number] for route in routes], more)


@dataclass(frozen=True)
class _BlobMeta:
    """Metadata of all blobs of a slice."""

    chunks: list[Chunk]
    drops: dict[str, int]
    has_records: bool
    wall_clock: int | None
    counted: pa.Table | None


def _routes(layout: Layout, table: pa.Table, tasks: int, contiguous: bool) -> tuple[_BlobMeta, list[list[Any]]]:
    """The metadata of the blobs, and for each of their sections the rows of each task (tables, or `frames.Pieces`)."""
    read = slices.read(layout, table, contiguous)
    dense, scattered = _sections(layout, read, tasks)
    routes: list[list[Any]] = [
        dense,
        [compacted(rows) if rows.num_rows else rows for rows in _route(layout, scattered, tasks)],
    ]
    del dense, scattered
    routes += _kept(layout, read, tasks) if layout.op.keeps_late else []
    if layout.op.buffers_by_stream_time:
        routes += [
            [time_progress.first_records(layout, read.rows, read.ts, read.chunk_time, read.chunk, read.offset)] * tasks
        ]
    if layout.op.sends_time_progress:
        routes += [[time_progress.growing(read.ts, read.chunk_time, read.chunk, read.offset)] * tasks]
    wall_clock = table["wall_clock"][0].as_py() if layout.op.needs_wall_clock else None
    return _BlobMeta(read.chunks, read.drops, read.has_records, wall_clock, _counted(layout, read)), routes


def _counted(layout: Layout, read: slices.Slice) -> pa.Table | None:
    """Counts for the histogram of graces (`kernel.time.window_graces`); None where windows are no time windows."""
    if not layout.op.counts_panes or read.counted is not None:
        return read.counted
    # Scattered chunks have thousands of ascending times: few bytes as differences.
    table = window_graces.counted(layout.panes, layout.panes.pane(read.ts), read.chunk_time, read.chunk, read.offset)
    return compacted(table) if table.num_rows else table


def _sections(layout: Layout, read: slices.Slice, tasks: int) -> tuple[list[Any], pa.Table]:
    """The rows of dense chunks, combined if possible, by task; and the rows of scattered chunks, record by record."""
    if not layout.op.pre_aggregates:
        records = slices.records_of(layout, read)
        divided = hash_ranges.divides(layout, records.num_rows, tasks)
        none = slices.records_of(layout, slices.masked(read, np.zeros(len(read.ts), bool)))
        return (_by_range if divided else _route)(layout, records, tasks), none
    if layout.op.windows is None:
        # Nothing can be late, so it does not matter which chunk a record was in.
        rows, sizes = _combined(layout, grouping.lift(layout, read.rows), layout.keys, tasks)
        rows = rows.append_column("chunk", pa.array(np.zeros(rows.num_rows, np.int64))).drop_columns(["n"])
        return pieces(rows, sizes), rows.slice(0, 0)
    panes = layout.panes
    pane = panes.pane(read.ts)
    # A pane of tumbling windows is its only window.
    first, last = (panes.first_window(pane), panes.last_window(pane)) if panes.shared else (pane, pane)
    first_open, is_open = _first_open(layout, read, first, last)
    columns: dict[str, Any] = {name: read.rows[name] for name in layout.keys}
    columns |= {"pane": pane, "open": first_open, "chunk": read.chunk, "ts": read.ts}
    columns |= {name: read.rows[name] for name in layout.values}
    rows = grouping.lift(layout, pa.table(columns)).drop_columns(layout.values)
    loose = np.array([chunk.scattered for chunk in read.chunks], bool)
    alone = is_open & loose[read.chunk] if loose.any() else np.zeros(len(pane), bool)
    by = [*layout.keys, "pane", *(["open"] if panes.shared or layout.op.stream.clock.slowest else []), "chunk"]
    dense = is_open & ~alone
    combined, sizes = _combined(layout, rows if dense.all() else rows.filter(pa.array(dense)), by, tasks)
    if layout.op.counts_panes and not loose.any():
        # Combined rows are counted: they are fewer than records.
        open_rows = ints(combined["chunk"]), ints(combined["pane"]), ints(combined["n"])
        order = (read.chunk_time, read.chunk, read.offset)
        read.counted = window_graces.counted_combined(panes, pane, *order, open_rows, is_open)
    if "open" not in by:
        combined = combined.append_column("open", combined["pane"])
    scattered = decoded(rows.filter(pa.array(alone)))
    offsets = read.offset[alone] if read.offset is not None else np.zeros(scattered.num_rows, np.int64)
    scattered = scattered.append_column("offset", pa.array(offsets))
    return pieces(combined, sizes), scattered.append_column("n", pa.array(np.ones(len(offsets), np.int64)))


def _first_open(layout: Layout, read: slices.Slice, first: Ints, last: Ints) -> tuple[Ints, Flags]:
    """The first window open to each record at the stream time of its chunk, and whether any of its windows is open.

    first, last  the windows of each record (ms). Records without an open window are counted as dropped.
    """
    panes, every = layout.panes, np.ones(len(first), np.bool_)
    if panes.first_open(int(read.chunk_time.max(initial=NEVER))) <= first.min(initial=MAX_MS):
        return first, every  # in most batches none of these windows has closed
    first_open = np.maximum(panes.first_open(read.chunk_time), first)
    if layout.op.stream.clock.slowest:
        # The time of this partition is not yet the time that its records see: the stage judges (kernel.exchange.batch).
        return np.minimum(first_open, last + panes.windows.advance_ms), every
    missed = np.flatnonzero(first_open > first)
    read.drops["late"] = int(panes.closed(first[missed], last[missed], first_open[missed]).sum())
    return first_open, first_open <= last


def _combined(layout: Layout, rows: pa.Table, by: list[str], tasks: int) -> tuple[pa.Table, Ints]:
    """Rows with their number of records `n`, task by task, and pane by pane; and the number of rows of a task.

    There is one row for each distinct `by`. Where that would be nearly as many rows, each record stays a row.
    """
    keys = rows.select([name for name in by if name in (*layout.keys, "pane")])
    if (hashes := partial_aggregates.abandoned(layout, rows, by)) is not None:
        return _each_record(layout, rows, by, *_by_task(layout, keys, tasks, hashes))
    groups = Groups.of(grouping.codes([rows[name] for name in by]))
    # Groups are put in order before their rows are made: to sort the rows themselves would copy them.
    order, sizes = _by_task(layout, decoded(keys.take(pa.array(groups.first))), tasks)
    groups = groups if order is None else groups.ordered(order)
    try:
        merged = grouping.merge(layout, rows, by, groups)
    except AggregationError:
        # The task decides: it may drop some of these records as late, and with other records the sum may fit.
        return _each_record(layout, rows, by, *_by_task(layout, keys, tasks))
    return merged.append_column("n", pa.array(groups.sizes)), sizes


def _each_record(
    layout: Layout, rows: pa.Table, by: list[str], order: Ints | None, sizes: Ints
) -> tuple[pa.Table, Ints]:
    """`_combined`, where each record stays a row."""
    rows = decoded(rows.select([*by, "ts", *layout.state]))
    rows = rows if order is None else rows.take(pa.array(order))
    return rows.append_column("n", pa.array(np.ones(rows.num_rows, np.int64))), sizes


def _by_task(layout: Layout, rows: pa.Table, tasks: int, hashes: Hashes | None = None) -> tuple[Ints | None, Ints]:
    """The order in which the rows of a task lie together, pane by pane; and the number of rows of each task.

    The order is None if the rows lie so already.

    rows    the key columns, and `pane` if there are panes
    hashes  the hashes of the keys, if they are known
    """
    number = task = grouping.task_of(grouping.key_hash(layout, rows) if hashes is None else hashes, tasks)
    if "pane" in rows.schema.names:
        pane = grouping.codes([rows["pane"]])
        number = task * (int(pane.max(initial=0)) + 1) + pane
    return (radix_sort.argsort(number) if number.any() else None), np.bincount(task, minlength=tasks)


def _kept(layout: Layout, read: slices.Slice, tasks: int) -> list[list[pa.Table]]:
    """Whole records, if the others are combined, and skipped records, which the first task alone gets."""
    whole = read if layout.op.pre_aggregates else slices.masked(read, np.zeros(len(read.ts), bool))
    assert read.skipped is not None
    nobody = read.skipped.slice(0, 0)
    return [_route(layout, slices.records_of(layout, whole), tasks), [read.skipped, *[nobody] * (tasks - 1)]]


def _route(layout: Layout, rows: pa.Table, tasks: int) -> list[Any]:
    """The rows of each task."""
    if tasks == 1 or rows.num_rows == 0:
        return [rows] * tasks
    return radix_sort.split(rows, grouping.task_of(grouping.key_hash(layout, rows), tasks), tasks)


def _by_range(layout: Layout, rows: pa.Table, tasks: int) -> list[Any]:
    """The rows of each task, in ranges of hashes (`hash_ranges`)."""
    hashes, ranges = grouping.key_hash(layout, rows), hash_ranges.RANGES
    number = grouping.task_of(hashes, tasks) * ranges + hash_ranges.number(hashes)
    rows = rows.take(pa.array(radix_sort.argsort(number)))
    sizes = np.bincount(number, minlength=tasks * ranges).reshape(tasks, ranges)
    mine = zip(pieces(rows, sizes.sum(axis=1)), sizes.tolist(), strict=True)
    return [frames.Pieces(rows, of_ranges) for rows, of_ranges in mine]
