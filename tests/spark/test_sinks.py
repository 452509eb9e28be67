"""Sinks over foreachBatch: each row once, in Delta tables and a real PostgreSQL, for a crash at any point."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("psycopg")

import deltalake
import psycopg
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sinks.server import Server, postgres
from spark.replay import FIRST_FILE_S, schema_of, table_of
from tidegate.runtime.spark.frames.arrow import spark_schema
from tidegate.runtime.spark.sinks import staging
from tidegate.testing import TopologyTestDriver

pytestmark = pytest.mark.spark
# Not part of `make test`, which stays short: `make test-sinks` and `make test-spark` run it.
long = pytest.mark.slow

Row = dict[str, Any]
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
SCHEMA = schema_of(k=pa.string(), v=pa.int64())
# Two windows of ten milliseconds that close, updates of both, and a late record in the second batch.
BATCHES = [
    [("a", 1, 1), ("b", 2, 4), ("a", 3, 12)],
    [("a", 4, 14), ("b", 5, 31), ("c", 6, 2)],
    [("c", 7, 33), ("a", 8, 55)],
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as running:
        yield running


@dataclass
class Case:
    """A query over files in a folder, one per batch, and the rows of its sinks."""

    spark: SparkSession
    folder: Path
    schema: pa.Schema = field(default=SCHEMA)
    written: int = 0
    offset: int = 0

    def put(self, rows: Sequence[Row]) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        path = self.folder / "in" / f"{self.written:05}.parquet"
        placed = [{"partition": 0, "offset": self.offset + i, **row} for i, row in enumerate(rows)]
        pq.write_table(table_of(placed, self.schema), path)
        os.utime(path, (FIRST_FILE_S + self.written,) * 2)
        self.written, self.offset = self.written + 1, self.offset + len(rows)

    def frame(self) -> DataFrame:
        (self.folder / "in").mkdir(exist_ok=True)
        columns = spark_schema(self.schema)
        return self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))

    def start(
        self, table: tg.Result, function: Callable[[DataFrame, int], None], checkpoint: str = "checkpoint"
    ) -> Any:
        writer = table.to_df().writeStream.foreachBatch(function).outputMode("update").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.folder / checkpoint)).start()

    def run(self, table: tg.Result, sinks: Any, checkpoint: str = "checkpoint", **wrapped: Any) -> None:
        function = tg.sinks.batches(table, sinks)
        wrapped.get("wrap", lambda _: None)(function)
        query = self.start(table, wrapped.get("around", lambda f: f)(function), checkpoint)
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    def delta(self, name: str) -> list[Row]:
        rows = deltalake.DeltaTable(self.folder / name).to_pyarrow_table().to_pylist()
        return sorted(rows, key=repr)

    def delta_files(self, name: str) -> list[Row]:
        """The rows in the files of an unpartitioned table: with pyarrow 18 deltalake reads lists as null."""
        files = deltalake.DeltaTable(self.folder / name).file_uris()
        return pa.concat_tables(map(pq.read_table, files)).to_pylist()


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Case:
    return Case(spark, tmp_path)


def rows_in(server: Server, table: str) -> list[Row]:
    with psycopg.connect(server.url, row_factory=psycopg.rows.dict_row) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        return sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)


def execute(server: Server, *statements: str) -> None:
    with psycopg.connect(server.url) as connection:
        for statement in statements:
            connection.execute(statement)


def events(source: Any) -> tg.KStream:
    schema = SCHEMA if isinstance(source, str) else None
    return tg.stream(
        source, key="k", timestamp="ts", partition="partition", offset="offset", schema=schema, name="events"
    )


def counts(source: Any, grace: str = "5 ms") -> tg.KTable:
    windows = tg.TimeWindows.of_size_and_grace("10 ms", grace)
    return events(source).group_by_key().windowed_by(windows).agg(n=tg.count(), total=tg.sum("v"))


def outputs(source: Any) -> tg.KOutputs:
    table = counts(source)
    return tg.outputs(raw=table, final=table.suppress(FINAL), late=table.late_records())


def batches() -> list[list[Row]]:
    return [[{"k": k, "v": v, "ts": ts} for k, v, ts in batch] for batch in BATCHES]


def expected() -> dict[str, list[tuple[Any, ...]]]:
    """Expected rows of the sinks: the newest update of each window, every final result, every late record."""
    driver = TopologyTestDriver(outputs("events"))
    offset = 0
    for batch in batches():
        driver.pipe_batch([{"partition": 0, "offset": offset + i, **row} for i, row in enumerate(batch)])
        offset += len(batch)
    found: dict[str, dict[Any, Any]] = {"raw": {}, "final": {}, "late": {}}
    for number, row in enumerate(driver.read_output()):
        output = row["output"]
        said = (row["k"], row["window"].start, row["v" if output == "late" else "total"])
        found[output][said[:2] if output == "raw" else number] = said
    return {output: sorted(rows.values()) for output, rows in found.items()}


def said(rows: list[Row], value: str = "total") -> list[tuple[Any, ...]]:
    return sorted((row["k"], millis(row["window_start"]), row[value]) for row in rows)


def millis(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def test_each_output_is_in_its_sink_once_though_the_query_dies_between_two_and_before_the_checkpoint(
    case: Case, server: Server
) -> None:
    for batch in batches():
        case.put(batch)
    table = outputs(case.frame())
    sinks = {
        "raw": tg.sinks.Postgres(server.url, "dies.counts"),
        "final": tg.sinks.Delta(case.folder / "final"),
        "late": tg.sinks.Postgres("jdbc:" + server.url, ("dies", "late.records")),
    }
    execute(server, "CREATE SCHEMA dies")

    def dies_at(number: int, where: str) -> Any:
        def around(function: Any) -> Any:
            def write(frame: DataFrame, batch: int) -> None:
                if batch == number and where == "between":
                    last = function._targets[-1]
                    last.commit = lambda *_: (_ for _ in ()).throw(RuntimeError("the power is gone"))
                function(frame, batch)
                if batch == number:
                    raise RuntimeError("the power is gone")

            return write

        return around

    # The last batch but one runs once more after every sink has it, and the last one goes on from its state.
    for number, where in ((1, "between"), (1, "behind"), (1, "behind")):
        with pytest.raises(StreamingQueryException, match="the power is gone"):
            case.run(table, sinks, around=dies_at(number, where))
    case.run(table, sinks)
    case.run(table, sinks)  # nothing is new
    wanted = expected()
    assert wanted["late"]
    assert said(rows_in(server, "dies.counts")) == wanted["raw"]
    assert said(case.delta("final")) == wanted["final"]
    assert said(rows_in(server, 'dies."late.records"'), "v") == wanted["late"]


def test_rows_that_tasks_put_aside_are_there_once(case: Case, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "INLINE_BYTES", 0)
    monkeypatch.setattr(staging, "CHUNK_BYTES", 0)
    for batch in batches():
        case.put(batch)
    table = outputs(case.frame())
    execute(server, "CREATE SCHEMA aside")
    for sinks in (
        {
            "raw": tg.sinks.Postgres(server.url, "aside.counts"),
            "final": tg.sinks.Delta(case.folder / "final"),
            "late": tg.sinks.Postgres(server.url, "aside.late"),
        },
        {
            "raw": tg.sinks.Delta(case.folder / "raw", partition_by="k"),
            "final": tg.sinks.Postgres(server.url, "aside.final"),
            "late": tg.sinks.Delta(f"file://{case.folder}/late"),
        },
    ):
        case.run(table, sinks, f"checkpoint of {type(sinks['raw']).__name__}")
    wanted = expected()
    assert said(rows_in(server, "aside.counts")) == said(case.delta("raw")) == wanted["raw"]
    assert said(rows_in(server, "aside.final")) == said(case.delta("final")) == wanted["final"]
    assert said(rows_in(server, "aside.late"), "v") == said(case.delta("late"), "v") == wanted["late"]
    # No staged rows are left.
    assert list(case.folder.rglob("_tidegate/**/*.parquet")) == []
    with psycopg.connect(server.url) as connection:
        left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'tidegate_stage%'").fetchall()
    assert left == []


ODD = ("my.col", 'se"lect', "per%cent", "Ba`ck", "ORDER", "a b", "window_start'", "%s")


def test_changes_of_a_table_with_odd_names_replace_and_delete(
    spark: SparkSession, tmp_path: Path, server: Server
) -> None:
    """Several changes of a key in one batch: the last one counts, whether it deletes or not."""
    delta_odd = (*ODD[:5], "a-b", *ODD[6:])
    for number, names in enumerate((ODD, delta_odd)):
        folder = tmp_path / str(number)
        folder.mkdir()
        kinds = (pa.float64(), pa.string(), pa.int64(), pa.int32(), pa.bool_(), pa.string(), pa.int64(), pa.string())
        columns = dict(zip(names, kinds, strict=True))
        case = Case(spark, folder, schema_of(**columns, gone=pa.bool_()))

        def change(key: float, text: str | None, value: int, gone: bool = False, names: Any = names) -> Row:
            row = dict(zip(names, (key, "q'", value, value, True, text, value, "%s"), strict=True))
            return {**row, "ts": value, "gone": gone}

        case.put([change(1.0, "one", 1), change(2.0, "two", 2), change(math.nan, "nan", 3), change(1.0, "uno", 4)])
        case.put(
            [change(2.0, None, 5, gone=True), change(-0.0, "", 6), change(3.0, "x", 7), change(3.0, None, 8, True)]
        )
        case.put(
            [
                change(3.0, "back", 9),
                change(math.nan, 'quote"\n,\\N', 10),
                change(0.0, None, 11),
                change(9.0, "", 12, True),
            ]
        )
        table = tg.table(
            case.frame(),
            key=[names[0], names[1]],
            timestamp="ts",
            deleted="gone",
            partition="partition",
            offset="offset",
        )
        if names is ODD:
            case.run(table, tg.sinks.Postgres(server.url, ("public", 'Odd "table" %s.x')))
            rows = rows_in(server, '"Odd ""table"" %s.x"')
        else:
            case.run(table, tg.sinks.Delta(folder / "odd"))
            rows = case.delta("odd")
        found = {repr(abs(row[names[0]])): (row[names[5]], row[names[6]], row[names[7]]) for row in rows}
        assert len(rows) == 4
        assert found == {
            "1.0": ("uno", 4, "%s"),
            "nan": ('quote"\n,\\N', 10, "%s"),
            "0.0": (None, 11, "%s"),
            "3.0": ("back", 9, "%s"),
        }


def test_columns_with_the_names_of_a_window_are_free_in_rows_without_one(case: Case, server: Server) -> None:
    for batch in batches():
        case.put(batch)
    grouped = events(case.frame()).group_by_key()
    spans = grouped.agg(window_start=tg.min("v"), window_end=tg.max("v"))
    case.run(spans, tg.sinks.Delta(case.folder / "spans"))
    case.run(spans, tg.sinks.Postgres(server.url, "spans"), "checkpoint of PostgreSQL")
    for rows in (case.delta("spans"), rows_in(server, "spans")):
        found = [(row["k"], row["window_start"], row["window_end"]) for row in rows]
        assert found == [("a", 1, 8), ("b", 2, 5), ("c", 6, 7)]


def test_values_of_every_type_arrive_as_they_were(case: Case, server: Server) -> None:
    far = 253_402_300_799_999  # the last millisecond of the year 9999
    kinds = {
        "flag": pa.bool_(), "tiny": pa.int8(), "short": pa.int16(), "int": pa.int32(), "long": pa.int64(),
        "real": pa.float32(), "double": pa.float64(), "price": pa.decimal128(38, 18), "whole": pa.decimal128(38, 0),
        "text": pa.string(), "bytes": pa.binary(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"), "list": pa.list_(pa.int64()),
        "nested": pa.struct({"X y": pa.string(), "z": pa.list_(pa.float64())}), "map": pa.map_(pa.string(), pa.int32()),
    }  # fmt: skip
    case.schema = schema_of(k=pa.string(), **kinds)
    full = {
        "flag": True, "tiny": -128, "short": -32768, "int": -(2**31), "long": -(2**63), "real": 1.5, "double": 1e-320,
        "price": Decimal("-12345678901234567890.000000000000000001"), "whole": Decimal(10**38 - 1),
        "text": "ä\t\\N\r\n\"'",
        "bytes": b"\x00\xff", "day": date(1, 1, 1), "at": far, "local": -62_135_596_800_000, "list": [1, None],
        "nested": {"X y": 'q"', "z": [0.5]}, "map": {"a": 1},
    }  # fmt: skip
    special = {"double": math.nan, "real": -math.inf, "text": "", "bytes": b"", "at": -1, "list": [], "map": {}}
    case.put([{"k": "full", "ts": 1, **full}, {"k": "null", "ts": 2}, {"k": "special", "ts": 3, **special}])
    case.put([])
    stream = tg.stream(case.frame(), key="k", timestamp="ts", partition="partition", offset="offset")
    case.run(stream, tg.sinks.Delta(case.folder / "types"), "to delta")
    case.run(stream, tg.sinks.Postgres(server.url, "types"), "to postgres")
    put = table_of([{"k": "full", **full}, {"k": "special", **special}], case.schema)
    wanted = {row["k"]: row for row in put.to_pylist()}
    for rows in (case.delta_files("types"), rows_in(server, "types")):
        found = {row["k"]: row for row in rows}
        assert len(rows) == 3
        assert [name for name in kinds if found["null"][name] is not None] == []
        assert math.isnan(found["special"]["double"])
        for key in ("full", "special"):
            for name in kinds:
                value, right = found[key][name], wanted[key][name]
                if name == "map" and isinstance(right, list):
                    value, right = dict(value), dict(right)
                if isinstance(right, float) and math.isnan(right):
                    continue
                assert value == right, (key, name)
    # A batch without rows is no commit: one commit made the table, one has the rows.
    assert deltalake.DeltaTable(case.folder / "types").version() == 1


@long
def test_a_query_that_starts_over_is_refused_where_its_rows_would_be_twice(case: Case, server: Server) -> None:
    case.put(batches()[0])
    case.put(batches()[1])
    final = counts(case.frame()).suppress(FINAL)
    execute(server, "CREATE SCHEMA over")
    for number, sink in enumerate((tg.sinks.Delta, lambda *a, **k: tg.sinks.Postgres(server.url, *a, **k))):
        place = str(case.folder / "over") if number == 0 else "over.final"
        case.run(final, sink(place, mode="append"), f"first {number}")
        with pytest.raises(StreamingQueryException, match=r'had another checkpoint.*name="rows-2"'):
            case.run(final, sink(place, mode="append"), f"second {number}")
        case.run(final, sink(place, mode="append", name="beside"), f"third {number}")
        rows = case.delta("over") if number == 0 else rows_in(server, place)
        assert len(rows) == 2 * len(set(said(rows))) > 0
    # With a key, a row replaces itself.
    for checkpoint in ("fourth", "fifth"):
        case.run(final, tg.sinks.Postgres(server.url, "over.upserted", mode="upsert"), checkpoint)
    assert said(rows_in(server, "over.upserted")) == sorted(set(said(rows)))


@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_another_plan_on_a_batch_that_the_sink_has_is_refused(case: Case, server: Server, kind: str) -> None:
    case.put(batches()[0])
    table = counts(case.frame())
    sink = tg.sinks.Delta(case.folder / "t") if kind == "delta" else tg.sinks.Postgres(server.url, "replanned")

    def dies(function: Any) -> Any:
        def write(frame: DataFrame, batch: int) -> None:
            function(frame, batch)
            raise RuntimeError("the power is gone")

        return write

    with pytest.raises(StreamingQueryException, match="the power is gone"):
        case.run(table, sink, around=dies)
    case.put(batches()[1])
    changed = counts(case.frame(), grace="7 ms")
    with pytest.raises(StreamingQueryException, match="has batch 0 already, as another plan computed it"):
        case.run(changed, sink)
    case.run(table, sink)
    case.put(batches()[2])
    case.run(changed, sink)
    rows = case.delta("t") if kind == "delta" else rows_in(server, "replanned")
    assert said(rows) == expected()["raw"]


def test_a_worker_that_dies_ends_the_query_and_the_next_start_goes_on(case: Case) -> None:
    """As when the system has no memory left. Spark's own reading of the error overflowed its stack: the query hung."""
    flag = case.folder / "flag"
    flag.touch()

    def dies_once(record: Row) -> bool:
        if flag.exists():
            flag.unlink()
            os._exit(1)
        return True

    for batch in batches():
        case.put(batch)
    source = events(case.frame()).filter(dies_once)
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
    table = source.group_by_key().windowed_by(windows).agg(n=tg.count(), total=tg.sum("v"))
    sink = tg.sinks.Delta(case.folder / "t")
    with pytest.raises(StreamingQueryException, match="could not run batch 0"):
        case.run(table, sink)
    case.run(table, sink)
    assert said(case.delta("t")) == expected()["raw"]


