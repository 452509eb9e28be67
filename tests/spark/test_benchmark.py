"""The smallest size of the benchmark: all contestants agree, and every number that is promised is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark]


def smoke(benchmark: str, report: Path) -> str:
    """What the smallest run of a benchmark prints; its numbers are in `report`."""
    command = [sys.executable, "-m", benchmark, "--smoke", "--json", str(report), "--memory", "1g"]
    # A process of its own, as the targets of make have it: a benchmark needs a session with its own settings.
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_smoke(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert "tidegate is" in smoke("benchmarks.final_results", report)
    found = json.loads(report.read_text())
    assert set(found["agreement"]) == {
        "tidegate",
        "tidegate_files",
        "tidegate_unordered",
        "spark_memory",
        "spark_rocksdb",
    }
    of_1000_keys = found["results"]["1000"]
    for ours in ("tidegate", "tidegate_files"):
        assert of_1000_keys["ratios"][ours]["faster_spark_store"] > 0
    for name in (*found["agreement"], "floor"):
        assert of_1000_keys[name]["rows_per_s_median_batch"] > 0
        assert sum(of_1000_keys[name]["runs"][0]["rows"]) == 3 * 20_000
        assert of_1000_keys[name]["peak_python_mib"] >= 0
    assert found["versions"]["pyspark"]


def test_smoke_of_spilling(tmp_path: Path) -> None:
    """It compares every row that leaves with what it must be, so this is a test of spilling too."""
    report = tmp_path / "report.json"
    smoke("benchmarks.spill", report)
    of_500, of_2000 = json.loads(report.read_text())["runs"]
    assert (of_500["keys"], of_2000["keys"]) == (500, 2_000)
    assert of_2000["left"] >= 100
    assert of_2000["update_median_s"] > 0
