"""The inputs of V: offsets and times of each source partition, whichever files hold its rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.inputs import DISORDER_MS, FIRST_MS, batch_of
from benchmarks.measure import rows_of
from benchmarks.workloads.varied import BATCHES, HOT_SHARE, INPUTS, ROWS, SPAN_MS, write


@pytest.mark.parametrize("name", INPUTS)
def test_an_input(name: str, tmp_path: Path) -> None:
    of = INPUTS[name][1]
    folder = write(of, "smoke", tmp_path)
    paths = sorted(folder.glob("*.parquet"))
    assert len(paths) == of.files * BATCHES["smoke"]
    assert rows_of(folder) == [ROWS["smoke"]] * BATCHES["smoke"]
    assert len({(batch_of(path), path.stat().st_mtime) for path in paths}) == BATCHES["smoke"]
    whole = pa.concat_tables(map(pq.read_table, paths))
    assert len(whole.column_names) == 5 + of.payload
    each = ROWS["smoke"] * BATCHES["smoke"] // of.partitions
    for partition in range(of.partitions):
        mine = whole.filter(pc.equal(whole["partition"], partition)).sort_by("offset")
        assert mine["offset"].to_pylist() == list(range(each))
        # Out of order by less than the grace: nothing is late for any contestant.
        ms = mine["ts"].cast(pa.int64()).to_numpy() // 1000 - FIRST_MS
        steady = range(0, BATCHES["smoke"] * SPAN_MS, BATCHES["smoke"] * SPAN_MS // each)
        assert all(-of.disorder_ms <= got - wanted <= 1 or got == 0 for got, wanted in zip(ms, steady, strict=True))
    assert of.disorder_ms in (0, DISORDER_MS)


def test_the_hot_key_has_a_fifth_of_the_rows(tmp_path: Path) -> None:
    read = pq.read_table(write(INPUTS["V-hot"][1], "smoke", tmp_path))
    (top,) = pc.mode(pc.cast(pc.utf8_slice_codeunits(read["user"], 5), pa.int64()))
    assert top["mode"].as_py() == 0
    assert top["count"].as_py() == pytest.approx(HOT_SHARE * len(read), rel=0.1)


def test_one_file_has_rows_of_several_partitions(tmp_path: Path) -> None:
    path = min(write(INPUTS["V-partitions-4"][1], "smoke", tmp_path).glob("*.parquet"))
    assert pq.read_table(path)["partition"].to_pylist()[:4] == [0, 2, 0, 2]


def test_row_groups(tmp_path: Path) -> None:
    of = replace(INPUTS["V-files"][1], row_group=100)
    path = min(write(of, "smoke", tmp_path).glob("*.parquet"))
    assert pq.read_metadata(path).num_row_groups == ROWS["smoke"] // of.files // 100 > 1
