"""The direct computation of W12 is right, and its record by record way takes no key at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks.inputs import Shape, halves, key_names
from benchmarks.sliding_rows import DIFFERENCE_MS, Windows, closed, of_every_window
from benchmarks.workloads.sliding import SIZES, final, no_key_at_once

import tidegate as tg
from tidegate.kernel.windows import sliding_batch
from tidegate.testing import TopologyTestDriver

SHAPE = Shape(keys=20, rows=200, batches=3)


def batches(shape: Shape) -> Iterator[list[dict[str, Any]]]:
    """The records of each micro-batch, taken in turns from its two files."""
    for _, both in groupby(halves(shape), key=lambda half: half.batch):
        columns = [(half.key.tolist(), half.ts_ms.tolist(), half.amount.tolist()) for half in both]
        rows = zip(*(zip(*each, strict=True) for each in columns), strict=True)
        yield [{"user": f"user-{key:07d}", "ts": ts, "amount": amount} for row in rows for key, ts, amount in row]


def rows_of(driver: TopologyTestDriver) -> dict[Any, Any]:
    rows = driver.read_output()
    found = {(row["user"], row["window"][0]): (row["count"], row["total"]) for row in rows}
    assert len(found) == len(rows)
    return found


def by_brute_force(shape: Shape) -> dict[Any, Any]:
    """Rows of all windows, by the definition: windows that end with a record or begin after one, and hold a record."""
    of_key: dict[int, list[tuple[int, int]]] = {}
    for half in halves(shape):
        for key, ts, amount in zip(half.key.tolist(), half.ts_ms.tolist(), half.amount.tolist(), strict=True):
            of_key.setdefault(key, []).append((ts, amount))
    found = {}
    for key, records in of_key.items():
        for start in {start for ts, _ in records for start in (ts - DIFFERENCE_MS, ts + 1)}:
            if inside := [amount for ts, amount in records if start <= ts <= start + DIFFERENCE_MS]:
                found[f"user-{key:07d}", start] = len(inside), sum(inside)
    return found


@pytest.mark.parametrize("keys", [1, 20, 500])
def test_the_direct_computation(keys: int) -> None:
    shape = replace(SHAPE, keys=keys)
    every = of_every_window(shape)
    assert every.as_rows() == by_brute_force(shape)
    assert every.equals(Windows.ordered(*(column[::-1] for column in every.columns())))
    assert closed(shape).as_rows().items() < every.as_rows().items()


def test_late_records_are_not_its_business() -> None:
    with pytest.raises(ValueError, match="late records"):
        of_every_window(replace(SHAPE, late_share=0.1))


@pytest.mark.parametrize("way", ["at once", "record by record"])
def test_both_ways_give_it_and_are_what_they_are_called(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, taken = sliding_batch.apply, []

    def counting(*given: Any) -> Any:
        taken.append(1)
        return real(*given)

    monkeypatch.setattr(sliding_batch, "apply", counting)
    driver = TopologyTestDriver(final(tg.stream("events", key="user", timestamp="ts")))
    with no_key_at_once() if way == "record by record" else nullcontext():
        for batch in batches(SHAPE):
            driver.pipe_batch(batch)
        found = rows_of(driver)
        assert found == closed(SHAPE).as_rows()
        driver.drain()
        assert found | rows_of(driver) == of_every_window(SHAPE).as_rows()
    assert len(taken) == (SHAPE.batches if way == "at once" else 0)
    assert sum(driver.drops.values()) == 0


def test_windows_that_differ() -> None:
    right = of_every_window(SHAPE)
    place = key_names(right.key[:1])[0], int(right.start[0])
    other = replace(right, total=right.total + (np.arange(len(right)) == 0))
    assert not right.equals(other)
    assert not right.equals(right.where(right.key > 0))
    assert right.without(right) == {}
    assert right.without(other) == {place: (int(right.count[0]), int(right.total[0]))}
    assert other.without(right) == {place: (int(right.count[0]), int(right.total[0]) + 1)}


def test_the_sizes_of_the_issue() -> None:
    """100 k keys and 1 M rows."""
    for size in ("default", "full"):
        assert (SIZES[size].keys, SIZES[size].rows, SIZES[size].late_share) == (100_000, 1_000_000, 0.0)
