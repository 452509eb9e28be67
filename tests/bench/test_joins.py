"""The input of J1 to J4 is as their titles say, their direct computation is right, and all rows are compared."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks import page, suite
from benchmarks.contestant import Contestant
from benchmarks.inputs import FIRST_MS, HALVES, key_names
from benchmarks.join_race import compared, timed
from benchmarks.joined_rows import Rows, differing, joined
from benchmarks.measure import Digest, Run, rows_of
from benchmarks.two_sides import DISORDER_MS, GRACE_MS, SIDES, VALUES, Half, Shape, Stretch, first, halves, write
from benchmarks.workloads import joins, open_joins
from benchmarks.workloads.open_entries import SMALL_BATCHES, Found

import seeds
import tidegate as tg
from tidegate.testing import TopologyTestDriver

SHAPE = Shape(keys=20, window_ms=30_000, stretches=(Stretch(3, 100, 120_000),))


def of_side(shape: Shape, side: int) -> tuple[Any, Any]:
    """Keys and timestamps of all records but the closing ones."""
    every = list(halves(shape, side))[:-HALVES]
    return np.concatenate([half.key for half in every]), np.concatenate([half.ts_ms for half in every])


def pairs_of(shape: Shape) -> float:
    """Pairs for each record of a side."""
    stretch = 10 * (int(of_side(shape, 0)[1].max()) + shape.window_ms)
    left, right = (np.sort(key * stretch + ts) for key, ts in (of_side(shape, side) for side in (0, 1)))
    low, high = (
        np.searchsorted(right, left - shape.window_ms),
        np.searchsorted(right, left + shape.window_ms, side="right"),
    )
    return float((high - low).sum() / len(left))


# -- input --------------------------------------------------------------------------------------------------------


def test_equal_shapes_are_equal_and_sides_differ() -> None:
    for side in (0, 1):
        for one, other in zip(halves(SHAPE, side), halves(SHAPE, side), strict=True):
            np.testing.assert_equal(vars(one), vars(other))
    assert not np.array_equal(of_side(SHAPE, 0)[0], of_side(SHAPE, 1)[0])


def test_no_record_is_late_and_some_are_out_of_order() -> None:
    """Holds for any order of the files within a batch."""
    batches = 3
    for side in (0, 1):
        every = list(halves(SHAPE, side))
        assert any((np.diff(half.ts_ms) < 0).any() for half in every)
        for half in every:
            assert int((np.maximum.accumulate(half.ts_ms) - half.ts_ms).max()) <= DISORDER_MS < GRACE_MS
        ends = [max(int(half.ts_ms.max()) for half in every[: HALVES * n]) for n in range(1, batches + 1)]
        for n, half in enumerate(every[HALVES:]):
            assert ends[n // HALVES] - int(half.ts_ms.min()) < DISORDER_MS + 1


def test_offsets_go_on_within_a_partition() -> None:
    for side in (0, 1):
        for partition in range(HALVES):
            mine = [half for half in halves(SHAPE, side) if half.partition == partition]
            ends = np.cumsum([len(half.key) for half in mine])
            assert [half.first_offset for half in mine] == [0, *ends[:-1].tolist()]


def test_the_last_batch_closes_all_and_leaves_nothing_of_its_own() -> None:
    closing = [list(halves(SHAPE, side))[-HALVES:] for side in (0, 1)]
    last = max(int(of_side(SHAPE, side)[1].max()) for side in (0, 1))
    for left, right in zip(*closing, strict=True):
        assert (left.key, left.ts_ms) == (right.key, right.ts_ms)
        assert int(left.ts_ms[0]) > last + SHAPE.window_ms + 2 * GRACE_MS
    assert len({int(half.key[0]) for half in closing[0]}) == HALVES


def test_files_have_both_sides_in_step(tmp_path: Path) -> None:
    files = write(SHAPE, tmp_path)
    assert write(SHAPE, tmp_path) == files
    for side, value in zip(SIDES, VALUES, strict=True):
        paths = sorted((files / side).glob("*.parquet"))
        assert len(paths) == HALVES * 4
        assert pq.read_schema(paths[0]).names == ["user", "ts", value, "partition", "offset"]
        assert [path.stat().st_mtime for path in paths] == [FIRST_MS // 1000 + n // HALVES for n in range(8)]
    assert rows_of(files) == [200, 200, 200, 2 * HALVES]


def test_a_slow_contestant_gets_the_first_batches_and_the_closing_one(tmp_path: Path) -> None:
    files = write(SHAPE, tmp_path)
    short = first(files, 1)
    assert first(files, 1) == short
    for side in SIDES:
        assert [path.name for path in sorted((short / side).iterdir())] == [
            f"batch-{batch:04d}-{half}.parquet" for batch in (0, 3) for half in (0, 1)
        ]
    assert rows_of(short) == [200, 2 * HALVES]
    assert first(files, 3) == first(files, 9) == first(files, None) == files


@pytest.mark.parametrize("pairs", joins.PAIRS)
@pytest.mark.parametrize("size", ["smoke", "default"])
def test_pairs_a_record(pairs: float, size: str) -> None:
    """As many pairs as the title says, except near both ends; measured with a hundredth of the records and keys."""
    shape = joins.shapes(100_000, pairs)[size]
    (stretch,) = shape.stretches
    if size == "default":
        assert (shape.keys, stretch.rows) == (100_000, 1_000_000)
        shape = replace(shape, keys=1_000, stretches=(replace(stretch, rows=10_000),))
    long = replace(shape, stretches=(replace(shape.stretches[0], batches=20),))
    assert pairs_of(long) == pytest.approx(pairs, rel=0.1)


def test_one_key_has_a_tenth_of_the_records_and_a_record_a_partner() -> None:
    keys, rows = 1_000, 10_000
    shape = joins.hot_shape(keys, rows, 10)
    for side in (0, 1):
        key, _ = of_side(shape, side)
        assert (key == 0).mean() == pytest.approx(joins.HOT_PERCENT / 100 + 0.9 / keys, rel=0.05)
    assert pairs_of(shape) == pytest.approx(1, rel=0.1)
    usual = replace(shape, hot_percent=(0, 0))
    assert shape.name != usual.name
    # Records of other keys keep their key, and all values stay the same.
    for hot, cold in zip(halves(shape, 0), halves(usual, 0), strict=True):
        kept = hot.key != 0
        np.testing.assert_equal(hot.key[kept], cold.key[kept])
        np.testing.assert_equal(hot.value, cold.value)


@pytest.mark.parametrize("ratio", [10, 100])
def test_long_windows_have_more_open_and_as_many_pairs(ratio: int) -> None:
    rows, batches = 100, 8
    point = open_joins.long_window(ratio, rows, batches)
    _, ts = of_side(point.shape, 0)
    assert point.entries == ratio * rows * 2
    before = ts[: -rows * batches]
    open_before = (before > before.max() - point.shape.window_ms - GRACE_MS).sum()
    assert open_before == pytest.approx(point.entries / 2, rel=0.05)
    assert [each.rows for each in point.shape.batches] == [point.entries // 2] * point.load + [rows] * batches
    assert rows * 2 * point.shape.window_ms / open_joins.SPAN_MS / point.shape.keys == pytest.approx(2, rel=0.01)


def test_a_load_in_several_batches_is_as_dense_as_what_follows() -> None:
    point = open_joins.long_window(1_000, open_joins.SMALL_ROWS, 8)
    assert (point.entries, point.load) == (10_000_000, 10)
    load, small = point.shape.stretches
    assert load.rows / load.span_ms == small.rows / small.span_ms


@pytest.mark.parametrize("entries", open_joins.J4.values["default"])
def test_in_the_same_window_nothing_closes_and_a_record_meets_one(entries: int) -> None:
    rows, batches = open_joins.SMALL_ROWS, SMALL_BATCHES["default"]
    point = open_joins.same_window(entries, rows, batches)
    assert sum(each.rows for each in point.shape.batches[: point.load]) * 2 == entries
    assert sum(each.span_ms for each in point.shape.batches) < point.shape.window_ms
    in_the_middle = entries // 2 + rows * batches // 2
    assert in_the_middle / point.shape.keys == pytest.approx(1)


# -- rows ---------------------------------------------------------------------------------------------------------


def test_the_direct_computation_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(_shape: Shape, side: int) -> list[Half]:
        keys, stamps = ([0, 0, 1], [0, 30_000, 5]) if side == 0 else ([0, 0, 2], [30_000, 60_001, 7])
        return [Half(0, np.array(keys), np.array(stamps), np.array([1, 2, 3]) + 10 * side, 0)]

    monkeypatch.setattr("benchmarks.joined_rows.halves", given)
    a, b, c = key_names(np.arange(3))
    pairs: Rows = Counter([(a, 1, 11, 30_000), (a, 2, 11, 30_000)])
    lefts: Rows = Counter([(b, 3, None, 5)])
    rights: Rows = Counter([(a, None, 12, 60_001), (c, None, 13, 7)])
    assert joined(SHAPE, "inner") == pairs
    assert joined(SHAPE, "left") == pairs + lefts
    assert joined(SHAPE, "outer") == pairs + lefts + rights
    assert differing(pairs + lefts, pairs + rights) == 3


def in_turns(shape: Shape) -> Iterator[tuple[str, dict[str, Any]]]:
    of_sides = [list(halves(shape, side)) for side in (0, 1)]
    for at in range(0, len(of_sides[0]), HALVES):
        files = [(side, half) for side in (0, 1) for half in of_sides[side][at : at + HALVES]]
        for n in range(len(files[0][1].key)):
            for side, half in files:
                (user,) = key_names(half.key[n : n + 1])
                yield SIDES[side], {"user": user, "ts": int(half.ts_ms[n]), VALUES[side]: int(half.value[n])}


@pytest.mark.parametrize("how", seeds.first(1, reversed(joins.HOWS)))
def test_tidegate_gives_the_direct_computation(how: str) -> None:
    """In the driver, with the records of the four files of a batch taken in turns."""
    left, right = (tg.stream(side, key="user", timestamp="ts", stream_time="max") for side in SIDES)
    driver = TopologyTestDriver(joins.asked(left, right, how, SHAPE.window_ms))
    for side, records in groupby(in_turns(SHAPE), itemgetter(0)):
        driver.pipe_batch([record for _, record in records], side)
    rows = driver.read_output()
    assert Counter((row["user"], row["amount"], row["price"], row["timestamp"]) for row in rows) == joined(SHAPE, how)
    assert driver.dropped == 0


# -- the races ----------------------------------------------------------------------------------------------------


def digest(rows: int) -> Digest:
    return Digest(rows, rows, rows)


def test_the_closing_batch_is_compared_and_not_timed() -> None:
    one = Run([9, 9, 9, 4], [1.0, 1.0, 3.0, 7.0], [digest(1)] * 5, 0, 0, 0, 0)
    assert timed(one).rate == 3
    assert timed(one).digests == one.digests


def test_what_differs_is_named() -> None:
    assert compared({"ours": [digest(3)], "theirs": [digest(3)] * 2}) == digest(3)
    with pytest.raises(AssertionError, match="theirs gave other rows than ours"):
        compared({"ours": [digest(3)], "theirs": [digest(3), digest(4)]})


def contestants() -> list[Contestant]:
    return [each for race in (*joins.J1, joins.J2) for each in race.contestants]


def test_every_store_and_format_takes_part() -> None:
    chosen = {
        (each.name, each.settings["spark.sql.streaming.stateStore.providerClass"].rpartition(".")[2], version)
        for each in contestants()
        if (version := each.settings.get(joins.FORMAT)) is not None
    }
    assert chosen == {
        ("spark_memory", "HDFSBackedStateStoreProvider", "2"),
        ("spark_bucketed", "HDFSBackedStateStoreProvider", "2"),
        *((f"spark_rocksdb_{version}", "RocksDBStateStoreProvider", str(version)) for version in (2, 3, 4)),
    }
    for race in (*joins.J1, joins.J2):
        names = [each.name for each in race.contestants]
        assert {"tidegate", "tidegate_files", "spark_memory", "floor"} <= set(names)
        assert ("spark_bucketed" in names) == ("inner" in race.name)
        assert ("spark_rocksdb_4" in names) == (race.name in ("J1-left-1", "J2"))
        assert len(names) == len(set(names))


def test_joins_are_run_when_asked_for() -> None:
    names = [each.name for each in suite.JOINS]
    assert names == [f"J1-{how}-{pairs}" for how in joins.HOWS for pairs in joins.PAIRS] + [
        "J1-hot",
        "J2",
        "J3",
        "J4",
        "J6",
    ]
    assert not {suite.family(each.name) for each in suite.WORKLOADS} & {"J1", "J2", "J3", "J4", "J6"}
    assert all(suite.family(each.name) in (each.name, "V") for each in suite.WORKLOADS)
    parser = argparse.ArgumentParser()
    suite.choices(parser, (*suite.WORKLOADS, *suite.JOINS))
    assert parser.parse_args(["--only", "J1", "J1-left-0.3", "W3"]).only == ["J1", "J1-left-0.3", "W3"]


def found(contestant: str, entries: int, seconds: float) -> Found:
    return Found(contestant, contestant, entries, [9.0, 9.0, seconds, seconds], 0, 0)


def test_beside_the_disk_based_store_the_worst_point_counts() -> None:
    every = [found("tidegate", 10, 1.0), found("spark_rocksdb_4", 10, 3.0), found("tidegate", 20, 1.0)]
    every += [found("spark_rocksdb_4", 20, 2.0), found("tidegate", 30, 5.0)]
    (bar,) = open_joins.against(every)
    assert (bar["contestant"], bar["times"], bar["at_least"]) == ("tidegate", 2.0, 1.0)
    assert open_joins.against([found("tidegate", 10, 1.0)]) == []


def test_turns_of_small_batches_are_their_medians() -> None:
    point = open_joins.long_window(10, 100, 2)
    runs = [
        Run([1] * 3, [50.0, one, two], [], jvm, 0, jvm, 0) for one, two, jvm in ((1.0, 4.0, 7), (3, 2, 9), (2, 3, 8))
    ]
    one = open_joins.together(Contestant("a", "A", lambda *_: None), point, runs)  # type: ignore[arg-type,return-value]
    assert (point.load, one.batch_s, one.jvm_mib, one.entries) == (1, [2.0, 3.0], 9, 2_000)


def test_the_page_has_a_table_of_open_records() -> None:
    of = {"title": "t", "found": [asdict(found("tidegate", 10, 1.5))], "agreement": {"10": "equal"}, "bars": []}
    text = page.workload("J3", {"tuned": of}, "`make bench` on some day.")
    assert "| tidegate, 10 open | 1.500 | 0 | 0 |" in text
