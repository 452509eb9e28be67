"""Queries with new checkpoints that append to a Delta table or to PostgreSQL: rows of one name are of one query."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructField

from tidegate.errors import CheckpointError
from tidegate.runtime.spark.sinks import Delta, Postgres
from tidegate.runtime.spark.sinks.exactly_once import Batch, Target
from tidegate.runtime.spark.sinks.outputs import Rows
from tidegate.runtime.spark.sinks.staging import Staged

FIELDS = (StructField("query", StringType()), StructField("n", LongType()))
SCHEMA = pa.schema({"query": pa.string(), "n": pa.int64()})
OLD, NEW = "old", "new"


class DeltaPlace:
    """A Delta table, and the ways to empty it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.empties: list[Callable[[], Any]] = [self.delete, self.delete_some_after_some, self.overwrite]
        self.advice = f"DeltaTable({self.path!r}).delete()"

    def sink(self, **more: Any) -> Delta:
        return Delta(self.path, "append", **more)

    def rows(self) -> list[tuple[str, int]]:
        rows = self.table().to_pyarrow_table().to_pylist()
        return sorted((row["query"], row["n"]) for row in rows)

    def table(self) -> Any:
        import deltalake

        return deltalake.DeltaTable(self.path)

    def delete(self) -> None:
        self.table().delete()

    def delete_some_after_some(self) -> None:
        for predicate in ("n < 1", "n >= 1"):
            self.table().delete(predicate)

    def overwrite(self) -> None:
        import deltalake

        deltalake.write_deltalake(self.path, SCHEMA.empty_table(), mode="overwrite")


class PostgresPlace:
    """A table of PostgreSQL, and the ways to empty it."""

    def __init__(self, url: str, table: str) -> None:
        self.url, self.table = url, table
        statements = (f"TRUNCATE {table}", f"DELETE FROM {table}", f"DROP TABLE {table}")
        self.empties: list[Callable[[], Any]] = [lambda sql=sql: self.execute(sql) for sql in statements]  # type: ignore[misc]
        self.advice = f'TRUNCATE "{table}"'

    def sink(self, **more: Any) -> Postgres:
        return Postgres(self.url, self.table, "append", **more)

    def execute(self, *statements: str) -> Any:
        import psycopg

        with psycopg.connect(self.url) as connection:
            for sql in statements:
                cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else None

    def rows(self) -> list[tuple[str, int]]:
        return sorted(self.execute(f'SELECT "query", n FROM {self.table}'))


