"""Narrowed columns come back unchanged, and are narrower if they can be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.state.delta import narrowed, widened

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)


@given(st.lists(st.tuples(LONGS, LONGS | st.none(), st.text(max_size=3))))
def test_back_as_it_was(rows: list[tuple[int, int | None, str]]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
    table = pa.table([pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)], schema=schema)
    assert widened(narrowed(table)).equals(table, check_metadata=True)


@pytest.mark.parametrize(
    ("span", "kind"),
    [(255, pa.uint8()), (256, pa.uint16()), (65_536, pa.uint32()), (2**32 - 1, pa.uint32()), (2**32, pa.int64())],
)
def test_as_narrow_as_the_range_allows(span: int, kind: pa.DataType) -> None:
    table = pa.table({"a": pa.array([10**12 + span, 10**12], pa.int64())})
    assert narrowed(table).schema.field("a").type == kind


def test_extremes_do_not_wrap() -> None:
    table = pa.table({"a": pa.array([-(2**63), 2**63 - 1], pa.int64())})
    assert widened(narrowed(table)).equals(table)
