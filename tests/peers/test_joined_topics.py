"""Measurement and comparison of J5, without a broker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks.inputs import FIRST_MS, key_names
from benchmarks.joined_columns import has_price, left_joined, rows
from benchmarks.joined_rows import joined
from benchmarks.peers import joined_topics
from benchmarks.peers.joined_topics import Result, agreed, batches_of, of_both, pieces, right_rows, shape_of, without
from benchmarks.peers.topics import PARTITIONS
from benchmarks.two_sides import DISORDER_MS, GRACE_MS, Shape, Stretch

SHAPE = shape_of(50, 400, 3)


def test_both_topics_have_a_partition_of_a_user_in_an_order_in_which_none_is_late() -> None:
    for side in (0, 1):
        written = np.concatenate(list(pieces(SHAPE, side)))
        assert len(written) == sum(batches_of(SHAPE)) == sum(of_both(SHAPE)) // 2
        for partition in range(PARTITIONS):
            mine = written[written["partition"] == partition]
            assert set(mine["user"] % PARTITIONS) == {partition}
            assert (mine["user"][:-1] < SHAPE.keys).all()
            assert mine["user"][-1] >= SHAPE.keys
            assert mine["time"][-1] > mine["time"][:-1].max() + SHAPE.window_ms + GRACE_MS
            sofar = np.maximum.accumulate(mine["time"].astype(np.int64))
            assert 0 < (sofar - mine["time"]).max() <= DISORDER_MS < GRACE_MS


def test_the_closing_records_of_both_topics_come_at_one_time() -> None:
    left, right = (list(pieces(SHAPE, side))[-1] for side in (0, 1))
    np.testing.assert_array_equal(left, right)
    assert len(set(left["user"].tolist())) == len(left) == PARTITIONS


@pytest.mark.parametrize(
    "shape", [SHAPE, Shape(20, 30_000, (Stretch(3, 100, 120_000),)), Shape(3, 5_000, (Stretch(2, 300, 20_000),))]
)
def test_the_columns_are_the_rows_of_the_other_computation(shape: Shape) -> None:
    numbers = {name: n for n, name in enumerate(key_names(np.arange(shape.keys)))}
    wanted = [
        (numbers[user], amount, -1 if price is None else price)
        for user, amount, price, _ in joined(shape, "left").elements()
        if user in numbers and amount is not None
    ]
    # The direct computation also has the closing records, as pairs of their own.
    closing = [(key, 1, 1) for key in range(2)]
    for row in closing:
        wanted.remove(row)
    assert left_joined(shape).tolist() == rows(*(np.array(of) for of in zip(*wanted, strict=True))).tolist()


def test_a_record_of_the_first_instant_meets_one_at_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(_shape: Shape, side: int) -> tuple[object, object, object]:
        times = [0, 31_000] if side == 0 else [30_000]
        return np.zeros(len(times), np.int64), np.array(times), np.array([7, 8][: len(times)])

    monkeypatch.setattr("benchmarks.joined_columns._columns", given)
    zero = np.zeros(2, np.int64)
    assert left_joined(SHAPE).tolist() == rows(zero, np.array([7, 8]), np.array([7, 7])).tolist()
    assert FIRST_MS > 0


@dataclass
class Who:
    whole: bool
    label: str = "one"


def test_all_rows_once_are_right() -> None:
    right = right_rows(SHAPE)
    assert 0 < has_price(right).sum() < len(right)
    for whole in (True, False):
        assert "equal to the direct computation" in agreed(Result(right, 0), SHAPE, Who(whole))


@pytest.mark.parametrize("wrong", ["a pair less", "a row twice", "a row that is none", "an amount"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_row_that_is_wrong_is_told(wrong: str, whole: bool) -> None:
    right = right_rows(SHAPE)
    pair = int(np.flatnonzero(has_price(right))[0])
    found = {
        "a pair less": np.delete(right, pair),
        "a row twice": np.sort(np.append(right, right[-1])),
        "a row that is none": np.sort(np.append(right, 5)),
        "an amount": np.sort(np.append(np.delete(right, pair), right[pair] + (1 << 14))),
    }[wrong]
    with pytest.raises(AssertionError, match=r"one: \d of [\d,]+ rows are missing"):
        agreed(Result(found, 0), SHAPE, Who(whole))


def test_null_joined_rows_may_stay_with_kafka_streams_and_with_nobody_else() -> None:
    right = right_rows(SHAPE)
    fewer = np.delete(right, np.flatnonzero(~has_price(right))[:3])
    assert agreed(Result(fewer, 0), SHAPE, Who(whole=False)).endswith("3 null-joined ones did not leave")
    with pytest.raises(AssertionError, match="3 of"):
        agreed(Result(fewer, 0), SHAPE, Who(whole=True))
    assert [each.whole for each in joined_topics.contestants()] == [True, True, False, False]  # type: ignore[attr-defined]


def test_what_one_has_more_often() -> None:
    one, other = np.array([1, 2, 2, 2, 5]), np.array([2, 3, 5, 5])
    assert without(one, other).tolist() == [1, 2, 2]
    assert without(other, one).tolist() == [3, 5]
