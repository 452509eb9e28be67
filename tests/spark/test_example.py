"""The examples, as the scripts run them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.spark]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("example_to_beat")


def test_tidegate_raises_the_alert_that_spark_misses(spark: SparkSession, script: ModuleType) -> None:
    after_six, at_end = script.compare(spark)

    spark_one, spark_six, ours_one, ours_six = after_six
    assert ours_one == ours_six == {10: 3}
    assert spark_one == spark_six == {10: 4}

    spark_one, spark_six, ours_one, ours_six = at_end
    assert ours_one == ours_six == script.RIGHT == {10: 3, 12: 1, 14: 1}
    assert spark_one == spark_six == {10: 4, 12: 1, 14: 1}


def test_the_table_names_what_nobody_has_emitted_yet(script: ModuleType) -> None:
    nothing_yet, right = {}, script.RIGHT
    table = script.table([{10: 4}, nothing_yet, {10: 3}, {10: 3}], [{10: 4}, {10: 4}, right, right])

    assert "  [10, 12)             3          4          -         3          3" in table
    assert table.splitlines()[-1].split() == ["alert", "for", "[10,", "12)", "yes", "no", "no", "yes", "yes"]


def test_departures_have_the_weather_of_their_time(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Two weeks of the year; the rows are those of `pandas.merge_asof`."""
    script = load("departures_and_weather")
    end = pd.Timestamp("2013-01-14", tz="UTC")
    departed, observed = (
        frame[frame["came"] < end].reset_index(drop=True) for frame in (script.departures(), script.weather())
    )
    assert script.main(spark, departed, observed) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"As of the departure: 1\d,\d\d\d rows, 0 other .* 0 missing, [1-9]\d* of the last hour wait", said
    )
    assert re.search(r"With the latest row: \d+,\d\d\d of 1\d,\d\d\d rows have another visibility", said)


def test_clicks_from_json_files_are_each_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")
    script = load("clicks_from_json")
    script.write_clicks(tmp_path)
    for _ in range(2):  # the second run finds nothing new
        script.tables(spark, tmp_path)
    counts = spark.read.parquet(str(tmp_path / "counts")).collect()
    found = sorted((row["window"].start.minute, row["page"], row["count"]) for row in counts)
    assert found == [(0, "home", 2), (0, "shop", 1), (1, "home", 1), (1, "shop", 1), (2, "shop", 2)]
    [dead] = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert (dead["file"].rpartition("/")[2], dead["line"], dead["reason"]) == ("0003.json", 2, "the line is not JSON")


def test_orders_from_a_delta_table_are_each_summed_once(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")
    pytest.importorskip("deltalake")
    script = load("orders_from_delta")
    script.both_halves(spark, tmp_path)
    found = spark.read.parquet(str(tmp_path / "sums")).collect()
    sums = sorted((row["window"].start.hour, row["shop"], row["orders"], row["total"]) for row in found)
    assert sums == [(12, "north", 2, 17), (12, "south", 2, 7), (13, "north", 1, 1), (14, "south", 1, 2)]
