"""`tg.delta.source`: the rows of a table in the order of its log; tables that do not suit a stream are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import tidegate as tg
from spark.replay import collect
from spark.test_files import drained
from spark.test_files_in_order import final, flat
from tidegate.errors import DefinitionError, InputError
from tidegate.runtime.spark.delta.log import Log
from tidegate.runtime.spark.delta.table import Columns, Table
from tidegate.runtime.spark.files.columnar import Columns as FileColumns
from tidegate.runtime.spark.files.listed import Listed
from tidegate.runtime.spark.files.place import ROW_BITS
from tidegate.runtime.spark.files.stores import Root

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")

TIME: dict[str, Any] = {"key": "user", "timestamp": "ts"}
TYPES = {"user": "string", "ts": "timestamp", "n": "integer"}
ARROW = {"string": pa.string(), "timestamp": pa.timestamp("us", "UTC"), "integer": pa.int32(), "date": pa.date32()}


def field(name: str, kind: str, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


class Writer:
    """A table, written by hand as the protocol says."""

    def __init__(
        self,
        path: Path,
        fields: Sequence[Mapping[str, Any]] | None = None,
        *,
        partitions: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        protocol: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.version = path, -1
        (path / "_delta_log").mkdir(parents=True)
        self.fields = list(fields or [field(*each) for each in TYPES.items()])
        self.partitions, self.configuration = list(partitions), dict(configuration or {})
        self.protocol = protocol or {"minReaderVersion": 1, "minWriterVersion": 2}
        self.commit({"protocol": self.protocol}, self.metadata())

    def metadata(self, id: str = "the-table") -> dict[str, Any]:
        schema = json.dumps({"type": "struct", "fields": self.fields})
        return {
            "metaData": {
                "id": id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                "partitionColumns": self.partitions, "configuration": self.configuration, "createdTime": 0,
            }
        }  # fmt: skip

    def commit(self, *actions: Mapping[str, Any], operation: str = "WRITE") -> int:
        self.version += 1
        lines = [{"commitInfo": {"operation": operation}}, *actions]
        path = self.path / "_delta_log" / f"{self.version:020}.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self.version

    def add(self, name: str, rows: Sequence[Mapping[str, Any]], at: int = 0, **more: Any) -> dict[str, Any]:
        """A file with these rows, as its add action; nothing is committed."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds = {f["metadata"].get("delta.columnMapping.physicalName", f["name"]): f["type"] for f in self.fields}
        there = [each for each in kinds if rows and each in rows[0]]
        schema = pa.schema([(each, ARROW[kinds[each]]) for each in there])
        pq.write_table(pa.Table.from_pylist([{each: row[each] for each in there} for row in rows], schema), path)
        values: Mapping[str, str] = more.pop("partitionValues", {})
        return {
            "add": {
                "path": quote(name), "partitionValues": values, "size": path.stat().st_size, "modificationTime": at,
                "dataChange": True, **more,
            }
        }  # fmt: skip

    def append(self, *batches: Sequence[Mapping[str, Any]]) -> int:
        """A version with a file for each batch."""
        return self.commit(*(self.add(f"{self.version + 1}-{at}.parquet", rows) for at, rows in enumerate(batches)))

    def remove(self, name: str) -> dict[str, Any]:
        return {"remove": {"path": quote(name), "dataChange": True, "deletionTimestamp": 0}}

    def catalog(self, **more: Any) -> Table:
        log = Log(Root(f"file:{self.path}"))
        now = log.snapshot()
        return Table(log, now.metadata["id"], Columns.of(now.metadata, log), more.pop("planned", now.version), **more)


def record(minute: int, n: int = 0, user: str = "A", **more: Any) -> dict[str, Any]:
    return {"user": user, "ts": datetime(2026, 1, 1, 0, minute, tzinfo=UTC), "n": n, **more}


def source(spark: SparkSession, writer: Writer, **options: str) -> tg.KStream:
    return tg.delta.source(spark, str(writer.path), **TIME, options=options)


def batches(table: Table, start: dict[str, Any], limit: int | None) -> tuple[list[list[str]], dict[str, Any]]:
    """All batches from `start` on, as paths of files."""
    found = []
    while (end := json.loads(json.dumps(table.latest(start, limit)))) != start:
        found.append([each.path for each in table.between(start, end)])
        start = end
    return found, start


