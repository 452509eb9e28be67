"""Tables of rows that cannot be combined: they take few bytes, and decode into the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import CheckpointError
from tidegate.kernel.state import frames
from tidegate.kernel.state.compact import compacted, is_compact, restored

LONGS = st.integers(-(2**63), 2**63 - 1)
STEADY = st.builds(lambda start, step: (start, step), st.integers(-(2**40), 2**40), st.integers(0, 10**6))


@st.composite
def longs(draw: Any, size: int) -> list[int]:
    kind = draw(st.sampled_from(["any", "steady", "constant", "two far ones"]))
    if kind == "any":
        return draw(st.lists(LONGS, min_size=size, max_size=size))
    if kind == "steady":
        start, step = draw(STEADY)
        return [start + step * i + draw(st.integers(0, 3)) for i in range(size)]
    if kind == "constant":
        return [draw(LONGS)] * size
    return draw(st.lists(st.sampled_from([-(2**63), 2**63 - 1, 0]), min_size=size, max_size=size))


@st.composite
def tables(draw: Any) -> pa.Table:
    size = draw(st.integers(1, 40))
    texts = draw(st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "ü", "long " * 9])), min_size=size))
    nulls = draw(st.lists(st.one_of(st.none(), LONGS), min_size=size, max_size=size))
    return pa.table(
        {
            "k:name": pa.array(texts[:size], pa.string()),
            "k:bytes": pa.array([None if t is None else t.encode() for t in texts[:size]], pa.binary()),
            "ts": pa.array(draw(longs(size)), pa.int64()),
            "nulls": pa.array(nulls, pa.int64()),
            "small": pa.array([i % 100 for i in range(size)], pa.int8()),
            "x": pa.array(draw(st.lists(st.floats(), min_size=size, max_size=size)), pa.float64()),
            "l": pa.array([[i] for i in range(size)], pa.list_(pa.int64())),
            "offset": pa.array(draw(longs(size)), pa.int64()),
        }
    )


def as_bytes(table: pa.Table) -> list[Any]:
    """The table in a form that compares, NaN too."""
    return [str(table.schema), *(repr(column.to_pylist()) for column in table.columns)]


@given(tables())
def test_what_was_made_compact_is_restored(table: pa.Table) -> None:
    found = compacted(table)
    assert is_compact(found)
    assert not is_compact(table)
    assert as_bytes(restored(found)) == as_bytes(table)
    (again,) = frames.decode(frames.BLOB, frames.encode(frames.BLOB, {}, found))[1]
    assert as_bytes(again) == as_bytes(table)


@given(tables())
def test_the_same_rows_give_the_same_bytes(table: pa.Table) -> None:
    """A map task that runs twice gives the same blobs."""
    one, two = (frames.encode(frames.BLOB, {}, compacted(table)) for _ in range(2))
    assert one == two


def rows(count: int) -> pa.Table:
    number = np.arange(count)
    columns = {"k:user": [f"user-{i % 7}" for i in number], "n": pa.array(np.ones(count, np.int64))}
    return pa.table(columns | {"ts": pa.array(number * 3), "offset": pa.array(number * 2)})


def test_steady_columns_cost_next_to_nothing() -> None:
    size = len(frames.encode(frames.BLOB, {}, compacted(rows(100_000))))
    assert size < 5_000


def crooked() -> pa.Table:
    """A table with every form: `ts` lies on a line over irregular offsets, `odd` is noise."""
    number = np.arange(50)
    offset = np.cumsum(number * number % 7 + 1)
    columns = {"k:user": [f"user-{i % 7}" for i in number], "n": pa.array(np.ones(50, np.int64))}
    return pa.table(columns | {"ts": offset * 30_000, "offset": offset, "odd": number * number * 7_919 % 50_021})


def changed(table: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rows": 50', '"rows": 49'),
        ('"form": "before"', '"form": "after"'),
        ('"along": "offset"', '"along": "nothing"'),
        ('"name": "k:user"', '"name": "nobody"'),
        ('"low":', '"high":'),
        ('"slope": 30000.0', '"slope": NaN'),
        ('"order":', '"ardor":'),
        ('{"rows"', '["rows"'),
    ],
)
def test_what_nobody_wrote_is_refused(old: str, new: str) -> None:
    table = compacted(crooked())
    ((name, meta),) = table.schema.metadata.items()
    text = meta.decode()
    assert old in text, text
    broken = table.replace_schema_metadata({name: text.replace(old, new)})
    with pytest.raises(CheckpointError, match="cannot be read"):
        frames.decode(frames.BLOB, frames.encode(frames.BLOB, {}, broken))


def test_columns_of_another_type_are_refused() -> None:
    table = compacted(crooked())
    broken = changed(table, odd=pa.array(["x"] * 50))
    with pytest.raises(CheckpointError, match="cannot be read"):
        frames.decode(frames.BLOB, frames.encode(frames.BLOB, {}, broken))
