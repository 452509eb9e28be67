"""Batches into a Delta table without Spark: inline and staged rows, in a folder and in a store, each batch once."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidegate.errors import DefinitionError, TidegateError
from tidegate.runtime.spark.sinks import Delta
from tidegate.runtime.spark.sinks.delta_files import Files
from tidegate.runtime.spark.sinks.delta_table import DeltaTarget
from tidegate.runtime.spark.sinks.exactly_once import Batch, Written
from tidegate.runtime.spark.sinks.outputs import Rows
from tidegate.runtime.spark.sinks.staging import Staged

FIELDS = (StructField("k.x", StringType()), StructField("v", LongType()))
SCHEMA = pa.schema({"k.x": pa.string(), "v": pa.int64()})
GONE = SCHEMA.append(pa.field("tidegate:deleted", pa.bool_()))


def made(path: Any, mode: str) -> DeltaTarget:
    target = Delta(path).target(Rows(None, FIELDS, ("k.x",), once=False, mode=mode))
    assert isinstance(target, DeltaTarget)
    return target


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = zip(zip(*values, strict=True), schema.types, strict=True)
    return pa.table([pa.array(column, kind) for column, kind in columns], schema=schema)


def staged(target: DeltaTarget, inline: pa.Table, aside: pa.Table | None = None, token: str = "token") -> Staged:
    found = Staged(inline.schema, [inline], count=inline.num_rows)
    if aside is not None:
        file = Files(target._path, f"{target._folder('q')}/{token}", (), inline.schema).open()
        file.write(aside)
        found.aside.append(file.finish())
    return found


def there(path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


@pytest.mark.parametrize("scheme", ["", "file://", "file:"], ids=["folder", "store", "as Hadoop writes it"])
def test_an_append_has_the_rows_at_hand_and_aside_once(tmp_path: Path, scheme: str) -> None:
    target = made(f"{scheme}{tmp_path}/t", "append")
    target.begin("q")
    assert target.written("q") is None
    batch = Batch("q", 0, 5)
    for _ in range(2):
        target.commit(batch, staged(target, rows(("a", 1)), rows(("b", 2), ("c", 3))))
    assert target.written("q") == Written(0, 5)
    assert target.written("another") is None
    assert there(tmp_path / "t") == [("a", 1), ("b", 2), ("c", 3)]
    assert list((tmp_path / "t" / "_tidegate").rglob("*.parquet")) == []


def test_a_relative_path_is_one_of_the_folder_in_which_the_sink_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have another current folder: the first batch with many rows ended the query, at each start."""
    monkeypatch.chdir(tmp_path)
    target = made("t", "append")
    (tmp_path / "another").mkdir()
    monkeypatch.chdir("another")
    target.begin("q")
    target.commit(Batch("q", 0, 5), staged(target, rows(("a", 1)), rows(("b", 2))))
    assert there(tmp_path / "t") == [("a", 1), ("b", 2)]
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("scheme", ["", "file://"], ids=["folder", "store"])
def test_rows_that_tasks_of_a_failed_first_batch_put_aside_are_gone_with_the_next_start(
    tmp_path: Path, scheme: str, mode: str
) -> None:
    """The first batch may be the largest: each start that failed left its files, and a full disk became no emptier."""
    target = made(f"{scheme}{tmp_path}/t", mode)
    for _ in range(2):
        target.begin("q")
        assert list(tmp_path.rglob("_tidegate/**/*.parquet")) == []
        staged(target, rows(("a", 1)), rows(("b", 2)))


@pytest.mark.parametrize("scheme", ["", "file://"], ids=["folder", "store"])
def test_a_driver_that_comes_late_leaves_the_rows_of_later_batches(tmp_path: Path, scheme: str) -> None:
    """Two drivers run for a while if one is taken for dead: the other one ended in a bare error."""
    late, target = made(f"{scheme}{tmp_path}/t", "append"), made(f"{scheme}{tmp_path}/t", "append")
    target.begin("q")
    first = [staged(one, rows(("a", 1)), rows(("b", 2)), token) for one, token in ((target, "1"), (late, "2"))]
    target.commit(Batch("q", 0, 5), first[0])
    second = staged(target, rows(("c", 3)), rows(("d", 4)), "3")
    late.commit(Batch("q", 0, 5), first[1])
    target.commit(Batch("q", 1, 5), second)
    assert there(tmp_path / "t") == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert list((tmp_path / "t" / "_tidegate").rglob("*.parquet")) == []


