"""Python functions as aggregates: `reduce` and `aggregate`, record by record, in order.

A function runs in the batch its record came in, so that one that raises stops there and not when the window closes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from math import isnan, nan
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.kernel import vectorized
from tidegate.kernel.accumulators.base import Flags, valid_rows
from tidegate.kernel.batch import unite
from tidegate.kernel.grouping import array, codes, ints
from tidegate.kernel.groups import Groups
from tidegate.kernel.layout import Layout
from tidegate.kernel.panes import Ints
from tidegate.kernel.stream_time import NEVER
from tidegate.spec.aggregates import Fold, Reduce

_Window = tuple[int, int] | None


def take_in(layout: Layout, held: pa.Table | None, rows: pa.Table, every: bool) -> tuple[pa.Table, pa.Table]:
    """The tables after the records in `rows`, and the updates: every one, or the last of each key and window.

    Only entries that `rows` touches become Python objects. In front of a bounded buffer a deleted entry stays, with a
    null for its aggregate: it takes room until its window closes (SEMANTICS 6.1).

    Raises AggregationError naming key, window and record if a function raises, or gives a value of another type.
    """
    touched = Touched.of(layout, held, rows)
    function = layout.op.function
    if isinstance(function, Fold) and function.vectorized:
        return vectorized.take_in(layout, function, touched, rows, every)
    call, room = Caller(layout), layout.op.buffer is not None
    keys, starts, times = tuples(rows, layout.keys), rows["start"].to_pylist(), rows["ts"].to_pylist()
    records, numbers = records_of(layout, rows), touched.number.tolist()
    changes = layout.op.stream.changes
    signs, silent = (rows[name].to_pylist() if changes else repeat(v) for name, v in (("sign", 1), ("silent", False)))
    values, since, stamps = touched.values.to_pylist(), touched.since.tolist(), touched.since.tolist()
    updates: dict[int, tuple[int, Any, int, bool]] = {}
    given = zip(numbers, keys, starts, times, records, signs, silent, strict=False)
    for i, (group, key, start, ts, record, sign, half) in enumerate(given):
        value, stamp = values[group], max(since[group], ts)
        window = _window(layout, start)
        if sign > 0:
            value = call.add(key, window, record, value, value is None)
        elif value is not None:
            value = call.subtract(key, window, record, value)
        values[group] = value
        stamps[group] = stamp
        # A deleted entry is forgotten with its time. Not between the halves of a change: the other one follows.
        since[group] = NEVER if value is None and (room or not half) else stamp
        if not half:
            updates[i if every else group] = (group, value, stamp, value is None)
    told = list(updates.values())
    if not every:
        told = [update for update in told if not update[3] or touched.stored[update[0]]]
    alive = [group for group, value in enumerate(values) if room or value is not None]
    merged = _table(layout, touched, alive, [values[group] for group in alive], [stamps[group] for group in alive])
    out = _table(layout, touched, [u[0] for u in told], [u[1] for u in told], [u[2] for u in told])
    out = out.append_column("deleted", pa.array([u[3] for u in told], pa.bool_()))
    return touched.with_rest(merged), out if every else in_time(out)


def in_time(updates: pa.Table) -> pa.Table:
    """Updates in timestamp order, then by the start of their windows."""
    return updates.take(pa.array(np.lexsort((ints(updates["start"]), ints(updates["ts"])))))


@dataclass(frozen=True)
class Touched:
    """The entries (key and window) that records touch, numbered from 0 in the order of their first records."""

    number: Ints
    """Which entry each record is of."""
    heads: pa.Table
    """Key and start of each entry."""
    values: pa.Array
    """The aggregate that is held for each, null if there is none."""
    since: Ints
    """The timestamp that is held for each, NEVER if there is none."""
    stored: Flags
    """Whether each was held, be it as one that was deleted."""
    rest: pa.Table | None
    """What is held of other entries."""

    @classmethod
    def of(cls, layout: Layout, held: pa.Table | None, rows: pa.Table) -> Touched:
        by = [*layout.keys, "start"]
        if held is None:
            groups = Groups.of(codes([rows[name] for name in by]))
            size = len(groups.first)
            nothing = pa.nulls(size, layout.function_type)
            since, stored = np.full(size, NEVER), np.zeros(size, np.bool_)
            return cls(groups.number, rows.select(by).take(pa.array(groups.first)), nothing, since, stored, None)
        # The records first: so the entries that they touch have the lowest numbers.
        both = unite([rows.select(by), held.select(by)])
        groups = Groups.of(codes([both[name] for name in by]))
        number, of_held = groups.number[: rows.num_rows], groups.number[rows.num_rows :]
        size = int(number.max(initial=-1)) + 1
        mine = np.flatnonzero(of_held < size)
        place = np.full(size, -1)
        place[of_held[mine]] = mine
        stored = place >= 0
        heads = both.take(pa.array(np.where(stored, rows.num_rows + place, groups.first[:size])))
        values = array(held["s:0:0"]).take(pa.array(place, mask=~stored))
        since = np.where(stored, ints(held["ts"])[place], NEVER)
        if layout.op.buffer is not None:
            since[~valid_rows(values)] = NEVER  # deleted, and there only for the room it takes
        rest = held.select([*by, "ts", "s:0:0"]).filter(pa.array(of_held >= size))
        return cls(number, heads, values, since, stored, rest)

    def with_rest(self, table: pa.Table) -> pa.Table:
        """Everything that is held after the batch."""
        return table if self.rest is None else unite([self.rest, table.select(self.rest.schema.names)])


def _window(layout: Layout, start: int) -> tuple[int, int] | None:
    return (start, layout.aligned.end_ms(start)) if layout.op.windows is not None else None


class Caller:
    """Calls the user's functions; what they raise becomes an AggregationError that names key, window and record."""

    def __init__(self, layout: Layout) -> None:
        function = layout.op.function
        assert function is not None
        self._function: Reduce | Fold = function
        self._single = len(layout.op.key) == 1

    def add(self, key: tuple[Any, ...], window: _Window, record: Any, value: Any, fresh: bool) -> Any:
        """The aggregate with `record` added; `fresh` if there is none yet."""
        f = self._function
        if isinstance(f, Reduce):
            return record if value is None else self._call(f.function, (value, record), key, window, record)
        held = self._call(f.initializer, (), key, window, record) if fresh else value
        return self._call(f.aggregator, (self._key(key), record, held), key, window, record)

    def initial(self, key: tuple[Any, ...], window: tuple[int, int]) -> Any:
        """The aggregate of no record at all; None for a reduce."""
        f = self._function
        return None if isinstance(f, Reduce) else self._call(f.initializer, (), key, window, None)

    def subtract(self, key: tuple[Any, ...], window: _Window, record: Any, value: Any) -> Any:
        """The aggregate with `record` taken out again."""
        f = self._function
        assert f.subtractor is not None
        given = (value, record) if isinstance(f, Reduce) else (self._key(key), record, value)
        return self._call(f.subtractor, given, key, window, record)

    def merge(self, key: tuple[Any, ...], window: _Window, record: Any, held: list[Any]) -> Any:
        """The aggregates of sessions that `record` joins, merged in order, from the initializer on (SEMANTICS 4)."""
        f = self._function
        if isinstance(f, Reduce):
            merged = None
            for value in held:
                merged = value if merged is None else self._call(f.function, (merged, value), key, window, record)
            return merged
        assert f.merger is not None
        merged = self._call(f.initializer, (), key, window, record)
        for value in held:
            merged = self._call(f.merger, (self._key(key), merged, value), key, window, record)
        return merged

    def _key(self, key: tuple[Any, ...]) -> Any:
        return key[0] if self._single else key

    def _call(
        self, function: Callable[..., Any], given: tuple[Any, ...], key: Any, window: _Window, record: Any
    ) -> Any:
        try:
            return function(*given)
        except Exception as error:
            where = f"window {window[0]} to {window[1]} ms, " if window else ""
            raise AggregationError(
                f"{self._function} raised {type(error).__name__}: {error} — for key {self._key(key)!r}, "
                f"{where}record {record!r}. Nothing of this batch was emitted or stored. "
                "Correct the function, or filter such records out before tg.stream, and restart."
            ) from error


