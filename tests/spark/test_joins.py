"""Joins on Spark: scenarios as real streaming queries, and random streams against the oracle."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from conformance import joins, runner
from conformance.status import SUPPORTED
from properties import test_joins as cases
from properties import test_table_joins as table_cases
from tidegate.testing import TopologyTestDriver

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seeds import FEW_ON_SPARK
from spark.replay import Replay, Row, schema_of, with_offsets

pytestmark = pytest.mark.spark

cloudpickle.register_pickle_by_value(joins)

QUICK = {
    "boundary__join_late_record_is_dropped",
    "stream_join__inner_self_join",
    "stream_join__outer_null_keys_leave_at_once",
    "stream_table_join__left_grace_by_the_slowest_partition",
    "stream_table_join__left_grace_waits_for_the_table",
    "table_table_join__outer_tombstones",
}
FIELDS = {"side": pa.string(), "k": pa.string(), "n": pa.int64(), "gone": pa.bool_()}
ROW_ID = "tidegate:row_id"
JOINS = [name for name in SUPPORTED if runner.load(name).kind in joins.KINDS]
SCHEMA = schema_of(side=pa.string(), key=pa.string(), value=pa.string(), deleted=pa.bool_())
ORDER = {"partition": "partition", "offset": "offset"}


def of_side(frame: DataFrame, side: str | None) -> DataFrame:
    """The records of one side, from an input with a column `side`."""
    return (frame if side is None else frame.where(F.col("side") == side)).drop("side")


def input_of(scenario: Any, frame: DataFrame, side: str) -> Any:
    """A side of the join; a stream has no column of deletions."""
    mine = of_side(frame, side)
    return joins.side(scenario, mine if joins.is_table(scenario, side) else mine.drop("deleted"), side, **ORDER)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.full) for n in JOINS])
def test_record_by_record(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """One micro-batch per record."""
    scenario = runner.load(name)
    alone = bool(scenario.topology.get("self"))

    def topology(frame: DataFrame) -> DataFrame:
        if alone:
            left = right = joins.side(scenario, of_side(frame, None).drop("deleted"), "left", **ORDER)
        else:
            left, right = (input_of(scenario, frame, side) for side in joins.SIDES)
        return joins.build(scenario, left, right).to_df()

    records = [{**record, "side": side} for side, record in joins.records(scenario)]
    replay = Replay(spark, tmp_path, SCHEMA, topology, name="left join left" if alone else "left join right")
    partitions = [record.get("partition", 0) for record in records]
    batches = with_offsets([[record] for record in records])
    placed = [[{**row, "partition": at} for row in batch] for batch, at in zip(batches, partitions, strict=True)]
    replayed = replay.run(placed)
    rows = [[runner.row_of(row) for row in batch] for batch in replayed.rows]
    place = lambda row: (row["timestamp_ms"], str(row["key"]).encode(), str(row["value"]))  # noqa: E731
    got: list[Row] = [row for batch in rows for row in batch]
    assert sorted(got, key=place) == sorted(scenario.expected or [], key=place)
    so_far = [sum(map(len, rows[: n + 1])) for n in range(len(rows))]
    for checkpoint in scenario.data.get("checkpoints", []):
        if (n := checkpoint["after_inputs"]) and n <= len(so_far):
            assert so_far[n - 1] == checkpoint["outputs_so_far"], checkpoint
    runner.check_dropped(scenario, replayed.dropped())


# -- random streams: Spark against the oracle ---------------------------------------------------------------------


@FEW_ON_SPARK
@given(case=cases.joins(), data=st.data())
def test_random_streams_are_what_the_oracle_says(spark: SparkSession, case: cases.Case, data: Any) -> None:
    """Several partitions of both sides, each batch read by several map tasks, two tasks, a restart in the middle."""
    batches = data.draw(cases.placed(case.self_join))
    splits: list[list[list[Row]]] = []
    for batch in batches:
        parts: list[list[Row]] = [[], []]
        for side, record in batch:
            parts[data.draw(st.integers(0, 1))].append({**record, "side": cases.SIDES[side]})
        splits.append(parts)

    def topology(frame: DataFrame) -> DataFrame:
        sides = []
        for name in cases.SIDES:
            mine = frame if case.self_join else frame.where(F.col("side") == name)
            sides.append(tg.stream(mine.drop("side"), key="k", timestamp="ts", name=name, stream_time="max", **ORDER))
        left, right = sides[0], sides[0] if case.self_join else sides[1]
        joined = left.join(right, case.windows, how=case.how, suffixes=("_l", "_r"))
        return joined.to_df(row_ids=True)

    wanted, drops = cases.by_oracle(case, batches)
    schema = schema_of(side=pa.string(), k=pa.string(), n=pa.int64())
    with TemporaryDirectory() as folder:
        name = "left join left" if case.self_join else "left join right"
        replay = Replay(spark, Path(folder), schema, topology, files_per_batch=2, name=name)
        half = len(splits) // 2
        runs = [replay.run_split(part) for part in (splits[:half], splits[half:]) if part]
    got = [Counter(map(cases.shown, rows)) for run in runs for rows in run.rows]
    assert got == wanted
    known = {record["n"]: f"{record['partition']}@{record['offset']}" for batch in batches for _, record in batch}
    known[None] = ""
    for row in (row for run in runs for rows in run.rows for row in rows):
        assert row[ROW_ID] == f"({known[row['n_l']]},{known[row['n_r']]})"
    assert sum(run.dropped() for run in runs) == sum(drops.values())


@FEW_ON_SPARK
@given(case=table_cases.cases(), data=st.data())
def test_random_tables_are_what_the_oracle_says(spark: SparkSession, case: table_cases.Case, data: Any) -> None:
    """Joins with tables: several partitions, map tasks and tasks, a restart in the middle."""
    batches = data.draw(table_cases.placed())
    splits: list[list[list[Row]]] = []
    for batch in batches:
        parts: list[list[Row]] = [[], []]
        for side, record in batch:
            name = cases.SIDES[side]
            parts[data.draw(st.integers(0, 1))].append({**table_cases.prepared(case, name, record), "side": name})
        splits.append(parts)

    def topology(frame: DataFrame) -> DataFrame:
        return case.over(*(of_side(frame, side) for side in cases.SIDES)).to_df()

    wanted, drops = table_cases.by_oracle(case, batches)
    schema = schema_of(side=pa.string(), k=pa.string(), n=pa.int64(), gone=pa.bool_())
    with TemporaryDirectory() as folder:
        replay = Replay(spark, Path(folder), schema, topology, files_per_batch=2, name="left join right")
        half = len(splits) // 2
        runs = [replay.run_split(part) for part in (splits[:half], splits[half:]) if part]
    got = Counter(table_cases.shown(row) for run in runs for rows in run.rows for row in rows)
    assert got == wanted
    assert sum(run.dropped() for run in runs) == sum(drops.values())


def test_windows_behind_a_join_go_by_its_stream_time(spark: SparkSession, tmp_path: Path) -> None:
    """As in the test driver: a pair of fast partitions closes nothing, and time passes though no pair comes."""
    windows = tg.JoinWindows.of_time_difference_and_grace("10 ms", "5 ms")
    closing = tg.TimeWindows.of_size_and_grace("10 ms", "15 ms")

    def counted(left: Any, right: Any) -> Any:
        sides = (
            tg.stream(of, key="k", timestamp="ts", name=name, idle_after="1 hour", **ORDER)
            for of, name in ((left, "left"), (right, "right"))
        )
        grouped = next(sides).join(next(sides), windows, suffixes=("_l", "_r")).group_by_key()
        return grouped.windowed_by(closing).emit_strategy(tg.EmitStrategy.on_window_close()).count()

    def one(side: str, ts: int, partition: int = 0, key: str = "a") -> Row:
        return {"side": side, "k": key, "n": ts, "ts": ts, "partition": partition}

    batches = [
        [one("left", 1), one("right", 2)],
        [one("left", 100, 1), one("right", 101, 1)],
        [one("left", 4), one("right", 5)],
        [one("left", 24, key="b"), one("right", 24, key="c")],
        [one("left", 25, key="b"), one("right", 26, key="c")],
    ]
    offsets = Counter[tuple[str, int]]()
    for record in (record for batch in batches for record in batch):
        record["offset"] = offsets[record["side"], record["partition"]]
        offsets[record["side"], record["partition"]] += 1
    topology = lambda frame: counted(*(of_side(frame, side) for side in cases.SIDES)).to_df()  # noqa: E731
    schema = schema_of(side=pa.string(), k=pa.string(), n=pa.int64())
    replay = Replay(spark, tmp_path, schema, topology, name="left join right")
    runs = [replay.run(part) for part in (batches[:3], batches[3:])]
    found = [[(row["window"], row["count"]) for row in rows] for run in runs for rows in run.rows]
    assert found == [[], [], [], [], [((0, 10), 4)]]


def test_rows_of_a_join_merged_with_records(spark: SparkSession, tmp_path: Path) -> None:
    """Counted in windows, and joined again; with a restart."""
    windows = tg.JoinWindows.of_time_difference_and_grace("10 ms", "5 ms")
    schema = schema_of(side=pa.string(), k=pa.string(), n=pa.int64())
    batches = with_offsets(
        [
            [{"side": "left", "k": "a", "n": 1, "ts": 1}, {"side": "right", "k": "a", "n": 2, "ts": 2}],
            [{"side": "others", "k": "a", "n": 3, "ts": 4}, {"side": "others", "k": "b", "n": 4, "ts": 5}],
            [{"side": "others", "k": "a", "n": 5, "ts": 30}, {"side": "left", "k": "b", "n": 6, "ts": 31}],
        ]
    )

    def merged(frame: DataFrame) -> tuple[Any, Any]:
        left, right, others = (
            tg.stream(of_side(frame, name), key="k", timestamp="ts", name=name, stream_time="max", **ORDER)
            for name in (*cases.SIDES, "others")
        )
        rows = left.join(right, windows, suffixes=("", "_r"))
        return rows.merge(others.map_values({"n": "n", "n_r": "n"})), right

    def counted(frame: DataFrame) -> DataFrame:
        closing = tg.TimeWindows.of_size_with_no_grace("10 ms")
        grouped = merged(frame)[0].group_by_key().windowed_by(closing)
        return grouped.emit_strategy(tg.EmitStrategy.on_window_close()).agg(c=tg.count(), n=tg.sum("n")).to_df()

    def joined(frame: DataFrame) -> DataFrame:
        rows, right = merged(frame)
        return rows.left_join(right, windows, suffixes=("", "_again")).to_df()

    replay = Replay(spark, tmp_path / "counted", schema, counted, name="others")
    found = [row for part in (batches[:2], batches[2:]) for rows in replay.run(part).rows for row in rows]
    assert sorted((row["k"], row["window"], row["c"], row["n"]) for row in found) == [
        ("a", (0, 10), 2, 4),
        ("b", (0, 10), 1, 4),
    ]
    replay = Replay(spark, tmp_path / "joined", schema, joined, name="others join right")
    found = [row for part in (batches[:2], batches[2:]) for rows in replay.run(part).rows for row in rows]
    assert sorted((row["k"], row["n"], row["n_r"], row["n_again"] or 0) for row in found) == [
        ("a", 1, 2, 2),
        ("a", 3, 3, 2),
        ("b", 4, 4, 0),
    ]


# -- records that wait for a table ---------------------------------------------------------------------------------


def test_records_that_wait_for_a_table_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    """The state of two tasks shows them as the driver does; the metrics show them without their number."""
    case = table_cases.Case("left", False, history=60, grace=20)

    def topology(frame: DataFrame) -> DataFrame:
        return case.over(*(of_side(frame, side) for side in cases.SIDES)).to_df()

    driver = TopologyTestDriver(case.table(ordered=False))
    given = [("left", "a", 1), ("right", "a", 400), ("left", "b", 9), ("left", "c", 9), ("left", "d", 22)]
    records = [{"side": side, "k": k, "n": n, "ts": ts} for n, (side, k, ts) in enumerate(given)]
    replay = Replay(spark, tmp_path, schema_of(**FIELDS), topology, name="left join right")
    replayed = replay.run(with_offsets([records]))
    for record in records:
        driver.pipe_input({**record, "gone": False}, record["side"])
    wanted = driver.pending()
    assert wanted.lookups == tg.Lookups(29, 22, 3)
    progress = [SimpleNamespace(observedMetrics={"left join right": row_of(metrics)}) for metrics in replayed.metrics]
    (pending,) = tg.explain_pending(SimpleNamespace(recentProgress=progress))
    assert pending.lookups == tg.Lookups(29, 22)
    (stored,) = tg.explain_pending(SimpleNamespace(recentProgress=[]), str(tmp_path / "checkpoint"))
    assert stored == wanted
    assert stored.lookups is not None
    assert wanted.lookups is not None
    assert stored.lookups.first == wanted.lookups.first


def row_of(metrics: Any) -> Any:
    """Metrics as Spark gives them."""
    return SimpleNamespace(asDict=lambda: metrics)


# -- ids of rows ---------------------------------------------------------------------------------------------------


def sides_of(frame: DataFrame, **more: Any) -> list[Any]:
    """The input as two streams."""
    given: Row = {"key": "k", "timestamp": "ts", "stream_time": "max", **ORDER, **more}
    return [tg.stream(of_side(frame, name), name=name, **given) for name in cases.SIDES]


def test_a_batch_that_is_written_twice_and_a_drain_have_the_ids_of_the_first_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The records of the Kafka sink: pairs, null-joined rows, and rows that the last run emits."""
    within = tg.JoinWindows.of_time_difference_and_grace("10 ms", "5 ms")
    bound: list[Any] = []

    def topology(frame: DataFrame) -> DataFrame:
        left, right = sides_of(frame)
        bound[:] = [left.outer_join(right, within, suffixes=("_l", "_r"))]
        return tg.kafka.records(bound[0], name="alerts", headers=["row_id"])

    schema = schema_of(side=pa.string(), k=pa.string(), n=pa.int64())
    replay = Replay(spark, tmp_path, schema, topology, name="left join right")
    records = [("left", 1), ("right", 2), ("left", 40), ("left", 40), ("right", 41), ("left", 90), ("right", 95)]
    batch = [{"side": side, "k": "A", "n": n, "ts": ts} for n, (side, ts) in enumerate(records)]
    first = replay.run(with_offsets([batch])).rows[-1]
    assert len(first) == 4  # no record of the last pair has closed
    (commit,) = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    for path in (commit, commit.with_name(f".{commit.name}.crc")):
        path.unlink(missing_ok=True)
    again = replay.run([]).rows[-1]

    def ids(rows: list[Row]) -> list[str]:
        found = [json.loads(bytes(row["value"]))["row_id"] for row in rows]
        assert found == [bytes(row["headers"][0]["value"]).decode() for row in rows]
        return sorted(found)

    assert ids(first) == ids(again)
    assert len(set(ids(first))) == 4
    texts = ["(0@0,0@1)", "(0@2,0@4)", "(0@3,0@4)", "(0@5,0@6)"]
    values = [json.dumps({"name": "alerts", ROW_ID: text}, separators=(",", ":")) for text in texts]
    assert ids(first) == sorted(hashlib.sha256(text.encode()).hexdigest()[:32] for text in values)

    # A record without a partner waits for the drain. A row of a frame has the id of the table's row.
    replay.run(with_offsets([[{"side": "left", "k": "B", "n": 9, "ts": 95}]], partition=1))
    drained: list[Row] = []

    def write(rows: DataFrame) -> Any:
        written = tg.kafka.records(rows.where("k = 'B'"), key="k", name="alerts")
        return written.writeStream.outputMode("update").foreachBatch(lambda f, _: drained.extend(f.collect()))

    tg.drain(bound[0], str(tmp_path / "checkpoint"), write, row_ids=True)
    (row,) = drained
    text = json.dumps({"name": "alerts", ROW_ID: "(1@0,)"}, separators=(",", ":"))
    assert json.loads(bytes(row["value"]))["row_id"] == hashlib.sha256(text.encode()).hexdigest()[:32]


