"""The example with Delta tables and PostgreSQL, as the script runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("psycopg")

import psycopg
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.server import postgres
from spark.test_example import load

pytestmark = pytest.mark.spark

RAW = [("north", 0, 1, 5), ("north", 1, 1, 7), ("north", 2, 1, 1), ("south", 1, 1, 2), ("south", 3, 1, 3)]
FINAL = [("north", 0, 1, 5), ("north", 1, 1, 7), ("south", 1, 1, 2)]


@pytest.fixture
def url() -> Iterator[str]:
    with postgres() as running:
        yield running.url


def test_the_example_puts_each_output_into_its_sink(spark: SparkSession, url: str, tmp_path: Path) -> None:
    example = load("exactly_once")
    example.write_payments(tmp_path)
    example.run(spark, tmp_path, url)
    example.run(spark, tmp_path, url)
    with psycopg.connect(url) as connection:
        raw = connection.execute(
            'SELECT shop, extract(minute FROM window_start)::int, "count", total FROM payment_counts'
        ).fetchall()
    final = DeltaTable(tmp_path / "final").to_pyarrow_table().to_pylist()
    late = DeltaTable(tmp_path / "late").to_pyarrow_table().to_pylist()
    assert sorted(raw) == RAW
    assert sorted((row["shop"], row["window_start"].minute, row["count"], row["total"]) for row in final) == FINAL
    assert sorted((row["payment"], row["amount"], row["late_by"]) for row in late) == [
        ("p4", 9, 110_000),
        ("p5", 4, 80_000),
    ]