@long
def test_a_drain_goes_into_the_sink_once(case: Case) -> None:
    for batch in batches():
        case.put(batch)
    final = counts(case.frame()).suppress(FINAL)
    sink = tg.sinks.Delta(case.folder / "final")
    case.run(final, sink)
    before = said(case.delta("final"))
    function = tg.sinks.batches(final, sink)
    dies = [True]

    def write(frame: DataFrame, batch: int) -> None:
        function(frame, batch)
        if len(said(case.delta("final"))) > len(before) and dies.pop(0):
            raise RuntimeError("the power is gone")

    def drain(save: Any) -> None:
        checkpoint = str(case.folder / "checkpoint")
        tg.drain(final, checkpoint, lambda rows: rows.writeStream.outputMode("update").foreachBatch(save))

    with pytest.raises(StreamingQueryException, match="the power is gone"):
        drain(write)
    drain(function)
    assert said(case.delta("final")) == expected()["raw"]  # the final totals of the windows


@long
def test_sessions_that_become_one_replace_what_they_were(case: Case, server: Server) -> None:
    case.put([{"k": "a", "v": 1, "ts": 0}, {"k": "a", "v": 2, "ts": 8}])
    case.put([{"k": "a", "v": 4, "ts": 4}, {"k": "b", "v": 8, "ts": 5}])
    windows = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "50 ms")
    table = events(case.frame()).group_by_key().windowed_by(windows).agg(total=tg.sum("v"))
    case.run(table, tg.sinks.Delta(case.folder / "sessions"), "to delta")
    case.run(table, tg.sinks.Postgres(server.url, "sessions"), "to postgres")
    for rows in (case.delta("sessions"), rows_in(server, "sessions")):
        assert said(rows) == [("a", 0, 7), ("b", 5, 8)]
        assert [millis(row["window_end"]) for row in sorted(rows, key=lambda row: row["k"])] == [8, 5]


