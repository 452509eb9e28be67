"""Numbers the keys of records, and finds keys by their number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.rows.conversion import for_display
from tidegate.kernel.rows.grouping import codes


@dataclass(frozen=True)
class Keys:
    """Keys by number, from 0 on: a row of k: columns for each. There may be as many keys as records."""

    rows: pa.Table

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def part(self, low: int, high: int) -> Keys:
        """The keys with the numbers from `low` up to, but not including, `high`."""
        return Keys(self.rows.slice(low, high - low))

    def shown(self, number: int) -> str:
        """A key as text. Of several columns, one with a comma is quoted, so that other keys are other texts."""
        (row,) = for_display(self.rows.slice(number, 1))
        several = len(row) > 1
        return ", ".join(repr(one) if several and "," in str(one) else str(one) for one in row.values())


def numbered_keys(rows: pa.Table) -> tuple[Ints, Keys]:
    """The number of each record's key, from 0 without gaps; and the keys by number."""
    names = [name for name in rows.schema.names if name.startswith("k:")]
    _, first, number = np.unique(codes([rows[name] for name in names]), return_index=True, return_inverse=True)
    return number, Keys(rows.select(names).take(pa.array(first)))
