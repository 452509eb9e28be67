"""Stateless steps over records or rows of a table: filter, map_values, select_key.

A function gets the row as a dict of its columns, or the key and the row if it takes two arguments (`key` as in
`aggregate`: a scalar, or a tuple for several columns). An expression is one of pyarrow.compute, such as
`pc.field("price") > 3`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.spec.columns import check_user_name

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Filter:
    """Keeps rows for which `predicate` is true.

    Other rows are dropped; with `tombstones` (in a table) they become tombstones.
    """

    predicate: Any
    key: tuple[str, ...]
    tombstones: bool = False

    def __str__(self) -> str:
        return f"filter({text_of(self.predicate)})"


@dataclass(frozen=True)
class MapValues:
    """New value columns. `mapper` is a function that returns a dict of them, or (column, function, expression or name)
    pairs.

    `types` are the types of function results by column; without them the values decide. `kept` are the columns that are
    not values.
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
        """The value columns that are known without a row."""
        named = () if callable(self.mapper) else tuple(name for name, _ in self.mapper)
        return tuple(dict.fromkeys([*named, *dict(self.types)]))

    def __str__(self) -> str:
        shown = (
            text_of(self.mapper) if callable(self.mapper) else ", ".join(f"{n} = {text_of(h)}" for n, h in self.mapper)
        )
        return f"map_values({shown})"


@dataclass(frozen=True)
class SelectKey:
    """A new key: the result of `function`, as the column `name` of type `type`."""

    function: Callable[..., Any]
    key: tuple[str, ...]
    name: str
    type: Any

    def __str__(self) -> str:
        return f"select_key({text_of(self.function)})"


@dataclass(frozen=True)
class OneColumn:
    """Packs each record into one column (`spec.columns.ROW`), beside the columns `kept`: the inputs of a cogroup have
    different columns.

    number  the number of the input
    key     its key columns
    """

    number: int
    key: tuple[str, ...]
    kept: tuple[str, ...]

    def __str__(self) -> str:
        return f"cogroup input {self.number + 1}"


Step: TypeAlias = "Filter | MapValues | SelectKey | OneColumn"


def is_expression(value: Any) -> bool:
    """Whether `value` is an expression of pyarrow.compute; does not import pyarrow."""
    return type(value).__name__ == "Expression" and type(value).__module__.startswith("pyarrow")


def takes_key(function: Callable[..., Any], others: int = 1) -> bool:
    """Whether a function takes the key besides `others` other arguments (by default the row)."""
    return _needs(function) == others + 1


def _needs(function: Callable[..., Any]) -> int:
    """The number of arguments that a function requires."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have none
        return 0
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len([p for p in positional if p.default is p.empty])


def check_call(function: Callable[..., Any], argument: str, given: Sequence[str]) -> None:
    """Raise DefinitionTypeError if `argument` is a function that cannot be called with the arguments `given`."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise DefinitionTypeError(
            f"`{argument}` is {text_of(function)}, which cannot be called as {argument}({', '.join(given)}): {error}. "
            "Give a function of these arguments."
        ) from None


def check_call_of_row(function: Callable[..., Any], argument: str) -> None:
    """`check_call` for a function of the row, or of key and row."""
    check_call(function, argument, ("key", "row") if takes_key(function) else ("row",))


def filter_of(predicate: Any, key: tuple[str, ...], tombstones: bool) -> Filter:
    """The step. Raises DefinitionTypeError if `predicate` is neither a function nor an expression."""
    if not callable(predicate) and not is_expression(predicate):
        raise DefinitionTypeError(
            f'`predicate` is {predicate!r}. Use a function of the row, such as lambda row: row["price"] > 3, or a '
            'pyarrow.compute expression, such as pc.field("price") > 3.'
        )
    if callable(predicate):
        check_call_of_row(predicate, "predicate")
    return Filter(predicate, key, tombstones)


def map_values_of(
    mapper: Any, types: Mapping[str, Any] | None, key: tuple[str, ...], kept: tuple[str, ...]
) -> MapValues:
    """The step. Raises DefinitionTypeError for a wrong mapper, DefinitionError for a column that it cannot set."""
    _check_mapper(mapper)
    given = declared_types(types)
    typed = [name for name, _ in given]
    made = list(mapper) if isinstance(mapper, Mapping) else typed
    for name in typed:
        if name not in made:
            raise DefinitionError(
                f"`types` has a column {name!r}, which `mapper` does not give. It gives {', '.join(map(str, made))}."
            )
    for name in made:
        check_user_name(name, "A column that `mapper` gives")
        if name in kept:
            raise DefinitionError(
                f"`mapper` sets the column {name!r}, which is no value: key, time and order of a record stay as they "
                "are. Use another name, or select_key for another key."
            )
    return MapValues(tuple(mapper.items()) if isinstance(mapper, Mapping) else mapper, key, kept, given)


