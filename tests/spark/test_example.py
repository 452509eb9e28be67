"""The example of the README, as the script runs it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

SCRIPT = Path(__file__).parents[2] / "examples" / "example_to_beat.py"

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_to_beat", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
