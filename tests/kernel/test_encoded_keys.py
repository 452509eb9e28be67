"""Keys that come dictionary-encoded, as files have them, make the same blobs as the keys themselves, byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.kernel.exchange import partial_aggregates
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.exchange.slices import takes_dictionaries
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.tuning import DEFAULT
from tidegate.plan import operation

UNBOUNDED = tg.BufferConfig.unbounded()
TUMBLING = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
HOPPING = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms").advance_by("5 ms")
TOPOLOGIES: dict[str, tuple[bool, Callable[[tg.KGroupedStream], tg.KTable]]] = {
    "final": (
        True,
        lambda s: s.windowed_by(TUMBLING).agg(n=tg.count()).suppress(tg.Suppressed.until_window_closes(UNBOUNDED)),
    ),
    "updates of hopping windows": (True, lambda s: s.windowed_by(HOPPING).agg(n=tg.count(), total=tg.sum("amount"))),
    "an aggregate of a key": (True, lambda s: s.windowed_by(TUMBLING).agg(least=tg.min("user"))),
    "a table": (True, lambda s: s.agg(total=tg.sum("amount"))),
    "a time limit": (
        False,
        lambda s: (
            s.windowed_by(TUMBLING)
            .agg(n=tg.count())
            .suppress(tg.Suppressed.until_time_limit("3 ms", UNBOUNDED, clock="stream"))
        ),
    ),
    "a function": (False, lambda s: s.windowed_by(TUMBLING).reduce(lambda one, other: one + other, "amount", "total")),
    "sessions": (
        False,
        lambda s: s.windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("3 ms", "5 ms")).agg(n=tg.count()),
    ),
}
"""Whether records are combined before the shuffle, and the topology of a grouped stream."""
SCHEMA = pa.schema(
    [
        ("k:user", pa.string()),
        ("k:item", pa.binary()),
        ("v:amount", pa.int64()),
        ("v:user", pa.string()),
        ("ts", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["", "a", "b", "é"]),
        st.sampled_from([b"", b"x", b"y"]),
        st.integers(-3, 3),
        st.integers(-1, 40),
        st.integers(0, 2),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=30,
)


def layout(name: str, slice_rows: int, offset_runs: int) -> Layout:
    stream = tg.stream("events", key=["user", "item"], timestamp="ts", partition="partition", offset="offset")
    op = operation(TOPOLOGIES[name][1](stream.group_by_key()).node)
    names = [*(f"k:{each}" for each in op.key), *(f"v:{each}" for each in op.input_columns(("user", "amount")))]
    schema = pa.schema([SCHEMA.field(each) for each in [*names, "ts", "partition", "offset"]])
    return Layout(op, schema, tuning=replace(DEFAULT, slice_rows=slice_rows, offset_runs=offset_runs))


def encoded(column: pa.Array, seed: int) -> pa.DictionaryArray:
    """The column by numbers of a dictionary in random order, which has a value that no row has."""
    values = pa.concat_arrays([column.drop_null().unique(), pa.array([None], column.type).fill_null("none")])
    values = values.take(pa.array(np.random.default_rng(seed).permutation(len(values))))
    numbers = {value: number for number, value in enumerate(values.to_pylist())}
    return pa.DictionaryArray.from_arrays(
        pa.array([numbers.get(one) for one in column.to_pylist()], pa.int32()), values
    )


def batches(of: Layout, records: Sequence[tuple[object, ...]], cuts: set[int], ways: list[int]) -> list[pa.RecordBatch]:
    """Record batches whose key columns are plain or encoded: bit i of a way is for key i."""
    user, item, amount, ts, partition, steps = zip(*records, strict=True)
    whole = {"k:user": user, "k:item": item, "v:amount": amount, "v:user": user, "ts": ts, "partition": partition}
    columns = [
        pa.array(np.cumsum(steps) if name == "offset" else whole[name], of.schema.field(name).type)
        for name in of.schema.names
    ]
    rows, found = pa.record_batch(columns, schema=of.schema), []
    ends = sorted({len(records), *(cut for cut in cuts if cut < len(records))})
    for number, (low, high) in enumerate(zip([0, *ends], ends, strict=False)):
        part = rows.slice(low, high - low)
        for key, name in enumerate(of.keys):
            if ways[number % len(ways)] >> key & 1:
                part = part.set_column(key, name, encoded(part.column(key), number))
        found.append(part)
    return found


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(
    RECORDS,
    st.sets(st.integers(1, 29), max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.sampled_from([1, 4, 100]),
    st.sampled_from([1, 100]),
    st.booleans(),
)
def test_the_blobs_are_the_same(
    name: str,
    records: list[tuple[object, ...]],
    cuts: set[int],
    ways: list[int],
    slice_rows: int,
    offset_runs: int,
    abandons: bool,
) -> None:
    of = layout(name, slice_rows, offset_runs)
    with pytest.MonkeyPatch.context() as patch:
        if abandons:
            patch.setattr(partial_aggregates, "abandoned", lambda layout, rows, by: grouping.key_hash(layout, rows))
        plain = list(pack(of, batches(of, records, cuts, [0]), [0, 1]))
        assert list(pack(of, batches(of, records, cuts, ways), [0, 1])) == plain


def test_keys_stay_encoded_where_records_are_only_combined() -> None:
    assert {name: takes_dictionaries(layout(name, 100, 100)) for name in TOPOLOGIES} == {
        name: stays for name, (stays, _) in TOPOLOGIES.items()
    }
