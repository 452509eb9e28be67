"""Groups of equal rows, and the merging of state rows within them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import AggregationError
from tidegate.kernel.aggregates import Overflow
from tidegate.kernel.columns.arrays import Flags, Hashes, Ints, array, concat_tables, decoded, ints, with_column
from tidegate.kernel.columns.factorize import ROOM, dense, fits_table, numbered, together
from tidegate.kernel.columns.groups import Groups
from tidegate.kernel.columns.hash64 import hash_rows
from tidegate.kernel.columns.steps import in_steps
from tidegate.kernel.rows.conversion import for_display
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.schema_evolution import PLAN_CHANGES
from tidegate.spec.columns import public_name

_LOWEST = -(2**63)


def codes(columns: Sequence[pa.ChunkedArray]) -> Ints:
    """One number per row, from 0, the same for rows that are equal in every column.

    The largest number is not much larger than the number of rows, so that a table by number fits in memory.
    """
    return together(map(_code, columns), len(columns[0]))[0]


def codes_of_tables(names: Sequence[str], tables: Sequence[pa.Table]) -> list[Ints]:
    """`codes` by these columns for each table: the same for equal rows of any of them."""
    rows = concat_tables([table.select(names) for table in tables])
    numbers = codes([rows[name] for name in names])
    return np.split(numbers, np.cumsum([table.num_rows for table in tables])[:-1])


def places(wanted: Ints, known: Ints) -> Ints:
    """The last place in `known` of each `wanted` number, or -1; numbers are those of `codes_of_tables`."""
    at = np.full(int(max(wanted.max(initial=-1), known.max(initial=-1))) + 1, -1, np.int64)
    at[known] = np.arange(len(known))
    return at[wanted]


def _code(column: pa.ChunkedArray) -> tuple[Ints, int]:
    column = canonical(column)
    if pa.types.is_int64(column.type) and not column.null_count:
        numbers = ints(column)
        return _near(numbers) or dense(numbers)
    if (found := numbered(column)) is not None:
        return found
    encoded = array(column)
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode(null_encoding="encode")
    return ints(encoded.indices), len(encoded.dictionary)


def _near(numbers: Ints) -> tuple[Ints, int] | None:
    """Integers as numbers from 0 on, and how many there may be; None if these are far more than rows.

    They are divided by their common step: starts of windows lie far apart.
    """
    if not len(numbers):
        return numbers, 1
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= ROOM:
        return None
    parts, step = in_steps(numbers, low, high) or (numbers - low, 1)
    many = (high - low) // step + 1
    return (parts, many) if fits_table(many, len(numbers)) else None


def canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Keys with one NaN for all, whatever its bits, and 0.0 for -0.0: such keys are equal in Spark's grouping."""
    if not pa.types.is_floating(column.type) or not len(column):
        return column
    whole = array(column)
    with np.errstate(invalid="ignore"):  # a signaling NaN
        values = pc.fill_null(whole, 0).to_numpy() + whole.type.to_pandas_dtype()(0)
    values[np.isnan(values)] = np.nan
    nulls = whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None
    return pa.chunked_array([pa.array(values, whole.type, mask=nulls)])


def merge(layout: Layout, rows: pa.Table, by: Sequence[str], groups: Groups | None = None) -> pa.Table:
    """One row per distinct `by` (or per group, if given): state merged in row order, `ts` the largest.

    Raises AggregationError naming the group if a sum overflows.
    """
    if rows.num_rows == 0:
        return decoded(rows)
    groups = groups or Groups.of(codes([rows[name] for name in by]))
    head = decoded(rows.select(list(by)).take(pa.array(groups.first)))
    columns = {name: head[name] for name in by} | {"ts": groups.fold(array(rows["ts"]), "max")}
    if PLAN_CHANGES in rows.schema.names:
        columns[PLAN_CHANGES] = groups.fold(array(rows[PLAN_CHANGES]), "min")
    runs: tuple[Ints, Ints] | None = None
    for index, (acc, names) in enumerate(zip(layout.accumulators, layout.states, strict=True)):
        state = [array(rows[name]) for name in names]
        if acc.merges is not None and acc.safe(state):
            columns |= {
                name: groups.fold(column, how) for name, column, how in zip(names, state, acc.merges, strict=True)
            }
            continue
        runs = runs or groups.runs()
        order, starts = runs
        try:
            merged = acc.merge_runs([column.take(pa.array(order)) for column in state], starts)
        except Overflow as overflow:
            raise overflowed(layout, head, overflow, index) from None
        columns |= dict(zip(names, merged, strict=True))
    return pa.table(columns)


