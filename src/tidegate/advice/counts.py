"""Mergeable histograms: exact while there are few distinct values, in narrow classes beyond."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, array, ints
from tidegate.kernel.time.window_graces import class_of

MOST_VALUES = 1 << 16
"""The most distinct values that are kept exactly."""
FINE_BITS = 7
"""The width of a class is at most 2^-7 (0.8 %) of its values."""

SCHEMA = pa.schema([("name", pa.string()), ("value", pa.int64()), ("count", pa.int64())])
"""A tally as a table, in which tasks send it."""


@dataclass(frozen=True)
class Counts:
    """Distinct `values`, ascending, and how often each occurred (`counts`); often milliseconds."""

    values: Ints
    counts: Ints

    @classmethod
    def of(cls, values: Ints, weights: Ints | None = None) -> Counts:
        """The counts of `values`, in any order; each value counts 1, or its weight."""
        if weights is None:
            return cls(*(found.astype(np.int64) for found in np.unique(values, return_counts=True)))
        distinct, place = np.unique(values, return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        np.add.at(counts, place, weights)
        return cls(distinct.astype(np.int64), counts)

    @cached_property
    def _up_to(self) -> Ints:
        return np.concatenate(([0], np.cumsum(self.counts)))

    @property
    def total(self) -> int:
        """The number of values."""
        return int(self._up_to[-1])

    @property
    def largest(self) -> int:
        """The largest value; 0 without any."""
        return int(self.values[-1]) if len(self.values) else 0

    def at_most(self, value: int) -> int:
        """The number of values that are at most `value`."""
        return int(self._up_to[np.searchsorted(self.values, value, side="right")])

    def above(self, value: int) -> int:
        """The number of values larger than `value`."""
        return self.total - self.at_most(value)

    def smallest_with(self, most_above: float) -> int:
        """The smallest value, or 0, such that at most `most_above` values are larger."""
        above = self.total - self._up_to
        place = int(np.argmax(above <= most_above))
        return 0 if place == 0 else int(self.values[place - 1])

    def quantile(self, share: float) -> int:
        """The quantile: the smallest value such that at least `share` of all are not larger; 0 without values."""
        return self.smallest_with(self.total * (1 - share))

    def median(self) -> float | None:
        """The median (the mean of two middle values); None without values."""
        if not self.total:
            return None
        middle = np.searchsorted(self._up_to, [(self.total - 1) // 2, self.total // 2], side="right") - 1
        return float(self.values[middle].mean())

    def rounded_up(self, exact: Ints) -> Counts:
        """The values in classes, each represented by its largest value; counts up to the values `exact` stay exact."""
        return Counts.of(class_of(self.values, exact, FINE_BITS), self.counts)


def together(parts: Iterable[Counts]) -> Counts:
    """The counts of all parts."""
    parts = list(parts)
    none = [np.zeros(0, np.int64)]
    values = np.concatenate(none + [part.values for part in parts])
    return Counts.of(values, np.concatenate(none + [part.counts for part in parts]))


@dataclass
class Tally:
    """Counts by name. Tallies of parts of the records merge to the tally of all, for any parts in any order.

    exact  values, ascending, for which `Counts.at_most` and `Counts.above` are always exact; merged tallies must have
           the same ones
    """

    exact: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    named: dict[str, Counts] = field(default_factory=dict)

    def add(self, name: str, values: Ints, weights: Ints | None = None) -> None:
        """Add values under `name`, with weights."""
        self._add(name, Counts.of(np.asarray(values, np.int64), weights))

    def number(self, name: str, count: int) -> None:
        """Add `count` to the plain number `name`."""
        self._add(name, Counts(np.zeros(1, np.int64), np.array([count], np.int64)))

    def _add(self, name: str, more: Counts) -> None:
        known = self.named.get(name)
        if known is not None:
            more = together([known, more])
        self.named[name] = more if len(more.values) <= MOST_VALUES else more.rounded_up(self.exact)

    def merge(self, other: Tally) -> Tally:
        """Add the counts of another tally to this one and return it."""
        for name, counts in other.named.items():
            self._add(name, counts)
        return self

    def counts(self, *names: str) -> Counts:
        """The counts under these names, merged."""
        found = [self.named[name] for name in names if name in self.named]
        if len(found) == 1:
            return found[0]
        return together(found)

    def of(self, name: str) -> int:
        """The plain number `name`; 0 if nothing was added."""
        return self.counts(name).total

    def below(self, prefix: str) -> dict[str, Counts]:
        """The counts under names that begin with `prefix`, by the rest of the name."""
        return {name[len(prefix) :]: counts for name, counts in self.named.items() if name.startswith(prefix)}

    def table(self) -> pa.Table:
        """The counts as rows of SCHEMA."""
        sizes = [len(counts.values) for counts in self.named.values()]
        names = pa.array(list(self.named), pa.string()).take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
        empty = np.zeros(0, np.int64)
        values = np.concatenate([empty, *(counts.values for counts in self.named.values())])
        counts = np.concatenate([empty, *(counts.counts for counts in self.named.values())])
        return pa.table([names, pa.array(values), pa.array(counts)], schema=SCHEMA)

    def add_table(self, rows: pa.Table) -> Tally:
        """Add rows of SCHEMA, of any number of tallies, to this tally and return it."""
        encoded = array(rows["name"]).dictionary_encode()
        codes, values, counts = ints(encoded.indices), ints(rows["value"]), ints(rows["count"])
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
        for name, low, high in zip(encoded.dictionary.to_pylist(), bounds[:-1], bounds[1:], strict=True):
            at = order[low:high]
            self.add(name, values[at], counts[at])
        return self
