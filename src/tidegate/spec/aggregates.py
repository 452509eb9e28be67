"""The aggregates: built-in ones by name and column, and plain Python functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.errors import DefinitionTypeError
from tidegate.spec.columns import ROW

ORDERED = frozenset({"first", "last", "collect_list"})
"""Aggregates whose result depends on the order of the records."""


@dataclass(frozen=True)
class Aggregate:
    """A built-in aggregate over one column (None: over the records themselves)."""

    function: str
    column: str | None = None

    @property
    def ordered(self) -> bool:
        """Whether the order of the records can change the result."""
        return self.function in ORDERED

    @property
    def nothing(self) -> Any:
        """The result over no records."""
        return [] if self.function == "collect_list" else 0 if "count" in self.function else None

    @property
    def invertible(self) -> bool:
        """Whether a value can be subtracted again."""
        return self.function in ("count", "sum", "mean")

    def __str__(self) -> str:
        return f"{self.function}({self.column or ''})"


def count(column: str | None = None) -> Aggregate:
    """The number of records, or of the values in `column` that are not null; a long.

    Args:
        column: A column whose nulls are not counted; left out, records are counted.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.count("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        3
    """
    return Aggregate("count", None if column is None else _column(column, "count"))


def sum(column: str) -> Aggregate:
    """The sum of a numeric column, null if there is no value: long, double or a decimal ten digits wider.

    An integer or decimal that overflows is an AggregationError, never a wrapped value.

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.sum("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        19
    """
    return Aggregate("sum", _column(column, "sum"))


def min(column: str) -> Aggregate:
    """The smallest value that is not null; NaN is larger than every other number, as in Spark.

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.min("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        5
    """
    return Aggregate("min", _column(column, "min"))


def max(column: str) -> Aggregate:
    """The largest value that is not null; NaN is larger than every other number, as in Spark.

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.max("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        7
    """
    return Aggregate("max", _column(column, "max"))


def mean(column: str) -> Aggregate:
    """The average of the values that are not null: a double; for decimals, a decimal with four more digits of scale.

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.mean("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        6.333333333333333
    """
    return Aggregate("mean", _column(column, "mean"))


def first(column: str) -> Aggregate:
    """The value of the first record, null included, in the order (stream time seen, partition, offset).

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.first("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        5
    """
    return Aggregate("first", _column(column, "first"))


def last(column: str) -> Aggregate:
    """The value of the last record, null included, in the order (stream time seen, partition, offset).

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.last("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        7
    """
    return Aggregate("last", _column(column, "last"))


def collect_list(column: str) -> Aggregate:
    """The values that are not null, in the order (stream time seen, partition, offset).

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.collect_list("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        [5, 7, 7]
    """
    return Aggregate("collect_list", _column(column, "collect_list"))


def approx_count_distinct(column: str) -> Aggregate:
    """The number of distinct values, estimated by a sketch of 512 registers (4.6 % relative standard deviation).

    Args:
        column: The name of the column.

    Returns:
        An aggregate, for `agg`.

    Raises:
        DefinitionTypeError: `column` is not the name of a column.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().agg(x=tg.approx_count_distinct("price")))
        >>> driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([5, 7, 7])])
        >>> driver.read_output()[0]["x"]
        2
    """
    return Aggregate("approx_count_distinct", _column(column, "approx_count_distinct"))


def _column(column: str, function: str) -> str:
    if not isinstance(column, str) or not column:
        raise DefinitionTypeError(
            f"tg.{function} takes the name of a column, not {column!r}. "
            "Compute an expression with withColumn before tg.stream and name it here."
        )
    return column


@dataclass(frozen=True)
class Reduce:
    """`function(aggregate, value)` over one column; the first value is the first aggregate.

    For a regrouped table, `subtractor(aggregate, value)` removes a value again.
    """

    function: Callable[[Any, Any], Any]
    column: str
    subtractor: Callable[[Any, Any], Any] | None = None

    def __str__(self) -> str:
        return f"reduce({_name(self.function)}, {self.column})"


@dataclass(frozen=True)
class Fold:
    """`initializer()`, then `aggregator(key, row, aggregate)`; `merger(key, a, b)` merges two sessions.

    For a regrouped table, `subtractor(key, row, aggregate)` removes a row again. `vectorized`: the aggregator takes and
    returns Arrow arrays with one record of each of many keys.
    """

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, dict[str, Any], Any], Any]
    type: Any
    merger: Callable[[Any, Any, Any], Any] | None = None
    subtractor: Callable[[Any, Any, Any], Any] | None = None
    vectorized: bool = False

    def __str__(self) -> str:
        return f"aggregate({_name(self.aggregator)}) as {self.type}"


@dataclass(frozen=True)
class Cogroup(Fold):
    """A `Fold` over several inputs, with an aggregator for each (KIP-150)."""

    aggregator: PerInput

    def __str__(self) -> str:
        return f"cogroup({', '.join(map(_name, self.aggregator.aggregators))}) as {self.type}"


@dataclass(frozen=True)
class PerInput:
    """Calls the aggregator of a record's input: the row has one column, which names the input and holds the record."""

    aggregators: tuple[Callable[[Any, dict[str, Any], Any], Any], ...]

    def __call__(self, key: Any, row: dict[str, Any], aggregate: Any) -> Any:
        number, record = record_of_input(row)
        return self.aggregators[number](key, record, aggregate)


def record_of_input(row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The number of a record's input in a cogroup, and the record with the columns of that input."""
    return next((int(name.removeprefix(ROW)), record) for name, record in row.items() if record is not None)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


Aggregation = Aggregate | Reduce | Fold
