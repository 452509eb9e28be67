"""The demo's query on Spark: a few days in every test run, the whole command where slow tests run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from tidegate.demo import alerts, check, flights
from tidegate.demo.check import problems
from tidegate.demo.stream import Counts, Replay
from tidegate.demo.topology import GRACE, windows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def blizzard() -> pd.DataFrame:
    """Four days of reports, half of them in the snow."""
    year = flights.read_flights()
    return flights.reports(year[(year["month"] == 2) & year["day"].between(7, 10)])


def test_rows_are_right_and_the_same_at_two_batch_sizes(
    spark: SparkSession, blizzard: pd.DataFrame, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []

    def on_batch(counts: Counts, batches: int) -> None:
        seen.append((counts.batches, batches))

    timetable = alerts.timetable(blizzard)
    runs = []
    for size in (2_000, 1_501):
        folder = tmp_path / str(size)
        folder.mkdir()
        runs.append(Replay(spark, blizzard, timetable, GRACE, folder, size, on_batch).run())

    assert problems(runs, blizzard, check.directly(blizzard, windows().grace_ms)) == []
    assert runs[0].counts.late > 0
    assert runs[0].rows["alert"].any()
    assert seen == [(done, total) for run in runs for total in [run.counts.batches] for done in range(1, total + 1)]


@pytest.mark.slow
def test_the_whole_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "demo", "--batch-size", "40000", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "336,776 reports, 8,255 without a departure, 734 too late for their window, 21,089 windows final" in said
    assert "1,175 departed, no air time" in said
    assert "The rows are identical" in said
    assert (tmp_path / "departures.png").read_bytes().startswith(b"\x89PNG")
    assert len(pd.read_csv(tmp_path / "departures.csv")) == 21_089
    assert done.stderr == ""