def test_eight_versions_written_at_once_one_file_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A restart in the middle takes the versions committed since."""
    writer = Writer(tmp_path / "a table")
    for n in range(4):
        writer.append([record(n, n)])
    one: dict[str, Any] = {"maxFilesPerTrigger": "1", "startingVersion": "0"}
    first = drained(final(source(spark, writer, **one)), tmp_path / "checkpoint")
    writer.append([record(4, 4)], [record(5, 5)])
    writer.append([record(6, 6), record(7, 7)])
    then = drained(final(source(spark, writer, **one)), tmp_path / "checkpoint")
    assert (len(first), len(then)) == (4, 3)
    assert flat(first + then) == [(0, 2, 1), (2, 2, 3), (4, 2, 5)]
    assert flat(drained(final(source(spark, writer, startingVersion="1")), tmp_path / "all")) == flat(first + then)
    assert drained(final(source(spark, writer, **one)), tmp_path / "checkpoint") == []


def test_a_long_query_keeps_neither_the_snapshot_nor_the_commits_behind_it(tmp_path: Path) -> None:
    """The process of the source would have the files of the table, and of a thousand commits, as long as it runs."""
    writer = Writer(tmp_path / "t")
    writer.append([record(0)], [record(1)])
    table = writer.catalog()
    first, at = batches(table, table.initial(), 1)
    assert len(first) == 2
    for n in range(20):
        writer.append([record(n)])
        found, at = batches(table, at, 10)
        assert found == [[f"{writer.version}-0.parquet"]]
    assert table._snapshot is None
    assert len(table._commits) <= 2


def test_the_table_as_it_is_comes_first_by_time(spark: SparkSession, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    late = writer.add("a.parquet", [record(5, 5)], at=20)
    writer.commit(late, writer.add("b.parquet", [record(0, 0), record(1, 1)], at=10))
    writer.commit(writer.add("gone.parquet", [record(9, 9)], at=5))
    writer.commit(writer.remove("gone.parquet"))
    stream = source(spark, writer)
    writer.append([record(3, 3), record(8, 8)])
    got = drained(final(stream), tmp_path / "checkpoint")
    assert flat(got) == [(0, 2, 1), (4, 1, 5)]
    frame = tg.delta.source(spark, str(writer.path), **TIME, streaming=False).frame
    found = [(row["n"], row["offset"] >> ROW_BITS, row["offset"] % 2**ROW_BITS) for row in collect(frame)]
    assert sorted(found) == [(0, 1, 0), (1, 1, 1), (3, 0, 0), (5, 2, 0), (8, 0, 1)]


def test_partitions_and_columns_that_came_later_and_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t", partitions=["day", "user"])
    writer.fields.append(field("day", "date"))
    writer.commit(writer.metadata())
    writer.commit(
        writer.add("day=x/a b%25.parquet", [record(0, 1)], partitionValues={"day": "2026-01-01", "user": "ü %"}),
        writer.add("day=x/c.parquet", [record(1, 2)], partitionValues={"day": "", "user": "ü %"}),
    )
    writer.fields.append(field("more", "integer"))
    writer.commit(writer.metadata())
    writer.commit(
        writer.add("d.parquet", [record(2, 3, more=7)], partitionValues={"day": "2026-01-02", "user": "b"}),
    )
    frame = tg.delta.source(spark, str(writer.path), **TIME, streaming=False).frame
    rows = [(row["n"], row["user"], str(row["day"]), row["more"]) for row in collect(frame.orderBy("n"))]
    assert rows == [(1, "ü %", "2026-01-01", None), (2, "ü %", "None", None), (3, "b", "2026-01-02", 7)]
    table = source(spark, writer, startingVersion="0").group_by_key()
    counted = table.windowed_by(tg.TimeWindows.of_size_with_no_grace("1 hour")).agg(n=tg.sum("n"), more=tg.max("more"))
    [out] = drained(counted.to_df(), tmp_path / "checkpoint")
    assert sorted((row["user"], row["n"], row["more"]) for row in out) == [("b", 3, 7), ("ü %", 3, None)]


def test_columns_by_number(spark: SparkSession, tmp_path: Path) -> None:
    """Names in the files do not matter; a file without a column number has nulls."""
    numbers = {"user": 3, "ts": 1, "n": 7}
    fields = [
        field(name, kind, **{"delta.columnMapping.physicalName": f"c{at}", "delta.columnMapping.id": numbers[name]})
        for at, (name, kind) in enumerate(TYPES.items())
    ]
    configuration = {"delta.columnMapping.mode": "id"}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    writer = Writer(tmp_path / "t", fields, configuration=configuration, protocol=protocol)
    for name, there in (("a.parquet", ("n", "user", "ts")), ("b.parquet", ("ts", "user"))):
        adds = writer.add(name, [])
        kinds = [
            pa.field(f"x{at}", ARROW[TYPES[each]], metadata={"PARQUET:field_id": str(numbers[each])})
            for at, each in enumerate(there)
        ]
        columns = [pa.array([record(0, 5)[each]], kind.type) for each, kind in zip(there, kinds, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(kinds)), writer.path / name)
        writer.commit(adds)
    stream = tg.delta.source(spark, str(writer.path), **TIME, streaming=False)
    assert [(row["user"], row["n"]) for row in collect(stream.frame.orderBy("offset"))] == [("A", 5), ("A", None)]


def test_columns_with_other_names_in_the_files(spark: SparkSession, tmp_path: Path) -> None:
    """A table whose column was renamed: files keep the old name."""
    physical = {"who": "user", "ts": "col-1", "n": "col-2", "day": "col-3"}
    kinds = {"who": "string", "ts": "timestamp", "n": "integer", "day": "date"}
    fields = [field(n, k, **{"delta.columnMapping.physicalName": physical[n]}) for n, k in kinds.items()]
    writer = Writer(
        tmp_path / "t", fields, partitions=["day"], configuration={"delta.columnMapping.mode": "name"},
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
    )  # fmt: skip
    given = record(0, 5)
    row = {"user": "A", "col-1": given["ts"], "col-2": 5}
    writer.commit(writer.add("a.parquet", [row], partitionValues={"col-3": "2026-01-01"}))
    stream = tg.delta.source(spark, str(writer.path), key="who", timestamp="ts", streaming=False)
    [found] = collect(stream.frame)
    assert (found["who"], found["n"], str(found["day"])) == ("A", 5, "2026-01-01")
    counts = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 hour")).agg(n=tg.sum("n"))
    assert [(row["who"], row["n"]) for row in collect(counts.to_df())] == [("A", 5)]


def test_a_deletion_stops_the_query_until_an_option_passes_over_it(spark: SparkSession, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0, 0)])
    first = drained(final(source(spark, writer)), tmp_path / "checkpoint")
    writer.commit(writer.remove("1-0.parquet"), writer.add("u.parquet", [record(0, 9)]), operation="UPDATE")
    writer.append([record(5, 5)])
    message = r"(?s)Version 2 of file:\S*/t \(UPDATE\) removes 1 files and adds 1: rows were deleted or changed"
    with pytest.raises(StreamingQueryException, match=message):
        drained(final(source(spark, writer)), tmp_path / "checkpoint")
    then = drained(final(source(spark, writer, skipChangeCommits="true")), tmp_path / "checkpoint")
    assert flat(first + then) == [(0, 1, 0)]


def test_many_versions_without_new_files_make_an_empty_batch(spark: SparkSession, tmp_path: Path) -> None:
    writer, skips = Writer(tmp_path / "t"), {"skipChangeCommits": "true"}
    writer.append([record(0, 1)])
    first = drained(final(source(spark, writer, **skips)), tmp_path / "checkpoint")
    for n in range(120):
        writer.commit(writer.remove(f"{n}.parquet"), {"add": {"path": f"{n + 1}.parquet", "dataChange": True}})
    first += drained(final(source(spark, writer, **skips)), tmp_path / "checkpoint")
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) == 2
    writer.append([record(5, 2)])
    assert flat(first + drained(final(source(spark, writer, **skips)), tmp_path / "checkpoint")) == [(0, 1, 1)]


def test_what_deltalake_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Its file names, statistics and checkpoints; partitions with odd values; a log whose old commits are gone."""
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "t")
    kinds = [("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int32())]
    for n in range(6):
        rows = [record(n, n, user) for user in ("a b", "50%", "c/d=é")]
        deltalake.write_deltalake(
            path, pa.Table.from_pylist(rows, pa.schema(kinds)), mode="append", partition_by=["user"]
        )
    stream = tg.delta.source(spark, path, **TIME, options={"maxFilesPerTrigger": "4"})
    table = deltalake.DeltaTable(path)
    table.create_checkpoint()
    for version in range(5):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    frame = tg.delta.source(spark, path, **TIME, streaming=False).frame
    assert sorted((row["user"], row["n"]) for row in collect(frame)) == sorted(
        (user, n) for user in ("a b", "50%", "c/d=é") for n in range(6)
    )
    got = drained(final(stream), tmp_path / "checkpoint")
    counts = sorted((row["user"], row["n"]) for batch in got for row in batch)
    assert counts == sorted((user, 2) for user in ("a b", "50%", "c/d=é") for _ in range(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readChangeFeed": "true"}, "'readChangeFeed', which tg.delta.source does not have"),
        ({"startingVersion": "first"}, "`startingVersion` is 'first'"),
        ({"startingVersion": "7"}, "`startingVersion` is 7, and file:"),
        ({"maxFilesPerTrigger": "none"}, "`maxFilesPerTrigger` is 'none'"),
    ],
)
def test_options_that_are_not_there(spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str) -> None:
    writer = Writer(tmp_path / "t")
    with pytest.raises(DefinitionError, match=re.escape(message)):
        source(spark, writer, **options)


def test_tables_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    new = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged", "timestampNtz"]}
    numbered = Writer(tmp_path / "id", configuration={"delta.columnMapping.mode": "id"})
    inner = {"type": "struct", "fields": [field("a", "string")]}
    mapped = [field("s", "string", **{"delta.columnMapping.physicalName": "c"}), {**field("x", ""), "type": inner}]
    nested = Writer(tmp_path / "nested", mapped, configuration={"delta.columnMapping.mode": "name"})
    refused = {
        tmp_path / "none": "is no Delta table: it has no folder _delta_log",
        tmp_path / "empty": "is no Delta table: its log _delta_log has no version",
        Writer(tmp_path / "new", protocol=new).path: "has reader version 3 with catalogManaged, which tidegate",
        numbered.path: "its files have columns by number, and 'user' has none in its log",
        nested.path: "and x with fields of their own, which tidegate does not map",
    }
    for path, message in refused.items():
        with pytest.raises(DefinitionError, match=re.escape(message)):
            tg.delta.source(spark, str(path), **TIME)


# --- without Spark ----------------------------------------------------------------------------------------------------


def test_batches_are_bounded_and_end_anywhere(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)], [record(1)], [record(2)])
    writer.commit({"txn": {"appId": "x", "version": 1}})
    writer.append([record(3)])
    files = ["1-0.parquet", "1-1.parquet", "1-2.parquet", "3-0.parquet"]
    for limit in (1, 2, 3, None):
        for table in (writer.catalog(), writer.catalog(starting=0)):
            found, end = batches(table, table.initial(), limit)
            assert [path for batch in found for path in batch] == files
            assert all(len(batch) <= (limit or 9) for batch in found)
            assert batches(writer.catalog(), end, limit)[0] == []  # another process
    only = writer.catalog(starting=2)
    assert batches(only, only.initial(), None)[0] == [["3-0.parquet"]]