def test_rows_without_ids(spark: SparkSession) -> None:
    """Records of a stream without partition and offset have no ids."""
    frame = (
        spark.createDataFrame(
            [("left", "A", 1, 0, 0, 1)], "side string, k string, n long, partition int, offset long, ts long"
        )
        .selectExpr("*", "timestamp_millis(ts) AS at")
        .drop("ts")
    )
    given: Row = {"key": "k", "timestamp": "at", "stream_time": "max"}
    loose = [tg.stream(of_side(frame, name), name=name, **given) for name in cases.SIDES]
    within = tg.JoinWindows.of_time_difference_with_no_grace("1 ms")
    joined = loose[0].left_join(loose[1].map_values({"m": "n"}), within)
    ((value,),) = tg.kafka.records(joined).select("value").collect()
    assert "row_id" not in json.loads(bytes(value))
    with pytest.raises(tg.DefinitionError, match="`row_ids` is True, but only rows of a join have ids"):
        joined.to_df(row_ids=True)
    left, right = (tg.stream(of_side(frame, name), name=name, **given, **ORDER) for name in cases.SIDES)
    mine = left.map_values({"row_id": "n"}).join(right.map_values({"m": "n"}), within)
    with pytest.raises(tg.DefinitionError, match="row_id"):
        tg.kafka.records(mine)


