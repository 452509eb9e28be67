"""The first run of a new user: a job started by the Python of an environment that nobody activated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.session import QUICK_START

pytestmark = [pytest.mark.spark, pytest.mark.apart]

JOB = """
import sys

import tidegate as tg
from pyspark.sql import SparkSession, functions as F

folder = sys.argv[1]
builder = SparkSession.builder.config("spark.ui.enabled", "false")
builder = builder.remote("local[1]") if "connect" in sys.argv else builder.master("local[1]")
spark = tg.configure(builder.config("spark.sql.shuffle.partitions", "1")).getOrCreate()
records = spark.range(3).select("id", F.timestamp_millis("id").alias("ts"), F.lit(0).alias("p"))
records.coalesce(1).write.parquet(folder + "/in")
events = spark.readStream.schema("id long, ts timestamp, p int").parquet(folder + "/in")
stream = tg.stream(events, key="p", timestamp="ts", partition="p", offset="id")
rows = stream.filter(lambda record: record["id"] > 0).group_by_key().count().to_df()
query = (
    rows.writeStream.outputMode("update").format("memory").queryName("counts")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination(120)
print("counted", [row["count"] for row in spark.table("counts").collect()])
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Without PYSPARK_PYTHON Spark starts the `python3` of the PATH; here it cannot run anything."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'the python3 of the PATH was started' >&2\nexit 1\n")
    other.chmod(0o755)
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    given["PATH"] = f"{other.parent}{os.pathsep}{os.environ['PATH']}"
    given["JAVA_TOOL_OPTIONS"] = QUICK_START
    given["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return given


def run(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(JOB)
    command = [sys.executable, str(folder / "job.py"), str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_workers_run_the_python_of_a_job_that_sets_no_pyspark_python(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = run(tmp_path, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "counted [2]" in done.stdout
    # The first screen shows no warning about pandas 3 and no message of the state server per batch.
    assert "does not yet fully support pandas" not in done.stderr
    assert "TransformWithStateInPySparkStateServer" not in done.stderr


@pytest.mark.slow
def test_so_do_those_of_a_connect_server_that_the_job_starts(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("pyspark", minversion="4.1", reason="Connect of Spark 4.0 has no stateful operator in Python")
    # The server takes any free port: another test may use Spark's default port.
    done = run(tmp_path, {**environment, "SPARK_TESTING": "1"}, "connect")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "counted [2]" in done.stdout


def test_a_python_that_cannot_run_the_workers_is_refused_before_a_query_starts(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    other = str(tmp_path / "bin" / "python3")
    done = run(tmp_path, environment | {"PYSPARK_PYTHON": other})
    assert done.returncode == 1
    assert "Stage" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"tidegate.errors.TidegateError: PYSPARK_PYTHON is {other!r}, where tidegate and Python are")
    assert last.endswith(f"Unset PYSPARK_PYTHON, or set it to {sys.executable}.")


TWO_SESSIONS = """
import os

import tidegate as tg
from pyspark import SparkConf
from pyspark.sql import SparkSession

here = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.task.cpus", "1")
tg.configure(here).getOrCreate().stop()
there = tg.configure(SparkSession.builder.master("spark://host:7077"))._options
begins = dict(SparkConf().getAll()) | there
places = ("spark.hadoop.fs.", "spark.python.", "spark.executorEnv.", "spark.task.")
print("begins with", *(name for name in begins if name.startswith(places)))
print("workers run", os.environ.get("PYSPARK_PYTHON"))
"""


def test_a_session_on_a_cluster_does_not_begin_with_the_settings_of_one_on_this_machine(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "job.py").write_text(TWO_SESSIONS)
    command = [sys.executable, str(tmp_path / "job.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "begins with spark.task.cpus\nworkers run None\n" in done.stdout
