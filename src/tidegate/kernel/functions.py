"""Python functions as aggregates: `reduce` and `aggregate`, record by record, in order.

A function runs in the batch its record came in, so that one that raises stops there and not when the window closes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.kernel.grouping import array
from tidegate.kernel.layout import Layout
from tidegate.spec.aggregates import Fold, Reduce

_Entry = tuple[Any, int]


def take_in(layout: Layout, held: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The tables after the records in `rows`, and the updates: every one, or the last of each key and window.

    Raises AggregationError naming key, window and record if a function raises, or gives a value of another type.
    """
    entries = _entries(layout, held)
    add = _adder(layout)
    keys = _tuples(rows, layout.keys)
    starts, times = rows["start"].to_pylist(), rows["ts"].to_pylist()
    records = _records(layout, rows)
    updates: dict[Any, tuple[Any, Any, int, bool]] = {}
    for i, (key, start, ts, record) in enumerate(zip(keys, starts, times, records, strict=True)):
        before = entries.get((key, start))
        value = add(key, start, record, before)
        stamp = ts if before is None else max(before[1], ts)
        if value is None:
            entries.pop((key, start), None)
        else:
            entries[key, start] = (value, stamp)
        update = i if layout.every_update else (key, start)
        updates.pop(update, None)  # the last update of a key says where its row comes
        updates[update] = ((key, start), value, stamp, value is None)
    merged = _table(layout, [(entry, value, stamp, False) for entry, (value, stamp) in entries.items()])
    return merged.drop_columns(["deleted"]), _table(layout, list(updates.values()))


def _adder(layout: Layout) -> Callable[[tuple[Any, ...], int, Any, _Entry | None], Any]:
    function = layout.op.function
    single = len(layout.op.key) == 1

    def add(key: tuple[Any, ...], start: int, record: Any, before: _Entry | None) -> Any:
        try:
            if isinstance(function, Reduce):
                return record if before is None else function.function(before[0], record)
            if isinstance(function, Fold):
                value = function.initializer() if before is None else before[0]
                return function.aggregator(key[0] if single else key, record, value)
        except Exception as error:
            raise AggregationError(
                f"{function} raised {type(error).__name__}: {error} — for key {key[0] if single else key!r}, window "
                f"[{start}, {start + layout.op.windows.size_ms}) ms, record {record!r}. Nothing of this batch was "
                "emitted or stored. Correct the function, or filter such records out before tg.stream, and restart."
            ) from error
        raise AssertionError("an operation with a function has a Reduce or a Fold")

    return add


def _entries(layout: Layout, held: pa.Table | None) -> dict[tuple[tuple[Any, ...], int], _Entry]:
    if held is None:
        return {}
    columns = zip(
        _tuples(held, layout.keys),
        held["start"].to_pylist(),
        held["s:0:0"].to_pylist(),
        held["ts"].to_pylist(),
        strict=True,
    )
    return {(key, start): (value, ts) for key, start, value, ts in columns}


def _tuples(rows: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _records(layout: Layout, rows: pa.Table) -> list[Any]:
    function = layout.op.function
    if isinstance(function, Reduce):
        return rows[f"v:{function.column}"].to_pylist()
    return rows.select(layout.values).rename_columns([name[2:] for name in layout.values]).to_pylist()


def _table(layout: Layout, updates: list[tuple[Any, Any, int, bool]]) -> pa.Table:
    columns: dict[str, Any] = {}
    for i, name in enumerate(layout.keys):
        kind = layout.schema.field(name).type
        columns[name] = pa.array([entry[0][i] for entry, *_ in updates], kind)
    columns["start"] = pa.array([entry[1] for entry, *_ in updates], pa.int64())
    columns["ts"] = pa.array([stamp for _, _, stamp, _ in updates], pa.int64())
    columns["s:0:0"] = _typed(layout, updates)
    columns["deleted"] = pa.array([deleted for *_, deleted in updates], pa.bool_())
    return pa.table(columns)


def _typed(layout: Layout, updates: list[tuple[Any, Any, int, bool]]) -> pa.Array:
    values = [value for _, value, _, _ in updates]
    try:
        return array(pa.chunked_array([pa.array(values, layout.function_type)]))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        entry, value = next((e, v) for e, v, _, _ in updates if not _fits(v, layout.function_type))
        raise AggregationError(
            f"{layout.op.function} gave {value!r} ({type(value).__name__}) for key {entry[0]!r}, window starting at "
            f"{entry[1]} ms, which is not a {layout.function_type}: {error}. "
            "Return that type, or declare another `type`."
        ) from error


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        return False
    return True
