"""Expected rows of a table: ordered changes go through its step and limits, into its groups, and through theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hostile import functions
from hostile.case import Case, Row, Step
from hostile.kinds import same_key, scale_of
from hostile.steps import Stopped, TableStep
from hostile.stored import Misfit, stored
from hostile.tables import Changes, Regrouping
from oracle import BuiltIn, compute
from oracle_groups import Regrouped, Update
from oracle_suppress import Full, Limit, Suppression

UNSEEN = "@unseen"
"""Marks a row that its operator does not emit."""


class Way:
    """A step of a table and the limits behind it."""

    def __init__(self, what: Changes, key: tuple[str, ...], step: Step | None, limits: tuple[Limit, ...]) -> None:
        self.step = None if step is None else TableStep.of(what, step, key)
        self.limits = [Suppression(limit, key) for limit in limits]

    def take(self, rows: list[Row]) -> list[Row]:
        """Rows that are emitted because `rows` arrive; an UNSEEN row only moves time. Raises Full."""
        leaving = []
        for row in rows:
            if UNSEEN not in row:
                leaving += self._through(0, [row if self.step is None else self.step.run(row)])
            elif self.limits:
                leaving += self._through(1, self.limits[0].pass_time(row["timestamp"]))
        return leaving

    def _through(self, first: int, rows: list[Row]) -> list[Row]:
        for limit in self.limits[first:]:
            rows = [row for update in rows for row in limit.take(update)]
        return rows

    def drain(self) -> list[Row]:
        """All buffered rows. Raises Full."""
        rows = []
        for number, limit in enumerate(self.limits):
            waiting = sorted(limit.held.values(), key=lambda waiting: (waiting.time, waiting.place))
            limit.held = {}
            rows += self._through(number + 1, [one.row for one in waiting])
        return rows


class Groups:
    """The groups of a table; built-in aggregates are computed over the rows of the group."""

    def __init__(self, what: Case, grouping: Regrouping, key: tuple[str, ...]) -> None:
        self.what, self.grouping, self.key = what, grouping, key
        self.functions = grouping.family != "built-in"
        steps = self._functions() if self.functions else (list, lambda a, row: [*a, row], _without)
        self.oracle = Regrouped(*steps, self._group, lambda row: row[grouping.column])

    def _functions(self) -> tuple[Any, Any, Any]:
        grouping, kind = self.grouping, self.what.functions(self.grouping.kind)
        made = self.what.functions(f"f.{grouping.what}({grouping.column!r})")
        if grouping.family == "reduce":
            values = lambda call: lambda a, row: _kept(call, kind, a, row[grouping.column])  # noqa: E731
            return None, values(made.added), values(made.taken)
        rows = lambda call: lambda a, row: _kept(call, kind, self._shown(self._group(row)), self._row(row), a)  # noqa: E731
        return (lambda: _kept(made.initializer, kind)), rows(made.adder), rows(made.subtractor)

    def _group(self, row: Row) -> Any:
        found = tuple(same_key(row[name]) for name in self.grouping.by)
        return None if any(part is None for part in found) else found

    @staticmethod
    def _shown(group: Any) -> Any:
        return group[0] if len(group) == 1 else group

    @staticmethod
    def _row(row: Row) -> Row:
        return {name: value for name, value in row.items() if name not in ("timestamp", "deleted")}

    def take(self, rows: list[Row], piped: bool) -> list[Row]:
        """Rows of groups after the changes of a batch; with caching only the last row of each group.

        With caching, the tombstone of a group that was never emitted is UNSEEN: its record still moves the stream
        time of a limit behind, as in Kafka Streams without caching. Changes of a single record are not merged: in the
        driver if it is `piped` alone; in tasks (docs/notyet.md) if one row enters or leaves a group and nothing else
        happens.
        """
        before, moves = set(self.oracle.groups), 0
        updates = []
        for row in rows:
            key = tuple(same_key(row.get(name)) for name in self.key)
            old, new = self.oracle.table.get(key), None if row["deleted"] else row
            moves += sum(one is not None and self._group(one) is not None for one in (old, new))
            updates += self.oracle.take(key, new, row["timestamp"])
        made = [self._out(update) for update in updates]
        if not self.grouping.caching or moves == 1 or piped:
            return made
        last = {update.group: row for update, row in zip(updates, made, strict=True)}
        return [row if not row["deleted"] or group in before else row | {UNSEEN: True} for group, row in last.items()]

    def _out(self, update: Update) -> Row:
        aside: Row = dict(zip(self.grouping.by, update.group, strict=True)) | {"timestamp": update.timestamp}
        if self.functions:
            return aside | {self.grouping.name: deepcopy(update.value), "deleted": update.value is None}
        values = {
            name: compute(BuiltIn(what, column, self._scales.get(column)), update.value)
            for name, what, column in self.grouping.calls
        }
        return aside | values | {"deleted": False}

    @property
    def _scales(self) -> dict[str | None, int | None]:
        return {name: scale_of(kind) for source in self.what.sources for name, kind in source.columns}


def _without(rows: list[Row], row: Row) -> list[Row]:
    return [one for one in rows if one is not row]


def _kept(call: Callable[..., Any], kind: Any, *given: Any) -> Any:
    return stored(deepcopy(call(*deepcopy(given))), kind)


class TableTruth:
    """Expected rows of each batch and of a drain, and expected drops by reason."""

    def __init__(self, what: Changes, ticks: bool) -> None:
        self.what, self.in_driver = what, not ticks
        self.done: list[int] = []
        self._begin()

    def _begin(self) -> None:
        what = self.what
        self.stream_time = -1
        self.drops: Counter[str] = Counter()
        self.table = Way(what, what.source.key, what.step, what.limits)
        self.groups = None if what.grouping is None else Groups(what, what.grouping, what.source.key)
        self.behind = Way(what, what.key, what.step_behind, what.limits_behind)

    def batch(self, number: int) -> list[Row]:
        """Rows of a batch. Raises Stopped after a rollback to the state before the batch."""
        try:
            rows = self._batch(number)
        except (Misfit, functions.Failed, Full) as error:
            self._begin()
            for before in self.done:
                self._batch(before)
            raise Stopped("BufferFullError" if isinstance(error, Full) else "AggregationError") from None
        self.done.append(number)
        return rows

    def _batch(self, number: int) -> list[Row]:
        piped = self.in_driver and len(self.what.batches[number]) == 1
        return self._out(self.table.take(self._changes(number)), piped)

    def _out(self, rows: list[Row], piped: bool = False) -> list[Row]:
        if self.groups is not None:
            rows = self.behind.take(self.groups.take(rows, piped))
        return [self._public(row) for row in rows]

    def _public(self, row: Row) -> Row:
        """The row; without the column `deleted` if no row of this output can be deleted."""
        return row if self._deletes else {name: value for name, value in row.items() if name != "deleted"}

    @property
    def _deletes(self) -> bool:
        what = self.what
        if what.grouping is not None:
            filters = what.step_behind is not None and what.step_behind.how == "filter"
            return filters or what.grouping.family != "built-in"
        return what.source.deleted is not None or (what.step is not None and what.step.how == "filter")

    def _changes(self, number: int) -> list[Row]:
        """The changes of a batch in order of (stream time seen, partition, offset)."""
        source, times, found = self.what.source, Counter[int](), []
        records = self.what.batches[number]
        if source.order is not None:
            records = sorted(records, key=lambda record: (record[source.order[0]], record[source.order[1]]))
        for place, record in enumerate(records):
            if any(record[name] is None for name in source.key):
                self.drops["null_key"] += 1
            elif record[source.timestamp] is None or record[source.timestamp] < 0:
                self.drops["bad_timestamp"] += 1
            else:
                partition, ts = record[source.order[0]] if source.order else 0, record[source.timestamp]
                times[partition] = max(times[partition], ts)
                found.append((max(times[partition], self.stream_time), partition, place, self._row(record)))
        self.stream_time = max([self.stream_time, *times.values()])
        return [row for *_, row in sorted(found, key=lambda one: one[:3])]

    def _row(self, record: Row) -> Row:
        source = self.what.source
        deleted = bool(source.deleted and record[source.deleted])
        key = {name: same_key(record[name]) for name in source.key}
        values = {name: None if deleted else record[name] for name in source.values}
        return key | values | {"timestamp": record[source.timestamp], "deleted": deleted}

    def drain(self) -> list[Row]:
        """Rows of a drain. Raises Stopped if a strict buffer is too small for them."""
        try:
            rows = self._out(self.table.drain())
            return rows + [self._public(row) for row in self.behind.drain()]
        except Full:
            raise Stopped("BufferFullError") from None

    def readable(self) -> None:
        """Stores of tables are compared by `testing/test_read_state`."""