def test_files_are_numbered_through(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)], [record(1)])
    table = writer.catalog()
    middle = table.latest(table.initial(), 1)
    writer.append([record(2)])
    again = writer.catalog()
    end = again.latest(middle, None)
    assert [each.number for each in again.between(middle, end)] == [1, 2]
    assert [each.number for each in again.between(table.initial(), end)] == [0, 1, 2]
    with pytest.raises(InputError, match="where the checkpoint has 2"):
        again.between({**middle, "index": 0}, end)


@pytest.mark.parametrize("latest", [False, True], ids=["the table as it was", "from the latest version on"])
@pytest.mark.parametrize("limit", [1, 2, None])
def test_a_first_batch_that_died_has_its_files_again_though_the_table_has_come_further(
    tmp_path: Path, limit: int | None, latest: bool
) -> None:
    """Spark asks for the beginning once more when it runs batch 0 again after a restart."""

    def planned() -> Table:
        """The catalog of a query that is started now."""
        return writer.catalog(starting=writer.version + 1 if latest else None)

    writer = Writer(tmp_path / "t")
    writer.append([record(0)], [record(1)])
    table = planned()
    writer.append([record(2)])
    all_files = ["2-0.parquet"] if latest else ["1-0.parquet", "1-1.parquet", "2-0.parquet"]
    end = table.latest(table.initial(), limit)
    assert [each.path for each in table.between(table.initial(), end)] == all_files[:limit]
    writer.append([record(3)])
    again = planned()
    files = [each.path for each in again.between(again.initial(), end)]
    assert files == all_files[:limit]
    later, _ = batches(again, end, None)
    assert files + [path for batch in later for path in batch] == [*all_files, "3-0.parquet"]