def tuples(rows: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    """The rows as tuples that are equal where Spark's grouping has them equal."""
    return list(zip(*(_hashable(rows[name]) for name in names), strict=True))


def _hashable(column: pa.ChunkedArray) -> list[Any]:
    values = column.to_pylist()
    if not pa.types.is_floating(column.type):
        return values
    # NaN is not equal to NaN, but a tuple takes an object for equal to itself: one NaN for all.
    return [nan if value is not None and isnan(value) else value for value in values]


def records_of(layout: Layout, rows: pa.Table) -> list[Any]:
    function = layout.op.function
    if isinstance(function, Reduce):
        return rows[f"v:{function.column}"].to_pylist()
    return rows.select(layout.values).rename_columns([name[2:] for name in layout.values]).to_pylist()


def _table(layout: Layout, touched: Touched, groups: list[int], values: list[Any], stamps: list[int]) -> pa.Table:
    rows = touched.heads.take(pa.array(groups, pa.int64()))
    try:
        typed_values = array(pa.chunked_array([pa.array(values, layout.function_type)]))
    except _WRONG:
        keys, starts = tuples(rows, layout.keys), rows["start"].to_pylist()
        typed_values = typed(layout, list(zip(zip(keys, starts, strict=True), values, strict=True)))
    return rows.append_column("ts", pa.array(stamps, pa.int64())).append_column("s:0:0", typed_values)


_WRONG = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError)


def typed(layout: Layout, values: list[tuple[Any, Any]]) -> pa.Array:
    """The aggregates in (entry, aggregate) pairs as a column; AggregationError for one of another type."""
    try:
        return array(pa.chunked_array([pa.array([value for _, value in values], layout.function_type)]))
    except _WRONG as error:
        entry, value = next((e, v) for e, v in values if not _fits(v, layout.function_type))
        where = f", window starting at {entry[1]} ms" if layout.op.windows is not None else ""
        raise AggregationError(
            f"{layout.op.function} gave {value!r} ({type(value).__name__}) for key {entry[0]!r}{where}, "
            f"which is not a {layout.function_type}: {error}. "
            "Return that type, or declare another `type`."
        ) from error


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _WRONG:
        return False
    return True
