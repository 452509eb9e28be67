"""Whether a map task combines its records: not where nearly every record has a key of its own.

To combine records costs more than it saves where 500,000 of them become 440,000 rows. Trino calls this choice adaptive
partial aggregation; Velox says that such an aggregation is abandoned, and both do so from 80 rows of 100 records on.

Records of some keys tell how many rows there would be: of those keys whose hashes lie in one of 32 ranges. All records
of such a key are among them, however far apart they are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, decoded
from tidegate.kernel.columns.factorize import SAMPLE
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout

_FEWEST_RECORDS = 1 << 16
"""To combine fewer records takes little time."""
_MOST_SAVED = 0.2
"""Up to this share of the records, combining would save too few rows."""
_BITS = 5
_PARTS = 4
"""A sample of records comes from so many places: to take records one by one, Arrow copies the column."""


def abandoned(layout: Layout, rows: pa.Table, by: list[str]) -> Hashes | None:
    """The hashes of the keys of these records, if those with equal `by` stay rows of their own; None if not."""
    if rows.num_rows < _FEWEST_RECORDS or _frequent(rows.select(layout.keys)):
        return None
    hashes = grouping.key_hash(layout, rows)
    some = rows.select(by).filter(pa.array(hashes >> np.uint64(64 - _BITS) == 0))
    return hashes if _repeated(some) <= _MOST_SAVED * some.num_rows else None


def _frequent(keys: pa.Table) -> bool:
    """Whether a few records show that keys are frequent. If not, one may still be, but not by far.

    Of n records with random keys, a sample of s that repeats r of them tells that combining saves about r * n^2 / s^2
    rows. Twice as many are asked for, because r is small.
    """
    starts = range(0, keys.num_rows, keys.num_rows // _PARTS)
    some = pa.concat_tables([keys.slice(start, SAMPLE // _PARTS) for start in starts])
    return _repeated(some) * keys.num_rows > 2 * _MOST_SAVED * some.num_rows**2


def _repeated(rows: pa.Table) -> int:
    """The number of rows that are equal to an earlier one."""
    return rows.num_rows - len(np.unique(grouping.codes(decoded(rows).columns)))
