"""The rows of one output for a sink: their columns, their key, and whether a row can change once it is out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NullType, StructField, StructType, TimestampType

from tidegate.arguments import is_one_of
from tidegate.dsl import Result
from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateWarning, in_one_line
from tidegate.plan import LateRecords, Outputs, Plan, Stream, describe, operation, windows_of
from tidegate.runtime.spark.frames.names import col
from tidegate.runtime.spark.to_spark import to_df
from tidegate.spec.columns import WINDOW, public_key
from tidegate.spec.windows import SessionWindows

APPEND, UPSERT = "append", "upsert"
MODES = (APPEND, UPSERT)

WINDOW_START, WINDOW_END = "window_start", "window_end"
DELETED = "deleted"
"""The column of tombstones, as rows of a result have it."""


@dataclass(frozen=True)
class Rows:
    """The rows of one output, as a sink has them: `window` becomes the columns `window_start` and `window_end`.

    output   the name of the output; None if there is only one
    fields   the columns; without `deleted` in an upsert, which deletes the row, and of final results that are appended
    key      the columns by which a row replaces another; empty if no row does
    once     whether a row is the last word about its key
    mode     "append" or "upsert"
    windowed whether the rows have a window; without one its two names are free
    skips_tombstones
             whether tombstones are left out: a final result that no row came before has none to delete
    """

    output: str | None
    fields: tuple[StructField, ...]
    key: tuple[str, ...]
    once: bool
    mode: str
    windowed: bool = False
    skips_tombstones: bool = False

    @property
    def called(self) -> str:
        return "the rows" if self.output is None else f"the output {self.output!r}"

    @property
    def upserts(self) -> bool:
        return self.mode == UPSERT

    def kind(self, name: str) -> DataType:
        """The type of a column."""
        return next(field.dataType for field in self.fields if field.name == name)

    def column(self, name: str) -> Column:
        """A column of the sink, made of columns of the frame."""
        if self.windowed and name in (WINDOW_START, WINDOW_END):
            return F.col(f"{WINDOW}.{name.removeprefix('window_')}")
        return col(name)

    def deleted(self, frame_columns: Sequence[str]) -> Column:
        """Whether a row is a tombstone."""
        return F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in frame_columns else F.lit(False)


def rows_of(table: Any, modes: dict[str | None, str | None]) -> dict[str | None, Rows]:
    """The rows of each output of `table` by its name, written in these modes (None: the mode that fits the plan).

    Raises DefinitionError if outputs and modes have other names, or if rows cannot be written in their mode.
    """
    if isinstance(table, DataFrame) or not isinstance(table, Result):
        raise DefinitionTypeError(
            f"`table` is {in_one_line(table)}. Use a table, a stream, or tg.outputs(...): a sink must know key and "
            "kind of the rows, which a DataFrame does not tell."
        )
    if isinstance(table.node, Outputs):
        named: dict[str | None, Plan] = dict(table.node.named)
    else:
        named = {None: table.node}
    if set(named) != set(modes):
        raise DefinitionError(_other_outputs(list(named), list(modes)))
    return {name: _rows(name, node, modes[name]) for name, node in named.items()}


def without_tombstones(frame: DataFrame, rows: Iterable[Rows]) -> DataFrame:
    """The frame without the tombstones that no sink takes (`Rows.skips_tombstones`)."""
    outputs = [each.output for each in rows if each.skips_tombstones]
    if not outputs or DELETED not in frame.columns:
        return frame
    gone = F.coalesce(F.col(DELETED), F.lit(False))
    return frame.where(~gone if outputs == [None] else ~(gone & F.col("output").isin(outputs)))


def _other_outputs(there: list[str | None], given: list[str | None]) -> str:
    if there == [None]:
        return "`table` has one output, so it takes one sink and not several by name. Give the sink itself."
    names = ", ".join(str(name) for name in there)
    if given == [None]:
        return (
            f"`table` has the outputs {names}, and one sink is given. Give one for each: "
            f'{{"{there[0]}": ..., ...}}, or write one table alone.'
        )
    without = [name for name in there if name not in given]
    if without:
        return f"The output {without[0]!r} has no sink. Give one, or leave the output out of tg.outputs(...)."
    unknown = next(name for name in given if name not in there)
    return f"There is a sink for {unknown!r}, which is no output. The outputs are {names}."


def _rows(name: str | None, node: Plan, mode: str | None) -> Rows:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TidegateWarning)  # the warnings are given when the query itself is made
        frame = to_df(node)
    fields = tuple(_flattened(frame.schema))
    key, once = _key(node), _once(node)
    chosen = (APPEND if once or not key else UPSERT) if mode is None else mode
    if not is_one_of(chosen, MODES):
        raise DefinitionError(f'`mode` is {in_one_line(mode)}. Use "append" or "upsert", or leave it out.')
    rows = Rows(name, fields, key, once, chosen, WINDOW in frame.columns)
    columns = tuple(field for field in fields if field.name != DELETED)
    if not rows.upserts:
        final = once and not isinstance(node, Stream)
        return replace(rows, fields=columns, skips_tombstones=True) if final else rows
    if not key:
        raise DefinitionError(
            f'{rows.called.capitalize()} have no key of their own, so no row replaces another. Use mode="append".'
        )
    missing = [column for column in key if column not in {field.name for field in fields}]
    if missing:
        raise DefinitionError(
            f"{rows.called.capitalize()} have no column {missing[0]!r}, which is part of their key. Keep it in "
            'map_values, or use mode="append".'
        )
    return replace(rows, fields=columns)


def _flattened(schema: StructType) -> list[StructField]:
    """The columns of the sink; raises DefinitionError if two have one name, or if one is void."""
    fields: list[StructField] = []
    for field in schema.fields:
        if field.name == WINDOW:
            fields += [StructField(WINDOW_START, TimestampType()), StructField(WINDOW_END, TimestampType())]
        elif field.name == DELETED:
            fields.append(StructField(DELETED, BooleanType()))
        else:
            fields.append(StructField(field.name, field.dataType))
        if isinstance(field.dataType, NullType):
            raise DefinitionError(
                f"The column {field.name!r} is void: nothing says which type its nulls have. Cast it, for example "
                f'df.withColumn("{field.name}", F.lit(None).cast("string")).'
            )
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(
                f"The rows have a column {name!r}, and a sink has a column of that name for the window. Rename it, for "
                f'example df.withColumnRenamed("{name}", "{name}_in").'
            )
    return fields


def _once(node: Plan) -> bool:
    """Whether each row is the last word: final results, late records, records of a stream."""
    if isinstance(node, LateRecords | Stream):
        return True
    return operation(node).emits == "final"


def _key(node: Plan) -> tuple[str, ...]:
    """The columns of the sink by which a row replaces an earlier one; empty for records."""
    if isinstance(node, LateRecords | Stream):
        return ()
    op = operation(node)
    key = public_key(op.key)
    windows = windows_of(node)
    names = [name for name in key if name != WINDOW]
    if WINDOW in key or isinstance(windows, SessionWindows):
        # Merged sessions begin where the first of them began, so the start alone does not tell sessions apart.
        return (*names, WINDOW_START, WINDOW_END)
    return (*names, WINDOW_START) if windows is not None else tuple(names)


def plan_number(table: Result) -> int:
    """A number that another plan does not have, by the plan's description."""
    return number_of(describe(table.node))


def number_of(text: str) -> int:
    """A number that another text does not have: 63 bits of its hash."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def in_sql(name: str) -> str:
    """The name of a column or a table as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
