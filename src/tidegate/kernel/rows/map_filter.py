"""Stateless steps over whole tables: expressions by Arrow, Python functions row by row.

Tables have the names that users see: a record's own columns, or for a result its key, `window` (start and end in ms),
values, `timestamp` (ms) and, where it can be a tombstone, `deleted`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import AggregationError
from tidegate.instants import Window
from tidegate.kernel.columns.arrays import array, as_schema, with_column, with_each_type
from tidegate.kernel.rows.conversion import MISFITS, MisfitError, as_python, by_name, converter, fitted
from tidegate.spec.columns import (
    DELETED,
    END,
    OURS,
    ROW,
    ROW_ID,
    START,
    TIMESTAMP,
    VALUE,
    WINDOW,
    check_user_name,
    public_key,
)
from tidegate.spec.steps import (
    Filter,
    MapValues,
    OneColumn,
    SelectKey,
    Step,
    computed,
    is_expression,
    no_such_field,
    takes_key,
    why_refused,
)
from tidegate.spec.types import LIKELY, arrow_type

PLACE, WALL_CLOCK, CLOSING_TIME = OURS + "place", OURS + "wall_clock", OURS + "closing_time"
OWN = (PLACE, WALL_CLOCK, CLOSING_TIME, ROW_ID)
"""Columns that no step sees or touches: row numbers, the wall clock of the batch, the closing time of a change, ids."""

_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError)
"""Arrow's errors for an expression that it cannot compute."""

Record: TypeAlias = dict[str, Any]
Taker: TypeAlias = Callable[[Step, Record, Any], Any]
"""Converts the value that a step's function returned for a record."""


def apply_steps(steps: Iterable[Step], rows: pa.Table) -> pa.Table:
    """The rows after these steps. Raises AggregationError naming key and record if a function raises."""
    for step in steps:
        if isinstance(step, Filter):
            rows = _filtered(step, rows)
        elif isinstance(step, SelectKey):
            rows = _set(rows, step.name, _column(step, step.name, step.function, step.type, rows))
        elif isinstance(step, OneColumn):
            rows = _as_one_column(step, rows)
        else:
            rows = _mapped(step, rows)
    return rows


