"""How often each value came: exact while there are few distinct values, in narrow classes beyond, and mergeable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.time.lateness import class_of

MOST_VALUES = 1 << 16
"""So many distinct values are kept as they are."""
FINE_BITS = 7
"""Classes are 2^-7 (0.8 %) of their values wide at most."""

SCHEMA = pa.schema([("name", pa.string()), ("value", pa.int64()), ("count", pa.int64())])
"""A tally as a table: the form in which tasks hand it over."""


@dataclass(frozen=True)
class Counts:
    """Distinct `values`, ascending, and how often each came (`counts`); milliseconds, or whatever was counted."""

    values: Ints
    counts: Ints

    @classmethod
    def of(cls, values: Ints, weights: Ints | None = None) -> Counts:
        """The counts of values in any order; each counts 1, or its weight."""
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
        """How many there are."""
        return int(self._up_to[-1])

    @property
    def largest(self) -> int:
        """The largest value; 0 without any."""
        return int(self.values[-1]) if len(self.values) else 0

    def at_most(self, value: int) -> int:
        """How many are `value` or less."""
        return int(self._up_to[np.searchsorted(self.values, value, side="right")])

    def above(self, value: int) -> int:
        """How many are larger than `value`."""
        return self.total - self.at_most(value)

    def smallest_with(self, most_above: float) -> int:
        """The smallest value, or 0, that no more than `most_above` of them are larger than."""
        above = self.total - self._up_to
        place = int(np.argmax(above <= most_above))
        return 0 if place == 0 else int(self.values[place - 1])

    def quantile(self, share: float) -> int:
        """The smallest value that at least `share` of them do not exceed; 0 without any."""
        return self.smallest_with(self.total * (1 - share))

    def median(self) -> float | None:
        """The middle value, of two middle ones the mean; None without any."""
        if not self.total:
            return None
        middle = np.searchsorted(self._up_to, [(self.total - 1) // 2, self.total // 2], side="right") - 1
        return float(self.values[middle].mean())

    def rounded_up(self, exact: Ints) -> Counts:
        """The same in classes, each named by its largest value; questions about values in `exact` stay exact."""
        return Counts.of(class_of(self.values, exact, FINE_BITS), self.counts)


def _together(parts: list[Counts]) -> Counts:
    none = [np.zeros(0, np.int64)]
    values = np.concatenate(none + [part.values for part in parts])
    return Counts.of(values, np.concatenate(none + [part.counts for part in parts]))


@dataclass
class Tally:
    """Counts by name. Tallies of parts of the records merge to that of all, whatever the parts and their order.

    exact  values, ascending, at which `Counts.at_most` and `Counts.above` are exact, however many distinct ones came;
           tallies that are merged have the same
    """

    exact: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    named: dict[str, Counts] = field(default_factory=dict)

    def add(self, name: str, values: Ints, weights: Ints | None = None) -> None:
        """Count these values under `name`."""
        self._add(name, Counts.of(np.asarray(values, np.int64), weights))

    def number(self, name: str, count: int) -> None:
        """Add to a plain number."""
        self._add(name, Counts(np.zeros(1, np.int64), np.array([count], np.int64)))

    def _add(self, name: str, more: Counts) -> None:
        known = self.named.get(name)
        if known is not None:
            more = _together([known, more])
        self.named[name] = more if len(more.values) <= MOST_VALUES else more.rounded_up(self.exact)

    def merge(self, others: Iterable[Tally]) -> Tally:
        """This one with the counts of others."""
        for other in others:
            for name, counts in other.named.items():
                self._add(name, counts)
        return self

    def counts(self, *names: str) -> Counts:
        """What was counted under these names, together."""
        found = [self.named[name] for name in names if name in self.named]
        if len(found) == 1:
            return found[0]
        return _together(found)

    def of(self, name: str) -> int:
        """A plain number, 0 if nothing was added."""
        return self.counts(name).total

    def below(self, prefix: str) -> dict[str, Counts]:
        """What was counted under names that begin with `prefix`, by the rest of the name."""
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
        """This one with what rows of SCHEMA say, of any number of tallies."""
        encoded = rows["name"].combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        codes, values, counts = ints(encoded.indices), ints(rows["value"]), ints(rows["count"])
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
        for name, low, high in zip(encoded.dictionary.to_pylist(), bounds[:-1], bounds[1:], strict=True):
            at = order[low:high]
            self.add(name, values[at], counts[at])
        return self
