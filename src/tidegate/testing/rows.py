"""Rows as users see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidegate.errors import AggregationError, TidegateError
from tidegate.instants import Window
from tidegate.spec.columns import END, START, public_name


def to_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Result rows as dicts, with public column names and a `Window` for the bounds of the window.

    Raises AggregationError for a value that Python does not have.
    """
    return [dict(_public(row)) for row in as_dicts(rows, "results", AggregationError)]


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


def _public(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if name == START:
            yield "window", None if value is None else Window(value, row[END])
        elif name != END:
            yield public_name(name), value
