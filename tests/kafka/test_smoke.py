"""One pipeline over a real broker inside `make test`, where Kafka's jars are there or Maven can fetch them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tools.maven import MavenError

from kafka.broker import jars
from spark.session import quick

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.apart
def test_final_results_from_a_real_broker(tmp_path: Path) -> None:
    """In a process of its own: Spark loads the connector when its JVM starts, and this run's JVM has started."""
    try:
        for part in ("broker", "connector"):
            jars(part, timeout=120)
    except MavenError as error:
        pytest.skip(f"no Kafka broker: {error}. `make test-kafka` needs Maven, or tests/kafka/target from where it is")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "kafka", "-k", "test_smoke_", str(Path(__file__).parent)],
        cwd=ROOT,
        env={**quick(tmp_path / "spark"), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # One test per consumer that this Spark supports.
    assert f"{1 + (find_spec('pyspark.sql.streaming.datasource') is not None)} passed" in done.stdout
