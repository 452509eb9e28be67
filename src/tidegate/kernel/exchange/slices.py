"""The input of a map task in slices: records skipped or taken, in the order of their offsets, cut into chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InputError
from tidegate.kernel.columns.arrays import Flags, Ints, array, as_schema, decoded, ints
from tidegate.kernel.rows import grouping, row_ids
from tidegate.kernel.rows.layout import ID_COLUMN, Layout
from tidegate.kernel.time.stream_time import NEVER, Chunk, Cut, cut, header, most_steps, running_max
from tidegate.plan import Stream


@dataclass
class Slice:
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


def tables_of(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches in slices of about `Tuning.slice_rows` rows, with the columns of the layout."""
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
        # Some files have dictionary-encoded keys, others do not.
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


def read(layout: Layout, table: pa.Table, contiguous: bool) -> Slice:
    """A slice in the order of its offsets, without the records that are skipped."""
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
            chunks[-1].without_records = not kept.any() and bool(pc.all(table["empty"]).as_py())
    chunk = np.repeat(np.arange(len(chunks)), ends - cuts.starts)
    result = Slice(table, ts, chunk_time, chunk, offset, chunks, drops)
    accepted = result if valid.all() else masked(result, taken)
    accepted.has_records = bool(kept.any())
    if layout.op.keeps_late:
        reason = np.select(list(skipped.values()), list(skipped), "")
        skipped_rows = records_of(layout, result).append_column("reason", pa.array(reason, pa.string()))
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


def masked(read: Slice, mask: Any) -> Slice:
    """The rows of the slice that the mask flags."""
    rows = read.rows.filter(pa.array(mask))
    offset = None if read.offset is None else read.offset[mask]
    return Slice(rows, read.ts[mask], read.chunk_time[mask], read.chunk[mask], offset, read.chunks, read.drops)


def records_of(layout: Layout, read: Slice) -> pa.Table:
    """The records of the slice, one by one (`kernel.rows.layout`)."""
    columns: dict[str, Any] = {name: read.rows[name] for name in [*layout.keys, *layout.values, *layout.passthrough]}
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