def test_late_records_alone(spark: SparkSession) -> None:
    """They leave once, though a join gives its rows in parts, and where there are no pairs."""
    rows = "SELECT k, timestamp_millis(ts) AS ts, n, o FROM VALUES {} AS t(k, ts, n, o)"
    left, right = (
        tg.stream(spark.sql(rows.format(values)), key="k", timestamp="ts", offset="o", partition="n", stream_time="max")
        for values in (
            "('a', 100, 0, 0), ('late', 1, 0, 1), (null, 100, 0, 2), ('a', 101, 0, 3)",
            "('a', 102, 0, 0), ('late', 2, 0, 1)",
        )
    )
    for within in ("10 ms", "0 ms"):
        windows = tg.JoinWindows.of_time_difference_with_no_grace(within)
        found = left.join(right, windows).late_records().to_df().select("k", "side", "reason").collect()
        assert Counter(map(tuple, found)) == {
            ("late", "left", "late"): 1,
            ("late", "right", "late"): 1,
            (None, "left", "null_key"): 1,
        }


def test_streams_without_names_over_two_dataframes(spark: SparkSession) -> None:
    """Their plans are equal, and still each side reads its own DataFrame."""

    def counted(keys: str) -> tg.KStream:
        rows = [(key, n, 0, n) for n, key in enumerate(keys)]
        frame = spark.createDataFrame(rows, "k string, ts long, partition int, offset long")
        records = tg.stream(frame.withColumn("ts", F.timestamp_millis("ts")), key="k", timestamp="ts", **ORDER)
        windows = tg.TimeWindows.of_size_with_no_grace("1 second")
        final = records.group_by_key().windowed_by(windows).emit_strategy(tg.EmitStrategy.on_window_close())
        return final.count().to_stream()

    near = tg.JoinWindows.of_time_difference_with_no_grace("1 second")
    with pytest.warns(tg.TidegateWarning, match="the time of the slower side"):
        joined = counted("aabb").join(counted("abbbb"), near, suffixes=("_l", "_r"))
    rows = joined.to_df().collect()
    assert sorted((row["k"], row["count_l"], row["count_r"]) for row in rows) == [("a", 2, 1), ("b", 2, 4)]


