"""Batches into a table of a real PostgreSQL without Spark: no row is lost when the server crashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psycopg")

import psycopg
from pyspark.sql.types import LongType, StringType, StructField

from sinks.server import NoPostgresError, Server
from tidegate.errors import TidegateError
from tidegate.runtime.spark.sinks import Postgres
from tidegate.runtime.spark.sinks.exactly_once import Batch, Written
from tidegate.runtime.spark.sinks.outputs import Rows
from tidegate.runtime.spark.sinks.postgres import PostgresTarget
from tidegate.runtime.spark.sinks.staging import Staged

FIELDS = (StructField("k", StringType()), StructField("v", LongType()))
SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})
GONE = SCHEMA.append(pa.field("tidegate:deleted", pa.bool_()))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with Server() as running:
            yield running
    except NoPostgresError as error:
        pytest.skip(f"no PostgreSQL: {error}")


def made(server: Server, table: str, mode: str = "append") -> PostgresTarget:
    target = Postgres(server.url, table).target(Rows(None, FIELDS, ("k",), once=False, mode=mode))
    assert isinstance(target, PostgresTarget)
    return target


def rows(*values: tuple[str, int], mode: str = "append") -> pa.Table:
    table = pa.table(list(map(list, zip(*values, strict=True))), schema=SCHEMA)
    return table if mode == "append" else table.append_column(GONE.field(2), pa.array([False] * len(table)))


def staged(target: PostgresTarget, inline: pa.Table, *aside: pa.Table) -> Staged:
    """The receipts of one task for `inline`, and of one task for each of `aside`."""
    found = Staged(inline.schema, [inline], count=inline.num_rows)
    stages = target._new_stages("q")
    for table in aside:
        part = stages.open()
        part.write(table)
        found.aside.append(part.finish())
        found.count += table.num_rows
    return found


def query(server: Server, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_batch_whose_staged_rows_a_crash_of_the_server_has_emptied_is_not_remembered(
    server: Server, mode: str
) -> None:
    target = made(server, f"crash_{mode}", mode)
    batch = Batch("q", 0, 5)

    def receipts() -> Staged:
        return staged(target, rows(("a", 1), mode=mode), rows(("b", 2), mode=mode), rows(("c", 3), mode=mode))

    found = receipts()
    server.crash()
    with pytest.raises(TidegateError, match=r"gets 3 rows in this batch, and the staging table .* has 1 of them"):
        target.commit(batch, found)
    assert target.written("q") is None
    assert query(server, f"SELECT * FROM crash_{mode}") == []
    # Spark repeats the batch.
    target.begin("q")
    target.commit(batch, receipts())
    assert target.written("q") == Written(0, 5)
    assert query(server, f"SELECT * FROM crash_{mode} ORDER BY k") == [("a", 1), ("b", 2), ("c", 3)]
    assert query(server, "SELECT relname FROM pg_class WHERE relname LIKE 'tidegate_stage%'") == []