@pytest.fixture(params=["delta", "postgres"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """A function that gives a new place."""
    made: list[Any] = []
    if request.param == "delta":
        pytest.importorskip("deltalake")
        server = None
    else:
        server = request.getfixturevalue("server")

    def place() -> Any:
        number = len(made)
        test = re.sub(r"\W", "_", request.node.name)[-50:]
        path, table = tmp_path / str(number), f"{test}_{number}"
        made.append(DeltaPlace(path) if server is None else PostgresPlace(server.url, table))
        return made[-1]

    return place


def target(place: Any, output: str | None = None, **more: Any) -> Target:
    found: Target = place.sink(**more).target(Rows(output, FIELDS, (), True, "append"))
    return found


def commit(target: Target, query: str, number: int) -> None:
    row = pa.table([[query], [number]], schema=SCHEMA)
    target.commit(Batch(query, number, 1), Staged(SCHEMA, [row], count=1))


@pytest.mark.parametrize("way", range(3))
def test_a_new_query_begins_where_there_are_no_rows_and_only_there(new_place: Any, way: int) -> None:
    place = new_place()
    sink = target(place)
    sink.begin(OLD)
    for number in range(2):
        commit(sink, OLD, number)
    with pytest.raises(CheckpointError, match="has rows of another query") as raised:
        sink.begin(NEW)
    # The error says how to remove the rows.
    assert place.advice in str(raised.value)
    place.empties[way]()
    target(place).begin(NEW)
    sink.begin(NEW)  # again, after a first batch that failed
    commit(sink, NEW, 0)
    # Both the old query that still runs and the old query that starts again are refused.
    with pytest.raises(CheckpointError, match="has rows of another query"):
        commit(sink, OLD, 2)
    with pytest.raises(CheckpointError, match="has rows of another query"):
        target(place).begin(OLD)
    sink.begin(NEW)
    commit(sink, NEW, 1)
    assert place.rows() == [(NEW, 0), (NEW, 1)]


def test_a_new_name_begins_beside_rows(new_place: Any) -> None:
    place = new_place()
    commit(target(place), OLD, 0)
    beside = target(place, name="rows-2")
    beside.begin(NEW)
    commit(beside, NEW, 0)
    target(place).begin(OLD)
    commit(target(place), OLD, 1)
    assert place.rows() == [(NEW, 0), (OLD, 0), (OLD, 1)]


def test_an_old_query_that_goes_on_before_the_new_one_writes_keeps_the_emptied_table(new_place: Any) -> None:
    place = new_place()
    sink = target(place)
    commit(sink, OLD, 0)
    place.empties[0]()
    sink.begin(NEW)
    sink.begin(OLD)
    commit(sink, OLD, 1)
    with pytest.raises(CheckpointError, match="has rows of another query"):
        commit(sink, NEW, 0)
    assert place.rows() == [(OLD, 1)]


def test_two_outputs_of_a_new_query_go_into_one_emptied_table_though_the_query_dies_between_them(
    new_place: Any,
) -> None:
    place = new_place()
    sinks = [target(place, output) for output in ("one", "other")]
    for sink in sinks:
        commit(sink, OLD, 0)
    place.empties[0]()
    for sink in sinks:
        sink.begin(NEW)
    commit(sinks[0], NEW, 0)
    for sink in sinks:
        sink.begin(NEW)
    commit(sinks[1], NEW, 0)
    assert place.rows() == [(NEW, 0), (NEW, 0)]


def test_in_any_order_of_events_the_rows_are_of_one_query_and_each_batch_is_there_once(new_place: Any) -> None:
    draw = random.Random(5)
    for _ in range(5):
        place = new_place()
        sink, runs, numbers = target(place), set[str](), dict.fromkeys("abc", 0)
        events = [(draw.choice(["begin", "commit", "commit", "empty"]), draw.choice("abc")) for _ in range(14)]
        for number, (event, query) in enumerate(events):
            try:
                if event == "empty":
                    place.empties[0]()
                elif event == "begin":
                    runs.discard(query)
                    sink.begin(query)
                    runs.add(query)
                elif query in runs:
                    commit(sink, query, numbers[query])
                    numbers[query] += 1
            except CheckpointError:
                runs.discard(query)
                assert place.rows() or event == "commit", events[: number + 1]
            rows = place.rows()
            assert len({query for query, _ in rows}) <= 1, events[: number + 1]
            assert len(set(rows)) == len(rows), events[: number + 1]


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_of_two_first_commits_at_once_one_is_refused_in_postgresql(server: Any, isolation: str) -> None:
    """Whatever transactions see by default: a snapshot made in front of a lock does not have what came before it."""
    place = PostgresPlace(server.url, f"at_once_{isolation[:4]}")
    given = "-c default_transaction_isolation=" + isolation.replace(" ", "\\ ")
    first, second = (target(place, options={"options": given}) for _ in range(2))
    for sink, query in ((first, OLD), (second, NEW)):
        sink.begin(query)
    taking, go_on = threading.Event(), threading.Event()
    take = first._take  # type: ignore[attr-defined]

    def waits(*given: Any) -> None:
        taking.set()
        assert go_on.wait(60)
        take(*given)

    first._take = waits  # type: ignore[attr-defined]
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(commit, first, OLD, 0)
        assert taking.wait(60)
        other = threads.submit(commit, second, NEW, 0)
        waited = wait([other], timeout=0.5).not_done
        go_on.set()
        one.result()
        assert waited
        with pytest.raises(CheckpointError, match="has rows of another query"):
            other.result()
    assert place.rows() == [(OLD, 0)]


def test_of_two_first_commits_at_once_one_is_refused_in_delta(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    place = DeltaPlace(tmp_path / "t")
    first, second = target(place), target(place)
    write = first._commit  # type: ignore[attr-defined]

    def after_the_other(*given: Any) -> None:
        first._commit = write  # type: ignore[attr-defined]
        commit(second, NEW, 0)
        write(*given)

    first._commit = after_the_other  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match="has rows of another query"):
        commit(first, OLD, 0)
    assert place.rows() == [(NEW, 0)]


def test_a_user_who_does_not_see_the_rows_of_postgresql_is_refused(server: Any) -> None:
    place = PostgresPlace(server.url, "hidden")
    commit(target(place), OLD, 0)
    place.execute(
        "CREATE ROLE writer LOGIN",
        "GRANT ALL ON SCHEMA public TO writer",
        "GRANT INSERT ON hidden TO writer",
        "GRANT ALL ON tidegate_batches TO writer",
    )
    reader = Postgres(server.url, "hidden", "append", options={"user": "writer"})
    for statements in (
        (),
        (
            "GRANT SELECT ON hidden TO writer",
            "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY appends ON hidden FOR INSERT TO writer WITH CHECK (true)",
        ),
    ):
        if statements:
            place.execute(*statements)
        sink = reader.target(Rows(None, FIELDS, (), True, "append"))
        with pytest.raises(CheckpointError, match="has rows of another query"):
            sink.begin(NEW)
    place.execute("DELETE FROM tidegate_batches WHERE target = 'hidden'")
    sink.begin(NEW)
    commit(sink, NEW, 0)
    assert place.rows() == [(NEW, 0), (OLD, 0)]


def test_a_delta_table_of_a_version_that_did_not_store_the_newest_query(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    place = DeltaPlace(tmp_path / "t")
    sink = target(place)
    row = pa.table([[OLD], [0]], schema=SCHEMA)
    remembered = [deltalake.Transaction(f"tidegate/rows{of}", 0) for of in (f"/{OLD}", f"/{OLD}/plan", "")]
    deltalake.write_deltalake(
        place.path, row, mode="append", commit_properties=deltalake.CommitProperties(app_transactions=remembered)
    )
    with pytest.raises(CheckpointError, match="has rows of another query"):
        sink.begin(NEW)
    sink.begin(OLD)
    commit(sink, OLD, 1)
    with pytest.raises(CheckpointError, match="has rows of another query"):
        sink.begin(NEW)
    assert place.rows() == [(OLD, 0), (OLD, 1)]
