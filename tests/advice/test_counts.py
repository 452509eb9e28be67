"""Counts and tallies: the same from any parts in any order, exact where promised, within a class elsewhere."""

from __future__ import annotations

from random import Random
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.advice import charts, counts, text
from tidegate.advice.choice import choose
from tidegate.advice.counts import Counts, Tally
from tidegate.instants import ROUND_MS, rounded_up

VALUES = st.lists(st.integers(0, 2**62) | st.integers(0, 300), max_size=60)


def of(values: list[int]) -> Counts:
    return Counts.of(np.array(values, np.int64))


@given(VALUES, st.integers(0, 2**62))
def test_questions(values: list[int], at: int) -> None:
    found = of(values)
    assert found.above(at) == sum(value > at for value in values)
    assert found.at_most(at) == sum(value <= at for value in values)
    assert found.total == len(values)
    for most in (0, 1, 2.5):
        smallest = found.smallest_with(most)
        assert sum(value > smallest for value in values) <= most
        assert smallest == 0 or sum(value > smallest - 1 for value in values) > most
    assert found.median() == (float(np.median(values)) if values else None)


@given(VALUES, st.lists(st.integers(0, 2**62), max_size=3))
def test_classes(values: list[int], exact: list[int]) -> None:
    found = of(values)
    edges = np.unique(np.array(exact, np.int64))
    coarse = found.rounded_up(edges)
    for at in exact:
        assert coarse.above(at) == found.above(at)
    for value in values:
        (after,) = Counts.of(np.array([value])).rounded_up(edges).values
        assert value <= after <= value + max(value >> 6, 0) + (value > 128)
    assert coarse.rounded_up(edges).values.tolist() == coarse.values.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_tallies_of_parts_merge_to_that_of_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds for any order, through tables or not, and with too many distinct values or not."""
    monkeypatch.setattr(counts, "MOST_VALUES", 20)
    random = Random(seed)
    values = [random.randrange(0, random.choice([10, 100_000])) for _ in range(random.choice([15, 300]))]
    exact = np.array([77, 5_000], np.int64)
    whole = Tally(exact)
    whole.add("x", np.array(values))
    random.shuffle(values)
    merged = Tally(exact)
    while values:
        many = random.randrange(1, 40)
        part = Tally(exact)
        part.add("x", np.array(values[:many]))
        part.number("n", many)
        values = values[many:]
        if random.random() < 0.5:
            merged.merge(part)
        else:
            merged.add_table(part.table())
    assert merged.counts("x").values.tolist() == whole.counts("x").values.tolist()
    assert merged.counts("x").counts.tolist() == whole.counts("x").counts.tolist()


def test_an_empty_tally() -> None:
    tally = Tally().add_table(Tally().table())
    assert (tally.of("x"), tally.counts("x", "y").total, tally.below("x")) == (0, 0, {})


def test_round_durations() -> None:
    assert list(ROUND_MS) == sorted(set(ROUND_MS))
    assert [rounded_up(ms) for ms in (-1, 0, 1, 3, 61_000, 3_600_001, 10**15)] == [
        0,
        0,
        1,
        5,
        120_000,
        7_200_000,
        10**15,
    ]


def streams(shares: list[float]) -> Tally:
    """A stream of 50 parts of 10,000 pairs each; the share of each is late by 60 s."""
    tally = Tally()
    for part, share in enumerate(shares):
        tally.number(f"pairs/part/{part}", 10_000)
        tally.add(f"late/part/{part}", np.full(round(10_000 * share), 60_000))
    tally.number("pairs", 500_000)
    return tally


def test_the_choice_is_tested_on_what_it_has_not_seen() -> None:
    choice = choose(streams([0.0] * 40 + [0.02] * 10), 0.001)
    assert (choice.grace, choice.share) == (0, 0)
    assert choice.tested == pytest.approx(0.02)


def test_bursts_widen_the_interval() -> None:
    steady = choose(streams([0.0009] * 50), 0.001)
    burst = choose(streams([0.009, *[0.0] * 9] * 5), 0.001)
    assert (steady.grace, steady.low, steady.high) == (0, 0, 0)
    assert (burst.grace, burst.low, burst.high) == (0, 0, 60_000)


def test_drift() -> None:
    assert choose(streams([0.01] * 50), 0.001).drift is None
    assert choose(streams([0.01, 0.02] * 25), 0.001).drift is None
    assert choose(streams([0.01 + 0.001 * part for part in range(50)]), 0.001).drift == pytest.approx(3.7, abs=0.5)
    assert choose(streams([0.0] * 25 + [0.01] * 25), 0.001).drift == float("inf")


@pytest.mark.parametrize(
    ("count", "said"),
    [(999, "999 B"), (1_000, "1 kB"), (999_499, "999 kB"), (999_500, "1 MB"), (999_999, "1 MB"), (1_540, "1.54 kB")],
)
def test_sizes_have_no_powers_of_ten(count: int, said: str) -> None:
    assert text.size(count) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0.0%"), (1e-9, "<0.0001%"), (1e-6, "0.0001%"), (0.000012, "0.0012%"), (0.5, "50.0%")]
)
def test_shares_have_no_powers_of_ten(value: float, said: str) -> None:
    assert text.share(value) == said


def test_a_chart_of_tiny_shares_is_markup() -> None:
    drawn = charts.bars(["0"], [1e-8], text.share, every=1)
    assert "&lt;0.0001%" in drawn
    ET.fromstring(drawn)
