"""Stateless steps: which records (or rows of a table) go on, and with which values and key.

A function is given the row as a dict of its columns, or the key and the row if it takes two arguments (`key` as in
`aggregate`: a scalar, or a tuple for several columns). An expression is one of pyarrow.compute, such as
`pc.field("price") > 3`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.spec.columns import check_user_name

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Filter:
    """Rows for which `predicate` is true go on.

    What becomes of the others: a table's turns into a tombstone (`tombstones`), a stream's is gone.
    """

    predicate: Any
    key: tuple[str, ...]
    tombstones: bool = False

    def __str__(self) -> str:
        return f"filter({_shown(self.predicate)})"


@dataclass(frozen=True)
class MapValues:
    """New value columns: those of the dict that a function returns, or one by one by function, expression or name.

    `types` are the types of what functions give, by column; without them they are taken from the values. `kept` are
    the columns that are no values.
    """

    mapper: Any
    key: tuple[str, ...]
    kept: tuple[str, ...]
    types: tuple[tuple[str, Any], ...] = ()

    @property
    def typed(self) -> bool:
        """Whether the columns and their types are known without a row."""
        given = dict(self.types)
        if callable(self.mapper):
            return bool(given)
        return all(name in given or not callable(how) for name, how in self.mapper)

    @property
    def columns(self) -> tuple[str, ...]:
        """The value columns, as far as they are known without a row."""
        named = () if callable(self.mapper) else tuple(name for name, _ in self.mapper)
        return tuple(dict.fromkeys([*named, *dict(self.types)]))

    def __str__(self) -> str:
        shown = (
            _shown(self.mapper) if callable(self.mapper) else ", ".join(f"{n} = {_shown(h)}" for n, h in self.mapper)
        )
        return f"map_values({shown})"


@dataclass(frozen=True)
class SelectKey:
    """A new key: what `function` gives, as the column `name` of type `type`."""

    function: Callable[..., Any]
    key: tuple[str, ...]
    name: str
    type: Any

    def __str__(self) -> str:
        return f"select_key({_shown(self.function)})"


@dataclass(frozen=True)
class OneColumn:
    """Each record as one column (`spec.columns.ROW`), beside the columns `kept`: inputs of a cogroup have others.

    number  which input it is
    key     its key columns
    """

    number: int
    key: tuple[str, ...]
    kept: tuple[str, ...]

    def __str__(self) -> str:
        return f"cogroup input {self.number + 1}"


Step: TypeAlias = "Filter | MapValues | SelectKey | OneColumn"


def is_expression(value: Any) -> bool:
    """Whether this is an expression of pyarrow.compute, asked without importing it."""
    return type(value).__name__ == "Expression" and type(value).__module__.startswith("pyarrow")


def takes_key(function: Callable[..., Any], others: int = 1) -> bool:
    """Whether a function wants the key and the row, rather than the row alone; or the key and so many `others`."""
    return _needs(function) == others + 1


def _needs(function: Callable[..., Any]) -> int:
    """How many arguments a function must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have none
        return 0
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len([p for p in positional if p.default is p.empty])


def filter_of(predicate: Any, key: tuple[str, ...], tombstones: bool) -> Filter:
    """Raises DefinitionTypeError if `predicate` is neither a function nor an expression."""
    if not callable(predicate) and not is_expression(predicate):
        raise DefinitionTypeError(
            f'`predicate` is {predicate!r}. Use a function of the row, such as lambda row: row["price"] > 3, or a '
            'pyarrow.compute expression, such as pc.field("price") > 3.'
        )
    return Filter(predicate, key, tombstones)


def map_values_of(
    mapper: Any, types: Mapping[str, Any] | None, key: tuple[str, ...], kept: tuple[str, ...]
) -> MapValues:
    """Raises DefinitionTypeError for a mapper of the wrong kind, DefinitionError for a column that it cannot set."""
    from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

    if isinstance(mapper, Mapping):
        for name, how in mapper.items():
            if not (callable(how) or is_expression(how) or isinstance(how, str)):
                raise DefinitionTypeError(
                    f"`mapper` gives the column {name!r} as {how!r}. Use a function of the row, a pyarrow.compute "
                    'expression such as pc.field("price") * 2, or the name of a column.'
                )
        mapper = tuple(mapper.items())
    elif not callable(mapper):
        raise DefinitionTypeError(
            f"`mapper` is {mapper!r}. Use a function that takes the row and returns a dict of its new value columns, "
            "or a dict of them, each as a function, an expression or the name of a column."
        )
    given = tuple((types or {}).items())
    for _, kind in given:
        arrow_type(kind)
    for name in [*([] if callable(mapper) else (name for name, _ in mapper)), *(name for name, _ in given)]:
        check_user_name(name, "A column that `mapper` gives")
        if name in kept:
            raise DefinitionError(
                f"`mapper` sets the column {name!r}, which is no value: key, time and order of a record stay as they "
                "are. Use another name, or select_key for another key."
            )
    return MapValues(mapper, key, kept, given)


_NO_SUCH_FIELD = re.compile(r"No match for (FieldRef\.\S+(?: FieldRef\.\S+)*)")
"""How Arrow says that there is no column of a name, or no field of a name in one."""
_NAME = re.compile(r"Name\((.+?)\)")


def unknown_column(step: Step, columns: Sequence[str]) -> str | None:
    """The first column that a step names and `columns` lack; what a Python function reads shows when it runs."""
    if isinstance(step, Filter):
        named = [step.predicate]
    else:
        named = [how for _, how in step.mapper] if isinstance(step, MapValues) and not callable(step.mapper) else []
    for how in named:
        if isinstance(how, str) and how not in columns:
            return how
        if is_expression(how) and (name := _unknown_field(how, columns)) is not None:
            return name
    return None


def _unknown_field(expression: Any, columns: Sequence[str]) -> str | None:
    import pyarrow as pa

    error = refusal_of(expression, pa.schema([(name, pa.null()) for name in columns]))
    return None if error is None else no_such_field(error, columns)


def computed(expression: Any, rows: pa.Table) -> pa.ChunkedArray:
    """What an expression gives for each row of an Arrow table. Raises what Arrow raises."""
    from pyarrow import acero

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["x"]), [source])
    return project.to_table(use_threads=False)["x"]


def refusal_of(expression: Any, schema: Any) -> Exception | None:
    """What Arrow says where it cannot compute an expression over rows of this schema; None if it can."""
    import pyarrow as pa

    try:
        computed(expression, schema.empty_table())
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        return error
    return None


def no_such_field(error: Exception, columns: Sequence[str]) -> str | None:
    """The name of the column that Arrow did not find among `columns`; None if `error` is about something else."""
    name = next(iter(no_such_fields(error)), None)
    return name if name not in columns else None


def no_such_fields(error: Exception) -> list[str]:
    """The names of a column and of the fields in it that Arrow did not find; empty if `error` is something else."""
    found = _NO_SUCH_FIELD.search(str(error))
    return _NAME.findall(found[1]) if found else []


def _shown(how: Any) -> str:
    return getattr(how, "__qualname__", None) or str(how)
