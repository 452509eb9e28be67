"""A declarative pipeline (`pyspark.pipelines`), run from a pipeline file; and columns that are declared for a frame."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from cluster.standalone import ConnectServer
from docs.lanes import pages_of
from docs.pages import blocks, replaced
from spark.session import quick
from tidegate.instants import instant_ms
from tidegate.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("p", pa.int32()), ("o", pa.int64()), ("v", pa.float64())]
)

TOPOLOGIES = """
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("p", pa.int32()), ("o", pa.int64()), ("v", pa.float64())]
)
ROLES = dict(key="k", timestamp="ts", partition="p", offset="o", schema=SCHEMA)
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())


def final(source):
    windowed = tg.stream(source, **ROLES).group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("10s", "5s"))
    return windowed.agg(n=tg.count(), total=tg.sum("v"), expect_keys=["C"]).suppress(FINAL)


def mapped(source):
    stream = tg.stream(source, **ROLES).filter(pc.field("v") > 0).map_values({"w": pc.field("v") * 2, "o2": "o"})
    windowed = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10s"))
    return windowed.reduce(lambda a, b: a + b, "w").suppress(FINAL)


def stateless(source):
    return tg.stream(source, **ROLES).filter(lambda record: record["v"] > 2)


def joined(source):
    stream = tg.stream(source, **ROLES)
    windows = tg.JoinWindows.of_time_difference_with_no_grace("1s")
    return stream.join(stream, windows, value_joiner={"d": pc.field("left", "v") - pc.field("right", "v")})


def regrouped(source):
    counts = tg.stream(source, **ROLES).group_by_key().count()
    return counts.group_by("count").agg(keys=tg.count())
"""

PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import topologies

spark = SparkSession.active()
EVENTS = "{events}"
COLUMNS = "k string, ts timestamp, more string, p int, o int, v double"


def live():
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(EVENTS)


for build in (topologies.final, topologies.mapped, topologies.stateless, topologies.joined, topologies.regrouped):
    dp.table(lambda build=build: build(live()).to_df(), name=build.__name__)


@dp.materialized_view
def whole():
    return topologies.final(spark.read.schema(COLUMNS).parquet(EVENTS)).to_df()


@dp.table
def passed_on():
    return spark.readStream.table("final").where("n > 0").selectExpr("k", "n")
"""

OF_THE_PAGE = {
    'readStream.table("events")': 'readStream.schema("user string, ts timestamp, partition int, offset long")'
    '.option("maxFilesPerTrigger", 1).parquet("{events}")',
    '("2 minutes", "2 minutes")': '("10 seconds", "5 seconds")',
}
"""Differences to docs/pipelines.md: its table is one of the catalog, and the table of this test begins empty."""


def records(first: int, *seconds: int) -> pa.Table:
    rows = [
        {"k": "AB"[at % 2], "ts": at * 1_000_000, "p": 0, "o": first + i, "v": float(at % 5), "more": "x"}
        for i, at in enumerate(seconds)
    ]
    types = dict(zip(SCHEMA.names, SCHEMA.types, strict=True)) | {"more": pa.string(), "o": pa.int32()}
    return pa.Table.from_pylist(rows, pa.schema(list(types.items())))


def add(folder: Path, number: int, batch: pa.Table) -> None:
    """Add the next file to both inputs: our pipeline's, and the page's, which has other column names."""
    renamed = batch.select(["k", "ts", "p", "o"]).rename_columns(["user", "ts", "partition", "offset"])
    for name, table in (("events", batch), ("requests", renamed)):
        path = folder / name / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number, number))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    pytest.importorskip("grpc")
    pytest.importorskip("pyspark.pipelines")
    path = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    return {**quick(tmp_path / "spark"), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}


