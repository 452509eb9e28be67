"""The map step: work that needs no state is done before the shuffle, and its result is packed into a blob per task.

    input rows -> skip (null key, bad timestamp) -> chunks -> panes -> drop rows late inside their own chunk
               -> aggregate per key, pane and chunk (or keep record by record, in order) -> route by key -> blobs

Every blob carries the headers of all chunks, so that a task without records still learns the stream time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import AggregationError, InputError
from tidegate.instants import MAX_MS
from tidegate.kernel.columns import radix_sort
from tidegate.kernel.columns.arrays import Flags, Hashes, Ints, array, as_schema, decoded, ints, pieces
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.exchange import blobs, chunk_headers, hash_ranges, partial_aggregates, time_progress
from tidegate.kernel.rows import grouping, row_ids
from tidegate.kernel.rows.layout import ID_COLUMN, Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.compact import compacted
from tidegate.kernel.time import window_graces
from tidegate.kernel.time.stream_time import NEVER, Chunk, Cut, cut, header, most_steps, running_max
from tidegate.plan import Stream


@dataclass
class _Slice:
    """Rows of one map task, read in order, on their way into blobs."""

    rows: pa.Table
    ts: Ints
    chunk_time: Ints
    chunk: Ints
    offset: Ints | None
    chunks: list[Chunk]
    drops: dict[str, int] = field(default_factory=dict)
    skipped: pa.Table | None = None
    has_records: bool = True
    """Whether any record passed the filters before the aggregation."""
    counted: pa.Table | None = None
    """Counts for the histogram of graces, once they are known (`kernel.time.window_graces`)."""


def pack(
    layout: Layout, batches: Iterable[pa.RecordBatch], tasks: Sequence[int], contiguous: bool = False
) -> Iterator[tuple[int, bytes]]:
    """(task, blob) pairs for everything in `batches`, the input of one map task.

    `contiguous`: the source promises that no other map task reads an offset between two of these, in any partition, and
    that the batches come in the order of their offsets. Missing offsets then cost nothing. Without the promise the
    result is exact as well, whatever the other map tasks have read.

    Raises InputError for a row without partition or offset where the stream has both.
    """
    for table in _slices(layout, batches):
        shared, routes = _routes(layout, table, len(tasks), contiguous)
        del table  # The blobs take as much memory again.
        points, steps = None, chunk_headers.steps(shared.chunks)
        for number, task in enumerate(tasks):
            # Counts go to the first task only; otherwise every task would report them.
            first = number == 0
            if number < 2:
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
    read = _read(layout, table, contiguous)
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


def _counted(layout: Layout, read: _Slice) -> pa.Table | None:
    """Counts for the histogram of graces (`kernel.time.window_graces`); None where windows are no time windows."""
    if not layout.op.counts_panes or read.counted is not None:
        return read.counted
    # Scattered chunks have thousands of ascending times: few bytes as differences.
    table = window_graces.counted(layout.panes, layout.panes.pane(read.ts), read.chunk_time, read.chunk, read.offset)
    return compacted(table) if table.num_rows else table


def _slices(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows, most = 0, layout.tuning.slice_rows
    if layout.op.joins_streams:
        # No records are combined, so a larger slice would not make fewer rows.
        most = layout.tuning.joined_rows
    for batch in batches:
        if not batch.num_rows:
            continue
        if rows >= most and (end := _end(waiting[-1], batch)):
            last = waiting[-1]
            rest = [last.slice(end)] if end < last.num_rows else []
            waiting[-1] = last.slice(0, end)
            del last
            yield _table(layout, waiting)
            waiting, rows = rest, sum(one.num_rows for one in rest)
        waiting.append(batch)
        rows += batch.num_rows
    if rows:
        yield _table(layout, waiting)


def _end(last: pa.RecordBatch, following: pa.RecordBatch) -> int:
    """The number of rows of `last` in front of those with the offset at which the following batch begins.

    Several rows may have one offset, as behind an explode. In two slices the later ones would not see the earlier ones.
    """
    names = ("partition", "offset")
    if any(name not in last.schema.names for name in names):
        return int(last.num_rows)
    same = [pc.fill_null(pc.equal(last[name], following[name][0]), False).to_numpy(False) for name in names]
    others = np.flatnonzero(~np.logical_and(*same))
    return int(others[-1]) + 1 if len(others) else 0


def takes_dictionaries(layout: Layout) -> bool:
    """Whether keys may come dictionary-encoded: records are read only to combine those with equal keys."""
    return layout.op.pre_aggregates and not layout.op.keeps_late and not layout.op.buffers_by_stream_time


def with_schema(rows: pa.Table, layout: Layout) -> pa.Table:
    """`rows` with the schema of the layout, but for keys that stay dictionary-encoded."""
    keys = layout.keys if takes_dictionaries(layout) else ()
    fields = [
        given if field.name in keys and pa.types.is_dictionary(given.type) else field
        for field, given in ((field, rows.schema.field(field.name)) for field in layout.schema)
    ]
    return as_schema(rows, pa.schema(fields))


def _table(layout: Layout, batches: list[pa.RecordBatch]) -> pa.Table:
    if any(batch.schema != batches[0].schema for batch in batches):
        # Of some files the keys are dictionary-encoded, of others not.
        batches[:] = [decoded(batch) for batch in batches]
    table = pa.Table.from_batches(batches)
    batches.clear()  # The table alone holds them, and is released sooner.
    # A timestamp carries the time zone of the session that reads it; state must not.
    same = table.schema.equals(layout.schema)
    if not same:
        for field in layout.schema:
            if field.name[:2] in ("v:", "r:") and field.name not in table.schema.names:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        table = with_schema(table.select(layout.schema.names), layout)
    for name in layout.keys:
        if pa.types.is_floating(table.schema.field(name).type):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), grouping.canonical(table[name]))
    return table


def _read(layout: Layout, table: pa.Table, contiguous: bool) -> _Slice:
    ordered = layout.op.stream.ordered
    partition, offset, names = _order_columns(layout, table) if ordered else (None, None, [])
    cuts = Cut(None, np.zeros(1, np.int64), [False])  # without an order all rows are one dense chunk
    if partition is not None and offset is not None:
        cuts = cut(partition, offset, layout.tuning.offset_runs, contiguous)
        if cuts.order is not None:
            table = table.take(pa.array(cuts.order))
            partition, offset = partition[cuts.order], offset[cuts.order]
    ts = ints(pc.fill_null(table["ts"], -1))
    kept, valid, skipped = _judged(layout, table, ts)
    taken = valid if valid.all() else kept & ~np.logical_or.reduce(list(skipped.values()))
    drops = {reason: int(np.count_nonzero(records)) for reason, records in skipped.items()}
    counted = ts if valid.all() else np.where(valid, ts, NEVER)
    chunk_time = running_max(counted, cuts.starts) if ordered else counted
    ends = np.append(cuts.starts[1:], len(ts))
    chunks, most = [], most_steps(len(cuts.starts))
    for low, high, scattered in zip(cuts.starts, ends, cuts.scattered, strict=True):
        part = slice(low, high)
        name = names[partition[low]] if partition is not None else rows_of(layout.op.stream)
        offsets = offset[part] if offset is not None else None
        closing = _closing(layout, chunk_time[part]) if scattered else None
        chunks.append(header(name, offsets, ts[part], chunk_time[part], valid[part], scattered, closing, most))
        chunks[-1].contiguous = contiguous and ordered
        chunks[-1].forwarded = layout.op.stream.forwarded
        if layout.op.stream.forwarded and "kept" in table.schema.names:
            chunks[-1].reported = int(ts[~kept].max(initial=NEVER))
            chunks[-1].silent = not kept.any() and bool(pc.all(table["empty"]).as_py())
    chunk = np.repeat(np.arange(len(chunks)), ends - cuts.starts)
    result = _Slice(table, ts, chunk_time, chunk, offset, chunks, drops)
    accepted = result if valid.all() else _keep(result, taken)
    accepted.has_records = bool(kept.any())
    if layout.op.keeps_late:
        reason = np.select(list(skipped.values()), list(skipped), "")
        skipped_rows = _records(layout, result).append_column("reason", pa.array(reason, pa.string()))
        accepted.skipped = skipped_rows.filter(pa.array(kept & ~taken))
    return accepted


def _judged(layout: Layout, table: pa.Table, ts: Ints) -> tuple[Flags, Flags, dict[str, Flags]]:
    """Flags of the records that passed the filters in front of the operator; of those that move stream time; and of the
    skipped ones by reason. A record has the first reason that applies.

    Only a record with a null key may be neither skipped nor move stream time, on a preserved side (SEMANTICS 7b.1).
    """
    kept: Flags = table["kept"].to_numpy() if "kept" in table.schema.names else np.ones(len(ts), bool)
    bad = (ts < 0) & kept
    no_key = ~grouping.keyed(layout, table) & kept & ~bad
    empty = _no_value(layout, table)
    no_value = empty & kept & ~(bad | no_key)
    valid = kept & ~(bad | no_key | no_value)
    skips_null_keys = no_key & empty if layout.op.keeps_null_keys else no_key
    skipped = {"bad_timestamp": bad, "null_key": skips_null_keys, "null_value": no_value}
    if (skew_ms := layout.op.stream.clock.max_future_skew_ms) is not None:
        ahead = ts > table["wall_clock"][0].as_py() + skew_ms
        skipped["future"] = kept & ~(bad | skips_null_keys | no_value) & ahead
        valid &= ~ahead
    return kept, valid, skipped


def rows_of(stream: Stream) -> str | None:
    """The stand-in for the partition of records without one: if inputs were merged, the number of their input."""
    return None if stream.number is None else f"{stream.number}:rows"


def rows_of_joins(stream: Stream, side: int | None = None) -> list[str]:
    """The partitions of rows of joins that are merged into `stream`, and go by stream time of their own.

    side  the side of a join that reads the stream
    """
    names = [rows_of(one) for one in stream.sources if one.follows is not None]
    return [name if side is None else f"{side}:{name}" for name in names if name is not None]


def _closing(layout: Layout, chunk_time: Ints) -> Ints | None:
    """The first window open at each time, for `header`; None if rows are compared with more than ends of windows."""
    if not layout.op.pre_aggregates or layout.op.keeps_late or layout.op.buffers_by_stream_time:
        return None
    if layout.op.windows is None:
        return np.zeros(len(chunk_time), np.int64)
    first_open: Ints = layout.panes.first_open(chunk_time)
    return first_open


def _order_columns(layout: Layout, table: pa.Table) -> tuple[Ints, Ints, list[Any]]:
    for column, name in (("partition", layout.op.stream.partition), ("offset", layout.op.stream.offset)):
        if table[column].null_count:
            row = pc.index(pc.is_null(table[column]), True).as_py()
            raise InputError(
                f"Row {row} of a micro-batch has no {column}: the column {name!r} is null, and without it nobody can "
                "say which records came before it. Fill it, or filter such rows out before tg.stream."
            )
    if not pa.types.is_integer(table["offset"].type):
        raise InputError(
            f"The offset column {layout.op.stream.offset!r} is {table['offset'].type}: offsets are whole numbers that "
            "say in which order the records of a partition came. Cast it to long."
        )
    partition, offset = array(table["partition"]), ints(table["offset"])
    if len(partition) and pa.types.is_integer(partition.type):
        first = partition[0].as_py()
        if (ints(partition) == first).all():  # as in a file, and in many topics
            return np.zeros(len(partition), np.int64), offset, [first]
    encoded = partition.dictionary_encode()
    try:
        return ints(encoded.indices), offset, encoded.dictionary.to_pylist()
    except UnicodeDecodeError:
        name = layout.op.stream.partition
        raise InputError(
            f"The partition column {name!r} holds a text that is not UTF-8, which no name of a partition is. Use "
            f'df.withColumn("{name}", F.hex("{name}")) before tg.stream.'
        ) from None


def _no_value(layout: Layout, table: pa.Table) -> Any:
    """Whether each record has no value, where such a record is skipped (`Operation.skips_null_values`)."""
    if not layout.op.skips_null_values or "empty" not in table.schema.names:
        return np.zeros(table.num_rows, bool)
    return pc.fill_null(table["empty"], False).to_numpy()


def _keep(read: _Slice, mask: Any) -> _Slice:
    rows = read.rows.filter(pa.array(mask))
    offset = None if read.offset is None else read.offset[mask]
    return _Slice(rows, read.ts[mask], read.chunk_time[mask], read.chunk[mask], offset, read.chunks, read.drops)


def _sections(layout: Layout, read: _Slice, tasks: int) -> tuple[list[Any], pa.Table]:
    """The rows of dense chunks, combined if possible, by task; and the rows of scattered chunks, record by record."""
    if not layout.op.pre_aggregates:
        records = _records(layout, read)
        divided = hash_ranges.divides(layout, records.num_rows, tasks)
        none = _records(layout, _keep(read, np.zeros(len(read.ts), bool)))
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


def _first_open(layout: Layout, read: _Slice, first: Ints, last: Ints) -> tuple[Ints, Flags]:
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
        # Some of them may be late, and the sum with other records, or of what is left of a group, may fit.
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


def _kept(layout: Layout, read: _Slice, tasks: int) -> list[list[pa.Table]]:
    """Whole records, if the others are combined, and skipped records, which the first task alone gets."""
    whole = read if layout.op.pre_aggregates else _keep(read, np.zeros(len(read.ts), bool))
    assert read.skipped is not None
    nobody = read.skipped.slice(0, 0)
    return [_route(layout, _records(layout, whole), tasks), [read.skipped, *[nobody] * (tasks - 1)]]


def _records(layout: Layout, read: _Slice) -> pa.Table:
    columns: dict[str, Any] = {name: read.rows[name] for name in [*layout.keys, *layout.values, *layout.others]}
    if layout.op.row_ids and layout.op.joined is not None:
        if layout.op.stream.ordered:
            moved = read.rows["deleted"] if layout.op.stream.moves else None
            columns[ID_COLUMN] = row_ids.of_records(read.rows["partition"], read.rows["offset"], moved)
        elif layout.op.stream.number is not None:
            columns[ID_COLUMN] = row_ids.of_input(layout.op.stream.number, read.rows[ID_COLUMN])
    if layout.op.deleted is not None:
        columns["deleted"] = pc.fill_null(read.rows["deleted"], False)
    columns |= {"ts": read.ts, "chunk_time": read.chunk_time, "chunk": read.chunk}
    columns["offset"] = read.offset if read.offset is not None else np.zeros(len(read.ts), np.int64)
    if layout.op.stream.changes:
        columns |= {name: read.rows[name] for name in ("sign", "silent", "rank")} | {"offset": read.rows["place"]}
    if layout.op.stream.forwarded:
        order = [name for name in read.rows.schema.names if name.startswith("o:")]
        # Each of several merged inputs has an order of its own.
        number = layout.op.stream.number
        mine = {name: name if number is None else f"o:{number}:{name[2:]}" for name in order}
        columns |= {mine[name]: read.rows[name] for name in order} | {"offset": read.rows["place"]}
    return pa.table(columns)


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
