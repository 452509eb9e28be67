"""The size of Spark's pages of memory, which decides whether `tg.configure` makes them smaller."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tidegate.runtime.spark.session import pages

ARRAY_HEADER = 16
"""Bytes by which a page is shorter if Java's collector is G1: then its array fills whole regions of the heap."""
MEMORY_MANAGER = "org.apache.spark.memory.UnifiedMemoryManager$"


@pytest.mark.parametrize(
    ("memory", "mb", "cores"),
    [("8g", 8192, 2), ("2g", 2048, 2), ("1g", 1024, 2), ("4g", 4096, 4), ("700m", 700, 1), ("64gb", 65_536, 16)],
)
def test_sparks_own_pages_are_as_large_as_the_rule_says(spark: SparkSession, memory: str, mb: int, cores: int) -> None:
    context = spark.sparkContext
    conf = context._jsc.sc().conf().clone().set("spark.testing.memory", str(mb << 20)).remove(pages.PAGE)
    made = getattr(getattr(context._jvm, MEMORY_MANAGER), "MODULE$").apply(conf, cores)
    expected = pages.default_mb({"spark.driver.memory": memory}, f"local[{cores}]")
    assert (expected << 20) - made.pageSizeBytes() in (0, ARRAY_HEADER)
