"""Python functions as aggregates: `reduce` and `aggregate`, record by record, in order.

A function runs in the batch of its record, so that an error stops that batch and not the one that closes the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.instants import Window
from tidegate.kernel.aggregates.base import valid_rows
from tidegate.kernel.columns.arrays import Ints, array, ints
from tidegate.kernel.rows.closing import end_of_starts
from tidegate.kernel.rows.conversion import MISFITS, as_python, column_as_python, converter
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.time.stream_time import NEVER
from tidegate.kernel.windows import arrow_functions
from tidegate.kernel.windows.touched import Touched, in_time, with_deleted, with_state
from tidegate.spec.aggregates import Cogroup, Fold, Reduce, record_of_input
from tidegate.spec.columns import END, START, public_key

_Window = tuple[int, int] | None


def apply(layout: Layout, stored: pa.Table | None, rows: pa.Table, every: bool) -> tuple[pa.Table, pa.Table]:
    """The tables after the records in `rows`, and the updates: `every` one, or the last of each key and window.

    Only entries that `rows` touches become Python objects. In front of a bounded buffer a deleted entry stays, with a
    null for its aggregate: it takes room until its window closes (SEMANTICS 6.1).

    Raises AggregationError naming key, window and record if a function raises or returns a value of another type.
    """
    touched = Touched.of(layout, stored, rows)
    function = layout.op.function
    if isinstance(function, Fold) and function.vectorized:
        return arrow_functions.apply(layout, function, touched, rows, every)
    call, room = Caller(layout), layout.op.buffer is not None
    add, subtract = call.add, call.subtract
    changes = layout.op.stream.changes
    signs, silent = (rows[name].to_pylist() if changes else repeat(v) for name, v in (("sign", 1), ("silent", False)))
    values, since, stamps = touched.values.to_pylist(), touched.since.tolist(), touched.since.tolist()
    updated: list[tuple[int, Any, int]] = []
    numbers, records = touched.number.tolist(), records_of(layout, rows)
    given = zip(numbers, keys_of(layout, rows), _windows(layout, rows), rows["ts"].to_pylist(), records, strict=True)
    for (group, key, window, ts, record), sign, half in zip(given, signs, silent, strict=False):
        value, stamp = values[group], since[group]
        stamp = max(stamp, ts)
        if sign > 0:
            value = add(key, window, record, value, value is None)
        elif value is not None:
            value = subtract(key, window, record, value)
        values[group] = value
        stamps[group] = stamp
        # A deleted entry loses its timestamp too, but not between retract and insert of a change: the insert follows.
        since[group] = NEVER if value is None and (room or not half) else stamp
        if every and not half:
            updated.append((group, value, stamp))
    after = with_state(touched.heads, pa.array(stamps, pa.int64()), typed(layout, values))
    alive = np.ones(len(values), np.bool_) if room else valid_rows(array(after["s:0:0"]))
    merged = touched.with_rest(after.filter(pa.array(alive)))
    if every:
        heads = touched.heads.take(pa.array([group for group, _, _ in updated], pa.int64()))
        of_updates = pa.array([stamp for _, _, stamp in updated], pa.int64())
        return merged, with_deleted(with_state(heads, of_updates, typed(layout, [value for _, value, _ in updated])))
    updates = with_deleted(after)
    # An entry created and deleted within the batch gives no update (SEMANTICS 13).
    has_update = touched.stored | ~updates["deleted"].to_numpy()
    # The retract half of a change within one entry gives no update: the insert half follows.
    entries = _in_order(touched.number[~rows["silent"].to_numpy()]) if changes else np.arange(len(values))
    return merged, in_time(updates.take(pa.array(entries[has_update[entries]])))


def _in_order(numbers: Ints) -> Ints:
    """The distinct numbers, in order of first appearance."""
    _, first = np.unique(numbers, return_index=True)
    return numbers[np.sort(first)]


def _windows(layout: Layout, rows: pa.Table) -> Iterable[_Window]:
    if layout.op.windows is None:
        return repeat(None, rows.num_rows)
    starts = ints(rows["start"])
    return zip(starts.tolist(), end_of_starts(layout, starts).tolist(), strict=True)


class Caller:
    """Calls the user's functions and converts each returned value to the declared type.

    A function may change its arguments: its copy of the aggregate is shared with no update, window or output.

    Raises AggregationError, naming key, window and value, if a function raises or returns a value that the type cannot
    hold.
    """

    def __init__(self, layout: Layout) -> None:
        function = layout.op.function
        assert function is not None
        self._function: Reduce | Fold = function
        self._reduces = isinstance(function, Reduce)
        self._single = len(public_key(layout.op.key)) == 1
        self._type = layout.function_type
        self._stored = converter(self._type)
        self._nested: bool = pa.types.is_nested(self._type)
        """Whether aggregates are objects that a function can change."""

    def add(self, key: Any, window: _Window, record: Any, value: Any, fresh: bool) -> Any:
        """The aggregate with `record` added; `fresh`: whether there is none yet. `key` is one of `keys_of`."""
        f = self._function
        if fresh and not self._reduces:
            value = self.initial(key, window, record)
        elif self._nested:
            value = self._own(value)
        try:
            if isinstance(f, Fold):
                found = f.aggregator(key, record, value)
            else:
                found = record if value is None else f.function(value, record)
        except Exception as error:
            raise self._raised(error, key, window, record) from error
        try:
            return self._stored(found)
        except MISFITS as error:
            raise self._mistyped(found, key, window, error) from error

    def initial(self, key: Any, window: _Window, record: Any = None) -> Any:
        """The initializer's aggregate; None for a reduce."""
        f = self._function
        return None if isinstance(f, Reduce) else self._call(f.initializer, (), key, window, record)

    def subtract(self, key: Any, window: _Window, record: Any, value: Any) -> Any:
        """The aggregate with `record` subtracted."""
        f = self._function
        assert f.subtractor is not None
        own = self._own(value)
        given = (own, record) if isinstance(f, Reduce) else (key, record, own)
        return self._call(f.subtractor, given, key, window, record)

    def merge(self, key: Any, window: _Window, record: Any, values: list[Any]) -> Any:
        """The aggregates of the sessions that `record` joins, merged in order into the initializer's (SEMANTICS 4)."""
        f = self._function
        if isinstance(f, Reduce):
            merged = None
            for value in map(self._own, values):
                merged = value if merged is None else self._call(f.function, (merged, value), key, window, record)
            return merged
        assert f.merger is not None
        merged = self.initial(key, window, record)
        for value in map(self._own, values):
            merged = self._call(f.merger, (key, merged, value), key, window, record)
        return merged

    def _own(self, value: Any) -> Any:
        return self._stored(value) if self._nested else value

    def _call(
        self, function: Callable[..., Any], given: tuple[Any, ...], key: Any, window: _Window, record: Any
    ) -> Any:
        try:
            found = function(*given)
        except Exception as error:
            raise self._raised(error, key, window, record) from error
        try:
            return self._stored(found)
        except MISFITS as error:
            raise self._mistyped(found, key, window, error) from error

    def _raised(self, error: Exception, key: Any, window: _Window, record: Any) -> AggregationError:
        where = f"window {window[0]} to {window[1]} ms, " if window else ""
        if isinstance(self._function, Cogroup) and record is not None:
            _, record = record_of_input(record)
        return AggregationError(
            f"{self._function} raised {type(error).__name__}: {error} — for key {key!r}, "
            f"{where}record {record!r}. Nothing of this batch was emitted or stored. "
            "Correct the function, or filter such records out before tg.stream, and restart."
        )

    def _mistyped(self, value: Any, key: Any, window: _Window, error: Exception) -> AggregationError:
        where = f", window starting at {window[0]} ms" if window else ""
        return AggregationError(
            f"{self._function} gave {value!r} ({type(value).__name__}) for key {(key,) if self._single else key!r}"
            f"{where}, which is not a {self._type}: {error}. Nothing of this batch was emitted or stored. "
            "Return that type, or declare another `type`."
        )


