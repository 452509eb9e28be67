"""Keys of result rows: as codes, as hashes, and as names that sort as serialized keys do, for the order of eviction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, Ints
from tidegate.kernel.columns.hash64 import hash_rows
from tidegate.kernel.columns.sorting import by_columns
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.layout import Layout

Name = tuple[Any, ...]
"""The sort key of a single row: one value for each column of its key, which sorts as `in_order` does."""

_BLOCK = 1024


def columns(layout: Layout) -> list[str]:
    """The key columns of a row, in the order of the serialized key."""
    return [*layout.op.key, *layout.window_order]


def codes(layout: Layout, rows: pa.Table) -> Ints:
    """One number per row, the same for rows of one key (and window)."""
    return grouping.codes([rows[name] for name in columns(layout)])


def hashes(layout: Layout, rows: pa.Table) -> Hashes:
    """A hash of each row's key (and window), the same in every process."""
    return hash_rows(rows.select(columns(layout)))


def key_hashes(layout: Layout, rows: pa.Table) -> Hashes:
    """A hash of each row's key alone, the `grouping.key_hash` of its records."""
    return hash_rows(rows.select(list(layout.op.key)))


def in_order(layout: Layout, rows: pa.Table, since: Ints, step: Ints | None = None) -> pa.Array:
    """Indices that sort rows as they leave: by step, if they leave at several ones, then by (buffer time, key)."""
    by: dict[str, Any] = {} if step is None else {"s": step}
    by |= {"t": since} | {f"k:{n}": results.serial(rows[n]) for n in columns(layout)}
    return by_columns(pa.table(by))


class Names:
    """The names (`Name`) of the keys of rows, computed in blocks on first use."""

    def __init__(self, layout: Layout, rows: pa.Table) -> None:
        self._rows = rows.select(columns(layout))
        self._blocks: dict[int, list[Name]] = {}

    def of(self, row: int) -> Name:
        """The name of a row's key."""
        block = row // _BLOCK
        if block not in self._blocks:
            rows = self._rows.slice(block * _BLOCK, _BLOCK)
            columns = [results.serial(column).to_pylist() for column in rows.columns]
            self._blocks[block] = list(zip(*columns, strict=True))
        return self._blocks[block][row % _BLOCK]