@pytest.fixture
def server(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a server whose catalog outlives the runs."""
    more = {name: environment[name] for name in ("SPARK_HOME", "JAVA_TOOL_OPTIONS")}
    settings = {"spark.sql.warehouse.dir": str(tmp_path / "spark-warehouse")}
    with ConnectServer(Path(sys.executable), environment["PYTHONPATH"], settings, **more) as running:
        yield running.url


def run(folder: Path, environment: dict[str, str], *program: str) -> str:
    """Run the pipeline of `folder`; returns its output."""
    command = [*program, "run", "--spec", str(folder / "spark-pipeline.yml")]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    said = done.stdout + done.stderr
    assert "Run is COMPLETED" in said, said[-6000:]
    return said


def written(folder: Path, name: str) -> list[dict[str, Any]]:
    files = sorted((folder / "spark-warehouse" / name).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in any order, with instants in ms, as the driver has them."""
    return sorted(
        str({name: in_ms(value) for name, value in sorted(row.items()) if value is not None and name != "deleted"})
        for row in rows
    )


def in_ms(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(in_ms, value.values()))
    if isinstance(value, tg.Window):
        return tuple(value)
    return instant_ms(value) if isinstance(value, datetime) else value


def of_the_page(language: str) -> str:
    """The block of docs/pipelines.md in a language: its pipeline file, and its specification."""
    [page] = pages_of("pipelines")
    [code] = [block.code for block in blocks(page) if block.language == language]
    return code


@pytest.mark.apart
@pytest.mark.slow
def test_a_pipeline_from_a_file_gives_what_the_driver_gives(
    tmp_path: Path, environment: dict[str, str], server: str
) -> None:
    """Ours, and that of docs/pipelines.md, with its specification; a second run goes on where the first ended.

    The first is that of the command. The second spares the JVM that only starts Python.
    """
    for name in ("transformations", "events", "requests"):
        (tmp_path / name).mkdir()
    (tmp_path / "topologies.py").write_text(TOPOLOGIES)
    (tmp_path / "transformations" / "tables.py").write_text(PIPELINE.format(events=tmp_path / "events"))
    named = {written: used.format(events=tmp_path / "requests") for written, used in OF_THE_PAGE.items()}
    (tmp_path / "transformations" / "page.py").write_text(replaced(of_the_page("python"), named))
    specification = of_the_page("yaml").replace("/data/pipelines/requests", f"{tmp_path}/storage")
    (tmp_path / "spark-pipeline.yml").write_text(specification.replace('partitions: "4"', 'partitions: "2"'))
    names: dict[str, Any] = {}
    exec(TOPOLOGIES, names)
    tables = ("final", "mapped", "stateless", "joined", "regrouped")
    drivers = {name: TopologyTestDriver(names[name]("events")) for name in tables}
    expected: dict[str, list[dict[str, Any]]] = {name: [] for name in tables}
    batches = [records(0, 1, 2, 12, 3, 27), records(5, 31, 8, 44), records(8, 45, 30, 63)]
    command = (str(tmp_path / "spark" / "bin" / "spark-pipelines"), "--remote", server)
    module = (sys.executable, "-m", "pyspark.pipelines.cli")
    for new, last, program in (([0, 1], 44, command), ([2], 63, module)):
        for number in new:
            add(tmp_path, number, batches[number])
        said = run(tmp_path, environment | ({"SPARK_REMOTE": server} if program is module else {}), *program)
        # The pipeline asked the server nothing that it does not answer.
        assert "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION" not in said
        for name, driver in drivers.items():
            for number in new:
                driver.pipe_batch(batches[number].select(SCHEMA.names).cast(SCHEMA))
            of_the_run = driver.read_output()
            assert len(of_the_run) > 0, name
            expected[name] += of_the_run
            assert comparable(written(tmp_path, name)) == comparable(expected[name]), name
        # A flow of Spark's own reads a table of ours that the same pipeline defines.
        final = [{name: row[name] for name in ("k", "n")} for row in expected["final"] if row["n"]]
        assert comparable(written(tmp_path, "passed_on")) == comparable(final)
        # A static input is the whole stream: every window closes at its end.
        starts = {in_ms(row["window"])[0] for row in written(tmp_path, "whole")}
        assert starts == set(range(0, last * 1000, 10_000))
    counts = [(row["user"], in_ms(row["window"])[0], row["count"]) for row in written(tmp_path, "requests")]
    of_a = [("A", 0, 1), ("A", 10_000, 1), ("A", 40_000, 1)]
    assert sorted(counts) == [*of_a, ("B", 0, 2), ("B", 20_000, 1), ("B", 30_000, 1), ("B", 40_000, 1)]


@contextmanager
def being_defined() -> Iterator[None]:
    registry = pytest.importorskip("pyspark.pipelines.graph_element_registry")
    with registry.graph_element_registration_context(object()):
        yield


def frame(spark: SparkSession) -> Any:
    return spark.createDataFrame([("A", 1, "x")], "k string, n int, more string").selectExpr(
        "*", "timestamp_millis(n) as ts"
    )


def test_the_columns_of_a_frame_are_those_that_are_declared(spark: SparkSession) -> None:
    declared = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("n", pa.int32())])
    stream = tg.stream(frame(spark), key="k", timestamp="ts", schema=declared)
    rows = stream.filter(lambda record: record["n"] > 0).to_df()
    assert rows.columns == ["ts", "k", "n"]
    assert [(row["k"], row["n"]) for row in rows.collect()] == [("A", 1)]
    counts = stream.group_by_key().agg(total=tg.sum("n")).to_df().collect()
    assert [(row["k"], row["total"]) for row in counts] == [("A", 1)]
    with pytest.raises(tg.DefinitionError, match="`x` reads the column 'more', which the stream does not have"):
        stream.group_by_key().agg(x=tg.max("more"))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            ("q", pa.string()),
            "`schema` has a column 'q', which the DataFrame does not have. Its columns are k, n, more, ts.",
        ),
        (
            ("n", pa.int64()),
            "`schema` has 'n' as bigint, and the DataFrame has it as int. Correct the schema, or cast the column.",
        ),
    ],
)
def test_a_declaration_that_is_not_true(spark: SparkSession, column: tuple[str, pa.DataType], message: str) -> None:
    declared = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), column])
    for make in (tg.stream, tg.table):
        with pytest.raises(tg.DefinitionError) as caught:
            make(frame(spark), key="k", timestamp="ts", schema=declared)
        assert str(caught.value) == message


def test_a_declaration_that_is_none(spark: SparkSession) -> None:
    with pytest.raises(tg.DefinitionTypeError, match=r"`schema` is 'k string', not a pyarrow.Schema. Use"):
        tg.stream(frame(spark), key="k", timestamp="ts", schema="k string")  # type: ignore[arg-type]
    with pytest.raises(tg.DefinitionError, match="`key` is 'q', but the DataFrame has no such column"):
        tg.stream(frame(spark), key="q", timestamp="ts", schema=pa.schema([("ts", pa.timestamp("us", "UTC"))]))


def test_a_pipeline_without_declared_columns_is_refused(spark: SparkSession) -> None:
    given = frame(spark)
    with being_defined(), pytest.raises(tg.DefinitionError) as caught:
        tg.stream(given, key="k", timestamp="ts")
    assert str(caught.value) == (
        "A declarative pipeline does not tell the columns of a DataFrame while it is being defined. Declare them: "
        'tg.stream(frame, schema=pyarrow.schema([("user", pyarrow.string()), ...]), ...).'
    )