def keys_of(layout: Layout, rows: pa.Table) -> list[Any]:
    """The key of each row as an argument of a function: a value, or a tuple for several key columns."""
    whose = f"`{layout.op.aggregations[0][0]}`"
    named = {name: column_as_python(rows[f"k:{name}"], name, whose) for name in layout.op.key}
    if START in named:
        named[START] = list(map(Window, named[START], named.pop(END)))
    columns = list(named.values())
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def records_of(layout: Layout, rows: pa.Table) -> list[Any]:
    """Each record as an argument of a function: the value of the column of a reduce, or a dict of the value columns."""
    function, whose = layout.op.function, f"`{layout.op.aggregations[0][0]}`"
    if isinstance(function, Reduce):
        return column_as_python(rows[f"v:{function.column}"], function.column, whose)
    named = rows.select(layout.values).rename_columns([name[2:] for name in layout.values])
    return as_python(named, whose)


def copier(layout: Layout, rows: pa.Table) -> Callable[[Any], Any]:
    """A function that copies an element of `records_of`, for records that go to several windows."""
    function = layout.op.function
    if isinstance(function, Reduce):
        kind = rows.schema.field(f"v:{function.column}").type
        return converter(kind) if pa.types.is_nested(kind) else lambda value: value
    kinds = {name[2:]: rows.schema.field(name).type for name in layout.values}
    nested = {name: converter(kind) for name, kind in kinds.items() if pa.types.is_nested(kind)}
    return lambda record: record | {name: convert(record[name]) for name, convert in nested.items()}


def typed(layout: Layout, values: list[Any]) -> pa.Array:
    """Aggregates from a `Caller` as a column."""
    return array(pa.chunked_array([pa.array(values, layout.function_type)]))