# -- another grace and history -------------------------------------------------------------------------------------


def test_another_grace_and_history_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """Two tasks, restarts between plans: the rows of the driver, and the changes that `tg.check_upgrade` announced."""
    plans = [
        table_cases.Case("left", False, history=60, grace=20),
        table_cases.Case("left", False, history=40, grace=5),
        table_cases.Case("left", False, history=90, grace=30),
    ]
    given = [
        [("right", "a", 0), ("right", "b", 0), ("left", "a", 5), ("left", "b", 18), ("left", "a", 20)],
        [("right", "a", 4), ("right", "b", 70), ("left", "b", 21), ("right", "b", 25)],
        [("left", "b", 16), ("left", "a", 17), ("right", "a", 29), ("right", "b", 31), ("left", "a", 60)],
    ]
    n = iter(range(100))
    batches = [[{"side": s, "k": k, "n": next(n), "ts": ts, "gone": False} for s, k, ts in one] for one in given]
    driver: Any = None
    replay = Replay(spark, tmp_path, schema_of(**FIELDS), lambda frame: frame, name="left join right")
    numbered = with_offsets(batches)
    for number, (case, batch) in enumerate(zip(plans, numbered, strict=True)):
        bound: list[Any] = []

        def topology(frame: DataFrame, case: Any = case, bound: Any = bound) -> DataFrame:
            bound[:] = [case.over(*(of_side(frame, side) for side in cases.SIDES))]
            return bound[0].to_df()

        plan = case.table(ordered=False)
        if number:
            topology(replay._source())
            upgrade, wanted = (
                tg.check_upgrade(spark, str(tmp_path / "checkpoint"), bound[0]),
                driver.check_upgrade(plan),
            )
            assert upgrade.changes == wanted.changes
            assert upgrade.goes_on
            assert {change.what for change in upgrade.changes} == {"grace", "table"}
        driver = TopologyTestDriver(plan, state=driver and driver.state())
        replay.topology = topology
        # One record per batch, so that Spark takes them in the order of piping.
        got = [row for rows in replay.run([[record] for record in batch]).rows for row in rows]
        for record in batch:
            driver.pipe_input({k: record[k] for k in ("k", "n", "gone", "ts")}, record["side"])
        place = lambda row: repr(sorted(row.items(), key=str))  # noqa: E731
        assert sorted(got, key=place) == sorted(driver.read_output(), key=place)
        assert got or not number
    store = tg.read_state(spark, str(tmp_path / "checkpoint"), store="join-left").select("n")
    assert sorted(row[0] for row in store.collect()) == sorted(row["n"] for row in driver.read_state("join-left"))
