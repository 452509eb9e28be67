"""The arguments of `tg.advise`, checked when they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from tidegate import dsl
from tidegate.advice.alerts import Predicate, check_names, check_predicate
from tidegate.advice.keyed import AdvisedWindows
from tidegate.arguments import has
from tidegate.dsl.checks import check_column, check_columns
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.instants import ROUND_MS, Duration, duration_ms, show_ms
from tidegate.kernel.columns.arrays import Ints
from tidegate.plan import Operation, operation
from tidegate.spec.aggregates import Aggregate
from tidegate.spec.columns import check_user_name
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.windows import SlidingWindows

TARGET = 0.001
"""The share of late (record, window) pairs that a chosen grace may leave."""
COUNT = Aggregate("count")


@dataclass(frozen=True)
class Question:
    """The arguments of `tg.advise`; times in ms.

    key, timestamp, partition, offset, arrival   names of columns
    windows      the windows, with today's grace
    trigger_ms   the length of a batch by arrival; None for the shortest
    graces_ms    the graces of the table; empty: graces that fit the data
    aggregates   the aggregates of a result, by name
    skips_null_values   whether a record whose value columns are all null is skipped
    """

    key: tuple[str, ...]
    timestamp: str
    windows: AdvisedWindows
    partition: str | None = None
    offset: str | None = None
    arrival: str | None = None
    trigger_ms: int | None = None
    graces_ms: tuple[int, ...] = ()
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    alert: Predicate | None = None
    target: float = TARGET
    skips_null_values: bool = False

    @classmethod
    def of(
        cls,
        key: str | Sequence[str],
        timestamp: str,
        windows: Any,
        *,
        partition: str | None = None,
        offset: str | None = None,
        arrival: str | None = None,
        trigger: Duration | None = None,
        graces: Sequence[Duration] | None = None,
        aggregates: Mapping[str, Aggregate] | None = None,
        alert: Predicate | None = None,
        target: float = TARGET,
    ) -> Question:
        """The checked question. Raises DefinitionError or DefinitionTypeError."""
        if not isinstance(windows, AdvisedWindows):
            raise DefinitionTypeError(
                f"`windows` is {in_one_line(windows)}. Advice is about windows with a grace: use "
                "tg.TimeWindows.of_size_and_grace(size, grace), with the grace of today, or tg.SlidingWindows or "
                "tg.SessionWindows. Batch and unlimited windows have no late records; of a join see tg.advise_join."
            )
        keys = check_columns(key, "key")
        graces_ms = tuple(sorted({_not_negative("graces", grace) for grace in several(graces, "graces")}))
        check_target(target, "late records that a grace may leave", TARGET)
        trigger_ms = None if trigger is None else _not_negative("trigger", trigger)
        if trigger is not None and arrival is None:
            raise DefinitionError(
                "`trigger` cuts the recording into batches by arrival. Give arrival=, the column that says when a "
                "record came, too."
            )
        if trigger_ms == 0:
            raise DefinitionError("`trigger` is 0 milliseconds: leave it out for the shortest batches.")
        aggregates = _checked_aggregates(aggregates)
        if alert is not None:
            check_predicate(alert)
            check_names((*keys, *aggregates))
        if arrival is not None:
            check_column(arrival, "arrival")
        made = cls(
            key=keys,
            timestamp=timestamp,
            windows=windows,
            partition=partition,
            offset=offset,
            arrival=arrival,
            trigger_ms=trigger_ms,
            graces_ms=graces_ms,
            aggregates=aggregates,
            alert=alert,
            target=float(target),
            skips_null_values=isinstance(windows, SlidingWindows),
        )
        _ = made.operation
        return made

    @cached_property
    def operation(self) -> Operation:
        """The aggregation as an operator. Raises DefinitionError if it is not possible."""
        stream = dsl.stream(
            "recording", key=self.key, timestamp=self.timestamp, partition=self.partition, offset=self.offset
        )
        windowed = stream.group_by_key().windowed_by(self.windows).emit_strategy(EmitStrategy.on_window_close())
        return operation(windowed.agg(**dict[str, Any](self.aggregates)).node)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        read = [*self.key, self.timestamp, self.partition, self.offset, self.arrival]
        read += [aggregate.column for aggregate in self.aggregates.values()]
        return tuple(dict.fromkeys(name for name in read if name is not None))

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of times."""
        return tuple(name for name in (self.timestamp, self.arrival) if name is not None)

    def values(self, available: Sequence[str]) -> tuple[str, ...]:
        """The columns of `available` that are values of a record: all but key, time and order. Empty if a record
        without a value is not skipped.
        """
        if not self.skips_null_values:
            return ()
        return tuple(name for name in self.operation.counts_as_value(tuple(available)) if name != self.arrival)

    @property
    def exact(self) -> Ints:
        """The graces (ms) for which all counts are exact: the table has round ones besides those that are asked for."""
        return np.array(sorted({0, self.windows.grace_ms, *self.graces_ms, *ROUND_MS}), np.int64)

    def __str__(self) -> str:
        return f"{self.windows}, grace {show_ms(self.windows.grace_ms)}"


def _checked_aggregates(given: Any) -> dict[str, Aggregate]:
    if given is not None and not isinstance(given, Mapping):
        raise DefinitionTypeError(
            f"`aggregates` is {in_one_line(given)}, not a dict of aggregates by name. Give for example "
            '{"count": tg.count()}.'
        )
    aggregates = dict(given or {"count": COUNT})
    for name, aggregate in aggregates.items():
        check_user_name(name, "An aggregate")
        if not isinstance(aggregate, Aggregate) or aggregate.ordered:
            raise DefinitionTypeError(
                f"The aggregate {name!r} is {in_one_line(aggregate)}. Alerts are computed over built-in aggregates "
                "that do not depend on order: tg.count(), tg.sum(column), tg.min, tg.max, tg.mean, "
                "tg.approx_count_distinct."
            )
    return aggregates


def check_target(target: Any, share: str, usual: float) -> None:
    """Raise DefinitionError unless `target` is a share, a number of numpy too: of what, `share` says."""
    if not isinstance(target, Real) or not 0 <= target < 1:  # type: ignore[operator]
        raise DefinitionError(
            f"`target` is {in_one_line(target)}: it is the share of {share}, from 0 to below 1. Use for example "
            f"{usual}."
        )


def several(values: Any, argument: str) -> tuple[Any, ...]:
    """The values of an argument that takes several; none without it. Raises DefinitionTypeError for one value alone."""
    if values is None:
        return ()
    if isinstance(values, str) or not has(values, "__iter__"):
        raise DefinitionTypeError(f"`{argument}` is {in_one_line(values)}, not a list. Give [{in_one_line(values)}].")
    return tuple(values)


def _not_negative(argument: str, value: Duration) -> int:
    ms = duration_ms(value, argument)
    if ms < 0:
        raise DefinitionError(f'`{argument}` has {show_ms(ms)}: it must not be negative. Use "5 minutes" or the like.')
    return ms
