"""Tables as bytes of equal length per row: they read back unchanged, for all types and at any places."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns.arrays import concat_tables
from tidegate.kernel.columns.row_bytes import RowBytes, extents, together
from tidegate.kernel.state.store import InMemory
from tidegate.kernel.tuning import Tuning

VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a", "é", "ab", "x" * 300],
    pa.large_string(): ["", "long", "y" * 40],
    pa.binary(): [b"", b"\0", b"abc"],
    pa.large_binary(): [b"", b"zz"],
    pa.binary(3): [b"abc", b"\0\1\2"],
    pa.int8(): [-1, 5],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.uint16(): [0, 65_535],
    pa.float32(): [0.5, -0.0],
    pa.float64(): [float("inf"), 1e-300],
    pa.bool_(): [True, False],
    pa.null(): [None],
    pa.date32(): [date(1, 1, 1), date(2026, 11, 25)],
    pa.timestamp("us", "UTC"): [datetime(2026, 1, 1, tzinfo=UTC)],
    pa.decimal128(20, 3): [Decimal("1.250"), Decimal("-99999999999999999.999")],
    pa.struct([("a", pa.int32()), ("b.c", pa.string())]): [{"a": 1, "b.c": None}, {"a": None, "b.c": "x"}],
    pa.struct([("s", pa.struct([("n", pa.null()), ("x", pa.bool_())])), ("t", pa.binary())]): [
        {"s": {"n": None, "x": True}, "t": b"z" * 90},
        {"s": None, "t": b""},
    ],
}


@st.composite
def tables(draw: Any) -> pa.Table:
    rows = draw(st.integers(0, 40))
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=6))
    columns = {}
    for n, kind in enumerate(kinds):
        some = VALUES[kind] + ([None] if draw(st.booleans()) else [])
        columns[f"c{n}"] = pa.array([draw(st.sampled_from(some)) for _ in range(rows)], kind)
    # A part of a larger array, in several pieces.
    table = pa.table(columns)
    low, cut = draw(st.integers(0, rows)), draw(st.integers(0, rows))
    return pa.concat_tables([table.slice(low), table.slice(0, cut)])


@given(table=tables(), data=st.data())
def test_rows_come_back(table: pa.Table, data: Any) -> None:
    blocks, gaps = data.draw(st.sampled_from([1, 7, 1_000])), data.draw(st.sampled_from([0, 30, 10_000]))
    parts = [table.slice(low, 9) for low in range(0, table.num_rows, 9)]
    columns = extents(table)
    if parts:
        assert together([extents(part) for part in parts]) == columns
    form = RowBytes.of(columns, table.num_rows, Tuning(block_rows=blocks, gap_bytes=gaps))
    assert form is not None
    copy = InMemory(b"".join(form.bytes_of(data.draw(st.sampled_from([[table], parts])))))
    at = sorted(data.draw(st.sets(st.integers(0, max(table.num_rows - 1, 0)), max_size=table.num_rows)))
    found = form.read(copy, np.array(at, np.int64))
    one = form.read(copy, np.array(at, np.int64), ["c0"])
    found.validate(full=True)
    wanted = table.take(pa.array(at, pa.int64()))
    assert found.equals(wanted)
    assert one.equals(wanted.select(["c0"]))


def test_tables_of_which_some_do_not_know_each_part_of_a_struct() -> None:
    """Together they have the types with which `concat_tables` gives their rows."""
    values = [{"a": None, "b": None}, {"a": 1, "b": None}, None, {"a": None, "b": {"c": "x"}}]
    tables = [pa.table({"s": [value]}) for value in values]
    whole, columns = concat_tables(tables), together([extents(table) for table in tables])
    assert columns == extents(whole)
    form = RowBytes.of(columns, len(values))
    assert form is not None
    found = form.read(InMemory(b"".join(form.bytes_of([whole]))), np.arange(len(values)))
    assert found["s"].to_pylist() == whole["s"].to_pylist()
    assert whole["s"].to_pylist()[1::2] == [values[1], values[3]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.int8()),
        pa.struct([]),
        pa.struct([("a", pa.int64()), ("a", pa.int64())]),
        pa.struct([("a", pa.struct([("b", pa.list_(pa.int64()))]))]),
    ],
)
def test_what_has_no_such_form(kind: pa.DataType) -> None:
    assert RowBytes.of(extents(pa.table({"a": pa.array([None], kind)})), 1) is None


def test_one_row_is_read_where_no_gap_is_read_over() -> None:
    form = RowBytes.of(extents(pa.table({"a": [7]})), 1, Tuning(gap_bytes=0))
    assert form is not None
    copy = InMemory(b"".join(form.bytes_of([pa.table({"a": [7]})])))
    assert form.read(copy, np.array([0]))["a"].to_pylist() == [7]


def test_a_long_text_of_one_row_lengthens_no_other() -> None:
    short = pa.table({"a": ["x"] * 1_000})
    long = pa.table({"a": ["x"] * 999 + ["y" * 10_000]})
    sizes = []
    for table in (short, long):
        made = RowBytes.of(extents(table), table.num_rows)
        assert made is not None
        sizes.append(len(b"".join(made.bytes_of([table]))))
    assert sizes[1] < sizes[0] + 10_000 + 1_000 * 12
