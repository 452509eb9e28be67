"""Joins in the logical plan: builds them from two inputs, chooses their clock, and checks their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import DefinitionError, DefinitionTypeError, warn
from tidegate.instants import Duration, duration_ms, show_ms
from tidegate.plan.nodes import (
    Changelog,
    Join,
    Stream,
    Table,
    available_columns,
    check_key,
    inputs_of,
    root_of,
    same,
    window_columns,
    windows_of,
)
from tidegate.spec.clock import Clock, check_aggregated, joined_clock
from tidegate.spec.columns import WINDOW, public_key
from tidegate.spec.joined import (
    OUTER,
    Joined,
    StreamStream,
    StreamTable,
    TableTable,
    checked_how,
    checked_suffixes,
    join_values_of,
)
from tidegate.spec.materialized import Materialized
from tidegate.spec.windows import LEFT, RIGHT, JoinWindows


@dataclass(frozen=True)
class Asked:
    """The arguments of a join besides its inputs, as the user gave them."""

    how: Any
    value_joiner: Any = None
    suffixes: Any = None
    types: Mapping[str, Any] | None = None
    materialized: Materialized | None = None

    def checked(self, key: tuple[str, ...]) -> dict[str, Any]:
        """The fields of `spec.joined.Joined`. Raises DefinitionError or DefinitionTypeError for wrong arguments."""
        if self.materialized is not None and not isinstance(self.materialized, Materialized):
            raise DefinitionTypeError(f'`materialized` is {self.materialized!r}. Use Materialized.as_("name").')
        shown = public_key(key)
        return {
            "how": checked_how(self.how),
            "suffixes": checked_suffixes(self.suffixes),
            "values": join_values_of(self.value_joiner, self.types, shown, (*shown, WINDOW, "timestamp", "deleted")),
        }

    @property
    def store(self) -> str:
        """The name of the operator."""
        return "join" if self.materialized is None else self.materialized.name


def join_streams(left: Stream, right: Stream, windows: Any, asked: Asked) -> Join:
    """The join of two streams, or of a stream with itself (`KStream.join`)."""
    if not isinstance(windows, JoinWindows):
        raise DefinitionTypeError(
            f"`windows` is {windows!r}. Use JoinWindows, for example "
            'JoinWindows.of_time_difference_and_grace("5 minutes", "1 minute").'
        )
    _check_keys(left, right)
    alone = same(left, right)
    joined = StreamStream(windows=windows, self_join=alone, **asked.checked(left.key))
    _check_columns(joined, left, right)
    clock = left.clock if alone else joined_clock(_clock_of(left), _clock_of(right))
    if not alone and not clock.chosen:
        clock = clock.said_by([one.clock for one in (*inputs_of(left), *inputs_of(right))])
    if clock.slowest and clock.idle_after_ms is None and not clock.chosen:
        warn(
            f"The join of {left.name!r} with {right.name!r} goes by the time of the slower side, and a side "
            'that is silent holds the other one back for ever. Give the streams idle_after="5 minutes", or '
            'stream_time="max" for the largest timestamp of both.'
        )
    name = f"{left.name} join {right.name}"
    return Join(_input(left), None if alone else _input(right), joined, name, asked.store, clock)


def join_table(left: Stream, table: Table, grace: Duration | None, asked: Asked) -> Join:
    """The join of a stream with a table (`KStream.join`)."""
    right, deleted = table_input(table)
    _check_keys(left, right)
    fields = asked.checked(left.key)
    if fields["how"] == OUTER:
        raise DefinitionError(
            '`how` is "outer": only records of the stream make rows, so a row of the table cannot leave alone. '
            'Use "inner" or "left", or join two tables.'
        )
    history_ms = _history_of(table)
    grace_ms = 0 if grace is None else duration_ms(grace, "grace")
    if grace_ms < 0:
        raise DefinitionError(
            f"`grace` is {show_ms(grace_ms)}: it must not be negative. Leave it out to wait for nothing."
        )
    if grace_ms and (history_ms is None or history_ms < grace_ms):
        has = "no history" if history_ms is None else f"a history of {show_ms(history_ms)}"
        raise DefinitionError(
            f"`grace` is {show_ms(grace_ms)}, and the table has {has}: when a record has waited, its row is gone. "
            f"Give the table a history of at least the grace, tg.table(..., history={show_ms(grace_ms)!r})."
        )
    clock = _clock_of(left)
    check_aggregated(clock)
    joined = StreamTable(history_ms=history_ms, grace_ms=grace_ms, **fields)
    _check_columns(joined, left, right, (None, deleted))
    name = f"{left.name} join {right.name}"
    return Join(_input(left), right, joined, name, asked.store, clock, (None, deleted))


def join_tables(left: Table, right: Table, asked: Asked) -> Join:
    """The join of two tables (`KTable.join`)."""
    (one, gone), (other, others_gone) = table_input(left), table_input(right)
    _check_keys(one, other)
    checked, histories = asked.checked(one.key), (_history_of(left), _history_of(right))
    caching = asked.materialized is None or asked.materialized.caching
    joined = TableTable(caching=caching, histories=histories, **checked)
    _check_columns(joined, one, other, (gone, others_gone))
    name = f"{one.name} join {other.name}"
    return Join(one, other, joined, name, asked.store, Clock(), (gone, others_gone))


def _history_of(table: Table) -> int | None:
    """How long a table keeps versions (ms); None if it keeps only the latest row."""
    root = root_of(table)
    return root.history_ms if isinstance(root, Changelog) else None


def table_input(table: Table) -> tuple[Stream, str | None]:
    """A table as the input of a join: the stream of its changes, and the column that marks deleted rows."""
    if isinstance(table, Changelog):
        return table.stream, table.deleted
    root = root_of(table)
    key = root.key if windows_of(table) is None else (*root.key, *window_columns(table))
    return Stream(
        root.stream.name, key, "timestamp", table=table, non_values=(WINDOW, "deleted"), forwarded=True
    ), "deleted"


def _input(node: Stream) -> Stream:
    return forwarded(node, node.key)


def forwarded(node: Stream, key: tuple[str, ...]) -> Stream:
    """A stream as the input of an operator. Rows of another operator (changes of a table, rows of a join) are marked as
    `forwarded`.
    """
    if node.sources:
        return replace(node, sources=tuple(forwarded(one, key) for one in node.sources))
    if node.table is None:
        return node
    root = root_of(node.table)
    name = f"{root.stream.name} by {', '.join(public_key(key))}"
    follows = root.name if isinstance(root, Join) and root.clock.slowest else None
    return Stream(
        name,
        node.key,
        "timestamp",
        table=node,
        non_values=node.non_values,
        forwarded=True,
        follows=follows,
        number=node.number,
    )


def _check_keys(left: Stream, right: Stream) -> None:
    """Raise DefinitionError if the sides have different key columns, or one with a reserved name."""
    if left.key != right.key:
        raise DefinitionError(
            f"join: the key of {left.name!r} is {', '.join(public_key(left.key))} and that of {right.name!r} "
            f"{', '.join(public_key(right.key))}. Records meet by key: use select_key, so that the columns have one "
            "name."
        )
    check_key(left.key)


def _clock_of(node: Stream) -> Clock:
    """The clock of one side; for rows of a join, the clock of that join."""
    return node.table.clock if isinstance(node.table, Join) else node.clock


def _check_columns(
    joined: Joined, left: Stream, right: Stream, deletions: tuple[str | None, str | None] = (None, None)
) -> None:
    """Check the names of value columns, if they are known. Raises DefinitionError if they must be known and are not."""
    of_left, of_right = _values(left, deletions[LEFT]), _values(right, deletions[RIGHT])
    if joined.values is None and of_left is not None and of_right is not None:
        joined.names(of_left, of_right)
    if joined.values is not None and of_left is not None and of_right is not None:
        joined.values.check_reads(of_left, of_right)
    needs = "an expression of a `value_joiner`" if joined.values is not None and joined.values.expressions else None
    needs = "`suffixes`" if joined.values is None and joined.suffixes is not None else needs
    for node, known in ((left, of_left), (right, of_right)):
        behind = any(branch.table is not None for branch in node.branches)
        if needs is not None and known is None and not behind and not joined.self_join:
            raise DefinitionError(
                f"join: {needs} must know the columns of both sides, and those of {node.name!r} are not known yet. "
                "Give tg.stream(..., schema=pyarrow.schema(...))."
            )


def _values(node: Stream, deleted: str | None) -> tuple[str, ...] | None:
    """The value columns of a stream without the column `deleted`; None if they are not known yet."""
    available = available_columns(node)
    return None if available is None else tuple(name for name in available if name not in (*node.kept, deleted))
