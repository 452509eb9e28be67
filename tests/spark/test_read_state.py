"""The rows of a store in a checkpoint, through Spark's state reader: the same rows as in the test driver."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.cli.main import main
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.replay import Replay, collect, schema_of, with_offsets
from tidegate.runtime.spark.checkpoints import reading

pytestmark = pytest.mark.spark

SCHEMA = schema_of(k=pa.string(), x=pa.int64())
BATCHES = with_offsets(
    [
        [{"k": k, "ts": ts, "x": ts} for k, ts in (("a", 1), ("b", 4), ("c", 2), ("a", 12))],
        [{"k": k, "ts": ts, "x": ts} for k, ts in (("b", 20), ("a", 21), ("d", 24))],
    ]
)
STORE = tg.Materialized.as_("sums").with_retention("20 ms")
LIMIT = tg.Suppressed.until_time_limit("6 ms", tg.BufferConfig.unbounded(), clock="stream").with_name("held")


def windowed(source: Any, windows: Any) -> tg.TimeWindowedKStream:
    events = tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset", name="stream")
    return events.group_by_key().windowed_by(windows)


def final_sums(source: Any) -> tg.KTable:
    sums = windowed(source, tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")).agg(STORE, total=tg.sum("x"))
    return sums.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


def limited_sessions(source: Any) -> tg.KTable:
    sessions = tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms")
    return windowed(source, sessions).agg(STORE, total=tg.sum("x"), xs=tg.collect_list("x")).suppress(LIMIT)


def run(spark: SparkSession, path: Path, topology: Any) -> tuple[str, TopologyTestDriver]:
    """Run all batches; returns the checkpoint of the query, and a driver that has seen the same."""

    def attached(events: DataFrame) -> DataFrame:
        frame: DataFrame = topology(events).to_df()
        return frame

    Replay(spark, path, SCHEMA, attached).run(BATCHES)
    driver = TopologyTestDriver(topology("events"))
    for batch in BATCHES:
        driver.pipe_batch(batch)
    return str(path / "checkpoint"), driver


def rows_of(frame: DataFrame) -> list[str]:
    times = [name for name in ("since", "until") if name in frame.columns]
    plain = frame.select(*(F.unix_millis(c).alias(c) if c in times else c for c in frame.columns))
    return sorted(map(repr, collect(plain)))


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def test_open_and_closed_windows(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, driver = run(spark, tmp_path, final_sums)
    frame = tg.read_state(spark, checkpoint, store="sums")
    assert not frame.isStreaming
    assert frame.columns == ["k", "window", "total", "timestamp", "status"]
    assert rows_of(frame) == shown(driver.read_state("sums"))
    assert {row.status for row in frame.collect()} == {"open", "closed"}
    with pytest.raises(tg.DefinitionError, match=r"no store 'counts'. The stores are 'sums', 'suppress'"):
        tg.read_state(spark, checkpoint, store="counts")
    with pytest.raises(tg.CheckpointError, match="has no state that can be read"):
        tg.read_state(spark, str(tmp_path / "nothing"))


def test_sessions_by_their_end_and_what_a_buffer_holds(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, driver = run(spark, tmp_path, limited_sessions)
    assert rows_of(tg.read_state(spark, checkpoint)) == shown(driver.read_state())
    ended = tg.read_state(spark, checkpoint, "sums", ended_from=4, ended_to=20)
    assert rows_of(ended) == shown(driver.read_state("sums", ended_from=4, ended_to=20))
    assert ended.count() > 0
    held = tg.read_state(spark, checkpoint, store="held")
    assert held.columns == ["k", "window", "total", "xs", "timestamp", "deleted", "since", "until"]
    assert rows_of(held) == shown(driver.read_state("held"))
    assert held.count() > 0


def again(source: Any) -> tg.KTable:
    """Final sums, counted in windows and behind a time limit: two operators that hold back rows."""
    sums = final_sums(source).to_stream().group_by("k")
    counts = sums.windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("50 ms", "0 ms")).count()
    return counts.suppress(LIMIT)


def test_a_path_that_sparks_reader_does_not_find(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a %20 b").mkdir()
    checkpoint, driver = run(spark, tmp_path / "a %20 b", final_sums)
    for look in (reading.pending, reading.memories):
        with pytest.raises(
            tg.CheckpointError, match="the character ' ', Spark's state reader looks for another folder"
        ):
            look(spark, checkpoint)
    with pytest.raises(tg.CheckpointError, match="the character ' '"):
        tg.read_state(spark, checkpoint)
    (tmp_path / "ü+=,&~").symlink_to(tmp_path / "a %20 b")
    found = tg.read_state(spark, str(tmp_path / "ü+=,&~" / "checkpoint"), store="sums")
    assert rows_of(found) == shown(driver.read_state("sums"))


def test_a_store_that_spark_does_not_reach_is_named(spark: SparkSession) -> None:
    """`tg.read_state` itself says that an empty text is no path (`tests/spark/test_arguments.py`)."""
    for look in (tg.read_state, reading.operators, reading.partitions):
        with pytest.raises(tg.CheckpointError, match=r"Spark cannot look at 'nostore://bucket/checkpoint': .*nostore"):
            look(spark, "nostore://bucket/checkpoint")
    for look in (reading.operators, reading.partitions):
        with pytest.raises(
            tg.CheckpointError, match="Spark cannot look at '': Can not create a Path from an empty string"
        ):
            look(spark, "")


def test_a_checkpoint_without_a_committed_batch(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first batch fails: it is planned, and Spark's reader finds no batch."""

    def fails(rows: DataFrame, batch: int) -> None:
        raise LookupError("no sink today")

    replay = Replay(spark, tmp_path, SCHEMA, lambda events: final_sums(events).to_df())
    replay._write(BATCHES[0])
    writer = final_sums(replay._source()).to_df().writeStream.outputMode("update").foreachBatch(fails)
    checkpoint = str(tmp_path / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="no sink today"):
        query.awaitTermination(180)
    assert tg.explain_pending(SimpleNamespace(recentProgress=[]), checkpoint) == []
    assert "No micro-batch has finished yet" in capsys.readouterr().out
    for look in (tg.read_state, reading.operators, reading.memories):
        with pytest.raises(tg.CheckpointError, match="has no state that can be read: no batch"):
            look(spark, checkpoint)
    # Nor is there anything to wait for in the checkpoint of a query without tidegate.
    for foreign in (checkpoint, str(tmp_path / "nothing")):
        assert main(["pending", foreign]) == 2
        assert "has no state that can be read: no batch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("state/0/1", "its list of operators has 2 partitions of a state, and 1 are there"),
        ("state/0/0", ".*Partition should start with 0"),
        ("state/0/1/2.changelog", r".*/state/0/1/2\.changelog"),
    ],
    ids=["the last partition", "the first partition", "a file of a batch"],
)
def test_a_checkpoint_of_which_a_part_is_gone(spark: SparkSession, tmp_path: Path, gone: str, why: str) -> None:
    """Spark's reader does not notice that the last partition is missing: its rows were missing without a word."""
    checkpoint, _ = run(spark, tmp_path, final_sums)
    (tmp_path / "checkpoint" / gone).rename(tmp_path / "gone")
    for look in (tg.read_state, reading.pending, reading.memories):
        with pytest.raises(tg.CheckpointError, match=f"The state in '{checkpoint}' cannot be read: {why}"):
            look(spark, checkpoint)