@pytest.mark.parametrize("scheme", ["", "file://", "file:"], ids=["folder", "store", "as Hadoop writes it"])
def test_an_upsert_replaces_and_deletes(tmp_path: Path, scheme: str) -> None:
    target = made(f"{scheme}{tmp_path}/t", "upsert")
    target.commit(Batch("q", 0, 5), staged(target, rows(("a", 1, False), ("b", 1, False), ("c", 1, True), schema=GONE)))
    more = rows(("d", 4, False), ("e", 4, True), schema=GONE)
    target.commit(Batch("q", 1, 5), staged(target, rows(("a", 2, False), ("b", 2, True), schema=GONE), more))
    target.commit(Batch("q", 1, 5), staged(target, rows(("a", 9, False), schema=GONE)))
    assert there(tmp_path / "t") == [("a", 2), ("d", 4)]


def test_the_credentials_of_a_store_are_not_shown() -> None:
    sink = Delta("s3://shop/visits", storage_options={"AWS_SECRET_ACCESS_KEY": "secret"})
    assert "secret" not in repr(sink)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (DecimalType(17, 2), ["123456789012345.67", "-999999999999999.99"]),
        (DecimalType(38, 0), ["12345678901234567890123", str(10**38 - 1)]),
        (DecimalType(15, 3), ["123456789012.345"]),
        (
            TimestampType(),
            [datetime(5826, 3, 4, 5, 6, 7, 249_400, UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)],
        ),
        (TimestampNTZType(), [datetime(5841, 3, 4, 5, 6, 7, 593_296, UTC).replace(tzinfo=None)]),
        (TimestampType(), [datetime(2026, 3, 4, 5, 6, 7, 249_401, UTC), datetime(1, 1, 1, 0, 0, 0, 1, UTC)]),
        (LongType(), [2**63 - 1, -(2**63), 2**53 + 1]),
        (DoubleType(), [0.1, 1e300, math.nan, -math.inf]),
        (BinaryType(), [b"", b"\xff" * 80]),
        (StringType(), ["a" * 100, "\U0010ffff" * 40, ""]),
    ],
    ids=lambda given: given.simpleString() if isinstance(given, DataType) else "",
)
def test_a_key_of_any_type_is_replaced_in_the_file_that_has_it_alone(
    tmp_path: Path, kind: DataType, keys: list[Any]
) -> None:
    """deltalake reads a file only if the file's statistics say that it can have a key of the batch."""
    fields = (StructField("k", kind), StructField("v", LongType()))
    given = [Decimal(key) for key in keys] if isinstance(kind, DecimalType) else keys
    for at, key in enumerate(given):
        target = Delta(tmp_path / str(at)).target(Rows(None, fields, ("k",), once=False, mode="upsert"))
        assert isinstance(target, DeltaTarget)
        for number in range(3):
            target.commit(
                Batch("q", number, 5), staged(target, rows((key, number, False), schema=target._staged_schema))
            )
        assert there(tmp_path / str(at))[0][1:] == (2,)
        assert len(there(tmp_path / str(at))) == 1


@pytest.mark.parametrize("kind", [DoubleType(), FloatType()], ids=["double", "float"])
@pytest.mark.parametrize("updated", [[math.nan], [0.5], [0.5, 7.0], [math.nan, 0.5], [-math.inf, math.inf]], ids=repr)
def test_a_key_that_is_nan_beside_others_in_a_file(tmp_path: Path, kind: DataType, updated: list[float]) -> None:
    """The statistics of a file leave out NaN: they say that 0.5 is its only key."""
    fields = (StructField("k", kind), StructField("v", LongType()))
    target = Delta(tmp_path).target(Rows(None, fields, ("k",), once=False, mode="upsert"))
    assert isinstance(target, DeltaTarget)
    for number, keys in enumerate([[math.nan, 0.5], updated]):
        given = rows(*((key, number, False) for key in keys), schema=target._staged_schema)
        target.commit(Batch("q", number, 5), staged(target, given))
    expected = {repr(key): 0 for key in (math.nan, 0.5)} | {repr(key): 1 for key in updated}
    found = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert sorted((repr(row["k"]), row["v"]) for row in found) == sorted(expected.items())