@long
def test_two_queries_write_into_one_table_at_once(case: Case, server: Server) -> None:
    for batch in batches():
        case.put(batch)
    table = counts(case.frame())
    final = table.suppress(FINAL)
    wanted = expected()
    for number, (what, sink, upserts) in enumerate(
        (
            (table, tg.sinks.Delta(case.folder / "both"), True),
            (table, tg.sinks.Postgres(server.url, "at_once"), True),
            (final, tg.sinks.Delta(case.folder / "all"), False),
        )
    ):
        named = [sink, type(sink)(**{**vars(sink), "name": "other"})]
        queries = [case.start(what, tg.sinks.batches(what, each), f"{number} {i}") for i, each in enumerate(named)]
        for query in queries:
            assert query.awaitTermination(120)
        rows = rows_in(server, "at_once") if number == 1 else case.delta("both" if upserts else "all")
        assert said(rows) == (wanted["raw"] if upserts else sorted(2 * wanted["final"]))


def test_two_outputs_go_into_one_table(case: Case, server: Server) -> None:
    for batch in batches():
        case.put(batch)
    table = counts(case.frame())
    both = tg.outputs(one=table.suppress(FINAL), other=table.suppress(FINAL))
    for number, sink in enumerate(
        (tg.sinks.Delta(case.folder / "twins", name="n"), tg.sinks.Postgres(server.url, "twins", name="n"))
    ):
        case.run(both, {"one": sink, "other": sink}, f"checkpoint {number}")
    assert said(case.delta("twins")) == said(rows_in(server, "twins")) == sorted(2 * expected()["final"])