def test_what_waits_in_every_operator_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    """Window by window and key by key, over two tasks, as in the driver."""
    checkpoint, driver = run(spark, tmp_path, again)
    query = SimpleNamespace(recentProgress=[])
    pending, wanted = tg.explain_pending(query, checkpoint), tg.explain_pending(driver)
    assert pending == wanted
    assert [one.waiting != () for one in pending] == [True, False]
    assert pending[0].buffered is None
    assert pending[1].buffered is not None
    assert wanted[1].buffered is not None
    assert pending[1].buffered.first == wanted[1].buffered.first != ()
    # Without a name it is the last aggregation, of which the driver knows the same.
    assert rows_of(tg.read_state(spark, checkpoint)) == shown(driver.read_state())


def limits_in_a_row(source: Any) -> tg.KTable:
    """Sessions that wait three times, the last time in a buffer whose bytes are counted."""
    sums = limited_sessions(source)
    short = tg.Suppressed.until_time_limit("1 ms", tg.BufferConfig.unbounded(), clock="stream")
    bounded = tg.Suppressed.until_time_limit("90 ms", tg.BufferConfig.max_bytes(10_000), clock="stream")
    return sums.suppress(short.with_name("short")).suppress(bounded.with_name("long"))


def test_each_of_several_limits(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, driver = run(spark, tmp_path, limits_in_a_row)
    for store in ("held", "short", "long"):
        assert rows_of(tg.read_state(spark, checkpoint, store=store)) == shown(driver.read_state(store))
    [pending], [wanted] = tg.explain_pending(SimpleNamespace(recentProgress=[]), checkpoint), tg.explain_pending(driver)
    assert pending == wanted
    assert [one.store for one in pending.limits] == [one.store for one in wanted.limits]
    assert len(pending.limits) > 1


def test_a_session_with_another_format_of_state_files_is_told_the_setting(spark: SparkSession, tmp_path: Path) -> None:
    """The files were called damaged."""
    spark.conf.set(reading._FORMAT, "2")
    try:
        checkpoint, _ = run(spark, tmp_path, final_sums)
        if spark.version.startswith("4.0"):  # its reader takes no such names, with the setting either
            with pytest.raises(tg.CheckpointError, match=r"state reader of Spark 4\.0\.\d cannot read"):
                tg.read_state(spark, checkpoint)
            return
        assert tg.read_state(spark, checkpoint).count() > 0
    finally:
        spark.conf.unset(reading._FORMAT)
    for look in (tg.read_state, reading.pending, reading.memories):
        with pytest.raises(tg.CheckpointError, match=rf"set\(.{reading._FORMAT}., .2.\)"):
            look(spark, checkpoint)


def test_a_checkpoint_that_was_moved_is_read_once_its_schemas_are_at_the_old_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, _ = run(spark, tmp_path, final_sums)
    moved = str(shutil.move(old, tmp_path / "moved"))
    with pytest.raises(tg.CheckpointError, match=r"_stateSchema/.*Spark keeps the path of this file in the checkpoint"):
        tg.read_state(spark, moved)
    shutil.copytree(f"{moved}/state/0/_stateSchema", f"{old}/state/0/_stateSchema")
    assert tg.read_state(spark, moved).count()
