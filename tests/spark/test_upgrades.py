"""Changed plans on a checkpoint of a real query: the result of the check, and the behaviour of the new plan."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.cli import main as cli

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.replay import Replay, collect, schema_of, with_offsets
from spark.test_wall_clock import Run
from tidegate.runtime.spark.session.installed import checkpointing
from tidegate.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

SCHEMA = schema_of(k=pa.string(), x=pa.int64())
BATCHES = with_offsets(
    [
        [{"k": k, "ts": ts, "x": ts} for k, ts in (("a", 1), ("b", 4), ("c", 2), ("a", 12))],
        [{"k": k, "ts": ts, "x": ts} for k, ts in (("b", 14), ("a", 21), ("d", 24))],
        [{"k": k, "ts": ts, "x": ts} for k, ts in (("b", 23), ("a", 41))],
    ]
)
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
UNBOUNDED = tg.BufferConfig.unbounded()
FINAL = tg.Suppressed.until_window_closes(UNBOUNDED)


def counts(source: Any, size: str = "10 ms", grace: str = "5 ms", **more: Any) -> tg.KTable:
    events = tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset", name="stream")
    windows = tg.TimeWindows.of_size_and_grace(size, grace)
    return events.group_by_key().windowed_by(windows).agg(tg.Materialized.as_("sums"), n=tg.count(), **more)


def final(source: Any, **more: Any) -> tg.KTable:
    return counts(source, **more).suppress(FINAL)


def replay(spark: SparkSession, path: Path, topology: Any) -> Replay:
    def attached(events: DataFrame) -> DataFrame:
        frame: DataFrame = topology(events).to_df()
        return frame

    return Replay(spark, path, SCHEMA, attached)


def test_other_parts_of_a_column_may_be_null(spark: SparkSession, tmp_path: Path) -> None:
    """Of `split` no text is null, and of a list in JSON each may be."""

    def lists(made: Any) -> Replay:
        def table(events: DataFrame) -> tg.KTable:
            order = {"partition": "partition", "offset": "offset"}
            stream = tg.stream(events.withColumn("x", made), key="k", timestamp="ts", name="stream", **order)
            return stream.group_by_key().agg(x=tg.collect_list("x"))

        return replay(spark, tmp_path, table)

    ran = lists(F.split(F.col("x").cast("string"), "2"))
    ran.run(BATCHES[:1])
    ran.topology = lists(F.from_json(F.lit("[null]"), "array<string>")).topology
    (rows,) = ran.run(BATCHES[1:2]).rows
    assert {row["k"]: row["x"] for row in rows} == {
        "a": [["1"], ["1", ""], [None]],
        "b": [["4"], [None]],
        "d": [[None]],
    }


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


PLANS = """
import tidegate as tg

def counts(size, grace):
    events = tg.stream("stream", key="k", timestamp="ts", partition="partition", offset="offset")
    windows = tg.TimeWindows.of_size_and_grace(size, grace)
    return events.group_by_key().windowed_by(windows).agg(tg.Materialized.as_("sums"), n=tg.count())

def longer():
    return counts("10 ms", "9 ms").suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))