def test_a_first_batch_that_an_earlier_version_planned_has_its_files_again(tmp_path: Path) -> None:
    """Such offsets do not say where the query began; this batch ends in the table as it was then."""
    writer = Writer(tmp_path / "t")
    writer.append([record(0)], [record(1)])
    table = writer.catalog()
    end = {name: of for name, of in table.latest(table.initial(), None).items() if name != "began"}
    writer.append([record(2)])
    again = writer.catalog()
    assert [each.path for each in again.between(again.initial(), end)] == ["1-0.parquet", "1-1.parquet"]
    assert batches(again, end, None)[0] == [["2-0.parquet"]]


def test_a_stream_from_the_latest_version_on_stays_there_over_a_restart_before_its_first_row(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    table = writer.catalog(starting=writer.version + 1)
    found, end = batches(table, table.initial(), None)
    assert found == [[]]
    writer.append([record(0)])
    assert batches(writer.catalog(starting=writer.version + 1), end, None)[0] == [["1-0.parquet"]]


def test_until_the_version_that_is_there_now(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)])
    table = writer.catalog(starting=0)
    table.stop_here()
    writer.append([record(1)])
    assert batches(table, table.initial(), None)[0] == [["1-0.parquet"]]


def test_compaction_gives_no_row_twice(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)], [record(1)])
    table = writer.catalog()
    _, end = batches(table, table.initial(), None)
    merged = writer.add("all.parquet", [record(0), record(1)], dataChange=False)
    gone = [{"remove": {**writer.remove(f"1-{n}.parquet")["remove"], "dataChange": False}} for n in range(2)]
    writer.commit(*gone, merged, operation="OPTIMIZE")
    assert batches(writer.catalog(), end, None)[0] == []
    fresh = writer.catalog()
    assert batches(fresh, fresh.initial(), None)[0] == [["all.parquet"]]
    writer.append([record(2)])
    assert batches(writer.catalog(), end, None)[0] == [["3-0.parquet"]]


