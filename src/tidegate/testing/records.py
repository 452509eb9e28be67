"""Records as users pipe them, and the columns that the driver adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidegate.arguments import has
from tidegate.errors import InputError, TidegateError, in_one_line
from tidegate.kernel.columns.arrays import plain_columns
from tidegate.kernel.columns.given import REFUSALS, as_arrow
from tidegate.kernel.rows.conversion import by_name
from tidegate.spec.columns import OURS, public_name

Record = dict[str, Any]

OWN = (OURS + "partition", OURS + "offset")
"""Columns that the driver adds if the stream has no partition and offset."""

INPUT = OURS + "input"
"""The number of a record's input, which tells apart equal partition numbers of several inputs."""


def as_table(records: Any) -> pa.Table | None:
    """A table or frame as an Arrow table; None for anything else. Raises InputError if Arrow cannot read it."""
    if isinstance(records, pa.Array):
        records = pa.chunked_array([records])
    if has(records, "toArrow"):  # a DataFrame of Spark, whose own stream of Arrow data has no times
        if records.isStreaming:
            raise InputError(
                "What was piped is a streaming DataFrame, and the driver runs no query. Give a static DataFrame, an "
                "Arrow table, a pandas frame, or records as dicts."
            )
        records = records.toArrow()
    if not has(records, "__arrow_c_stream__"):
        return None
    try:
        table = as_arrow(records)
    except REFUSALS as error:
        raise InputError(
            f"What was piped is {in_one_line(records)}, which is no table of records: {error}. Give an Arrow table or "
            "a frame that has the columns of the stream, or records as dicts."
        ) from None
    names = table.schema.names
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise InputError(
            f"What was piped is {in_one_line(records)} with two columns {twice!r}. Rename or drop one of them."
        )
    return plain_columns(table)


def as_dicts(rows: pa.Table, what: str, kind: type[TidegateError]) -> list[dict[str, Any]]:
    """The rows as dicts of Python values. Raises an error of this kind for a value that Python does not have."""
    try:
        return rows.to_pylist()
    except (OverflowError, ValueError):
        for name in rows.schema.names:
            for place, value in enumerate(rows[name]):
                _check(value, f"Row {place} of the {what} has in the column {public_name(name)!r}", kind)
        raise


def _check(value: pa.Scalar, where: str, kind: type[TidegateError]) -> None:
    try:
        value.as_py()
    except (OverflowError, ValueError) as error:
        shown = f"{value.value}, a {value.type}," if hasattr(value, "value") else f"a {value.type}"
        raise kind(
            f"{where} {shown} which no value of Python can hold: {error}. Python's datetimes end with the year 9999, "
            "and the driver takes and gives Python values. The driver did not change. Filter such rows out, or cast "
            "the column to a number."
        ) from None


def as_records(records: Any) -> list[Record]:
    """The records of a list. Raises InputError if it is not a batch of records."""
    if isinstance(records, str | Mapping) or not has(records, "__iter__"):
        raise InputError(
            f"pipe_batch got {in_one_line(records)}, which is no batch. Give a list of records (dicts), an Arrow "
            "table, or a pandas frame; one record goes to pipe_input."
        )
    records = [by_name(record) for record in records]
    for record in records:
        if not isinstance(record, Mapping):
            raise InputError(
                f"A record is {in_one_line(record)} ({type(record).__name__}), not a dict of columns. Give for example "
                '{"user": "A", "ts": 0}.'
            )
    return records
