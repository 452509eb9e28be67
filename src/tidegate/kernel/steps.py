"""Stateless steps over whole tables: expressions by Arrow, Python functions row by row.

Tables have the names that users see: a record's own columns, or of a result its key, `window` (start and end in ms),
values, `timestamp` (ms) and, where it can be a tombstone, `deleted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from tidegate.errors import AggregationError
from tidegate.instants import Window
from tidegate.spec.steps import Filter, MapValues, SelectKey, Step, is_expression, takes_key
from tidegate.spec.types import arrow_type

PLACE, WALL_CLOCK, SEEN = OWN = ("__place", "__wall_clock", "__seen")
"""Columns that no step sees or touches: row numbers, the wall clock of the batch, the stream time a change saw."""


def run(steps: Iterable[Step], rows: pa.Table) -> pa.Table:
    """The rows after these steps. Raises AggregationError naming key and record if a function raises."""
    for step in steps:
        if isinstance(step, Filter):
            rows = _filtered(step, rows)
        elif isinstance(step, SelectKey):
            rows = _set(rows, step.name, _typed(step, step.name, _called(step, step.function, rows), step.type, rows))
        else:
            rows = _mapped(step, rows)
    return rows


def on_results(steps: Iterable[Step], rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """`run` for rows of `Layout.result_schema`; filters of tables add `__deleted`."""
    steps = tuple(steps)
    return _hidden(run(steps, _public(rows, key))) if steps else rows


def _public(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    columns: dict[str, Any] = {name: rows[name] for name in key}
    if "__start" in rows.schema.names:
        bounds = [array(rows[name]) for name in ("__start", "__end")]
        columns["window"] = pa.StructArray.from_arrays(bounds, ["start", "end"])
    columns |= {name: rows[name] for name in rows.schema.names if name not in columns and not name.startswith("__")}
    columns["timestamp"] = rows["__timestamp"]
    if "__deleted" in rows.schema.names:
        columns["deleted"] = rows["__deleted"]
    return pa.table(columns | {name: rows[name] for name in OWN if name in rows.schema.names})


def _hidden(rows: pa.Table) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in rows.schema.names:
        if name == "window":
            columns["__start"], columns["__end"] = array(rows[name]).flatten()
        else:
            columns[f"__{name}" if name in ("timestamp", "deleted") else name] = rows[name]
    # In the order of result rows: what is told of a row comes last.
    last = {name: columns.pop(name) for name in ("__timestamp", "__deleted") if name in columns}
    return pa.table(columns | last)


def _filtered(step: Filter, rows: pa.Table) -> pa.Table:
    if not step.tombstones:
        return rows.filter(_mask(step, rows))
    alive = _alive(rows)
    live = rows.filter(pa.array(alive))
    kept = np.zeros(rows.num_rows, bool)
    kept[alive] = _mask(step, live).to_numpy(zero_copy_only=False)
    aside = (*step.key, "window", "timestamp", "deleted", *OWN)
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
    return pa.array([bool(found) for found in _called(step, step.predicate, rows)], pa.bool_())


def _alive(rows: pa.Table) -> Any:
    if "deleted" not in rows.schema.names:
        return np.ones(rows.num_rows, bool)
    return ~array(rows["deleted"]).to_numpy(zero_copy_only=False).astype(bool)


def _mapped(step: MapValues, rows: pa.Table) -> pa.Table:
    """A tombstone has no value to map: it stays one, with null in every new column."""
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
            raise _cannot(step, f"there is no column {how!r}, only {', '.join(rows.schema.names)}")
        column = rows[how]
    elif is_expression(how):
        column = _evaluated(step, how, rows)
    else:
        return _typed(step, name, _called(step, how, rows), kind, rows)
    return column if kind is None else column.cast(arrow_type(kind))


def _of_dicts(step: MapValues, mapper: Callable[..., Any], rows: pa.Table) -> dict[str, Any]:
    records = _records(rows)
    made = _called(step, mapper, rows)
    types = dict(step.types)
    names = dict.fromkeys(types)
    for record, values in zip(records, made, strict=True):
        if not isinstance(values, Mapping):
            raise _refused(step, record, f"gave {values!r}, not a dict of value columns")
        for name, value in values.items():
            if name in step.kept:
                if value != record.get(name):
                    raise _refused(step, record, f"gave {value!r} for {name!r}, which is no value and must stay")
            elif types and name not in types:
                raise _refused(step, record, f"gave a column {name!r}, of which `types` says nothing")
            else:
                names.setdefault(name)
    return {name: _typed(step, name, [v.get(name) for v in made], types.get(name), rows) for name in names}


def _called(step: Step, function: Callable[..., Any], rows: pa.Table) -> list[Any]:
    both = takes_key(function)
    found = []
    for record in _records(rows):
        try:
            found.append(function(_key(step, record), record) if both else function(record))
        except Exception as error:
            raise _refused(step, record, f"raised {type(error).__name__}: {error}") from error
    return found


def _records(rows: pa.Table) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = rows.select([n for n in rows.schema.names if n not in OWN]).to_pylist()
    window = "window" in rows.schema.names and pa.types.is_struct(rows["window"].type)
    if window and rows["window"].type.names == ["start", "end"]:
        for record in records:
            record["window"] = Window(**record["window"])
    return records


def _typed(step: Step, name: str, values: list[Any], kind: Any, rows: pa.Table) -> pa.Array:
    wanted = None if kind is None else arrow_type(kind)
    try:
        return pa.array(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        for record, value in zip(_records(rows), values, strict=True):
            try:
                pa.array([value], wanted)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
                raise _refused(step, record, f"gave {value!r} for {name!r}, which is no {wanted}: {error}") from None
        raise _cannot(step, f"the values of {name!r} have no common type: {error}") from None


def _evaluated(step: Step, expression: Any, rows: pa.Table) -> pa.ChunkedArray:
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["x"]), [source])
    try:
        return project.to_table(use_threads=False)["x"]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError) as error:
        raise _cannot(step, str(error).partition("\n")[0]) from None


def array(column: Any) -> pa.Array:
    """A column in one piece."""
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def _set(rows: pa.Table, name: str, column: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.append_column(name, column) if at < 0 else rows.set_column(at, name, column)


def _key(step: Step, record: dict[str, Any]) -> Any:
    return record.get(step.key[0]) if len(step.key) == 1 else tuple(record.get(name) for name in step.key)


def _refused(step: Step, record: dict[str, Any], what: str) -> AggregationError:
    return AggregationError(
        f"{step} {what} — for key {_key(step, record)!r}, record {record!r}. Nothing of this batch was emitted or "
        "stored. Correct the function, and restart."
    )


def _cannot(step: Step, what: str) -> AggregationError:
    return AggregationError(f"{step} cannot be computed: {what}.")
