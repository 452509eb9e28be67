"""A table grouped anew, computed slowly and plainly: one change after the other, no Arrow, no tidegate.

Written from SEMANTICS 15 and from KTableRepartitionMap, KTableAggregate and KTableReduce of Kafka Streams 4: the
old row leaves its group first, then the new one joins its own; if both are one group, it emits one update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = dict[str, Any]


class Update(NamedTuple):
    """The present value of a group; None: the group is empty."""

    group: Any
    value: Any
    timestamp: int


@dataclass
class Regrouped:
    """`group_of` gives the group of a row, None if it is in none; `first` gives a first value if no `initializer` does.

    `adder` and `subtractor` get the aggregate and the row, and delete the group if they return None.
    """

    initializer: Callable[[], Any] | None
    adder: Callable[[Any, Row], Any]
    subtractor: Callable[[Any, Row], Any]
    group_of: Callable[[Row], Any]
    first: Callable[[Row], Any]
    table: dict[Any, Row] = field(default_factory=dict)
    groups: dict[Any, tuple[Any, int]] = field(default_factory=dict)

    def take(self, key: Any, row: Row | None, ts: int) -> list[Update]:
        """The updates that a change of the table makes; a row of None is deleted."""
        old = self.table.pop(key, None)
        if row is not None:
            self.table[key] = row
        left, joined = self._group(old), self._group(row)
        if left is not None and left == joined:
            return [self._update(left, old, row, ts)]
        rows = [] if left is None else [self._update(left, old, None, ts)]
        return rows if joined is None else [*rows, self._update(joined, None, row, ts)]

    def _group(self, row: Row | None) -> Any:
        return None if row is None else self.group_of(row)

    def _update(self, group: Any, old: Row | None, new: Row | None, ts: int) -> Update:
        value, stamp = self.groups.pop(group, (None, ts))
        stamp = max(ts, stamp)
        if old is not None and value is not None:
            value = self.subtractor(value, old)
        if new is not None:
            if value is not None:
                value = self.adder(value, new)
            else:
                value = self.first(new) if self.initializer is None else self.adder(self.initializer(), new)
        if value is not None:
            self.groups[group] = (value, stamp)
        return Update(group, value, stamp)