def test_final_results_that_a_filter_removes_are_no_rows_of_a_table(case: Case, server: Server) -> None:
    """Behind `until_window_closes` they are tombstones, and each was a row with nulls."""
    for batch in batches():
        case.put(batch)
    table = counts(case.frame())
    large = table.suppress(FINAL).filter(lambda row: row["total"] > 1)
    several = tg.outputs(large=large, final=table.suppress(FINAL), late=table.late_records())
    case.run(large, tg.sinks.Delta(case.folder / "alone"), "alone")
    names = ("large", "final", "late")
    case.run(several, {name: tg.sinks.Delta(case.folder / name) for name in names}, "to delta")
    case.run(several, {name: tg.sinks.Postgres(server.url, f"filtered_{name}") for name in names}, "to postgres")
    wanted = [row for row in expected()["final"] if row[2] > 1]
    assert 0 < len(wanted) < len(expected()["final"])
    alone = case.delta("alone")
    assert said(alone) == said(case.delta("large")) == said(rows_in(server, "filtered_large")) == wanted
    assert "deleted" not in alone[0]
    assert said(case.delta("final")) == said(rows_in(server, "filtered_final")) == expected()["final"]
    assert len(case.delta("late")) == len(rows_in(server, "filtered_late")) == len(expected()["late"])