def test_deletions(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)], [record(1)])
    table = writer.catalog()
    _, end = batches(table, table.initial(), None)
    writer.commit(writer.remove("1-0.parquet"), operation="DELETE")
    with pytest.raises(InputError, match=r"\(DELETE\) removes 1 files and adds 0"):
        batches(writer.catalog(), end, None)
    writer.append([record(2)])
    for option in ("ignore_deletes", "skip_changes"):
        assert batches(writer.catalog(**{option: True}), end, None)[0] == [["3-0.parquet"]]
    writer.commit(writer.remove("1-1.parquet"), writer.add("new.parquet", [record(1)]), operation="MERGE")
    with pytest.raises(InputError, match=r"\(MERGE\) removes 1 files and adds 1"):
        batches(writer.catalog(ignore_deletes=True), end, None)
    assert batches(writer.catalog(skip_changes=True), end, None)[0] == [["3-0.parquet"]]


def test_versions_without_new_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: the offset moves behind them, and a restart begins there."""
    writer, read = Writer(tmp_path), list[int]()
    writer.append([record(0)])
    catalog, commit = writer.catalog(skip_changes=True), Log.commit
    monkeypatch.setattr(Log, "commit", lambda log, version: read.append(version) or commit(log, version))
    _, at = batches(catalog, catalog.initial(), None)
    for n in range(1_500):
        writer.commit(writer.remove(f"{n}.parquet"), {"add": {"path": f"{n + 1}.parquet", "dataChange": True}})
    found, at = batches(catalog, at, None)
    assert (found, at["taken"], at["version"] > 1_400) == ([[]], 1, True)
    tables = catalog, writer.catalog(skip_changes=True)
    (writer.path / "_delta_log" / f"{1:020}.json").unlink()
    for table in tables:
        read.clear()
        assert table.latest(at, None) == at
        assert len(read) < 110
    writer.append([record(1)])
    found, at = batches(catalog, at, 1)
    assert (len(found), at["taken"]) == (1, 2)


def test_columns_that_change_while_the_query_runs(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    table = writer.catalog()
    start = table.initial()
    writer.fields.append(field("more", "string"))
    writer.commit(writer.metadata())
    writer.append([record(0)])
    assert batches(table, start, None)[0] == [["2-0.parquet"]]
    writer.fields[2] = field("n", "long")
    writer.commit(writer.metadata(), operation="CHANGE COLUMN")
    with pytest.raises(InputError, match=r"Version 3 .*\(CHANGE COLUMN\) changes columns: 'n' is bigint, and was int"):
        batches(table, start, None)
    newer = writer.catalog()  # a plan that has the new ones
    assert batches(newer, start, None)[0] == [["2-0.parquet"]]
    del writer.fields[0]
    writer.commit(writer.metadata())
    with pytest.raises(InputError, match="'user' is not there any more"):
        batches(newer, start, None)


def test_a_table_that_is_partitioned_anew_is_refused_and_no_column_is_null(tmp_path: Path) -> None:
    """The value of a partition is in the log, any other one in the file. In the wrong place there are nulls."""
    by_day = {"partitionValues": {"day": "a"}}
    writer = Writer(
        tmp_path / "t", [*[field(*each) for each in TYPES.items()], field("day", "string")], partitions=["day"]
    )
    writer.commit(writer.add("day=a/1.parquet", [record(0)], **by_day))
    options: dict[str, Any] = {"starting": 0, "skip_changes": True}
    table = writer.catalog(**options)
    paths, end = batches(table, table.initial(), None)
    assert paths == [["day=a/1.parquet"]]
    writer.partitions = []
    writer.commit(writer.remove("day=a/1.parquet"), writer.metadata(), operation="REPLACE TABLE")
    writer.commit(writer.add("2.parquet", [record(1, day="b")]))
    moved = r"\(REPLACE TABLE\) changes columns: 'day' is a column of the files, and was a column of the partitions"
    with pytest.raises(InputError, match=moved):
        table.latest(end, None)
    # A plan that has the new partitioning goes on behind that version, and reads no file in front of it.
    newer = writer.catalog(**options)
    assert batches(newer, end, None)[0] == [["2.parquet"]]
    older = r"The file day=a/1.parquet of .* is partitioned by 'day', and the table now by no column"
    with pytest.raises(InputError, match=older):
        batches(newer, newer.initial(), None)
    writer.partitions = ["day"]
    writer.commit(writer.remove("2.parquet"), writer.metadata(), operation="REPLACE TABLE")
    again = writer.catalog(**options)
    with pytest.raises(InputError, match=r"The file 2.parquet of .* by no column, and the table now by 'day'"):
        batches(again, end, None)


def test_another_table_in_its_place(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    start = writer.catalog().initial()
    table = writer.catalog()
    writer.commit(writer.metadata("another"))
    with pytest.raises(InputError, match=r"makes it another table"):
        table.latest(start, None)
    with pytest.raises(InputError, match=r"The checkpoint is of the table the-table, and the one at .* is another"):
        writer.catalog().latest(start, None)


@pytest.mark.parametrize("versions", [1, 3, 4, 6])
@pytest.mark.parametrize("live", [0, 1], ids=["behind the table as it was", "behind a new version"])
def test_a_table_that_is_made_anew_while_the_query_runs(tmp_path: Path, live: int, versions: int) -> None:
    """However many versions it has by then: the query waited for the number behind those that it had read."""
    writer = Writer(tmp_path / "t")
    for n in range(3):
        writer.append([record(n)])
    table = writer.catalog()
    _, end = batches(table, table.initial(), None)
    for n in range(live):
        writer.append([record(3 + n)])
        _, end = batches(table, end, None)
    shutil.rmtree(tmp_path / "t")
    anew = Writer(tmp_path / "t")
    for n in range(versions):
        anew.commit(anew.add(f"anew-{n}.parquet", [record(10 + n)]))
    with pytest.raises(
        InputError, match=r"Version [34] of \S*, which the query has read, is (gone|another one now): the"
    ):
        table.latest(end, None)


def test_a_commit_that_is_written_again_is_the_same(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)])
    table = writer.catalog()
    _, end = batches(table, table.initial(), None)
    os.utime(tmp_path / "t" / "_delta_log" / f"{1:020}.json", (1, 1))
    assert table.latest(end, None) == end
    writer.append([record(1)])
    assert batches(table, end, None)[0] == [["2-0.parquet"]]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_an_earlier_state_of_the_table_in_its_place(tmp_path: Path, lost: int) -> None:
    """As from a backup: the next versions had the numbers of those that were read, and were passed over."""
    writer = Writer(tmp_path / "t")
    for n in range(4):
        writer.append([record(n)])
    table = writer.catalog()
    _, end = batches(table, table.initial(), 1)
    for n in range(2):
        writer.append([record(4 + n)])
    _, end = batches(table, end, None)
    assert end["version"] == 6
    for version in range(7 - lost, 7):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(
        InputError, match=rf"up to version 6, and the table ends with version {6 - lost}: an earlier st"
    ):
        writer.catalog().latest(end, None)


def test_a_file_that_another_writer_removes_is_gone_though_it_encodes_the_path_in_another_way(tmp_path: Path) -> None:
    """Some writers encode "=" and "*" in a path, others do not."""
    writer = Writer(
        tmp_path / "t", [*[field(*each) for each in TYPES.items()], field("day", "string")], partitions=["day"]
    )
    for name, path in (("day=*/a b.parquet", "day=*/a%20b.parquet"), ("c+d.parquet", "c+d.parquet")):
        added = writer.add(name, [record(0)], partitionValues={"day": "*"})
        writer.commit(added)
        writer.commit({"remove": {"path": path, "dataChange": True, "deletionTimestamp": 0}}, operation="DELETE")
        assert added["add"]["path"] != path
    writer.commit(writer.add("day=*/e.parquet", [record(1)], partitionValues={"day": "*"}))
    table = writer.catalog()
    assert batches(table, table.initial(), None)[0] == [["day=*/e.parquet"]]


def test_a_file_that_vacuum_has_removed_is_called_so(tmp_path: Path) -> None:
    """The error said to put a good one in its place, as of a damaged file."""
    columns = FileColumns(pa.schema([("n", pa.int32())]), sparse=True)
    with pytest.raises(
        InputError, match=r"1-0\.parquet of the table is not there any more\. VACUUM removes files that"
    ):
        list(columns.rows(lambda: pa.OSFile(str(tmp_path / "1-0.parquet")), "1-0.parquet"))


def test_clones_are_refused(tmp_path: Path) -> None:
    for at, (more, message) in enumerate(
        [
            ({"path": "file:/elsewhere/a.parquet"}, "it is a shallow clone"),
            ({"path": "/elsewhere/a.parquet"}, "it is a shallow clone"),
        ]
    ):
        writer = Writer(tmp_path / str(at))
        add = writer.add("a.parquet", [record(0)])
        writer.commit({"add": {**add["add"], **more}})
        table = writer.catalog()
        with pytest.raises(InputError, match=message):
            table.between(table.initial(), table.latest(table.initial(), None))


def test_versions_that_are_gone(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    for n in range(3):
        writer.append([record(n)])
    start = writer.catalog(starting=1).initial()
    table = writer.catalog()
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(InputError, match="has no version 1 any more"):
        table.latest(start, None)
    with pytest.raises(InputError, match="has no version 1 any more"):
        Log(Root(f"file:{writer.path}")).snapshot()


@pytest.mark.parametrize(
    ("hint", "gone"),
    [
        ('{"version": 6, "size": 9}', True),
        ('{"version": 3}\n', True),
        ('{"version": 2}', False),
        ("{", False),
        ("[]", False),
        ("{}", False),
        (None, False),
    ],
)
def test_a_stream_that_is_behind_does_not_wait_for_versions_that_are_gone(
    tmp_path: Path, hint: str | None, gone: bool
) -> None:
    """A query reads version after version, and the log of the table is cleaned up in front of it."""
    writer = Writer(tmp_path / "t")
    for n in range(6):
        writer.append([record(n)])
    table = writer.catalog(starting=0)
    end = table.latest(table.initial(), 2)
    assert end["version"] == 2
    log = tmp_path / "t" / "_delta_log"
    if hint is not None:
        (log / "_last_checkpoint").write_text(hint)
    assert table.latest(end, 1)["version"] == 3
    behind = writer.catalog(starting=0)
    assert behind.latest(behind.initial(), 2) == end
    for version in range(6):
        (log / f"{version:020}.json").unlink()
    if gone:
        with pytest.raises(InputError, match="has no version 3 any more"):
            behind.latest(end, None)
    else:
        assert behind.latest(end, None) == end


UUID = "0f5a3c5e-93cc-4b49-a5d8-3ff9f8c3b1d2"
PAIRS = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [("path", pa.string()), ("partitionValues", PAIRS), ("size", pa.int64()), ("modificationTime", pa.int64()),
     ("dataChange", pa.bool_()), ("stats", pa.string())]
)  # fmt: skip
META = pa.struct(
    [("id", pa.string()), ("format", pa.struct([("provider", pa.string()), ("options", PAIRS)])),
     ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())), ("configuration", PAIRS)]
)  # fmt: skip
PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
PATH = pa.struct([("path", pa.string())])
ACTIONS = pa.schema([("add", ADD), ("metaData", META), ("protocol", PROTOCOL), ("remove", PATH), ("sidecar", PATH)])


def write_checkpoint(writer: Writer, kind: str) -> None:
    """A checkpoint of the newest version, by hand."""
    found, log = Log(Root(f"file:{writer.path}")).snapshot(), writer.path / "_delta_log"
    name = f"{found.version:020}.checkpoint"
    adds: list[dict[str, Any]] = [{"add": {**each, "partitionValues": [("k", "v")]}} for each in found.in_order]
    # The removed file is still there: such an action only says when its bytes may go.
    head: list[dict[str, Any]] = [{"protocol": found.protocol}, {"remove": {"path": adds[0]["add"]["path"]}}]
    if kind in ("whole", "parts"):
        rows = [*head, *adds]
    else:
        (log / "_sidecars").mkdir()
        rows = head
        for beside, some in (("a b.parquet", adds[:1]), ("b.parquet", adds[1:])):
            pq.write_table(pa.Table.from_pylist(some, pa.schema([("add", ADD)])), log / "_sidecars" / beside)
            rows.append({"sidecar": {"path": f"file:/elsewhere/{quote(beside)}", "sizeInBytes": 1}})
    if kind == "json":
        lines = [{"checkpointMetadata": {"version": found.version}}, {"metaData": found.metadata}, *rows]
        (log / f"{name}.{UUID}.json").write_text("".join(json.dumps(each) + "\n" for each in lines))
        return
    # Maps are lists of pairs in Parquet.
    pairs, form = list(found.metadata["configuration"].items()), {"provider": "parquet", "options": []}
    rows.append({"metaData": {**found.metadata, "configuration": pairs, "format": form}})
    files = {
        "parts": [f"{name}.{part:010}.{2:010}.parquet" for part in (1, 2)],
        "uuid": [f"{name}.{UUID}.parquet"],
    }.get(kind, [f"{name}.parquet"])
    for part, file in enumerate(files):
        pq.write_table(pa.Table.from_pylist(rows[part :: len(files)], ACTIONS), log / file)


@pytest.mark.parametrize("kind", ["whole", "parts", "first name", "uuid", "json"])
def test_a_checkpoint_of_the_table(tmp_path: Path, kind: str) -> None:
    """A checkpoint of the second kind has the table's files in files beside it; its name may be of the first kind."""
    writer = Writer(tmp_path / "t", configuration={"delta.appendOnly": "true"})
    for n in range(3):
        writer.append([record(n)])
    write_checkpoint(writer, kind)
    for version in range(4):
        (writer.path / "_delta_log" / f"{version:020}.json").unlink()
    writer.append([record(4)])
    again = Log(Root(f"file:{writer.path}")).snapshot()
    assert (again.version, again.metadata["configuration"]) == (4, {"delta.appendOnly": "true"})
    assert [each["path"] for each in again.in_order] == ["1-0.parquet", "2-0.parquet", "3-0.parquet", "4-0.parquet"]
    assert again.files["1-0.parquet", "@None"]["partitionValues"] == {"k": "v"}
    table_ = writer.catalog()
    files: Sequence[Listed] = table_.between(table_.initial(), table_.latest(table_.initial(), None))
    assert len(files) == 4