def test_columns_of_the_table_in_another_order_and_more_of_them(tmp_path: Path) -> None:
    columns = pa.schema({"more": pa.int32(), "v": pa.int64(), "k.x": pa.string()})
    write_deltalake(tmp_path, columns.empty_table())
    for number, mode in enumerate(("append", "upsert")):
        target = made(tmp_path, mode)
        given = rows(("a", number)) if mode == "append" else rows(("b", number, False), schema=GONE)
        target.commit(Batch(mode, 0, 5), staged(target, given))
    assert there(tmp_path) == [(None, 0, "a"), (None, 1, "b")]


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"k.x": pa.string()}, "has no column 'v'"),
        ({"k.x": pa.string(), "v": pa.string()}, "has the column 'v' as string, and the rows have it as long"),
    ],
    ids=["without a column", "with another type"],
)
def test_a_table_whose_columns_somebody_changes_while_the_query_runs_takes_no_batch(
    tmp_path: Path, mode: str, columns: dict[str, pa.DataType], message: str
) -> None:
    """The values of a column that the table had no more were left out without a word."""
    target = made(tmp_path, mode)
    one = rows(("a", 1)) if mode == "append" else rows(("a", 1, False), schema=GONE)
    target.commit(Batch("q", 0, 5), staged(target, one))
    write_deltalake(tmp_path, pa.schema(columns).empty_table(), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(DefinitionError, match=message):
        target.commit(Batch("q", 1, 5), staged(target, one))
    assert target.written("q") == Written(0, 5)
    assert there(tmp_path) == []


def test_a_commit_that_meets_another_one_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = made(tmp_path, "upsert")
    merge, tried = DeltaTarget._merge, []

    def meets(self: DeltaTarget, table: Any, data: Any, properties: Any) -> None:
        tried.append(table.version())
        if len(tried) == 1:
            other = made(tmp_path, "upsert")
            merge(other, other._table(), rows(("b", 1, False), schema=GONE), None)
        merge(self, table, data, properties)

    monkeypatch.setattr(DeltaTarget, "_merge", meets)
    given = staged(target, rows(("a", 1, False), schema=GONE), rows(("c", 1, False), schema=GONE))
    target.commit(Batch("q", 0, 5), given)
    assert len(tried) == 2
    assert there(tmp_path) == [("a", 1), ("b", 1), ("c", 1)]

    def always(*_: Any) -> None:
        raise CommitFailedError("concurrent")

    monkeypatch.setattr(DeltaTarget, "_merge", always)
    with pytest.raises(CommitFailedError, match="concurrent"):
        target.commit(Batch("q", 1, 5), staged(target, rows(("a", 1, False), schema=GONE)))


def test_an_older_driver_that_still_runs_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = made(tmp_path, "append")
    table, real = target._table(), DeltaTarget._table
    target.commit(Batch("q", 0, 5), staged(target, rows(("a", 1))))
    # The second writer read the table before the first committed the same batch.
    old = [table]
    monkeypatch.setattr(DeltaTarget, "_table", lambda self: old.pop() if old else real(self))
    target.commit(Batch("q", 0, 5), staged(target, rows(("a", 1))))
    assert there(tmp_path) == [("a", 1)]


@pytest.mark.parametrize(
    ("partition_by", "message"),
    [
        (["v", "v"], "names the column 'v' twice"),
        (["list"], "has 'list', which is array<bigint>: a table cannot be partitioned"),
        (["price"], r"has 'price', which is decimal\(10,2\): a table cannot be partitioned"),
        (["price", "v", "list"], "a table cannot be partitioned"),
        (["bytes"], "has 'bytes', which is binary: a table cannot be partitioned"),
        (["w"], "has 'w', but the rows have no such column"),
    ],
)
def test_columns_by_which_a_table_cannot_be_partitioned(tmp_path: Path, partition_by: list[str], message: str) -> None:
    """A negative decimal made a table that nobody could read, bytes were others; the rest failed in the first batch."""
    fields = (
        StructField("v", LongType()),
        StructField("list", ArrayType(LongType())),
        StructField("price", DecimalType(10, 2)),
        StructField("bytes", BinaryType()),
    )
    with pytest.raises(DefinitionError, match=message):
        Delta(tmp_path / "t", partition_by=partition_by).target(Rows(None, fields, (), once=True, mode="append"))
    assert not (tmp_path / "t").exists()


def test_a_table_in_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """As on a read-only disk: no column is at fault."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "t", tmp_path / "file"):
        with pytest.raises(TidegateError, match=r"(?s)is not there and cannot be made: .*Not a directory") as caught:
            Delta(path).target(Rows(None, FIELDS, (), once=True, mode="append"))
        assert "Cast" not in str(caught.value)


def test_a_table_that_deltalake_cannot_make(tmp_path: Path) -> None:
    """It does not notice times of a wall clock in maps, which need a feature of the table."""
    fields = (StructField("k", StringType()), StructField("m", MapType(StringType(), TimestampNTZType())))
    with pytest.raises(DefinitionError, match=r"cannot make the Delta table .* columns are k string, m map<string,tim"):
        Delta(tmp_path).target(Rows(None, fields, (), once=True, mode="append"))


def test_a_table_is_not_partitioned_by_all_of_its_columns(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"has all columns of the rows, v, k\.x, so that nothing is left"):
        Delta(tmp_path, partition_by=["v", "k.x"]).target(Rows(None, FIELDS, (), once=True, mode="append"))


def test_an_upsert_into_an_append_only_table_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, SCHEMA.empty_table(), configuration={"delta.appendOnly": "true"})
    with pytest.raises(DefinitionError, match=r"is append-only \(delta.appendOnly\), and an upsert replaces rows"):
        made(tmp_path, "upsert")
    target = made(tmp_path, "append")
    target.commit(Batch("q", 0, 5), staged(target, rows(("a", 1))))
    assert there(tmp_path) == [("a", 1)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_nested_column_may_take_more_nulls_than_the_rows_have(tmp_path: Path, mode: str) -> None:
    """Spark's tables take nulls in arrays; an array that Spark makes of columns has none."""
    inner = StructType([StructField("x", ArrayType(LongType(), False), False)])
    nested = StructType([StructField("k", StringType()), StructField("s", inner)])
    wide = pa.struct([pa.field("x", pa.list_(pa.field("element", pa.int64(), nullable=True)))])
    write_deltalake(tmp_path / "wide", pa.schema([("k", pa.string()), ("s", wide)]).empty_table())
    target = Delta(tmp_path / "wide").target(Rows(None, tuple(nested), ("k",), once=False, mode=mode))
    assert isinstance(target, DeltaTarget)
    schema = target._schema if mode == "append" else target._staged_schema
    values = ("a", {"x": [1]}) if mode == "append" else ("a", {"x": [1]}, False)
    for number in range(2):
        target.commit(Batch("q", number, 5), staged(target, rows(values, schema=schema)))
    assert there(tmp_path / "wide") == [("a", {"x": [1]})] * (2 if mode == "append" else 1)

    Delta(tmp_path / "narrow").target(Rows(None, tuple(nested), ("k",), once=False, mode=mode))
    more = StructType([StructField("x", ArrayType(LongType(), True), False)])
    fields = (StructField("k", StringType()), StructField("s", more))
    says = r"the column 's' as StructType.*contains_null=False.*the rows have it as StructType.*contains_null=True"
    with pytest.raises(DefinitionError, match=says):
        Delta(tmp_path / "narrow").target(Rows(None, fields, ("k",), once=False, mode=mode))