def test_a_sink_whose_columns_do_not_fit_is_refused_before_the_query_starts(case: Case, server: Server) -> None:
    table = counts(case.frame())
    execute(
        server,
        "CREATE SCHEMA fit",
        "CREATE TABLE fit.missing (k text, window_start timestamptz, window_end timestamptz, n bigint)",
        "CREATE TABLE fit.narrow (k text, window_start timestamptz, window_end timestamptz, n int, total bigint)",
        "CREATE TABLE fit.more (k text, window_start timestamptz, window_end timestamptz, n bigint, total numeric,"
        " timestamp timestamptz, must int NOT NULL, may int, made int NOT NULL DEFAULT 1)",
        "CREATE TABLE fit.wide (k varchar, window_start timestamptz, window_end timestamptz, n numeric,"
        " total numeric(30), timestamp timestamptz, may int, made int NOT NULL DEFAULT 1)",
    )
    for name, message in (
        ("missing", "no column 'total'.*ADD COLUMN \"total\" bigint"),
        ("narrow", "the column 'n' as integer, which does not hold every value of the rows' bigint"),
        ("more", "a column 'must' that must not be null"),
        ("wide", "no unique index on the key of the rows, k, window_start.*CREATE UNIQUE INDEX"),
    ):
        with pytest.raises(tg.DefinitionError, match=message):
            tg.sinks.jdbc(table, server.url, f"fit.{name}")
    execute(server, "CREATE UNIQUE INDEX ON fit.wide (window_start, k)")
    for batch in batches():
        case.put(batch)
    case.run(table, tg.sinks.Postgres(server.url, "fit.wide"))
    assert said(rows_in(server, "fit.wide")) == expected()["raw"]

    path = case.folder / "fit"
    deltalake.write_deltalake(path, pa.table({"k": ["a"], "n": pa.array([1], pa.int32())}))
    with pytest.raises(tg.DefinitionError, match="no column 'window_start'"):
        tg.sinks.delta(table, path)
    path = case.folder / "type"
    deltalake.write_deltalake(path, pa.table({"k": pa.array([1], pa.int32())}))
    with pytest.raises(tg.DefinitionError, match=r"the column 'k' as .*integer.*string"):
        tg.sinks.delta(table, path)


