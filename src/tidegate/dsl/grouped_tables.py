"""Tables whose rows are grouped by other columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.dsl.aggregating import WAYS_OF_GROUPS, Aggregating, aggregated
from tidegate.dsl.checks import FOLDS, REDUCES, check_column, check_function, check_type
from tidegate.dsl.tables import KTable
from tidegate.errors import DefinitionError
from tidegate.spec.aggregates import Aggregate, Fold, Reduce
from tidegate.spec.materialized import Materialized


@dataclass(frozen=True, repr=False)
class KGroupedTable(Aggregating):
    """A table grouped by other columns: a change removes the old row from its group and adds the new row to its group.

    Examples:
        >>> users = tg.table("users", key="user", timestamp="ts")
        >>> driver = TopologyTestDriver(users.group_by("city").count())
        >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome"})
        >>> driver.pipe_input({"user": "A", "ts": 2, "city": "Oslo"})
        >>> [(row["city"], row["count"]) for row in driver.read_output()]
        [('Rome', 1), ('Rome', 0), ('Oslo', 1)]
    """

    _ways: ClassVar[Mapping[str, str]] = WAYS_OF_GROUPS | dict.fromkeys(
        ("windowed_by", "emit_strategy"),
        "Windows are of records: take the changes of the table, table.to_stream().group_by(...).windowed_by(...)",
    )

    def agg(
        self,
        materialized: Materialized | None = None,
        /,
        *unnamed: Any,
        **aggregates: Any,
    ) -> KTable:
        """One column per aggregate: count, sum or mean, as only these can subtract a value. Else use `aggregate`.

        Args:
            materialized: The name and the settings of the store.
            *unnamed: Always rejected; the error suggests names.
            **aggregates: The aggregates, each by the name of its column.

        Returns:
            The table.

        Raises:
            DefinitionError: An aggregate cannot subtract a value.
            DefinitionTypeError: A value is no aggregate, or has no name.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> driver = TopologyTestDriver(users.group_by("city").agg(age=tg.mean("age")))
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome", "age": 30})
            >>> driver.read_output()[0]["age"]
            30.0
        """
        for name, aggregate in aggregates.items():
            if isinstance(aggregate, Aggregate) and not aggregate.invertible:
                raise DefinitionError(
                    f"`{name}` is {aggregate}: when a row leaves its group, its value cannot be taken out of that "
                    "again. Use count, sum or mean, or aggregate(initializer, adder, subtractor, type=...)."
                )
        return super().agg(materialized, *unnamed, **aggregates)

    def reduce(  # type: ignore[override]
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        column: str,
        name: str | None = None,
        *,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Combine the values of a column, and subtract the values of rows that leave their group.

        The first value is the first aggregate. If a function returns None, the group is deleted.

        Args:
            adder: `adder(aggregate, value)` for a value that enters a group.
            subtractor: `subtractor(aggregate, value)` for a value that leaves a group.
            column: The column of the values.
            name: The column of the result; left out, the column of the values.
            materialized: The name and the settings of the store.

        Returns:
            The table.

        Raises:
            DefinitionTypeError: An argument is no function.
            DefinitionError: The name is taken, or a column does not exist.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> total = users.group_by("city").reduce(lambda a, b: a + b, lambda a, b: a - b, "age")
            >>> driver = TopologyTestDriver(total)
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome", "age": 30})
            >>> driver.read_output()[0]["age"]
            30
        """
        functions = check_function(adder, "adder", *REDUCES), check_function(subtractor, "subtractor", *REDUCES)
        reduce = Reduce(functions[0], check_column(column, "column"), functions[1])
        called = column if name is None else check_column(name, "name")
        return aggregated(self, ((called, reduce),), materialized)

    def aggregate(  # type: ignore[override]
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, dict[str, Any], Any], Any],
        subtractor: Callable[[Any, dict[str, Any], Any], Any],
        *,
        type: Any,
        name: str = "aggregate",
        materialized: Materialized | None = None,
    ) -> KTable:
        """Fold the rows of a group, and subtract the rows that leave it.

        A result of None deletes the group.

        Args:
            initializer: A function without arguments: the aggregate of no row.
            adder: `adder(key, row, aggregate)` for a row that enters a group; `key` is the key of the group, `row` a
                dict of the table's key and values.
            subtractor: `subtractor(key, row, aggregate)` for a row that leaves a group.
            type: A Spark type string, a type of PySpark, or a pyarrow type.
            name: The column of the result.
            materialized: The name and the settings of the store.

        Returns:
            The table.

        Raises:
            DefinitionTypeError: An argument is no function, or `type` is no type.
            DefinitionError: The name is taken, or `type` is a text that is no type.

        Examples:
            >>> users = tg.table("users", key="user", timestamp="ts")
            >>> names = users.group_by("city").aggregate(
            ...     list,
            ...     lambda key, row, aggregate: sorted([*aggregate, row["user"]]),
            ...     lambda key, row, aggregate: [user for user in aggregate if user != row["user"]],
            ...     type="array<string>",
            ... )
            >>> driver = TopologyTestDriver(names)
            >>> driver.pipe_input({"user": "A", "ts": 1, "city": "Rome"})
            >>> driver.read_output()[0]["aggregate"]
            ['A']
        """
        check_type(type)
        functions = (
            check_function(adder, "adder", *FOLDS),
            check_function(subtractor, "subtractor", *FOLDS),
        )
        fold = Fold(check_function(initializer, "initializer"), functions[0], type, subtractor=functions[1])
        return aggregated(self, ((name, fold),), materialized)
