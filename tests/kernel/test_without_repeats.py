"""Tables come back as they were, and parts that repeat are not stored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import CheckpointError
from tidegate.kernel.columns.factorize import SAMPLE
from tidegate.kernel.state import frames
from tidegate.kernel.state.without_repeats import with_repeats, without_repeats

ROWS = 2 * SAMPLE
LONGS = st.sampled_from([-(2**63), -(2**62), -1, 0, 1, 60_000, 120_000, 2**62, 2**63 - 1])
TEXTS = st.sampled_from(["", "a", "b", "ab", "é", "user-000-17"])
COLUMNS = {
    "longs": (LONGS, pa.int64()),
    "longs or null": (LONGS | st.none(), pa.int64()),
    "short": (st.integers(0, 3), pa.int8()),
    "texts": (TEXTS, pa.string()),
    "texts or null": (TEXTS | st.none(), pa.string()),
    "bytes": (TEXTS.map(str.encode), pa.binary()),
    "large": (TEXTS, pa.large_string()),
    "lists": (st.lists(st.integers(0, 3), max_size=2), pa.list_(pa.int64())),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Columns of all kinds in any order, some of them twice or with one value alone, in several chunks."""
    rows = draw(st.integers(0, 6))
    columns: list[pa.Array] = []
    for kind in draw(st.lists(st.sampled_from([*COLUMNS, "again", "same"]), min_size=1, max_size=8)):
        if kind in ("again", "same") and columns:
            last = columns[-1]
            columns.append(last if kind == "again" or not rows else pa.concat_arrays([last[:1]] * rows))
        else:
            values, type_ = COLUMNS.get(kind, COLUMNS["longs"])
            columns.append(pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), type_))
    table = pa.table(columns, names=[f"c{at}" for at in range(len(columns))])
    cut = draw(st.integers(0, rows))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


@given(tables())
def test_back_as_it_was(table: pa.Table) -> None:
    found = with_repeats(without_repeats(table))
    found.validate(full=True)
    assert found.equals(table, check_metadata=True)


@given(tables(), st.booleans())
def test_a_blob_comes_back(table: pa.Table, many: bool) -> None:
    """So many rows that strings become words."""
    table = pa.concat_tables([table] * (ROWS // (table.num_rows or 1) + 1 if many else 1))
    _, (found,) = frames.decode(frames.BLOB, frames.encode(frames.BLOB, {}, table))
    found.validate(full=True)
    assert found.equals(table, check_metadata=True)


def test_each_form() -> None:
    rows = np.random.default_rng(80).permutation(ROWS)
    table = pa.table(
        {
            "all": np.full(ROWS, 3),
            "key": [f"user-{at % 900:07}" for at in rows],
            "other key": [f"{at:016x}" for at in rows.astype(np.uint64) * 0x9E37_79B9_7F4A_7C15],
            "start": rows % 3 * 120_000 + 7,
            "open": rows % 3 * 120_000 + 7,
            "like": np.roll(rows, 1) % 3 * 120_000 + 7,
            "chunk": np.zeros(ROWS, np.int64),
            "again": np.zeros(ROWS, np.int64),
            "n": rows % 5,
            "far": np.where(rows % 2, 2**62, -(2**62)),
        }
    )
    stored = without_repeats(table)
    assert stored.column_names == ["all", "key", "other key", "start", "like", "n", "far"]
    assert pa.types.is_struct(stored.schema.field("key").type)
    assert stored.schema.field("other key").type == pa.binary(16)
    assert stored["start"].to_pylist() == (rows % 3).tolist()
    assert stored["far"].equals(table["far"])
    assert with_repeats(stored).equals(table)


def test_segments_stay_as_they_were() -> None:
    """An older version reads them."""
    table = pa.table({"key": ["ab"] * ROWS, "n": [7] * ROWS})
    _, (segment,) = frames.opened(frames.SEGMENT, frames.encode(frames.SEGMENT, {}, table))
    assert pa.ipc.open_stream(segment.body).schema.names == table.column_names
    _, (blob,) = frames.opened(frames.BLOB, frames.encode(frames.BLOB, {}, table))
    assert pa.ipc.open_stream(blob.body).schema.names == ["key"]


def test_a_table_without_repeats_stays() -> None:
    table = pa.table({"key": ["a", "bc"], "n": [7, 8], "open": [None, 8]})
    assert without_repeats(table) is table


def test_pieces_have_words() -> None:
    table = pa.table({"k": [f"u{at % 90}" for at in range(ROWS)], "n": [1] * ROWS})
    sizes = [0, 1, ROWS - 1]
    _, (one,) = frames.opened(frames.BLOB, frames.encode(frames.BLOB, {}, frames.Pieces(table, sizes)))
    pieces = list(one.pieces(sizes))
    assert [piece.num_rows for piece in pieces] == sizes
    assert pa.concat_tables(pieces).equals(table)


@pytest.mark.parametrize(
    "told",
    [
        [],
        {"names": ["x"]},
        {"names": ["y"], "forms": {}},
        {"names": ["y"], "forms": {"y": {"as": "z"}}},
        {"names": ["y"], "forms": {"y": {"all": 2**63}}},
        {"names": ["y"], "forms": {"y": {"all": "many"}}},
        {"names": ["x"], "forms": {"x": {"step": 2}}},
        {"names": ["x"], "forms": {"x": {"step": "two", "from": 0}}},
        {"names": ["x"], "forms": {"x": {"words": "string", "length": 3}}},
        {"names": ["x"], "forms": {"x": {"strings": "int64"}}},
        {"names": ["x"], "forms": {"x": {"words": "int64", "length": 3}}},
        {"names": ["x"], "forms": ["x"]},
    ],
)
def test_metadata_that_tidegate_did_not_write(told: Any) -> None:
    """A right checksum does not make it a blob."""
    rows = pa.table({"x": [1, 2]}).replace_schema_metadata({"tidegate.repeats": json.dumps(told)})
    frame = frames.framed(frames.BLOB, {}, [memoryview(_written(rows))])
    with pytest.raises(CheckpointError, match="a blob on its way to a task cannot be read: its content is no JSON"):
        frames.decode(frames.BLOB, frame)


def _written(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