def test_wrong_arguments_say_what_to_write(case: Case, server: Server) -> None:
    frame = case.frame()
    table, several = counts(frame), outputs(frame)
    delta = tg.sinks.Delta(case.folder / "x")
    for sinks, of, message in (
        (delta, several, "has the outputs raw, final, late, and one sink is given"),
        ({"raw": delta}, several, "The output 'final' has no sink"),
        (
            {"raw": delta, "final": delta, "late": delta, "more": delta},
            several,
            "a sink for 'more', which is no output",
        ),
        ({"raw": delta}, table, "has one output"),
        ("path", table, "'path' is no sink"),
        (delta, table.to_df(), "Use a table, a stream, or tg.outputs"),
        (tg.sinks.Delta(case.folder / "x", mode="merge"), table, '`mode` is \'merge\'. Use "append" or "upsert"'),
        (tg.sinks.Delta(case.folder / "x", mode="upsert"), events(frame), "have no key of their own"),
        (tg.sinks.Delta(case.folder / "x", partition_by=["day"]), table, "`partition_by` has 'day'"),
        (tg.sinks.Postgres("jdbc:mysql://host/x", "t"), table, "`url` is of 'mysql'"),
        (tg.sinks.Postgres(server.url, "a.b.c"), table, "`table` is 'a.b.c'"),
        (tg.sinks.Postgres(server.url, "x" * 64), table, "cuts names off behind 63"),
    ):
        with pytest.raises((tg.DefinitionError, tg.DefinitionTypeError), match=message):
            tg.sinks.batches(of, sinks)
    assert "secret" not in repr(tg.sinks.Postgres("postgresql://me:secret@host/x", "t"))
    static = tg.stream(case.spark.createDataFrame(SCHEMA.empty_table()), key="k", timestamp="ts")
    with pytest.raises(tg.DefinitionError, match="of static DataFrames"):
        tg.sinks.delta(static, case.folder / "static")
    assert not (case.folder / "static").exists()
