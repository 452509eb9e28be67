"""Batches into a table of a real PostgreSQL without Spark: no row is lost when the server crashes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psycopg")

import psycopg
from pyspark.sql.types import LongType, StringType, StructField

from sinks.server import Server
from tidegate.errors import DefinitionError, TidegateError
from tidegate.runtime.spark.sinks import Postgres
from tidegate.runtime.spark.sinks.exactly_once import Batch, Written
from tidegate.runtime.spark.sinks.outputs import Rows
from tidegate.runtime.spark.sinks.postgres import PostgresTarget
from tidegate.runtime.spark.sinks.staging import Staged

FIELDS = (StructField("k", StringType()), StructField("v", LongType()))
SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})
GONE = SCHEMA.append(pa.field("tidegate:deleted", pa.bool_()))


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


def test_options_of_the_address_and_of_the_environment_hold_and_days_are_of_utc(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "-csearch_path={} -cTimeZone=Asia/Tokyo -cDateStyle=German"
    words = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"
    cases = {
        "by_url": Postgres(f"{server.url}?options={quote(path.format('by_url'))}", "counts"),
        "by_words": Postgres(f"{words} options='{path.format('by_words')}'", "counts"),
        "by_options": Postgres(server.url, "counts", options={"options": path.format("by_options")}),
        "by_environment": Postgres(server.url, "counts"),
    }
    for schema, sink in cases.items():
        with psycopg.connect(server.url) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        with monkeypatch.context() as environment:
            if schema == "by_environment":
                environment.setenv("PGOPTIONS", path.format(schema))
            target = sink.target(Rows(None, FIELDS, ("k",), once=False, mode="append"))
            assert isinstance(target, PostgresTarget)
            target.commit(Batch("q", 0, 5), staged(target, rows(("a", 1)), rows(("b", 2))))
            with target._connection.transaction() as cursor:
                said = cursor.execute("SELECT TIMESTAMPTZ '2026-01-31 00:30:00+00' :: text").fetchone()
            assert said == ("2026-01-31 00:30:00+00",)
    tables = query(server, "SELECT schemaname FROM pg_tables WHERE tablename = 'counts' ORDER BY 1")
    assert [schema for (schema,) in tables] == sorted(cases)
    for schema in cases:
        assert query(server, f"SELECT * FROM {schema}.counts ORDER BY k") == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_whose_columns_somebody_changes_while_the_query_runs_takes_no_batch(server: Server, mode: str) -> None:
    """PostgreSQL casts to another type without a word, and a number may lose digits."""
    target = made(server, f"changed_{mode}", mode)
    target.commit(Batch("q", 0, 5), staged(target, rows(("a", 1), mode=mode)))
    with psycopg.connect(server.url) as connection:
        connection.execute(f"ALTER TABLE changed_{mode} ALTER COLUMN v TYPE real")
    with pytest.raises(DefinitionError, match="the column 'v' as real, which does not hold every value"):
        target.commit(Batch("q", 1, 5), staged(target, rows(("a", 123_456_789), mode=mode)))
    assert target.written("q") == Written(0, 5)
    assert query(server, f"SELECT * FROM changed_{mode}") == [("a", 1)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("k text, v bigint", "no unique index on the key of the rows, k,"),
        ("k text, v bigint, w int UNIQUE", "no unique index on the key of the rows, k,"),
        ("k text, v bigint, w int, UNIQUE (w) INCLUDE (k)", "no unique index on the key of the rows, k,"),
        ("k text, v bigint, UNIQUE (k) INCLUDE (v)", None),
        ("k citext PRIMARY KEY, v bigint", "the key column 'k' as citext, where different texts .* TYPE text"),
        ("k text COLLATE alike PRIMARY KEY, v bigint", "the key column 'k' with a collation that is not deterministic"),
        ('k text COLLATE "C" PRIMARY KEY, v bigint', None),
        ("k text PRIMARY KEY, v bigint GENERATED ALWAYS AS IDENTITY", r"computes the column 'v' itself \(GENERATED"),
        ("k text PRIMARY KEY, v bigint GENERATED ALWAYS AS (length(k)) STORED", "computes the column 'v' itself"),
        ("k text PRIMARY KEY, v bigint GENERATED BY DEFAULT AS IDENTITY", None),
    ],
)
def test_a_table_that_cannot_take_an_upsert_is_refused_when_the_query_is_made(
    server: Server, column: str, message: str | None
) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS citext")
        alike = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        connection.execute(f"CREATE COLLATION IF NOT EXISTS alike {alike}")
        connection.execute("DROP TABLE IF EXISTS fits")
        connection.execute(f"CREATE TABLE fits ({column})")
    if message is not None:
        with pytest.raises(DefinitionError, match=message):
            made(server, "fits", "upsert")
        return
    target = made(server, "fits", "upsert")
    for number in range(2):
        given = rows(("a", number), ("A", number), mode="upsert")
        target.commit(Batch(column, number, 5), staged(target, given))
    assert query(server, "SELECT k, v FROM fits ORDER BY k DESC") == [("a", 1), ("A", 1)]


@pytest.mark.parametrize("isolation", ["read\\ committed", "repeatable\\ read", "serializable"])
def test_two_upserts_of_one_key_at_once_wait_for_each_other(server: Server, isolation: str) -> None:
    """Where transactions see one snapshot by default, PostgreSQL would end the second one."""
    fields = Rows(None, FIELDS, ("k",), once=False, mode="upsert")
    options = {"options": f"-c default_transaction_isolation={isolation}"}
    first, second = (Postgres(server.url, f"both_{isolation[:4]}", options=options).target(fields) for _ in range(2))
    assert isinstance(first, PostgresTarget)
    assert isinstance(second, PostgresTarget)
    second.commit(Batch("b", 0, 5), staged(second, rows(("a", 0), mode="upsert")))
    taken, go_on, take = threading.Event(), threading.Event(), first._take

    def waits(*given: Any) -> None:
        take(*given)
        taken.set()
        assert go_on.wait(60)

    first._take = waits  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first.commit, Batch("a", 0, 5), staged(first, rows(("a", 1), mode="upsert")))
        assert taken.wait(60)
        other = threads.submit(second.commit, Batch("b", 1, 5), staged(second, rows(("a", 2), mode="upsert")))
        assert wait([other], timeout=0.5).not_done
        go_on.set()
        one.result()
        other.result()
    assert query(server, f"SELECT k, v FROM both_{isolation[:4]}") == [("a", 2)]


def test_two_queries_that_replace_and_delete_rows_of_each_other_wait_in_turn(server: Server) -> None:
    """Each had deleted a row that the other one replaced then: PostgreSQL ended one of them for a deadlock."""
    fields = Rows(None, FIELDS, ("k",), once=False, mode="upsert")
    targets = {name: Postgres(server.url, "swapped").target(fields) for name in "pq"}
    with psycopg.connect(server.url) as connection:
        connection.execute("INSERT INTO swapped VALUES ('a', 0), ('b', 0)")
        body = "BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END"
        connection.execute(f"CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS '{body}'")
        connection.execute("CREATE TRIGGER slowly AFTER DELETE ON swapped EXECUTE FUNCTION slowly()")

    def commit(name: str, gone: str, kept: str) -> None:
        target, given = targets[name], pa.table([[gone, kept], [0, 1], [True, False]], schema=GONE)
        assert isinstance(target, PostgresTarget)
        target.commit(Batch(name, 0, 5), staged(target, given))

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(commit, "p", "b", "a"), threads.submit(commit, "q", "a", "b")]:
            done.result()
    [(key, value)] = query(server, "SELECT * FROM swapped")
    assert (key in ("a", "b"), value) == (True, 1)


def test_an_index_that_postgresql_could_not_build_is_none(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE half (k text, v bigint)")
        connection.execute("INSERT INTO half VALUES ('a', 1), ('a', 2)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY ON half (k)")
    with pytest.raises(DefinitionError, match="no unique index on the key of the rows, k,"):
        made(server, "half", "upsert")
