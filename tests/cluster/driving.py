"""Runs `app.py` and the demo as the driver of a cluster, or the client of a Connect server, and judges the outcome."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.standalone import Bare, packed
from crash.feed import Feed

FIRST, LATER = 2, 2
"""Files before and after a restart; one more closes windows."""
PATIENCE_S = 900


def environment(folder: Path) -> dict[str, str]:
    """Environment of a driver: its workers' Python has no tidegate, and its own has it only from the archive."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**kept, "PYSPARK_PYTHON": str(Bare(folder / "bare").python), "PYTHONPATH": str(packed(folder))}


def feed(folder: Path) -> Feed:
    """The files of the pipeline; those for after the restart lie in a folder of their own."""
    feed = Feed(folder, random.Random(5))
    feed.write(FIRST + LATER)
    feed.write(1, closing=True)
    (folder / "later").mkdir()
    for file in sorted((folder / "in").iterdir())[FIRST:]:
        file.rename(folder / "later" / file.name)
    return feed


def facts(master: str, environment: dict[str, str], feed: Feed) -> dict[str, Any]:
    _run([str(Path(__file__).with_name("app.py")), master, str(feed.folder), environment["PYTHONPATH"]], environment)
    facts: dict[str, Any] = json.loads((feed.folder / "facts.json").read_text())
    return facts


def check_results(facts: dict[str, Any], feed: Feed) -> None:
    assert facts["first"] == FIRST
    compared = feed.compared(feed.folder / "result.parquet")
    assert compared.right, compared


def check_told(facts: dict[str, Any], feed: Feed) -> None:
    """Metrics, stream time and open windows are those of the test driver."""
    told, driver = facts["files"], feed.driver()
    assert told["batches"] == LATER + 1
    assert told["records"] == sum(map(len, feed.files[FIRST:]))
    assert told["stream_time"] == told["stream_time_of_state"] == driver.pending().stream_time
    assert told["open"] == sorted([row["k"], row["n"]] for row in driver.read_state())


def check_silence(facts: dict[str, Any]) -> None:
    assert facts["silence"] == {"closed": [["a", 1], ["b", 1]]}


def check_demo(master: str, environment: dict[str, str], output: Path) -> None:
    options = ["--master", master, "--batch-size", "120000", "--output", str(output)]
    said = " ".join(_run(["-m", "tidegate", "demo", *options], environment).split())
    assert "21,089 windows final" in said
    assert "The rows are identical" in said


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout
