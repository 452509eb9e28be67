"""Converts records to the columns that the kernel reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.arguments import whole_number
from tidegate.errors import InputError, in_one_line
from tidegate.instants import MAX_MS, instant_ms
from tidegate.plan import Operation
from tidegate.spec.aggregates import Fold
from tidegate.spec.types import is_atomic
from tidegate.testing.column_types import Types
from tidegate.testing.records import INPUT, OWN, Record


def check_columns(names: Iterable[str | None], records: Sequence[Record], start: int) -> None:
    """Raise InputError for a record without one of these columns, which the stream needs."""
    wanted = [name for name in names if name is not None]
    for i, record in enumerate(records):
        for name in wanted:
            if name not in record:
                raise InputError(
                    f"Record {start + i} has no column {name!r}, which the stream needs; it has "
                    f"{', '.join(repr(given) for given in record if given not in OWN)}. "
                    "Give it a value, or None for a null."
                )


def _check(op: Operation, types: Types, records: Sequence[Record], start: int) -> None:
    stream = op.stream
    check_columns((*op.key, stream.timestamp, stream.partition, stream.offset), records, start)
    for name in _read_by_name(op) if types.columns else ():
        if name not in types.columns:
            known = ", ".join(map(repr, (column for column in types.columns if column not in OWN)))
            raise InputError(
                f"Nothing that was piped has a column {name!r}, which the aggregation reads; the columns are {known}. "
                "Correct the name, or pipe records with that column (None for a null)."
            )
    for name in op.key:
        if not is_atomic(types.columns.get(name, pa.null())):
            raise InputError(
                f"The key column {name!r} is {types.columns[name]}: a key must be of an atomic type. "
                "Give its parts as several key columns."
            )


def _read_by_name(op: Operation) -> tuple[str, ...]:
    """The columns that the aggregates name, and the column that marks deleted rows of a table."""
    named = () if isinstance(op.function, Fold) else op.input_columns(())
    return named if op.deleted is None else (*named, op.deleted)


def to_batch(op: Operation, types: Types, records: Sequence[Record], start: int) -> pa.RecordBatch:
    """The records as k:, v:, ts, partition and offset columns; `start` is the number of the first record."""
    _check(op, types, records, start)
    stream = op.stream
    known = tuple(name for name in types.columns if name not in OWN)

    def column(name: str) -> pa.Array:
        return types.array(name, records, start, instants=name == stream.timestamp)

    columns: dict[str, Any] = {f"k:{name}": column(name) for name in op.key}
    columns |= {f"v:{name}": column(name) for name in op.input_columns(tuple(types.columns))}
    stamps = [_milliseconds(record[stream.timestamp], stream.timestamp, start + i) for i, record in enumerate(records)]
    if op.skips_null_values and (value := op.counts_as_value(tuple(types.columns))):
        columns["empty"] = pa.array([all(record.get(name) is None for name in value) for record in records])
    columns |= {f"r:{name}": column(name) for name in op.other_columns(known)}
    times = f"r:{stream.timestamp}"
    if times in columns and not pa.types.is_timestamp(columns[times].type):
        # Integers even if all are null: another map task of the batch may have values, and the types must agree.
        columns[times] = columns[times].cast(pa.int64())
    if op.deleted is not None:
        flags = [_flag(record.get(op.deleted), op.deleted, start + i) for i, record in enumerate(records)]
        columns["deleted"] = pa.array(flags, pa.bool_())
    columns["ts"] = pa.array(stamps, pa.int64())
    if stream.partition is not None and stream.offset is not None:
        columns["partition"] = _partitions(types, stream.partition, records, start)
        columns["offset"] = types.array(stream.offset, records, start)
    return pa.RecordBatch.from_pydict(columns)


def _partitions(types: Types, name: str, records: Sequence[Record], start: int) -> pa.Array:
    """The partitions of the records; each of several inputs has its own partitions, even with equal numbers."""
    partitions = types.array(name, records, start)
    kind = partitions.type
    if not any(
        fits(kind) for fits in (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    ):
        raise InputError(
            f"The partition column {name!r} is {kind}, not an integer or a string: it names the part of the source "
            "that a record is of. Cast it to a string."
        )
    if not types.numbered:
        return partitions
    inputs = pa.array([record.get(INPUT) for record in records], pa.int64())
    return pc.binary_join_element_wise(inputs.cast(pa.string()), partitions.cast(pa.string()), ":")


def _flag(value: Any, name: str, row: int) -> bool:
    """Whether a row of a table is deleted; null is false."""
    if value is None or isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(
        f"Record {row}: the column {name!r}, which says whether a row is deleted, holds {value!r} "
        f"({type(value).__name__}), not a boolean. Give True or False."
    )


def _milliseconds(value: Any, name: str, row: int) -> int | None:
    if value is None:
        return None
    ms = instant_ms(value) if isinstance(value, datetime) else whole_number(value)
    if ms is not None and abs(ms) <= MAX_MS:
        return ms
    raise InputError(
        f"Record {row}: the timestamp column {name!r} holds {in_one_line(value)} ({type(value).__name__}). "
        "Give integer milliseconds of at most 64 bits, or a datetime."
    )
