"""Mistakes of a first hour, caught where they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver

GROUPED = tg.stream("events", key="k", timestamp="ts").group_by_key()
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
MINUTES = tg.TimeWindows.of_size_with_no_grace("1 minute")


@pytest.mark.parametrize(
    ("aggregate", "fix"),
    [(tg.count(), "agg(n=tg.count())"), (tg.sum("amount"), "agg(amount_sum=tg.sum('amount'))")],
)
def test_an_aggregate_without_a_name(aggregate: Any, fix: str) -> None:
    with pytest.raises(tg.DefinitionTypeError) as caught:
        GROUPED.agg(aggregate)
    assert str(caught.value) == f"`agg` got {aggregate} without a name for its column. Give one, for example {fix}."


def test_a_column_that_no_record_has() -> None:
    driver = TopologyTestDriver(GROUPED.agg(total=tg.sum("amuont")))
    with pytest.raises(tg.InputError) as caught:
        driver.pipe_input({"k": "A", "ts": 0, "amount": 1})
    assert str(caught.value) == (
        "Nothing that was piped has a column 'amuont', which the aggregation reads; the columns are 'k', 'ts', "
        "'amount'. Correct the name, or pipe records with that column (None for a null)."
    )


def test_a_column_that_an_earlier_record_had() -> None:
    driver = TopologyTestDriver(GROUPED.agg(total=tg.sum("amount"), n=tg.count()))
    driver.pipe_input({"k": "A", "ts": 0, "amount": 1})
    driver.pipe_input({"k": "A", "ts": 1, "other": 1})
    assert [(row["total"], row["n"]) for row in driver.read_output()] == [(1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda driver: TopologyTestDriver("events"), "A driver runs a topology, not 'events'. Give what a query is"),
        (lambda driver: driver.pipe_input("A"), "A record is 'A' (str), not a dict of columns. Give for example"),
        (lambda driver: driver.pipe_batch("A"), "pipe_batch got 'A', which is no batch. Give a list of records"),
        (lambda driver: driver.pipe_batch({"k": "A"}), "pipe_batch got {'k': 'A'}, which is no batch."),
        (lambda driver: driver.pipe_batch(7), "pipe_batch got 7, which is no batch."),
        (lambda driver: driver.pipe_batch([("A", 0)]), "A record is ('A', 0) (tuple), not a dict of columns."),
    ],
)
def test_what_is_no_topology_and_no_record(mistake: Callable[[Any], Any], message: str) -> None:
    driver = TopologyTestDriver(GROUPED.count())
    with pytest.raises(tg.TidegateError) as caught:
        mistake(driver)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "batch",
    [
        pa.table({"k": ["a", "b", "a"], "ts": [0, 1, 2], "v": pa.array([1, None, 2], pa.int8())}),
        pa.RecordBatch.from_pydict({"k": ["a", "b", "a"], "ts": [0, 1, 2], "v": pa.array([1, None, 2], pa.int8())}),
        pd.DataFrame({"k": ["a", "b", "a"], "ts": [0, 1, 2], "v": pd.array([1, None, 2], "Int8")}),
        [{"k": key, "ts": ts, "v": v} for key, ts, v in [("a", 0, 1), ("b", 1, None), ("a", 2, 2)]],
    ],
    ids=["table", "record batch", "pandas", "generator"],
)
@pytest.mark.parametrize("mapped", [False, True], ids=["as it is", "behind a step"])
def test_a_table_or_a_frame_is_a_batch(batch: Any, mapped: bool) -> None:
    stream = tg.stream("events", key="k", timestamp="ts")
    stream = stream.map_values({"v": "v"}) if mapped else stream
    driver = TopologyTestDriver(stream.group_by_key().windowed_by(MINUTES).agg(n=tg.count(), of=tg.collect_list("v")))
    driver.pipe_batch(iter(batch) if isinstance(batch, list) else batch)
    assert [(row["k"], row["n"], row["of"]) for row in driver.read_output()] == [("b", 1, []), ("a", 2, [1, 2])]


def test_the_types_of_a_table_are_those_of_its_columns() -> None:
    driver = TopologyTestDriver(GROUPED.agg(largest=tg.max("v")))
    driver.pipe_batch(pa.table({"k": ["a"], "ts": [0], "v": pa.array([1], pa.int8())}))
    with pytest.raises(tg.InputError, match="not a int8"):
        driver.pipe_input({"k": "a", "ts": 1, "v": 1000})


def test_dir_shows_every_name() -> None:
    assert {*tg.__all__, "files", "kafka", "metrics"} <= set(dir(tg))


@pytest.mark.parametrize(
    ("topology", "shown"),
    [
        (GROUPED.count(), "<KTable count = count() of events by k>"),
        (
            GROUPED.windowed_by(MINUTES).agg(n=tg.count(), s=tg.sum("v")).suppress(FINAL),
            f"<KTable n = count(), s = sum(v) of events by k in {MINUTES} -> suppress({FINAL})>",
        ),
        (
            GROUPED.windowed_by(MINUTES).emit_strategy(tg.EmitStrategy.on_window_close()).count(),
            f"<KTable count = count() of events by k in {MINUTES}, on window close>",
        ),
        (tg.table("prices", key="k", timestamp="ts"), "<KTable table prices by k>"),
        (tg.stream("events", key="k", timestamp="ts").filter(len), "<KStream events -> filter(len)>"),
        (GROUPED.count().to_stream(), "<KStream changes of count = count() of events by k>"),
        (GROUPED.windowed_by(MINUTES).count().late_records(), "<KLateRecords late records of count = count() of"),
        (tg.outputs(raw=GROUPED.count()), "<KOutputs raw: count = count() of events by k>"),
        (GROUPED.count().filter(len), "<KTable count = count() of events by k -> filter(len)>"),
    ],
)
def test_a_topology_is_shown_in_one_line(topology: Any, shown: str) -> None:
    assert repr(topology).startswith(shown)
    assert "\n" not in repr(topology)