def on_results(steps: Iterable[Step], rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """`apply_steps` for rows of `Layout.result_schema`; filters of tables add `DELETED`."""
    steps = tuple(steps)
    return _hidden(apply_steps(steps, _public(rows, key)), key) if steps else rows


def _public(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    columns: dict[str, Any] = {}
    if START in rows.schema.names:
        bounds = [array(rows[name]) for name in (START, END)]
        columns[WINDOW] = pa.StructArray.from_arrays(bounds, ["start", "end"])
    columns = {name: columns[name] if name == WINDOW else rows[name] for name in public_key(key)} | columns
    columns |= {name: rows[name] for name in rows.schema.names if name not in columns and not name.startswith(OURS)}
    columns["timestamp"] = rows[TIMESTAMP]
    if DELETED in rows.schema.names:
        columns["deleted"] = rows[DELETED]
    return pa.table(columns | {name: rows[name] for name in OWN if name in rows.schema.names})


def _hidden(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in rows.schema.names:
        if name == WINDOW:
            columns[START], columns[END] = array(rows[name]).flatten()
        else:
            columns[OURS + name if name in ("timestamp", "deleted") else name] = rows[name]
    # In the order of result rows: timestamp and deleted come last.
    last = {name: columns.pop(name) for name in (TIMESTAMP, DELETED) if name in columns}
    return pa.table({name: columns[name] for name in key} | columns | last)


def _as_one_column(step: OneColumn, rows: pa.Table) -> pa.Table:
    names = [name for name in rows.schema.names if name not in OWN]
    fields = [rows.schema.field(name) for name in names]
    record = pa.StructArray.from_arrays([array(rows[name]) for name in names], fields=fields)
    nulls = [rows[name].is_null().to_numpy() for name in names if name not in step.kept]
    empty = np.logical_and.reduce(nulls) if nulls else np.zeros(rows.num_rows, bool)
    columns: dict[str, Any] = {name: rows[name] for name in (*step.kept, *OWN) if name in rows.schema.names}
    value = pa.array(np.ones(rows.num_rows, bool), mask=empty)
    return pa.table(columns | {VALUE: value, f"{ROW}{step.number}": record})


def _filtered(step: Filter, rows: pa.Table) -> pa.Table:
    if not step.tombstones:
        return rows.filter(_mask(step, rows))
    alive = _alive(rows)
    live = rows.filter(pa.array(alive))
    kept = np.zeros(rows.num_rows, bool)
    kept[alive] = _mask(step, live).to_numpy(zero_copy_only=False)
    aside = (*step.key, WINDOW, "timestamp", "deleted", *OWN)
    values = [name for name in rows.schema.names if name not in aside]
    for name in values:
        rows = _set(rows, name, pc.if_else(pa.array(kept), rows[name], pa.scalar(None, rows[name].type)))
    return _set(rows, "deleted", pa.array(~kept))


def _mask(step: Filter, rows: pa.Table) -> pa.Array:
    if is_expression(step.predicate):
        found = _evaluated(step, step.predicate, rows)
        if not pa.types.is_boolean(found.type):
            raise AggregationError(f"{step} gives {found.type}, not a boolean. Compare it with something.")
        return array(pc.fill_null(found, False))
    return pa.array(_called(step, step.predicate, rows, _truth), pa.bool_())


def _truth(step: Step, record: Record, found: Any) -> bool:
    found = found.as_py() if isinstance(found, pa.Scalar) else found
    if hasattr(found, "__array__") and not isinstance(found, np.generic):
        raise _refused(
            step,
            record,
            f"gave {found!r}, which is neither true nor false: the function is given one row at a time. For whole "
            'columns use an expression such as pc.field("price") > 3',
        )
    if callable(found) or isinstance(found, Iterator | Awaitable):
        raise _refused(
            step,
            record,
            f"gave {found!r}, which is neither true nor false. Is a call missing, or is the function a generator or a "
            "coroutine?",
        )
    try:
        return bool(found)
    except Exception as error:
        raise _refused(step, record, f"gave {found!r}, which is neither true nor false: {error}") from error


def _alive(rows: pa.Table) -> Any:
    if "deleted" not in rows.schema.names:
        return np.ones(rows.num_rows, bool)
    return ~array(rows["deleted"]).to_numpy(zero_copy_only=False).astype(bool)


def _mapped(step: MapValues, rows: pa.Table) -> pa.Table:
    """The rows with mapped values. A tombstone has no value to map: it stays one, with null in every new column."""
    alive = _alive(rows)
    live = rows if alive.all() else rows.filter(pa.array(alive))
    if callable(step.mapper):
        new = _of_dicts(step, step.mapper, live)
    else:
        new = {name: _value(step, name, how, live) for name, how in step.mapper}
    kept = [name for name in rows.schema.names if name in (*step.kept, *OWN)]
    at = pa.array(np.where(alive, np.cumsum(alive) - 1, 0), mask=~alive)
    columns = {name: rows[name] for name in kept}
    return pa.table(columns | {name: column if alive.all() else column.take(at) for name, column in new.items()})


def _value(step: MapValues, name: str, how: Any, rows: pa.Table) -> Any:
    kind = dict(step.types).get(name)
    if isinstance(how, str):
        if how not in rows.schema.names:
            raise _cannot(step, _no_column(how, rows))
        column = rows[how]
    elif is_expression(how):
        column = _evaluated(step, how, rows)
    else:
        return _column(step, name, how, kind, rows)
    if kind is None:
        return column
    try:
        return fitted(column, arrow_type(kind))
    except MisfitError as error:
        (record,) = _records(step, rows.slice(error.place, 1))
        says = f"gave {error.value} for {name!r}, which is no {arrow_type(kind)}: {error}"
        raise _refused(step, record, says) from None


def _of_dicts(step: MapValues, mapper: Callable[..., Any], rows: pa.Table) -> dict[str, Any]:
    types = {name: arrow_type(kind) for name, kind in step.types}
    takers = {name: _taker(name, kind) for name, kind in types.items()}
    # Records of their own, for comparison: the function may change the record that it is given.
    records = iter(_records(step, rows))

    def taken(step: Step, _: Record, values: Any) -> dict[str, Any]:
        record, values = next(records), by_name(values)
        if not isinstance(values, Mapping):
            raise _refused(step, record, f"gave {values!r}, not a dict of value columns")
        new = {}
        for name, value in values.items():
            if name in kept:
                if not _same(value, record.get(name)):
                    raise _refused(step, record, f"gave {value!r} for {name!r}, which is no value and must stay")
            elif types and name not in types:
                raise _refused(step, record, f"gave a column {name!r}, of which `types` says nothing")
            else:
                if name not in takers:
                    check_user_name(name, "A column that a function gives")
                    takers[name] = _taker(name, None)
                taker = takers[name]
                new[name] = taker(step, record, value)
        return new

    kept = frozenset(step.kept)
    made = _called(step, mapper, rows, taken)
    return {name: _typed(step, name, [v.get(name) for v in made], types.get(name)) for name in takers}


def _same(value: Any, other: Any) -> bool:
    """Whether two values are equal; a NaN equals another NaN, as in keys."""
    both_nan = all(isinstance(one, float | np.floating) and np.isnan(one) for one in (value, other))
    try:
        return both_nan or bool(value == other)
    except (TypeError, ValueError):  # of an array, or of what pandas has for a null
        return False


def _called(step: Step, function: Callable[..., Any], rows: pa.Table, taken: Taker) -> list[Any]:
    """The function's value for each row, converted by `taken` before the function is called again."""
    both = takes_key(function)
    found = []
    for record in _records(step, rows):
        try:
            value = function(_key(step, record), record) if both else function(record)
        except Exception as error:
            raise _refused(step, record, f"raised {type(error).__name__}: {error}") from error
        found.append(taken(step, record, value))
    return found


def _records(step: Step, rows: pa.Table) -> list[Record]:
    records = as_python(rows.select([n for n in rows.schema.names if n not in OWN]), str(step))
    window = WINDOW in rows.schema.names and pa.types.is_struct(rows[WINDOW].type)
    if window and rows[WINDOW].type.names == ["start", "end"]:
        for record in records:
            if record[WINDOW] is not None:  # rows of a result have one; a user's own struct may be null
                record[WINDOW] = Window(**record[WINDOW])
    return records


def _column(step: Step, name: str, function: Callable[..., Any], declared: Any, rows: pa.Table) -> pa.Array:
    kind = None if declared is None else arrow_type(declared)
    return _typed(step, name, _called(step, function, rows, _taker(name, kind)), kind)


def _taker(name: str, kind: pa.DataType | None) -> Taker:
    """Converts values of the column `name` to its type; without a declared type, copies them as they are now."""
    convert = _snapshot if kind is None else converter(kind)

    def taken(step: Step, record: Record, value: Any) -> Any:
        try:
            return convert(value)
        except MISFITS as error:
            raise _refused(step, record, f"gave {value!r} for {name!r}, which is no {kind}: {error}") from None

    return taken


def _snapshot(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else deepcopy(value)


def _typed(step: Step, name: str, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(values, kind)
    except MISFITS as error:
        raise _cannot(step, f"the values of {name!r} have no common type: {error}") from None


def _evaluated(step: Step, expression: Any, rows: pa.Table) -> pa.ChunkedArray:
    try:
        return computed(expression, rows)
    except _REFUSALS as error:
        if (found := _of_unknown(expression, rows)) is not None:
            return found
        said = why_refused(error)
        missing = no_such_field(error, rows.schema.names)
        raise _cannot(step, said if missing is None else f"{_no_column(missing, rows)} ({said})") from None


def _of_unknown(expression: Any, rows: pa.Table) -> pa.ChunkedArray | None:
    """The values of an expression over rows with nulls of unknown type, read as nulls of a likely type.

    None if there are no such nulls, or no likely type fits. In the test driver a column has no type before its first
    value.
    """
    for kind in LIKELY:
        likely = [field.with_type(with_each_type(field.type, partial(_known_as, kind))) for field in rows.schema]
        if pa.schema(likely).equals(rows.schema):
            return None
        with suppress(*_REFUSALS):
            return computed(expression, as_schema(rows, pa.schema(likely)))
    return None


def _known_as(likely: pa.DataType, kind: pa.DataType) -> pa.DataType:
    return likely if pa.types.is_null(kind) else kind


def _no_column(name: str, rows: pa.Table) -> str:
    return f"there is no column {name!r}, only {', '.join(name for name in rows.schema.names if name not in OWN)}"


def _set(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return with_column(rows, name, column) if name in rows.schema.names else rows.append_column(name, column)


def _key(step: Step, record: Record) -> Any:
    return record.get(step.key[0]) if len(step.key) == 1 else tuple(record.get(name) for name in step.key)


def _refused(step: Step, record: Record, what: str) -> AggregationError:
    return AggregationError(
        f"{step} {what} — for key {_key(step, record)!r}, record {record!r}. Nothing of this batch was emitted or "
        "stored. Correct the function, and restart."
    )


def _cannot(step: Step, what: str) -> AggregationError:
    return AggregationError(f"{step} cannot be computed: {what}.")
