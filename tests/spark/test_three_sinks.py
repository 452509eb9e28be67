"""The example with a sink per output: each row once, even if the query dies between two sinks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

SCRIPT = Path(__file__).parents[2] / "examples" / "three_sinks.py"

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("three_sinks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_output_is_in_its_sink_once_though_the_query_dies_between_two(
    spark: SparkSession, script: ModuleType, tmp_path: Path
) -> None:
    script.write_payments(tmp_path)
    write = script.to_sinks(tmp_path)

    def dies_after_the_first_sink(frame: DataFrame, batch: int) -> None:
        if batch == 1:
            raw = frame.where("output = 'raw'").select(*script.COLUMNS["raw"])
            raw.write.mode("overwrite").parquet(str(tmp_path / "raw" / "batch=1"))
            raise RuntimeError("the power is gone")
        write(frame, batch)

    with pytest.raises(StreamingQueryException, match="the power is gone"):
        script.run(spark, tmp_path, dies_after_the_first_sink)
    script.run(spark, tmp_path)

    minute = "CAST(unix_seconds(window.start) - unix_seconds(timestamp'2026-01-01') AS int) DIV 60"
    counts = ("batch", "shop", f"{minute} AS minute", "count", "total")
    found = {
        output: sorted(map(tuple, script.sink(spark, tmp_path, output).selectExpr(*counts).collect()))
        for output in ("raw", "final")
    }
    assert found["raw"] == [
        (0, "north", 0, 1, 5),
        (0, "north", 1, 1, 7),
        (0, "south", 1, 1, 2),
        (1, "north", 2, 1, 1),
        (1, "south", 3, 1, 3),
    ]
    assert found["final"] == [(1, "north", 0, 1, 5), (1, "north", 1, 1, 7), (1, "south", 1, 1, 2)]
    late = script.sink(spark, tmp_path, "late")
    assert sorted(map(tuple, late.select("payment", "amount", "reason", "late_by").collect())) == [
        ("p4", 9, "late", 110_000),
        ("p5", 4, "late", 80_000),
    ]
