"""Python functions as aggregates: `reduce` and `aggregate`, record by record, in order.

A function runs in the batch its record came in, so that one that raises stops there and not when the window closes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from math import isnan, nan
from typing import Any

import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.kernel.grouping import array
from tidegate.kernel.layout import Layout
from tidegate.spec.aggregates import Fold, Reduce

_Entry = tuple[Any, int]
_Window = tuple[int, int] | None


def take_in(layout: Layout, held: pa.Table | None, rows: pa.Table, every: bool) -> tuple[pa.Table, pa.Table]:
    """The tables after the records in `rows`, and the updates: every one, or the last of each key and window.

    In front of a bounded buffer a deleted entry stays, with a null for its aggregate: it takes room until its window
    closes (SEMANTICS 6.1).

    Raises AggregationError naming key, window and record if a function raises, or gives a value of another type.
    """
    entries = _entries(layout, held)
    stored = set(entries)
    call = Caller(layout)
    keys = tuples(rows, layout.keys)
    starts, times = rows["start"].to_pylist(), rows["ts"].to_pylist()
    records = records_of(layout, rows)
    changes = layout.op.stream.changes
    signs, silent = (rows[name].to_pylist() if changes else repeat(v) for name, v in (("sign", 1), ("silent", False)))
    updates: dict[Any, tuple[Any, Any, int, bool]] = {}
    given = zip(keys, starts, times, records, signs, silent, strict=False)
    for i, (key, start, ts, record, sign, half) in enumerate(given):
        before = entries.get((key, start))
        if before is not None and before[0] is None and layout.op.buffer is not None:
            before = None  # deleted, and there only for the room it takes
        value, stamp = (None, ts) if before is None else (before[0], max(before[1], ts))
        window = _window(layout, start)
        if sign > 0:
            value = call.add(key, window, record, value, value is None)
        elif value is not None:
            value = call.subtract(key, window, record, value)
        if half:
            # The other half of the change follows, in the same group; only then is it seen what is left.
            entries[key, start] = (value, stamp)
            continue
        if value is None and layout.op.buffer is None:
            entries.pop((key, start), None)
        else:
            entries[key, start] = (value, stamp)
        updates[i if every else (key, start)] = ((key, start), value, stamp, value is None)
    merged = _table(layout, [(entry, value, stamp, False) for entry, (value, stamp) in entries.items()])
    told = list(updates.values())
    if not every:
        # Created and deleted within the batch: nobody has heard of it (SEMANTICS 13). The rest in timestamp order.
        told = sorted((u for u in told if not u[3] or u[0] in stored), key=lambda u: (u[2], u[0][1]))
    return merged.drop_columns(["deleted"]), _table(layout, told)


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


def _entries(layout: Layout, held: pa.Table | None) -> dict[tuple[tuple[Any, ...], int], _Entry]:
    if held is None:
        return {}
    columns = zip(
        tuples(held, layout.keys),
        held["start"].to_pylist(),
        held["s:0:0"].to_pylist(),
        held["ts"].to_pylist(),
        strict=True,
    )
    return {(key, start): (value, ts) for key, start, value, ts in columns}


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


def _table(layout: Layout, updates: list[tuple[Any, Any, int, bool]]) -> pa.Table:
    columns: dict[str, Any] = {}
    for i, name in enumerate(layout.keys):
        kind = layout.schema.field(name).type
        columns[name] = pa.array([entry[0][i] for entry, *_ in updates], kind)
    columns["start"] = pa.array([entry[1] for entry, *_ in updates], pa.int64())
    columns["ts"] = pa.array([stamp for _, _, stamp, _ in updates], pa.int64())
    columns["s:0:0"] = typed(layout, [(entry, value) for entry, value, _, _ in updates])
    columns["deleted"] = pa.array([deleted for *_, deleted in updates], pa.bool_())
    return pa.table(columns)


def typed(layout: Layout, values: list[tuple[Any, Any]]) -> pa.Array:
    """The aggregates in (entry, aggregate) pairs as a column; AggregationError for one of another type."""
    try:
        return array(pa.chunked_array([pa.array([value for _, value in values], layout.function_type)]))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
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
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        return False
    return True