def wider(spark):
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    return counts("20 ms", "5 ms").suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
"""


def test_a_check_says_what_the_start_would(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = replay(spark, tmp_path / "query", final)
    query.run(BATCHES[:2])
    checkpoint = str(tmp_path / "query" / "checkpoint")
    before = contents(Path(checkpoint))
    source = query._source()
    assert tg.check_upgrade(spark, checkpoint, final(source)).changes == ()
    longer = tg.check_upgrade(spark, checkpoint, final(source, grace="9 ms", s=tg.sum("x")))
    assert [change.what for change in longer.changes] == ["aggregation", "grace", "types"]
    assert longer.goes_on
    wider = tg.check_upgrade(spark, checkpoint, final(source, size="20 ms"))
    assert not wider.goes_on

    spark.conf.set("spark.sql.shuffle.partitions", "3")
    tasks = tg.check_upgrade(spark, checkpoint, final(source))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert [(change.what, change.before, change.after) for change in tasks.changes] == [("tasks", "2", "3")]

    (tmp_path / "changed_plans.py").write_text(PLANS)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check-upgrade", checkpoint, "changed_plans:longer"]) == 0
    assert "goes on: windows that closed stay closed" in capsys.readouterr().out
    assert cli.main(["check-upgrade", checkpoint, "changed_plans:wider"]) == 1
    assert capsys.readouterr().out == f"{wider}\n"
    assert cli.main(["check-upgrade", checkpoint, "changed_plans:none"]) == 2
    assert cli.main(["check-upgrade", str(tmp_path / "nowhere"), "changed_plans:longer"]) == 2
    assert "has no state that can be read" in capsys.readouterr().err

    assert contents(Path(checkpoint)) == before
    query.topology = lambda events: final(events, size="20 ms").to_df()
    with pytest.raises(StreamingQueryException) as refused:
        query.run(BATCHES[2:])
    (lost,) = (change.loses for change in wider.changes)
    assert f"Going on would lose: windows: {lost}." in str(refused.value)


def test_a_check_counts_an_operator_that_no_row_has_reached(spark: SparkSession, tmp_path: Path) -> None:
    def chained(source: Any, **more: Any) -> tg.KTable:
        return final(source, **more).to_stream().group_by("n").agg(tg.Materialized.as_("groups"), m=tg.count())

    query = replay(spark, tmp_path, chained)
    assert query.run(BATCHES[:1]).rows == [[]]  # no window has closed
    source, checkpoint = query._source(), str(tmp_path / "checkpoint")
    assert tg.check_upgrade(spark, checkpoint, chained(source)).changes == ()
    assert [change.what for change in tg.check_upgrade(spark, checkpoint, chained("s", grace="9 ms")).changes] == [
        "grace"
    ]
    assert [change.what for change in tg.check_upgrade(spark, checkpoint, final(source)).changes] == ["operators"]


def test_a_plan_is_refused_in_its_first_batch_though_no_row_comes_to_the_operator_that_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    def summed(how: Any) -> Replay:
        return replay(spark, tmp_path, lambda events: final(events).to_stream().group_by_key().agg(x=how))

    query = summed(tg.sum("n"))
    query.run(BATCHES[:2])
    topology = query.topology
    query.topology = summed(tg.max("n")).topology
    with pytest.raises(StreamingQueryException, match=r"x=sum\(n\).*x=max\(n\)"):
        query.run([BATCHES[1][:1]])  # no window closes
    query.topology = topology
    found = query.run(BATCHES[2:])
    assert {row["k"]: row["x"] for rows in found.rows for row in rows} == {"a": 3, "b": 4, "d": 1}


def test_what_a_suppression_held_leaves_first_and_a_drain_lets_out_the_rest(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def held(source: Any) -> tg.KTable:
        limit = tg.Suppressed.until_time_limit("50 ms", tg.BufferConfig.unbounded(), clock="stream")
        return counts(source).suppress(limit)

    driver = TopologyTestDriver(held("events"))
    replay(spark, tmp_path, held).run(BATCHES[:1])
    driver.pipe_batch(BATCHES[0])
    query = replay(spark, tmp_path, final)
    query.written = 1
    driver = TopologyTestDriver(final("events"), state=driver.state())
    driver.pipe_batch(BATCHES[1])
    replayed = query.run(BATCHES[1:2])
    # Four rows that waited for the limit, and the first window of three keys, which this batch closes.
    first = sorted(map(repr, driver.read_output()))
    assert len(first) == 7
    assert sorted(repr(row) for batch in replayed.rows for row in batch) == first

    checkpoint = str(tmp_path / "checkpoint")
    drained: dict[int, list[Any]] = {}
    failing = [True]

    def save(frame: DataFrame, batch: int) -> None:
        rows = collect(frame)
        if rows and failing.pop():
            raise RuntimeError("the sink is down")
        drained[batch] = rows

    def write(frame: DataFrame) -> Any:
        return frame.writeStream.outputMode("update").foreachBatch(save)

    source = query._source()
    # Without the refusal the query would run the drain's planned empty batch, in which no task steps, and this
    # manager of checkpoint files keeps the state that the failed attempt wrote.
    spark.conf.set(MANAGER, f"{checkpointing()}.FileSystemBasedCheckpointFileManager")
    request.addfinalizer(lambda: spark.conf.unset(MANAGER))
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        tg.drain(final(source), checkpoint, write)
    with pytest.raises(StreamingQueryException, match="has begun"):
        query.run(BATCHES[2:])
    assert [change.before for change in tg.check_upgrade(spark, checkpoint, final("events")).changes] == ["begun"]
    failing.append(False)
    tg.drain(final(source), checkpoint, write)
    driver.drain()
    last = sorted(map(repr, driver.read_output()))
    assert len(last) == 4
    assert sorted(repr(row) for rows in drained.values() for row in rows) == last
    batches = sorted(drained)
    tg.drain(final(source), checkpoint, write)
    assert sorted(drained) == batches
    assert [change.before for change in tg.check_upgrade(spark, checkpoint, final("events")).changes] == ["done"]
    with pytest.raises(StreamingQueryException, match="This checkpoint was drained"):
        query.run(BATCHES[2:])


def test_a_limit_behind_final_results_leaves_a_single_task(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Without it the plan has two tasks and is refused; with one shuffle partition it goes on."""

    def held(source: Any) -> tg.KTable:
        return final(source).suppress(tg.Suppressed.until_time_limit("90 ms", UNBOUNDED, clock="stream"))

    driver = TopologyTestDriver(held("events"))
    replay(spark, tmp_path, held).run(BATCHES[:2])
    for batch in BATCHES[:2]:
        driver.pipe_batch(batch)
    query = replay(spark, tmp_path, final)
    query.written = 2
    with pytest.raises(StreamingQueryException, match=r"Set spark.sql.shuffle.partitions to 1 and restart"):
        query.run(BATCHES[2:])
    request.addfinalizer(lambda: spark.conf.set("spark.sql.shuffle.partitions", "2"))
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    replayed = query.run([])
    driver = TopologyTestDriver(final("events"), state=driver.state())
    driver.pipe_batch(BATCHES[2])
    wanted = sorted(map(repr, driver.read_output()))
    assert len(wanted) > 3
    assert sorted(repr(row) for batch in replayed.rows for row in batch) == wanted