def _check_mapper(mapper: Any) -> None:
    """Raise DefinitionTypeError unless this is a function of the row, or a dict of columns."""
    if not isinstance(mapper, Mapping):
        if not callable(mapper):
            raise DefinitionTypeError(
                f"`mapper` is {mapper!r}. Use a function that takes the row and returns a dict of its new value "
                "columns, or a dict of them, each as a function, an expression or the name of a column."
            )
        check_call_of_row(mapper, "mapper")
        return
    for name, how in mapper.items():
        if not (callable(how) or is_expression(how) or isinstance(how, str)):
            raise DefinitionTypeError(
                f"`mapper` gives the column {name!r} as {how!r}. Use a function of the row, a pyarrow.compute "
                'expression such as pc.field("price") * 2, or the name of a column.'
            )
        if callable(how):
            check_call_of_row(how, f"mapper[{name!r}]")


def declared_types(types: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    """The argument `types`, checked. Raises DefinitionTypeError unless it is a dict of types by column."""
    from tidegate.spec.types import arrow_type  # here, because it imports pyarrow

    if types is not None and not isinstance(types, Mapping):
        raise DefinitionTypeError(
            f"`types` is {in_one_line(types)}, not a dict. Give the type of each column by its name, for example "
            'types={"total": "long"}.'
        )
    given = tuple((types or {}).items())
    for _, kind in given:
        arrow_type(kind)
    return given


_NO_SUCH_FIELD = re.compile(
    r"No match for FieldRef\.(?:Name\((.*?)\)|Nested\(FieldRef\.Name\((.*?)\)\)) in ", re.DOTALL
)
"""Arrow's error text for a missing column, or a missing field in a column. A name may hold spaces and brackets."""


def unknown_column(step: Step, columns: Sequence[str]) -> str | None:
    """The first column that a step names and `columns` lack, else None. A Python function hides its reads."""
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

    from tidegate.spec.types import LIKELY

    for kind in (pa.null(), *LIKELY):  # a function that refuses a type hides missing fields, so try several types
        error = refusal_of(expression, pa.schema([(name, kind) for name in columns]))
        if error is None or (name := no_such_field(error, columns)) is not None:
            return None if error is None else name
    return None


def computed(expression: Any, rows: pa.Table) -> pa.ChunkedArray:
    """The values of an expression for the rows of an Arrow table. Raises Arrow's errors."""
    from pyarrow import acero

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["x"]), [source])
    return project.to_table(use_threads=False)["x"]


def refusal_of(expression: Any, schema: Any) -> Exception | None:
    """Arrow's error for an expression over rows of this schema; None if Arrow can compute it."""
    import pyarrow as pa

    try:
        computed(expression, schema.empty_table())
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        return error
    return None


def why_refused(error: Exception) -> str:
    """Arrow's reason for an error of `computed`, in one line; of decimals also what to write.

    Arrow takes a written 5 for the narrowest integer, and then for a decimal of three digits, which no long fits.
    """
    said = str(error).partition("\n")[0]
    if "Precision is not great enough" in said:
        return f'{said}. Beside a decimal write a whole number as a decimal: Decimal("5") or 5.0, and not 5'
    if "Decimal precision out of range" in said:
        return (
            f"{said}. The result would have more than 38 digits. Cast a decimal to fewer digits in front, for example "
            'pc.field("price").cast(pyarrow.decimal128(12, 2)). In the test driver decimals have 38 digits, unless a '
            "schema declares fewer, tg.stream(..., schema=pyarrow.schema(...))"
        )
    return said


def no_such_field(error: Exception, columns: Sequence[str]) -> str | None:
    """The name of the column that Arrow did not find among `columns`; None if `error` is about something else."""
    name = next(iter(no_such_fields(error)), None)
    return name if name not in columns else None


def no_such_fields(error: Exception) -> list[str]:
    """The path of names (column, field in it) that Arrow did not find; empty if `error` is about something else."""
    found = _NO_SUCH_FIELD.search(str(error))
    if found is None:
        return []
    one, path = found.groups()
    return [one] if path is None else path.partition(") FieldRef.FieldPath(")[0].split(") FieldRef.Name(")


def text_of(how: Any) -> str:
    """The text of a function, an expression or the name of a column: the same in every process, without addresses."""
    if isinstance(how, partial):
        return f"partial({text_of(how.func)})"
    kind: Any = type(how)
    if not callable(how) or kind.__str__ is not object.__str__:
        return str(how)
    return getattr(how, "__qualname__", None) or str(kind.__qualname__)
