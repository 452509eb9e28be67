"""The pages on Spark: their blocks run, the quickstart prints its rows, and so do the examples of the reference."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg

pytest.importorskip("pyspark")
pytest.importorskip("prometheus_client")
pytest.importorskip("deltalake")

import deltalake
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from docs.lanes import in_lanes, pages_of
from docs.pages import ROOT, blocks, replaced, run
from docs.reference import Name, in_lane
from docs.test_howto import COOKBOOK, QUICKSTART, program
from spark import alerts
from spark.alerts import COLUMNS, Alerts, build, counted
from tidegate.testing import TopologyTestDriver

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
PAGES = [page for page in pages_of("spark") if page not in (QUICKSTART, ROOT / "README.md")]
"""The README has a test of its own in tests/docs/test_docs.py."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def skip_without_sources(code: str) -> None:
    """Skip code that reads ordered files or a Delta table if Spark cannot bound batches of a source in Python."""
    if "tg.files." in code or "tg.delta.source" in code:
        pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alerts]:
    with alerts.running(spark, tmp_path_factory.mktemp("alerts")) as ran:
        yield ran


@pytest.fixture
def data(ran: Alerts, tmp_path: Path) -> Path:
    """The folder `/data` of a page: the folder of the query, and inputs of other pages."""
    folder = tmp_path / "data"
    shutil.copytree(ran.folder, folder)
    for name in ("clicks", "logs"):
        (folder / name).mkdir()
    (folder / "clicks" / "0.json").write_text('{"user": "A", "ts": 0, "page": "/"}\n', encoding="utf-8")
    rows = pa.table({"user": ["A"], "shop": ["tea"], "ts": [NEW_YEAR], "ordered_at": [NEW_YEAR]})
    deltalake.write_deltalake(folder / "orders", rows)
    return folder


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_the_quickstart_prints_its_rows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_sources(program().code)
    names: dict[str, Any] = {"__name__": "quickstart"}
    exec(program().code, names)
    with alerts.as_it_was(spark):
        names["main"](tmp_path)
    [command] = [block for block in blocks(QUICKSTART) if block.language == "sh"]
    shown = next(block for block in blocks(QUICKSTART) if block.language == "text" and block.line > command.line)
    assert capsys.readouterr().out == shown.code


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_blocks_of_a_page_run(
    spark: SparkSession, ran: Alerts, page: Path, data: Path, tmp_path: Path, port: int
) -> None:
    """All blocks in order, with the names that the pages assume.

    They are `df`, a stream of files; `tables`, a folder; and `table`, the table of the query of a last run.
    """
    skip_without_sources("".join(block.code for block in blocks(page)))
    tables = {
        "empty": COLUMNS,
        "airports": "airport string, country string",
        "countries": "country string, name string",
    }
    for name, columns in tables.items():
        spark.createDataFrame([], columns).write.parquet(str(data / name))
    df = spark.readStream.schema(COLUMNS).parquet(str(data / "empty"))
    names: dict[str, Any] = {"__name__": page.name, "spark": spark, "df": df}
    saved: list[Any] = []
    names |= {"tables": str(tmp_path), "table": build(ran.events), "save": lambda rows, _: saved.extend(rows.collect())}
    instead = {'"/data/': f'"{data}/', "serve(spark)": f"serve(spark, port={port})", ":9464": f":{port}"}
    with alerts.as_it_was(spark):
        try:
            assert run(page, names, in_lanes("driver", "spark"), instead)
        finally:
            if "endpoint" in names:
                names["endpoint"].close()
    assert [row["count"] for row in saved] == ([1] if page.name == "upgrades.md" else [])


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_calendar_of_the_cookbook_is_the_same_on_spark(spark: SparkSession, zone: str) -> None:
    """Its function in Python and its expressions, in hours of both changes of the clock too, in any session."""
    code = [block.code for block in blocks(COOKBOOK) if "month_time" in block.code or "by_month" in block.code]
    [python, expressions] = code
    names: dict[str, Any] = {"tg": tg, "events": tg.stream("events", key="user", timestamp="ts")}
    names |= {"on_close": tg.EmitStrategy.on_window_close(), "TopologyTestDriver": TopologyTestDriver}
    found: dict[str, Any] = {}
    exec(python, names)
    instants = [NEW_YEAR + timedelta(minutes=47 * n, milliseconds=n) for n in range(12_000)]
    with alerts.as_it_was(spark):
        spark.conf.set("spark.sql.session.timeZone", zone)
        rows = pa.table({"ts": pa.array(instants, pa.timestamp("us", "UTC")), "offset": range(len(instants))})
        df = spark.createDataFrame(rows.append_column("partition", pa.array([0] * len(instants)))).withColumn(
            "user", F.lit("A")
        )
        exec(expressions, names | {"df": df}, found)
        found_ms = [row[0] for row in df.orderBy("offset").select(F.unix_millis(found["by_month"])).collect()]
    assert found_ms == [round(names["month_time"](instant).timestamp() * 1_000) for instant in instants]


@pytest.mark.parametrize("name", in_lane("spark"), ids=lambda name: name.dotted)
def test_an_example_of_the_reference_runs(
    spark: SparkSession, ran: Alerts, name: Name, data: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names in the examples: `final`, the final results of `events`; `listener`, which heard their query.

    The plan of an example goes on from the checkpoint of that query.
    """
    skip_without_sources("".join(name.for_spark))
    known: dict[str, Any] = {"tg": tg, "F": F, "spark": spark, "SparkSession": SparkSession, "build": build}
    known |= {"events": ran.events, "counts": counted(ran.events), "final": build(ran.events)}
    known |= {"listener": ran.listener, "registry": CollectorRegistry(), "save": lambda rows, _: rows.collect()}
    known["parsed"] = lambda lines: lines.selectExpr(
        "value AS user", "current_timestamp() AS ts", "partition", "offset"
    )
    if name.dotted == "tg.metrics.Server.close":
        known["server"] = tg.metrics.serve(spark, port=port)
    instead = {'"/data/': f'"{data}/', "serve(spark)": f"serve(spark, port={port})", "9464": str(port)}
    with alerts.as_it_was(spark):
        try:
            for block in name.for_spark:
                exec(replaced(block, instead), known)
        finally:
            if "server" in known and name.dotted != "tg.metrics.Server.close":
                known["server"].close()
    assert "cannot go on" not in capsys.readouterr().out