def test_a_checkpoint_whose_files_are_gone(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)])
    write_checkpoint(writer, "uuid")
    (writer.path / "_delta_log" / "_sidecars" / "b.parquet").unlink()
    with pytest.raises(InputError, match=r"needs the file _sidecars/b\.parquet in _delta_log, which is not there"):
        Log(Root(f"file:{writer.path}")).snapshot()


@pytest.mark.parametrize(
    ("kind", "most", "message"),
    [
        (
            "whole",
            0,
            r"The file \S*/_delta_log/\S*1\.checkpoint\.parquet of a checkpoint of the table cannot be read: ",
        ),
        ("uuid", 50, r"The file \S*\.parquet of a checkpoint of the table cannot be read: "),
        ("json", 0, r"does not have the columns of version 1: a file of it is empty or ends in the middle"),
    ],
)
def test_a_checkpoint_that_a_full_disk_has_cut_off_is_named(tmp_path: Path, kind: str, most: int, message: str) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)])
    write_checkpoint(writer, kind)
    (file,) = (writer.path / "_delta_log").glob("*.checkpoint.*")
    file.write_bytes(file.read_bytes()[:most])
    with pytest.raises(InputError, match=message):
        Log(Root(f"file:{writer.path}")).snapshot()


def test_too_little_memory_is_no_fault_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path / "t")
    writer.append([record(0)])
    write_checkpoint(writer, "whole")

    def full(*_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 400 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", full)
    said = (
        r"too little memory to read the file \S*/_delta_log/\S*1\.checkpoint\.parquet: malloc of size 400 failed\. Give"
    )
    with pytest.raises(InputError, match=said):
        Log(Root(f"file:{writer.path}")).snapshot()


def test_a_column_by_number_that_came_later_is_null_where_the_file_has_no_other(tmp_path: Path) -> None:
    """The file has none of the columns that are read; its rows count."""
    path = tmp_path / "old.parquet"
    old = pa.schema([pa.field("col-a", pa.int32(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table([[1, 2, 3]], schema=old), path)
    columns = FileColumns(
        pa.schema([("n", pa.int32())]), names={"n": "col-b"}, sparse=True, ids={"col-a": 1, "col-b": 9}
    )
    (rows,) = columns.rows(lambda: pa.OSFile(str(path)), path.name)
    assert rows.to_pydict() == {"n": [None] * 3}
