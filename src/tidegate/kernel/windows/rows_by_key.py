"""The last row of each key, in sorted runs (`state.keyed_runs`): a batch reads and writes the rows of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Hashes, concat_tables
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.schema_evolution import SchemaEvolution
from tidegate.kernel.state.keyed_runs import KeyedRuns, OfRange, last_versions
from tidegate.kernel.state.log_index import LogIndex
from tidegate.kernel.state.store import Store


@dataclass(frozen=True)
class RowsByKey:
    """Rows of a layout, one per key. The methods take and return them without the version columns `h` and `deleted`."""

    layout: Layout
    versions: KeyedRuns

    @classmethod
    def of(cls, layout: Layout, index: LogIndex, store: Store, evolution: SchemaEvolution | None) -> RowsByKey:
        """The rows in a section of a store."""
        return cls(layout, KeyedRuns.of(index, store, partial(last_versions, layout.keys), evolution))

    def find(self, hashes: Hashes) -> pa.Table | None:
        """The rows of the keys with these hashes, and perhaps of some other keys; None if there are none."""
        found = list(self.versions.find(hashes))
        last = last_versions(self.layout.keys, concat_tables(found)) if found else None
        # A deleted key may have versions but no row.
        return _rows(last) if last is not None and last.num_rows else None

    def whole(self) -> pa.Table | None:
        """All rows; None if there are none."""
        found = self.versions.whole()
        return None if found is None else _rows(found)

    def read(self) -> Iterator[pa.Table]:
        """All rows, some at a time."""
        return map(_rows, self.versions.read())

    def add(self, stored: pa.Table | None, rows: pa.Table) -> None:
        """Replace the rows `stored` of some keys by `rows`; a key of `stored` that is not in `rows` is deleted."""
        self.versions.add_by_range(self.by_range(stored, rows))

    def by_range(self, stored: pa.Table | None, rows: pa.Table) -> list[OfRange]:
        """The versions that `add` adds (`KeyedRuns.by_range`)."""
        more, deleted = np.ones(rows.num_rows, np.int64), np.zeros(rows.num_rows, bool)
        if stored is not None:
            before, now = grouping.codes_of_tables(self.layout.keys, [stored, rows])
            more -= np.isin(now, before)
            left = stored.filter(pa.array(~np.isin(before, now)))
            rows = concat_tables([rows, left])
            more, deleted = (
                np.append(one, np.full(left.num_rows, value)) for one, value in ((more, -1), (deleted, True))
            )
        return self.versions.by_range(_versions(rows, deleted), grouping.key_hash(self.layout, rows), more)

    def replace(self, rows: pa.Table) -> None:
        """Replace all rows by `rows`."""
        self.versions.replace(_versions(rows, np.zeros(rows.num_rows, bool)), grouping.key_hash(self.layout, rows))


def _versions(rows: pa.Table, deleted: object) -> pa.Table:
    return rows.append_column("deleted", pa.array(deleted))


def _rows(versions: pa.Table) -> pa.Table:
    return versions.drop_columns(["h", "deleted"])
