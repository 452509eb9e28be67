"""Sorting that uses an existing order, and taking rows from far apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns.sorting import by_several, by_two, far_apart, ties_in_order

NUMBERS = st.integers(-2, 2) | st.sampled_from([-(2**63), 2**63 - 1])
TEXTS = st.lists(st.sampled_from(["ab", "cd", "ef"]), max_size=9)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=60), st.data())
def test_rows_in_the_order_of_two_columns_as_they_came(rows: list[tuple[int, int]], data: Any) -> None:
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, len(rows)))
        rows = sorted(rows[:cut]) + sorted(rows[cut:])  # two runs
    first, second = (np.array([row[n] for row in rows], np.int64) for n in (0, 1))
    wanted = sorted(range(len(rows)), key=lambda n: rows[n])
    assert by_two(first, second).tolist() == wanted
    # Start from any order among rows with an equal first column.
    shuffled = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    start = shuffled[np.argsort(first[shuffled], kind="stable")]
    wanted = sorted(start.tolist(), key=lambda n: rows[n])
    assert ties_in_order(start, first, second).tolist() == wanted


@given(st.integers(1, 4), st.integers(0, 62), st.data())
def test_rows_in_the_order_of_several_columns_as_they_came(columns: int, bits: int, data: Any) -> None:
    """Columns that fit into one number together, some together, and each alone; the largest take all 64 bits."""
    some = st.integers(-(2**bits), 2**bits) | NUMBERS
    rows = data.draw(st.lists(st.tuples(*[data.draw(st.sampled_from([some, st.integers(-2, 2)]))] * columns)))
    found = by_several([np.array([row[n] for row in rows], np.int64) for n in range(columns)])
    assert found.tolist() == sorted(range(len(rows)), key=lambda n: rows[n])


@pytest.mark.parametrize("places", [10, 100_000])
def test_many_rows_in_the_order_of_several_columns(places: int) -> None:
    rng = np.random.default_rng(places)
    columns = [rng.integers(0, places, 20_000), rng.integers(10**12, 10**12 + 50, 20_000), rng.integers(-9, 9, 20_000)]
    assert by_several(columns).tolist() == np.lexsort(columns[::-1]).tolist()


@given(TEXTS, st.sampled_from([pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]), st.data())
def test_texts_are_taken_from_anywhere(texts: list[str], kind: pa.DataType, data: Any) -> None:
    """Texts of one length or several, from a slice, with or without a null."""
    extra: list[Any] = data.draw(st.sampled_from([[], ["longer"], [None], ["", ""]]))
    column = pa.array(["before", *texts, *extra], pa.string()).cast(kind)[data.draw(st.integers(0, 1)) :]
    places = st.lists(st.integers(0, len(column) - 1), max_size=20) if len(column) else st.just([])
    at = np.array(data.draw(places), np.int64)
    taken = far_apart(column, at)
    taken.validate(full=True)
    assert taken.type == kind
    assert taken.to_pylist() == column.take(pa.array(at)).to_pylist()


@pytest.mark.parametrize("column", [pa.array([1, 2, None]), pa.nulls(3), pa.array([[1], None, []])])
def test_what_is_no_text_is_taken_as_it_is(column: pa.Array) -> None:
    assert far_apart(column, np.array([2, 0, 0])).equals(column.take(pa.array([2, 0, 0])))