@pytest.mark.parametrize("ticks", [False, True])
def test_a_plan_neither_begins_nor_ceases_to_wake_by_the_wall_clock(
    spark: SparkSession, tmp_path: Path, ticks: bool
) -> None:
    """A source ticks for a plan with `idle_advance`, and Spark counts the sources of a checkpoint."""

    def windows(source: Any, **clock: Any) -> tg.KTable:
        events = tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset", **clock)
        return events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count().suppress(FINAL)

    advances = {"idle_advance": "1 hour"}
    query = replay(spark, tmp_path, lambda source: windows(source, **(advances if ticks else {})))
    query._write(BATCHES[0])
    if ticks:
        assert Run(query, lambda run: run.records > 0).rows
    else:
        query.run([])
    source, checkpoint = query._source(), str(tmp_path / "checkpoint")
    assert tg.check_upgrade(spark, checkpoint, windows(source, **(advances if ticks else {}))).changes == ()
    shorter = windows(source, **({"idle_advance": "1 minute"} if ticks else {"max_future_skew": "1 minute"}))
    assert tg.check_upgrade(spark, checkpoint, shorter).goes_on
    other = windows(source, **({} if ticks else advances))
    (change,) = tg.check_upgrade(spark, checkpoint, other).changes
    assert change.what == "ticks"
    assert change.before == ("by the wall clock" if ticks else "not by the wall clock")
    assert "`idle_advance`, has one that ticks" in change.loses
    query.topology = lambda source: windows(source, **({} if ticks else advances)).to_df()
    with pytest.raises(StreamingQueryException, match="sources"):
        query.run(BATCHES[1:2])


def test_a_drain_that_has_begun_is_refused_behind_other_frames_of_a_union(spark: SparkSession, tmp_path: Path) -> None:
    """Spark counts the partitions of a union's frames together, so a task does not learn its shuffle partition."""

    def united(events: DataFrame, rows: DataFrame) -> DataFrame:
        nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in rows.schema]
        other = tg.stream(events, key="k", timestamp="ts", partition="partition", offset="offset", name="other")
        counted = other.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).agg(n=tg.count())
        in_front: DataFrame = counted.suppress(FINAL).to_df().where("n > 1000")
        return events.where("x > 1000").select(*nothing).union(in_front).union(rows)

    query = Replay(spark, tmp_path, SCHEMA, lambda events: united(events, final(events).to_df()))
    query.run(BATCHES[:2])
    source = query._source()

    def fail(frame: DataFrame, _: int) -> None:
        if collect(frame):
            raise RuntimeError("the sink is down")

    with pytest.raises(StreamingQueryException, match="the sink is down"):
        tg.drain(
            final(source),
            str(tmp_path / "checkpoint"),
            lambda frame: united(source, frame).writeStream.outputMode("update").foreachBatch(fail),
        )
    # There is no new input: only the empty batch runs again, which the drain planned.
    with pytest.raises(StreamingQueryException, match="has begun"):
        query.run([])
