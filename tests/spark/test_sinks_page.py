"""docs/sinks.md and the examples of `tg.sinks`, over a real PostgreSQL and Delta tables (`make test-sinks`)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("psycopg")

import deltalake
import psycopg
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField

from docs.lanes import in_lanes, pages_of
from docs.pages import run
from docs.reference import Name, in_lane
from sinks.server import Server, postgres
from spark import alerts
from spark.alerts import Alerts, build, counted
from tidegate.runtime.spark.sinks.outputs import Rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alerts]:
    with alerts.running(spark, tmp_path_factory.mktemp("alerts")) as ran:
        yield ran


def finish(spark: SparkSession) -> None:
    """Let every query take the available data, and stop it."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def rows_of(server: Server, table: str) -> int:
    with psycopg.connect(server.url) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_the_page(spark: SparkSession, ran: Alerts, server: Server, tmp_path: Path) -> None:
    """Its queries write their rows: two windows have updates, one of them is final."""
    instead = {"/tables/": f"{tmp_path}/tables/", "/checkpoints/": f"{tmp_path}/checkpoints/"}
    instead["postgresql://host/sales"] = server.url
    names: dict[str, Any] = {"events": ran.events}
    [page] = pages_of("sinks")
    with alerts.as_it_was(spark):
        assert run(page, names, lambda block: in_lanes("sinks")(block) and "drain" not in block.code, instead) == 2
        finish(spark)
        tables = {
            folder.name: len(deltalake.DeltaTable(folder).to_pyarrow_table())
            for folder in sorted((tmp_path / "tables").iterdir())
        }
        assert tables == {"counts": 1, "final": 1, "late": 0}
        assert rows_of(server, "counts_now") == rows_of(server, "counts_raw") == 2
        assert run(page, names, lambda block: in_lanes("sinks")(block) and "drain" in block.code, instead) == 1
    assert len(deltalake.DeltaTable(tmp_path / "tables" / "counts").to_pyarrow_table()) == 2


@pytest.mark.parametrize("name", in_lane("sinks"), ids=lambda name: name.dotted)
def test_an_example_of_the_reference_runs(
    spark: SparkSession, ran: Alerts, server: Server, name: Name, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(ran.folder, data)
    (data / "checkpoints" / "alerts").rename(data / "checkpoints" / "v")
    with psycopg.connect(server.url) as connection:
        connection.execute("DROP TABLE IF EXISTS visits")
    fields = (StructField("user", StringType()), StructField("n", LongType()))
    known: dict[str, Any] = {"tg": tg, "spark": spark, "counts": counted(ran.events), "final": build(ran.events)}
    known["rows"] = Rows(None, fields, ("user",), once=True, mode="append")
    with alerts.as_it_was(spark):
        for block in name.for_spark:
            code = re.sub(r"postgresql://localhost/shop", server.url, block)
            if "drain" not in code:
                code = code.replace("/data/checkpoints/", f"{tmp_path}/anew/")
            exec(code.replace("/data/", f"{data}/"), known)
        finish(spark)
