"""A recorded stream as columns. Records that the stream skips are counted and left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.advice.order import Arrived
from tidegate.advice.question import Question
from tidegate.errors import DefinitionError, InputError
from tidegate.kernel.columns.arrays import Flags, Ints, array, ints, plain_columns, with_column
from tidegate.kernel.exchange.decoding import milliseconds, read
from tidegate.kernel.rows.conversion import for_display

_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Recorded:
    """Records that are not skipped, in the order of their table.

    rows        k:, v: and ts columns
    arrived     timestamp, partition, offset and arrival of each row
    partitions  the names of the partitions by number
    skipped     the number of records left out, by reason
    """

    rows: pa.Table
    arrived: Arrived
    partitions: tuple[str, ...]
    skipped: dict[str, int]

    @classmethod
    def of(cls, question: Question, table: pa.Table) -> Recorded:
        """The records of a table. Raises DefinitionError for a column that is missing or has the wrong type, InputError
        for a record without partition, offset or arrival, or with text that is not a time.
        """
        empty = _without_value(question, table)
        table = columns_of(question, table)
        known = read(question.operation, question.operation.stream, table)
        ts = ints(known["ts"])
        bad = ts < 0
        no_key = np.logical_or.reduce([known[f"k:{name}"].is_null().to_numpy() for name in question.key]) & ~bad
        no_value = empty & ~(bad | no_key)
        kept = ~(bad | no_key | no_value)
        reasons = {"null_key": no_key, "bad_timestamp": bad, "null_value": no_value}
        skipped = {reason: int(records.sum()) for reason, records in reasons.items()}
        table, known, ts = table.filter(pa.array(kept)), known.filter(pa.array(kept)), ts[kept]
        arrival = _arrival(question, table)
        partition, names = _partition(question, table)
        if question.offset is not None:
            offset = ints(_as_offset(question.offset, _whole(table, question.offset, "offset")))
        else:
            # Without offsets, records with one arrival are ordered by timestamp; without arrivals they stay as given.
            offset = np.arange(len(ts)) if arrival is None else _rank(arrival, ts)
        wanted = [name for name in known.schema.names if name.startswith(("k:", "v:")) or name == "ts"]
        return cls(known.select(wanted), Arrived(ts, partition, offset, arrival), names, skipped)


def columns_of(question: Question, table: pa.Table) -> pa.Table:
    """The columns to read, with times as timestamps.

    Raises DefinitionError for a column that is missing or there twice, InputError for an offset that is no whole
    number.
    """
    for name in question.columns:
        if name not in table.schema.names:
            raise DefinitionError(
                f"The recording has no column {name!r}. Its columns are {', '.join(map(str, table.schema.names))}."
            )
        if table.schema.names.count(name) > 1:
            raise DefinitionError(f"The recording has two columns {name!r}. Rename or drop one of them.")
    table = plain_columns(table.select(list(question.columns)))
    for time in question.times:
        table = with_column(table, time, as_time(time, table[time]))
    if question.offset is not None:
        _as_offset(question.offset, table[question.offset])
    return table


def as_time(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column of times: timestamps, epoch milliseconds as integers, ISO 8601 as text (UTC without a zone).

    Raises DefinitionError for another type, InputError for text that is not a time.
    """
    kind = column.type
    if pa.types.is_uint64(kind):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(
                f"The column {name!r} has a time of more milliseconds than 64 bits hold: {error}. Correct such records."
            ) from None
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return column.cast(pa.int64()) if pa.types.is_null(kind) else column
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms"))
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise no_time(name, kind)
    for wanted in (_INSTANT, pa.timestamp("us")):
        try:
            return column.cast(wanted)
        except pa.ArrowInvalid as error:
            problem = error
    raise InputError(f"The column {name!r} has text that is no time in ISO 8601: {problem}. Correct such records.")


def no_time(name: str, kind: Any) -> DefinitionError:
    """The error for a column of times that has another type."""
    return DefinitionError(
        f"The column {name!r} is {kind}, not a time. Use timestamps, epoch milliseconds, or text in ISO 8601."
    )


def _without_value(question: Question, table: pa.Table) -> Flags:
    """Whether each record is skipped if it has a key and a time, because all of its value columns are null."""
    values = question.values(table.schema.names)
    empty = np.full(table.num_rows, bool(values))
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if name in values and empty.any():
            empty &= column.is_null().to_numpy()
    return empty


def _as_offset(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"The offset column {name!r} is {column.type}, and not all of its values are whole numbers: {error}. "
            "Offsets say in which order the records of a partition came. Use a column of integers."
        ) from None


def _arrival(question: Question, table: pa.Table) -> Ints | None:
    if question.arrival is None:
        return None
    return ints(milliseconds(array(_whole(table, question.arrival, "arrival"))))


def _partition(question: Question, table: pa.Table) -> tuple[Ints, tuple[str, ...]]:
    if question.partition is None:
        return np.zeros(table.num_rows, np.int64), ("the only one",)
    column = _whole(table, question.partition, "partition")
    try:
        values = pc.unique(column)
        names = values.take(pc.sort_indices(values))
    except pa.ArrowNotImplementedError:  # nested values, and few others, have no order
        raise DefinitionError(
            f"The partition column {question.partition!r} is {column.type}: it names the part of the source that a "
            "record is of. Use a column of integers or strings."
        ) from None
    shown = for_display(pa.table({"name": names}))
    return ints(pc.index_in(column, names)), tuple(str(row["name"]) for row in shown)


def _whole(table: pa.Table, name: str, what: str) -> Any:
    column = table[name]
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InputError(
            f"Record {row} with a key and a time has no {what}: the column {name!r} is null, and without it "
            f"the order of the record is unknown. Drop such records before, or leave {what}= out."
        )
    return column


def _rank(arrival: Ints, ts: Ints) -> Ints:
    rank = np.empty(len(ts), np.int64)
    rank[np.lexsort((ts, arrival))] = np.arange(len(ts))
    return rank
