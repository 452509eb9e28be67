"""A vectorized aggregator over Arrow arrays: one call per round, with one record of every entry that still has one.

Round r takes the r-th record of each entry (key and window). So the records of an entry keep their order, and a batch
makes as many calls as its most frequent entry has records. Entries are sorted by their number of records, most first:
the entries of a round are then the first entries of the round before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.kernel.aggregates.base import valid_rows
from tidegate.kernel.columns.arrays import array, ints
from tidegate.kernel.columns.groups import place_in_group
from tidegate.kernel.rows import conversion
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.time.stream_time import NEVER
from tidegate.kernel.windows.touched import in_time, with_deleted, with_state
from tidegate.spec.aggregates import Fold

if TYPE_CHECKING:
    from tidegate.kernel.columns.arrays import Ints
    from tidegate.kernel.windows.touched import Touched


def apply(layout: Layout, fold: Fold, touched: Touched, rows: pa.Table, every: bool) -> tuple[pa.Table, pa.Table]:
    """`functions.apply` for a vectorized aggregator."""
    counts = np.bincount(touched.number, minlength=touched.heads.num_rows)
    entries = np.argsort(-counts, kind="stable")
    order, sizes = _rounds(touched.number, entries)
    given, ts = rows.take(pa.array(order)), ints(rows["ts"])[order]
    values, since = touched.values.take(pa.array(entries)), touched.since[entries]
    rounds: list[tuple[pa.Array, Ints]] = []
    low = 0
    for size in sizes:
        values = _called(layout, fold, given.slice(low, size), values.slice(0, size))
        stamps = np.maximum(since[:size], ts[low : low + size])
        # A deleted entry loses its timestamp too.
        since = np.where(valid_rows(values), stamps, NEVER)
        rounds.append((values, stamps))
        low += size
    after = [*sizes[1:], 0]
    # Entries with most records come first, and their last round was the last one.
    last = [(v.slice(n), s[n:]) for (v, s), n in zip(reversed(rounds), reversed(after), strict=True)]
    final = _with_states(touched.heads.take(pa.array(entries)), last)
    kept = final if layout.op.buffer is not None else final.filter(pa.array(valid_rows(array(final["s:0:0"]))))
    if every:
        heads = touched.heads.take(pa.array(touched.number[order]))
        updates = with_deleted(_with_states(heads, rounds)).take(pa.array(np.argsort(order)))
    else:
        # An entry created and deleted within the batch gives no update (SEMANTICS 13). The rest by first record.
        by_entry = with_deleted(final).take(pa.array(np.argsort(entries)))
        has_update = touched.stored | ~by_entry["deleted"].to_numpy()
        updates = in_time(by_entry.filter(pa.array(has_update)))
    return touched.with_rest(kept), updates


def _rounds(number: Ints, entries: Ints) -> tuple[Ints, list[int]]:
    """The places of the records by round, within a round in the order of `entries`; and the size of each round."""
    nth = place_in_group(number)
    place = np.empty(len(entries), np.int64)
    place[entries] = np.arange(len(entries))
    return np.lexsort((place[number], nth)), np.bincount(nth).tolist()


def _begun(layout: Layout, fold: Fold, rows: pa.Table, values: pa.Array) -> pa.Array:
    """The aggregates, with the initializer's value where there is none."""
    if not values.null_count:
        return values
    missing = ~valid_rows(values)
    nothing = pa.array([_initial(layout, fold, rows, int(missing.argmax()))], layout.function_type)
    at = np.where(missing, len(values), np.arange(len(values)))
    return pa.concat_arrays([values, nothing]).take(pa.array(at))


def _initial(layout: Layout, fold: Fold, rows: pa.Table, first: int) -> Any:
    """The initializer's value; `first` is the first row that needs it."""
    try:
        value = fold.initializer()
    except Exception as error:
        raise AggregationError(
            f"The initializer of {fold} raised {type(error).__name__}: {error} — {_where(layout, rows, first)}. "
            "Nothing of this batch was emitted or stored. Correct the function, and restart."
        ) from error
    try:
        return conversion.converter(layout.function_type)(value)
    except conversion.MISFITS as error:
        raise AggregationError(
            f"The initializer of {fold} gave {value!r} ({type(value).__name__}) {_where(layout, rows, first)}, "
            f"which is not a {layout.function_type}: {error}. Return that type, or declare another `type`."
        ) from error


def _where(layout: Layout, rows: pa.Table, at: int) -> str:
    """The key of a row, and the start of its window, as words of an error."""
    key = [conversion.shown(rows[name][at]) for name in layout.keys]
    window = "" if layout.op.windows is None else f", window starting at {rows['start'][at].as_py()} ms"
    return f"for key ({', '.join(key)}{',' * (len(key) == 1)}){window}"


def _called(layout: Layout, fold: Fold, rows: pa.Table, values: pa.Array) -> pa.Array:
    values = _begun(layout, fold, rows, values)
    keys = [array(rows[name]) for name in layout.keys]
    records = rows.select(layout.values).rename_columns([name[2:] for name in layout.values])
    try:
        found: Any = fold.aggregator(keys[0] if len(keys) == 1 else tuple(keys), records, values)
    except Exception as error:
        first = f"{conversion.shown(keys[0][0])}: {conversion.for_display(records.slice(0, 1))[0]!r}"
        raise AggregationError(
            f"{fold} raised {type(error).__name__}: {error} — for {rows.num_rows} records at once, the first of key "
            f"{first}. Nothing of this batch was emitted or stored. Correct the function, or filter such records out "
            "before tg.stream, and restart."
        ) from error
    found = array(found) if isinstance(found, pa.ChunkedArray) else found
    if not isinstance(found, pa.Array) or len(found) != rows.num_rows:
        got = f"{len(found)} values" if isinstance(found, pa.Array) else f"a {type(found).__name__}"
        raise AggregationError(
            f"{fold} gave {got} for {rows.num_rows} records. With vectorized=True it must return an Arrow array with "
            "an aggregate for each of the records that it is given."
        )
    try:
        return conversion.fitted(found, layout.function_type)
    except conversion.MisfitError as error:
        raise AggregationError(
            f"{fold} gave an array of {found.type}, which is not {layout.function_type}: {error.value} "
            f"{_where(layout, rows, error.place)}, {error}. Nothing of this batch was emitted or stored. "
            "Return that type, or declare another `type`."
        ) from error


def _with_states(entries: pa.Table, parts: list[tuple[pa.Array, Ints]]) -> pa.Table:
    stamps = np.concatenate([stamps for _, stamps in parts])
    return with_state(entries, pa.array(stamps), pa.concat_arrays([values for values, _ in parts]))
