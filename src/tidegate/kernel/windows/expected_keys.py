"""Keys that are expected in every window: a window without a record of the key gives a row of the empty aggregate.

The expected windows close by stream time. The first of them is the first window with the timestamp of the operator's
first record. They follow from stream time alone, so the state has no rows for them, only where they begin. At the end
of a static frame the last of them is the last window with the newest record.

        size 10, first record 23         windows 20, 30, 40 ... are expected
        stream time 29 -> 60             20, 30, 40, 50 close: a row for each expected key that has none
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InputError, in_one_line
from tidegate.instants import MAX_MS, show_instant
from tidegate.kernel.columns.arrays import as_schema, plain_columns
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.rows import grouping, results
from tidegate.kernel.rows.conversion import MISFITS, by_name, converter
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.state import Expected, State
from tidegate.kernel.time.panes import Panes
from tidegate.kernel.time.stream_time import NEVER
from tidegate.kernel.windows import functions
from tidegate.spec.aggregates import Aggregate
from tidegate.spec.columns import END, KIND, START, TIMESTAMP
from tidegate.spec.windows import BatchWindows, TimeWindows

MOST_ROWS = 10_000_000
"""Most rows for windows without a record in one step of a task; more are taken for a jump of time and refused."""


def add_missing(layout: Layout, state: State, batch: Batch, rows: pa.Table, packed: bytes, closes_at: int) -> pa.Table:
    """The rows of a step, and a row for each of the `packed` keys in each closed window without a record of the key.

    Raises InputError for more than MOST_ROWS added rows.
    """
    expected = state.expected or _begun(layout, batch)
    if expected is None:
        return rows
    state.expected = _advanced(expected, state, batch)
    starts = _closed(layout, state.expected, batch.closed_through, closes_at)
    if not len(starts):
        return rows
    keys = _mine(layout, frames.decode(frames.SEGMENT, packed)[1][0], state.task, state.tasks)
    if not keys.num_rows:
        return rows
    if len(starts) * keys.num_rows > MOST_ROWS:
        raise InputError(
            f"{len(starts):,} windows close at once, from {show_instant(starts[0])} to {show_instant(starts[-1])}: "
            f"with {keys.num_rows:,} expected keys (expect_keys=) that is more than {MOST_ROWS:,} rows without a "
            "record. Nothing of this batch was stored. If a record is wrong about its time, keep it out with "
            'tg.stream(max_future_skew="5 minutes"); or restart with fewer expected keys.'
        )
    both = layout.op.emits == "both"
    updates = rows.filter(pc.not_equal(rows[KIND], "final")) if both and rows.num_rows else rows.slice(0, 0)
    final = rows.filter(pc.equal(rows[KIND], "final")) if both and rows.num_rows else rows
    missing = _missing(layout, _blank(layout, keys, np.asarray(starts, np.int64)), final)
    if both:
        missing = missing.append_column(KIND, pa.repeat("final", missing.num_rows))
    final = pa.concat_tables([final, missing], promote_options="default")
    final = results.in_order(layout, final) if layout.sorts else final
    return pa.concat_tables([updates, final], promote_options="default")


def _begun(layout: Layout, batch: Batch) -> Expected | None:
    """The first expected window: by the first record; on a checkpoint without expected keys by its stream time."""
    before, panes = batch.fold.before_batch, _panes(layout)
    first = batch.fold.first_timestamp if before == NEVER else before
    return None if first is None else Expected(int(panes.first_window(panes.pane(first))))


def _advanced(expected: Expected, state: State, batch: Batch) -> Expected:
    """`newest` advanced: the newest record may be ahead of stream time, which is the time of the slowest partition."""
    return replace(expected, newest=max([expected.newest, state.newest, *(chunk.max_ts for chunk in batch.chunks)]))


def _missing(layout: Layout, blank: pa.Table, rows: pa.Table) -> pa.Table:
    """The rows of `blank` whose key and window are in no row of `rows`."""
    if not rows.num_rows:
        return blank
    there, wanted = grouping.codes_of_tables([*layout.op.key, START], [rows, blank])
    return blank.filter(pa.array(~np.isin(wanted, there)))


def _mine(layout: Layout, keys: pa.Table, task: int, tasks: int) -> pa.Table:
    if tasks == 1 or not keys.num_rows:
        return keys
    return keys.filter(pa.array(grouping.task_of(grouping.key_hash(layout, keys), tasks) == task))


def _panes(layout: Layout) -> Panes:
    windows = layout.op.windows
    if isinstance(windows, BatchWindows):
        windows = TimeWindows(windows.size_ms, windows.size_ms, windows.grace_ms)
    assert isinstance(windows, TimeWindows)
    return Panes(windows)


def _closed(layout: Layout, expected: Expected, before: int, closes_at: int) -> range:
    """The starts of the expected windows that closed after `before`."""
    panes = _panes(layout)
    advance = panes.windows.advance_ms
    end = (expected.newest // advance + 1) * advance if closes_at == MAX_MS else int(panes.first_open(closes_at))
    return range(max(expected.first, int(panes.first_open(before))), end, advance)


def _blank(layout: Layout, keys: pa.Table, starts: Any) -> pa.Table:
    """Rows of the empty aggregate, one per key and window; their `TIMESTAMP` is the last instant of the window."""
    n, m = keys.num_rows, len(starts)
    at = pa.array(np.tile(np.arange(n), m))
    schema = layout.for_kind["final"].result_schema
    first = (functions.keys_of(layout, keys.slice(0, 1))[0], (int(starts[0]), int(layout.aligned.end_ms(starts[0]))))
    columns: dict[str, Any] = {name: keys[f"k:{name}"].take(at) for name in layout.op.key}
    columns[START] = np.repeat(starts, n)
    columns[END] = np.repeat(layout.aligned.end_ms(starts), n)
    every = pa.array(np.zeros(n * m, np.int64))
    for name, aggregation in layout.op.aggregations:
        columns[name] = _nothing(layout, aggregation, schema.field(name).type, *first).take(every)
    columns[TIMESTAMP] = np.repeat(layout.aligned.end_ms(starts) - 1, n)
    return results.known(layout, as_schema(pa.table(columns), schema))


def _nothing(layout: Layout, aggregation: Any, kind: pa.DataType, key: Any, window: tuple[int, int]) -> pa.Array:
    """The empty aggregate, as a column of one value."""
    if isinstance(aggregation, Aggregate):
        return pa.array([aggregation.nothing], kind)
    return functions.typed(layout, [functions.Caller(layout).initial(key, window)])


def pack(layout: Layout, given: Any) -> bytes:
    """Pack keys for `add_missing`.

    given  a DataFrame, an Arrow table or frame, or a list of dicts, tuples, rows or single values

    Raises InputError for a key column that is missing or of another type. Keys with a null are left out, as in records.
    """
    if hasattr(given, "toArrow"):  # a DataFrame of Spark, which the kernel does not know
        if missing := [name for name in layout.op.key if name not in given.columns]:
            _no_column(missing[0], given.columns)
        # Quoted, because a dot in a name means something to Spark.
        given = given.select(*(f"`{name.replace('`', '``')}`" for name in layout.op.key)).toArrow()
    table = _table(given) if hasattr(given, "__arrow_c_stream__") else _from_list(layout, list(given))
    columns = {}
    for name in layout.op.key:
        kind = layout.schema.field(f"k:{name}").type
        kind = table.schema.field(name).type if pa.types.is_null(kind) and name in table.schema.names else kind
        if name not in table.schema.names:
            _no_column(name, table.schema.names)
        given_kind = table.schema.field(name).type
        if not _alike(given_kind, kind):
            raise InputError(
                f"`expect_keys` has {name!r} as {given_kind}, the stream as {kind}: a key of another kind is none of "
                "the stream's. Cast the column."
            )
        try:
            columns[f"k:{name}"] = grouping.canonical(table[name].cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                f"`expect_keys` has {name!r} as {table[name].type}, the stream as {kind}: {error}. Cast the column."
            ) from None
    keys = pa.table(columns).drop_null()
    if keys.num_rows:
        _, firsts = np.unique(grouping.codes([keys[name] for name in keys.schema.names]), return_index=True)
        keys = keys.take(pa.array(np.sort(firsts)))
    return frames.encode(frames.SEGMENT, {}, keys)


def _table(given: Any) -> pa.Table:
    try:
        return plain_columns(pa.table(given))
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"`expect_keys` is {in_one_line(given)}, which has no columns: {error}. Give a table or a frame with the "
            "key columns, or a list of keys."
        ) from None


def _alike(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of `given` can be keys of the type `kind`: a number is no text, and a time is no number."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    return pa.types.is_null(given) or pa.types.is_nested(given) or _kind_of(given) == _kind_of(kind)


def _kind_of(kind: pa.DataType) -> str:
    of = pa.types
    if of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind):
        return "number"
    if any(is_text(kind) for is_text in (of.is_string, of.is_large_string, of.is_string_view)):
        return "text"
    if any(is_bytes(kind) for is_bytes in (of.is_binary, of.is_large_binary, of.is_binary_view)):
        return "bytes"
    return str(kind).partition("[")[0]


def _from_list(layout: Layout, given: list[Any]) -> pa.Table:
    names, given = layout.op.key, list(map(by_name, given))
    if given and all(isinstance(entry, Mapping) for entry in given):
        # `pack` reports a column that no entry has, as it does for a DataFrame.
        names = tuple(name for name in names if any(name in entry for entry in given))
        if not names:
            _no_column(layout.op.key[0], dict.fromkeys(name for entry in given for name in entry))
    rows = [_row(names, number, entry) for number, entry in enumerate(given)]
    return pa.table({name: _column(layout, name, [row[name] for row in rows]) for name in names})


def _no_column(name: str, found: Iterable[Any]) -> NoReturn:
    raise InputError(
        f"`expect_keys` has no column {name!r}, which is part of the key; it has "
        f"{', '.join(map(repr, found))}. Select the key columns under their names."
    )


def _row(names: tuple[str, ...], number: int, entry: Any) -> Mapping[str, Any]:
    if isinstance(entry, Mapping):
        if missing := [name for name in names if name not in entry]:
            raise InputError(
                f"`expect_keys` has {entry!r} at place {number}, which has no {missing[0]!r}: the key is "
                f"({', '.join(names)}). Give every key all of its columns."
            )
        return entry
    if len(names) == 1 and not (isinstance(entry, list | tuple) and len(entry) == 1):
        if isinstance(entry, list | tuple):
            raise InputError(
                f"`expect_keys` has a key that the stream cannot have: {entry!r} at place {number} has {len(entry)} "
                f"values, and the key is one column ({names[0]}). Give each key as its value, or as a dict."
            )
        return {names[0]: entry}
    if isinstance(entry, str | bytes) or not isinstance(entry, Sequence) or len(entry) != len(names):
        raise InputError(
            f"`expect_keys` has {entry!r} at place {number}: the key has {len(names)} columns ({', '.join(names)}). "
            "Give each key as a tuple with a value for each of them, or as a dict."
        )
    return dict(zip(names, entry, strict=True))


def _column(layout: Layout, name: str, values: list[Any]) -> pa.Array:
    kind = layout.schema.field(f"k:{name}").type
    # In the driver a key has no type before the first record with one.
    if pa.types.is_null(kind):
        try:
            return pa.array(values)
        except MISFITS as error:
            raise InputError(f"`expect_keys` has keys of different types: {error}. Correct the list.") from None
    convert, stored = converter(kind), []
    for value in values:
        try:
            stored.append(convert(value))
        except MISFITS as error:
            raise InputError(
                f"`expect_keys` has a key that the stream cannot have: {value!r} at place {len(stored)} is no {kind}, "
                f"the type of {name!r}: {error}. Correct the list."
            ) from None
    return pa.array(stored, kind)
