"""Checks of arguments that several calls share: columns, functions, schemas, and the columns that steps read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidegate.arguments import is_one_of
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.plan import DROP, LATE_RECORDS, Stream, check_roles
from tidegate.spec.columns import check_user_name
from tidegate.spec.steps import Step, check_call, unknown_column

FOLDS, MERGES, REDUCES = ("key", "row", "aggregate"), ("key", "one", "other"), ("aggregate", "value")
"""The arguments of functions that users give: of an aggregator, a merger, and a reducer."""


def check_column(value: str, argument: str) -> str:
    if not isinstance(value, str) or not value:
        raise DefinitionTypeError(
            f"`{argument}` is {in_one_line(value)}, not the name of a column. "
            "Compute an expression with withColumn first and give its name."
        )
    return value


def check_columns(value: str | Sequence[Any], argument: str) -> tuple[str, ...]:
    if not isinstance(value, str | list | tuple):
        raise DefinitionTypeError(
            f"`{argument}` is {in_one_line(value)}. Use the name of a column, or a list of names."
        )
    columns = (value,) if isinstance(value, str) else tuple(value)
    if not columns:
        raise DefinitionError(f"`{argument}` is empty. Name at least one column.")
    for column in columns:
        check_column(column, argument)
    if len(set(columns)) < len(columns):
        raise DefinitionError(f"`{argument}` names a column twice: {', '.join(columns)}.")
    return columns


def check_name(value: Any, otherwise: str) -> str:
    """The name of a stream or a table; `otherwise` if none is given. Raises DefinitionTypeError for what is no text."""
    if value is not None and not isinstance(value, str):
        raise DefinitionTypeError(f'`name` is {in_one_line(value)}, not a text. Use for example name="clicks".')
    return value or otherwise


def check_function(value: Callable[..., Any], argument: str, *given: str) -> Callable[..., Any]:
    """The function `value`. Raises DefinitionTypeError if it cannot be called with the arguments `given`."""
    if not callable(value):
        raise DefinitionTypeError(f"`{argument}` is {value!r}, not a function.")
    check_call(value, argument, given)
    return value


def check_type(declared: Any) -> None:
    """Raise DefinitionError or DefinitionTypeError unless `declared` is a type of an aggregate."""
    from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

    arrow_type(declared)


def check_schema(node: Stream, deleted: str | None = None) -> None:
    """Check the columns of an unbound stream with a declared schema. Raises DefinitionError or DefinitionTypeError."""
    if node.schema is None or node.frame is not None:
        return
    import pyarrow as pa  # here, because plans without schemas need no pyarrow

    from tidegate.spec.types import is_atomic

    if not isinstance(node.schema, pa.Schema):
        raise DefinitionTypeError(f"`schema` is {node.schema!r}, not a pyarrow.Schema. Use pyarrow.schema([...]).")
    for name in node.schema.names:
        check_user_name(name, "A column of the schema")
        if node.schema.names.count(name) > 1:
            raise DefinitionError(f"The schema has two columns {name!r}. Rename or drop one of them.")
    check_roles(node, deleted, node.schema.names, "schema")
    for name in node.key:
        if not is_atomic(kind := node.schema.field(name).type):
            raise DefinitionError(
                f"The key column {name!r} is {kind} in the schema: a key must be of an atomic type. Give its parts as "
                "several key columns."
            )


def check_reads(step: Step, columns: Sequence[str] | None, what: str) -> None:
    """Raise DefinitionError if a step names a column that its input does not have. None: the columns are not known."""
    if columns is not None and (name := unknown_column(step, columns)) is not None:
        raise DefinitionError(
            f"{step} reads the column {name!r}, which the {what} does not have. Its columns are {', '.join(columns)}."
        )


def check_kept(streams: Iterable[Stream], said: str | None = None) -> None:
    """Raise DefinitionError if late records of these streams are asked for, and an argument says to drop them.

    said  the argument of the aggregation, which goes before those of the streams
    """
    drops = any(branch.late_records == DROP for stream in streams for branch in stream.branches)
    if said == DROP or (said is None and drops):
        raise DefinitionError(
            'The late records are asked for, but late_records="drop" says to drop them. Use late_records="keep", '
            "or leave it out: they are kept where an output asks for them."
        )


def check_late_records(value: str | None) -> str | None:
    if value is not None and not is_one_of(value, LATE_RECORDS):
        raise DefinitionError(f'`late_records` is {in_one_line(value)}. Use "drop" or "keep".')
    return value
