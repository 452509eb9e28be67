"""The first run of a new user: a job started by the Python of an environment that nobody activated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

JOB = """
import sys

import tidegate as tg
from pyspark.sql import SparkSession, functions as F

folder = sys.argv[1]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
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


def test_workers_run_the_python_of_a_job_that_sets_no_pyspark_python(tmp_path: Path) -> None:
    """Without it Spark starts the `python3` of the PATH, which here is one that cannot run anything."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'the python3 of the PATH was started' >&2\nexit 1\n")
    other.chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{other.parent}{os.pathsep}{os.environ['PATH']}"
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, str(tmp_path / "job.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "counted [2]" in done.stdout
