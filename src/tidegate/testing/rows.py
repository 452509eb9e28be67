"""Result rows as users see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidegate.instants import Window
from tidegate.spec.columns import END, START, public_name


def to_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Result rows as dicts, with public column names and a `Window` for the bounds of the window."""
    return [dict(_public(row)) for row in rows.to_pylist()]


def _public(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if name == START:
            yield "window", None if value is None else Window(value, row[END])
        elif name != END:
            yield public_name(name), value
