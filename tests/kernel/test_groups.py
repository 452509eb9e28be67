"""Groups and their folds against a loop over the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.kernel.columns.groups import Groups

CODES = st.lists(st.integers(0, 12) | st.integers(10**9, 10**9 + 3), max_size=40)
VALUES = {
    pa.int64(): st.integers(-(2**40), 2**40),
    pa.float64(): st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.25, 1e300]),
    pa.int32(): st.integers(-5, 5),
    pa.string(): st.text("ab", max_size=2),
    pa.decimal128(10, 2): st.decimals(-100, 100, places=2),
}


def by_hand(codes: list[int], values: list[Any], how: str) -> list[Any]:
    found: dict[int, list[Any]] = {}
    for code, value in zip(codes, values, strict=True):
        found.setdefault(code, []).extend([] if value is None else [value])
    fold: Any = {"sum": sum, "min": min, "max": max}[how]
    return [fold(group) if group else None for group in found.values()]


@given(codes=CODES)
def test_groups_are_numbered_in_the_order_in_which_they_first_appear(codes: list[int]) -> None:
    groups = Groups.of(np.array(codes, np.int64))
    order = list(dict.fromkeys(codes))
    assert groups.number.tolist() == [order.index(code) for code in codes]
    assert groups.first.tolist() == [codes.index(code) for code in order]


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("how", ["sum", "min", "max"])
@given(codes=CODES, data=st.data())
def test_a_fold_is_that_of_a_loop(kind: pa.DataType, how: str, codes: list[int], data: st.DataObject) -> None:
    if how == "sum" and pa.types.is_string(kind):
        return
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=len(codes), max_size=len(codes)))
    groups, right = Groups.of(np.array(codes, np.int64)), by_hand(codes, values, how)
    order = data.draw(st.permutations(range(len(right))))
    for mine, wanted in ((groups, right), (groups.ordered(np.array(order, np.int64)), [right[at] for at in order])):
        folded = mine.fold(pa.array(values, kind), how).to_pylist()
        assert folded == (pytest.approx(wanted) if pa.types.is_floating(kind) else wanted)


def test_a_sum_that_is_no_number_or_overflows_warns_of_nothing() -> None:
    groups = Groups.of(np.array([0, 0, 1, 1], np.int64))
    not_a_number, too_large = groups.fold(pa.array([math.inf, -math.inf, 1.7e308, 1.7e308]), "sum").to_pylist()
    assert math.isnan(not_a_number)
    assert too_large == math.inf


@given(codes=CODES, data=st.data())
def test_groups_in_another_order_have_the_same_rows(codes: list[int], data: st.DataObject) -> None:
    groups = Groups.of(np.array(codes, np.int64))
    order = data.draw(st.permutations(range(len(groups.first))))
    ordered = groups.ordered(np.array(order, np.int64))
    assert ordered.first.tolist() == groups.first[order].tolist()
    assert [order[number] for number in ordered.number] == groups.number.tolist()
    assert ordered.sizes.tolist() == groups.sizes[order].tolist()


@given(codes=CODES, other=st.none() | st.integers(0, 2), at=st.integers(0, 39))
@example(codes=[1, 1, 2], other=2, at=1)
@example(codes=[1, 1, 2], other=None, at=2)
@example(codes=[1, 1, 2], other=1, at=0)
def test_records_are_counted(codes: list[int], other: int | None, at: int) -> None:
    ones: list[int | None] = [1] * len(codes)
    if at < len(codes):
        ones[at] = other
    folded = Groups.of(np.array(codes, np.int64)).fold(pa.array(ones, pa.int64()), "sum")
    assert folded.type == pa.int64()
    assert folded.to_pylist() == by_hand(codes, ones, "sum")


@given(codes=CODES)
def test_runs_hold_each_group_in_the_order_of_its_rows(codes: list[int]) -> None:
    groups = Groups.of(np.array(codes, np.int64))
    order, starts = groups.runs()
    sizes = np.diff(np.append(starts, len(codes))).tolist()
    rows = iter(order.tolist())
    for code, size in zip(dict.fromkeys(codes), sizes, strict=True):
        assert [next(rows) for _ in range(size)] == [row for row, mine in enumerate(codes) if mine == code]
