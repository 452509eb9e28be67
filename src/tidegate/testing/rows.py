"""Result rows as users see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.instants import Window
from tidegate.spec.columns import END, START, public_name
from tidegate.testing.records import as_dicts


def to_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Result rows as dicts, with public column names and a `Window` for the bounds of the window.

    Raises AggregationError for a value that Python does not have.
    """
    return [dict(_public(row)) for row in as_dicts(rows, "results", AggregationError)]


def _public(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if name == START:
            yield "window", None if value is None else Window(value, row[END])
        elif name != END:
            yield public_name(name), value