def lift(layout: Layout, rows: pa.Table) -> pa.Table:
    """The records with the state columns of the built-in aggregates, one state row each.

    Of a regrouped table, a record that leaves its group has two state rows if one cannot hold its state.
    """
    columns: dict[str, Any] = {}
    for acc, names, (_, aggregate) in zip(layout.accumulators, layout.states, layout.op.aggregations, strict=True):
        column = getattr(aggregate, "column", None)
        values = array(rows[f"v:{column}"]) if column else None
        columns |= zip(names, acc.lift(values, rows.num_rows), strict=True)
    taken_out = pc.less(array(rows["sign"]), 0) if layout.op.stream.changes else None
    for name, column in columns.items():
        if taken_out is not None and not pa.types.is_null(column.type):
            column = pc.if_else(taken_out, pc.negate(column), column)
        rows = rows.append_column(name, column)
    return rows if taken_out is None else _in_two_steps(layout, rows, taken_out)


def _in_two_steps(layout: Layout, rows: pa.Table, taken_out: pa.Array) -> pa.Table:
    """Rows in which each state of -2**63 that leaves its group leaves in two steps, because 2**63 is no long.

    The record's own row adds 2**63 - 1 to the sum. A row in front of it adds 1 and nothing else, and is `silent`.
    """
    lowest = {}
    for name in layout.state:
        if rows[name].type == pa.int64():
            found = pc.and_(taken_out, pc.equal(array(rows[name]), _LOWEST))
            lowest[name] = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    twice = np.flatnonzero(np.logical_or.reduce([np.zeros(rows.num_rows, bool), *lowest.values()]))
    if not len(twice):
        return rows
    more = rows.take(pa.array(twice))
    for name in layout.state:
        one = pa.nulls(len(twice), rows[name].type)
        if name in lowest:
            low = lowest[name]
            one = pa.array(np.ones(len(twice), np.int64), mask=~low[twice])
            rows = with_column(rows, name, pc.if_else(pa.array(low), -(_LOWEST + 1), array(rows[name])))
        more = with_column(more, name, one)
    if "silent" in rows.schema.names:
        more = with_column(more, "silent", pa.array(np.ones(len(twice), bool)))
    order = np.argsort(np.append(twice, np.arange(rows.num_rows)), kind="stable")
    return concat_tables([more, rows]).take(pa.array(order))


def keyed(layout: Layout, rows: pa.Table) -> Flags:
    """Whether each row has a key: a value in every key column."""
    found = np.ones(rows.num_rows, bool)
    for name in layout.keys:
        if rows[name].null_count:
            found &= rows[name].is_valid().to_numpy()
    return found


def key_hash(layout: Layout, rows: pa.Table) -> Hashes:
    """One number per row that depends on its key alone, here and in every other process; part of the state format."""
    return hash_rows(rows.select(layout.keys))


def task_of(hashes: Hashes, tasks: int) -> Ints:
    """The number of the task of each key, by its `key_hash`; part of the state format."""
    number: Ints = (hashes % np.uint64(tasks)).astype(np.int64)
    return number


def overflowed(layout: Layout, groups: pa.Table, overflow: Overflow, index: int) -> AggregationError:
    """The error for an aggregate that overflowed in one of `groups`."""
    (row,) = for_display(groups.slice(overflow.group_index, 1))
    name, aggregate = layout.op.aggregations[index]
    key = {public_name(column): row[f"k:{column}"] for column in layout.op.key}
    start = row.get("start", row.get("pane"))
    where = f", window starting at {start} ms" if layout.op.windows is not None else ""
    return AggregationError(f"`{name}` = {aggregate} overflows for key {key}{where}: {overflow}. {overflow.remedy}")
