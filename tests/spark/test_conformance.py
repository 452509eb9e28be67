"""The scenarios on Spark: real streaming queries over files, one record or several a micro-batch.

`make test` runs one or two of each family; `-m full` runs all that the test driver supports.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from conformance import runner
from conformance.runner import Row, Scenario
from conformance.status import SUPPORTED
from properties import cases
from properties.comparing import assert_same, placed, run_oracle
from tidegate.instants import MAX_MS

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from seeds import FEW_ON_SPARK
from sizes import SMALL
from spark.replay import Replay, Replayed, collect, structs_as_dicts, table_of, with_offsets
from tidegate.kernel.tuning import Tuning
from tidegate.runtime.spark.to_spark import to_df

pytestmark = pytest.mark.spark

# Workers cannot import test modules: send the functions themselves.
cloudpickle.register_pickle_by_value(cases)

QUICK = {
    "batch_windows__tumbling_drops_what_batch_keeps",
    "blog_figure__two_minute_windows_emit_on_close",
    "boundary__time_closed_exactly_at_end_plus_grace",
    "boundary__suppress_shutdown_counts_open_windows",
    "emit_strategy__shouldEmitWithInterval0_close",
    "suppress_operator__finalResultsWithZeroGraceShouldStillBufferUntilTheWindowEnd",
    "time_windows__expired_window_hopping_update",
    "batch_windows__jump_skips_empty_windows",
    "boundary__session_bridge_after_close_counts_twice",
    "eviction_table__no_late_emit_after_2ms_shipped",
    "session_windows__shouldReduceWindowed_close",
    "sliding_windows__null_key_or_value_update",
}
QUICK_IN_BATCHES = {"boundary__suppress_ties_in_key_order", "time_windows__testJoin_table1_close"}


def is_streamed(name: str) -> bool:
    """Whether the scenario is a stream of records into windows."""
    scenario = runner.load(name)
    windowed = scenario.kind == "windowed_aggregate" or (scenario.kind == "changes" and not scenario.tabular)
    return windowed and bool(scenario.records)


RUNNING = [name for name in SUPPORTED if is_streamed(name)]
FINAL = [name for name in RUNNING if runner.load(name).final and not runner.load(name).stops]
STATIC = [name for name in FINAL if (runner.load(name).topology.get("windows") or {}).get("type") == "time"]


def parameters(names: list[str], quick: set[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.full) for name in names]


def replay_of(scenario: Scenario, spark: SparkSession, path: Path) -> Replay:
    values = [record["value"] for record in scenario.records if record["value"] is not None]
    number = bool(values) and all(isinstance(value, int) for value in values)
    schema = pa.schema(
        {
            "key": pa.string(),
            "value": pa.int64() if number else pa.string(),
            "ts": pa.timestamp("us", "UTC"),
            "partition": pa.int32(),
            "offset": pa.int64(),
        }
    )

    def topology(frame: DataFrame) -> DataFrame:
        stream = tg.stream(frame, key="key", timestamp="ts", partition="partition", offset="offset")
        return runner.build(scenario, stream).to_df()

    return Replay(spark, path, schema, topology)


def rows_of(scenario: Scenario, replayed: Replayed) -> list[Row]:
    """Rows in the scenarios' shape. A batch's rows come from several tasks: between keys they have no order."""
    return [row for batch in replayed.rows for row in sorted(map(runner.row_of, batch), key=place)]


def place(row: Row) -> tuple[Any, ...]:
    """Sort key of a row among the rows that one record emits."""
    return row.get("window_start_ms", 0), row["key"].encode()


def check(scenario: Scenario, rows: list[Row]) -> None:
    """As the driver's check, except for the order of the rows of one micro-batch.

    Time windows leave in the order of their starts, so sorting each batch restores it. Rows of other windows that
    leave together are compared without their order, because several tasks have none.
    """
    if scenario.order != "exact" or scenario.topology.get("windows", {"type": "time"})["type"] == "time":
        runner.check(scenario, rows)
    elif scenario.expected is not None:
        assert runner.counted(rows) == runner.counted(scenario.expected)


@pytest.mark.parametrize("name", parameters([n for n in RUNNING if not runner.load(n).stops], QUICK))
def test_record_by_record(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """One micro-batch per record."""
    scenario = runner.load(name)
    replayed = replay_of(scenario, spark, tmp_path).run(with_offsets([[record] for record in scenario.records]))
    check(scenario, rows_of(scenario, replayed))
    runner.check_dropped(scenario, replayed.dropped())
    if lateness := scenario.data.get("expected_lateness"):
        assert max(batch["record_lateness_max"] for batch in replayed.metrics) == lateness["max"]


@pytest.mark.parametrize("name", parameters(FINAL, QUICK_IN_BATCHES))
def test_final_results_in_few_batches(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """Two micro-batches, with a restart between them, give the rows of record by record."""
    scenario = runner.load(name)
    half = len(scenario.records) // 2
    batches = with_offsets([scenario.records[:half], scenario.records[half:]])
    replay = replay_of(scenario, spark, tmp_path)
    runs = [replay.run([batch]) for batch in batches if batch]
    replayed = Replayed([rows for run in runs for rows in run.rows], [m for run in runs for m in run.metrics])
    check(scenario, rows_of(scenario, replayed))
    runner.check_dropped(scenario, replayed.dropped())


@pytest.mark.parametrize("name", parameters(STATIC, QUICK_IN_BATCHES))
def test_a_static_frame_is_the_whole_stream(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """At its end every window closes: the rows are those of the stream, and rows of the windows still open."""
    scenario = runner.load(name)
    replay = replay_of(scenario, spark, tmp_path)
    (records,) = with_offsets([scenario.records])
    static = replay.topology(spark.createDataFrame(table_of(records, replay.schema)))
    rows = [runner.row_of(row) for row in collect(static)]
    expected = runner.last_per_key(scenario.expected or [])
    assert {at: row for at, row in runner.last_per_key(rows).items() if at in expected} == expected
    assert len(rows) == len(runner.last_per_key(rows))
    newest = max(record["ts"] for record in records)
    grace = (scenario.topology["windows"])["grace_ms"]
    still_open = [row for row in rows if runner.identity(row) not in expected]
    assert all(row["window_end_ms"] > newest - grace for row in still_open)


@pytest.mark.parametrize("name", parameters([n for n in RUNNING if runner.load(n).stops], QUICK))
def test_a_query_that_stops(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """Rows before the error stay valid; the failed batch emits nothing."""
    from pyspark.errors import StreamingQueryException

    scenario = runner.load(name)
    batches = with_offsets([[record] for record in scenario.records])
    replay = replay_of(scenario, spark, tmp_path)
    replayed = replay.run(batches[:-1])
    runner.check(scenario, rows_of(scenario, replayed))
    with pytest.raises(StreamingQueryException, match="BufferFullError"):
        replay.run(batches[-1:])


# -- random streams: Spark against the oracle ---------------------------------------------------------------------


def endless(rows: list[Row]) -> list[Row]:
    """Unlimited windows have a null end on Spark and the largest long in the driver and the oracle."""
    ends = [(row["window"][0], MAX_MS if row["window"][1] is None else row["window"][1]) for row in rows]
    return [{**row, "window": window} for row, window in zip(rows, ends, strict=True)]


def columns() -> pa.Schema:
    return pa.schema({**cases.SCHEMA, "ts": pa.timestamp("us", "UTC")})


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@FEW_ON_SPARK
@given(data=st.data())
def test_random_streams_are_what_the_oracle_says(spark: SparkSession, kind: str, data: Any) -> None:
    """Several source partitions, each batch read by several map tasks, two tasks, a restart in the middle."""
    case = data.draw(cases.cases(ordered=True, kind=kind))
    batches = data.draw(cases.partitioned(max_partitions=3, latest=cases.latest_on_spark(case)))
    splits = data.draw(cases.splits(batches, interleaved=data.draw(st.booleans())))
    wanted, drops = run_oracle(case.topology, batches)
    with TemporaryDirectory() as folder:
        tuning = data.draw(st.sampled_from([Tuning(), SMALL]))

        def topology(frame: DataFrame) -> DataFrame:
            return to_df(case.table(frame).node, tuning=tuning)

        replay = Replay(spark, Path(folder), columns(), topology, files_per_batch=3)
        half = len(splits) // 2
        runs = [replay.run_split(part) for part in (splits[:half], splits[half:]) if part]
    got = [endless(structs_as_dicts(rows)) for run in runs for rows in run.rows]
    for rows, expected in zip(got, wanted, strict=True):
        assert_same(case, splits, placed(case.topology, rows), placed(case.topology, expected))
    assert sum(run.dropped() for run in runs) == sum(drops.values())
