"""The input of J6 is what its title says, and its direct computation is right."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks.inputs import FIRST_MS, HALVES, key_names
from benchmarks.joined_rows import Rows
from benchmarks.measure import rows_of
from benchmarks.two_sides import SIDES, VALUES
from benchmarks.workloads import large_table
from benchmarks.workloads.large_table import BATCH_MS, SMALL, Batch, Shape, batches, looked_up, write

import tidegate as tg
from tidegate.testing import TopologyTestDriver


def test_the_whole_table_is_loaded_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_table, "LOAD_ROWS", 200)
    every = list(batches(SMALL))
    assert (SMALL.load, len(every)) == (3, 3 + SMALL.batches + 1)
    loaded = np.concatenate([each.changes[0] for each in every[: SMALL.load]])
    assert sorted(loaded.tolist()) == list(range(SMALL.keys))
    small = every[SMALL.load :]
    assert {(len(each.records[0]), len(each.changes[0])) for each in small} == {(SMALL.rows, SMALL.changes)}


def test_changes_are_older_than_the_records_of_their_batch_and_younger_than_those_before() -> None:
    every = list(batches(SMALL))
    times = [ms for each in every for ms in (each.change_ms, each.record_ms)]
    assert times == sorted(set(times))


def test_a_tenth_of_the_records_has_no_row() -> None:
    rows = looked_up(replace(SMALL, rows=20_000))
    without = sum(count for (_, _, price, _), count in rows.items() if price is None)
    assert without / rows.total() == pytest.approx(1 / large_table.WITHOUT_ROW, rel=0.1)


def test_files_have_both_sides_in_step(tmp_path: Path) -> None:
    files = write(SMALL, tmp_path)
    for side, value, of_batch in zip(SIDES, VALUES, (SMALL.rows, SMALL.changes), strict=True):
        paths = sorted((files / side).glob("*.parquet"))
        assert len(paths) == HALVES * (SMALL.load + SMALL.batches + 1)
        assert pq.read_schema(paths[0]).names == ["user", "ts", value, "partition", "offset"]
        for half in range(HALVES):
            tables = [pq.read_table(path) for path in paths[half::HALVES]]
            assert {name for table in tables for name in table["partition"].to_pylist()} <= {half}
            offsets = np.concatenate([table["offset"].to_numpy() for table in tables])
            assert (np.diff(offsets) > 0).all()
        assert sum(pq.read_metadata(path).num_rows for path in paths[-HALVES:]) == of_batch
    assert rows_of(files)[-1] == SMALL.rows + SMALL.changes


def test_the_direct_computation_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(_shape: Shape) -> list[Batch]:
        def valued(*pairs: tuple[int, int]) -> tuple[large_table.Int64s, large_table.Int64s]:
            keys, values = np.array(pairs, np.int64).reshape(-1, 2).T
            return keys, values

        first = Batch(valued((0, 1), (1, 2)), valued((0, 11)), 5, 0)
        return [first, Batch(valued((0, 3)), valued((0, 12), (0, 13)), 15, 10)]

    monkeypatch.setattr(large_table, "batches", given)
    a, b = key_names(np.arange(2))
    wanted: Rows = Counter([(a, 1, 11, 5), (b, 2, None, 5), (a, 3, 13, 15)])
    assert looked_up(SMALL) == wanted


def test_tidegate_gives_the_direct_computation() -> None:
    left, right = SIDES
    stream = tg.stream(left, key="user", timestamp="ts")
    driver = TopologyTestDriver(stream.left_join(tg.table(right, key="user", timestamp="ts")))
    for batch in batches(SMALL):
        for side, ms, (keys, values) in ((1, batch.change_ms, batch.changes), (0, batch.record_ms, batch.records)):
            pairs = zip(key_names(keys), values.tolist(), strict=True)
            driver.pipe_batch([{"user": user, "ts": ms, VALUES[side]: value} for user, value in pairs], SIDES[side])
    rows = driver.read_output()
    found = Counter((row["user"], row["amount"], row["price"], row["timestamp"]) for row in rows)
    assert found == looked_up(SMALL)
    assert min(row["timestamp"] for row in rows) == FIRST_MS + BATCH_MS // 2


def test_by_hand_is_given_small_tables_alone() -> None:
    for size, keys in large_table.KEYS.items():
        assert keys[0] <= large_table.BY_HAND_UP_TO[size] <= 1_000_000
    assert {1_000_000, 10_000_000} <= set(large_table.KEYS["default"])
