"""Sinks that take a batch: those that do not have it yet, and none if the plan has changed."""

from __future__ import annotations

import traceback
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError

from tidegate.errors import CheckpointError, TidegateError
from tidegate.runtime.spark.sinks import exactly_once
from tidegate.runtime.spark.sinks.exactly_once import Batch, Batches, Target, Written
from tidegate.runtime.spark.sinks.outputs import Rows
from tidegate.runtime.spark.sinks.staging import Lane, Staged


class Memory(Target):
    """A sink in memory that dies on request."""

    def __init__(self, output: str | None, dies: bool = False) -> None:
        super().__init__(Rows(output, (), (), once=True, mode="append"), f"the sink {output}", None, "")
        self.taken: list[int] = []
        self.begun: list[str] = []
        self.last: Written | None = None
        self.dies = dies

    def lane(self, frame_columns: Any, batch: Batch) -> tuple[list[Any], Lane]:
        return [], self  # type: ignore[return-value]

    def begin(self, query: str) -> None:
        self.begun.append(query)

    def written(self, query: str) -> Written | None:
        return self.last

    def commit(self, batch: Batch, rows: Staged) -> None:
        if self.dies:
            raise RuntimeError("the power is gone")
        self.taken.append(batch.number)
        self.last = Written(batch.number, batch.plan)


def frame(query: str | None = "q") -> Any:
    context = SimpleNamespace(getLocalProperty=lambda name: query if name == exactly_once.QUERY_ID else None)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context), columns=[])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of sinks for each run of a batch; each of them gets a row."""
    found: list[int] = []

    def staged(frame: Any, lanes: Any) -> list[Staged]:
        found.append(len(lanes))
        return [Staged(None, count=1) for _ in lanes]

    monkeypatch.setattr(exactly_once, "staged", staged)
    return found


def test_an_error_of_spark_leaves_without_the_words_that_spark_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's regular expression for the text behind these words overflowed its stack, and the query hung."""
    said = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)" + 100 * "\n\tat java"
    of_java = SimpleNamespace(toString=lambda: said, _target_id="o1", _gateway_client=None)

    def staged(frame: Any, lanes: Any) -> list[Staged]:
        raise Py4JJavaError("An error occurred while calling o1.collectToPython.\n", of_java)

    monkeypatch.setattr(exactly_once, "staged", staged)
    with pytest.raises(TidegateError, match="could not run batch 3") as caught:
        Batches([Memory("one")], plan=7)(frame(), 3)
    text = "".join(traceback.format_exception(caught.value))  # as Py4J hands it to Spark
    assert said in text
    assert "Py4JJavaError: An error occurred while calling" not in text


def test_a_batch_goes_to_the_sinks_that_do_not_have_it(runs: list[int]) -> None:
    one, two = Memory("one"), Memory("two", dies=True)
    function = Batches([one, two], plan=7)
    with pytest.raises(RuntimeError, match="the power is gone"):
        function(frame(), 0)
    assert (one.taken, two.taken) == ([0], [])
    two.dies = False
    for number in (0, 0, 1):
        function(frame(), number)
    # A batch also runs for no sink, because its state must be stored.
    assert runs == [2, 1, 0, 2]
    assert (one.taken, two.taken) == ([0, 1], [0, 1])
    # A failed batch begins anew: its staged rows are removed.
    assert one.begun == ["q", "q"]


def test_a_batch_without_rows_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "staged", lambda frame, lanes: [Staged(None) for _ in lanes])
    one = Memory(None)
    Batches([one], plan=7)(frame(), 0)
    assert one.taken == []


def test_a_batch_of_another_plan_is_refused(runs: list[int]) -> None:
    one = Memory(None)
    Batches([one], plan=7)(frame(), 4)
    with pytest.raises(CheckpointError, match="the sink None has batch 4 already, as another plan computed it"):
        Batches([one], plan=8)(frame(), 4)
    Batches([one], plan=8)(frame(), 5)
    assert one.taken == [4, 5]


@pytest.mark.parametrize(
    ("mode", "advice"),
    [
        ("append", r'remove the rows that batches from 3 on wrote, then give it name="rows-2"'),
        ("upsert", r'its rows replace those that are there: give it name="rows-2"'),
    ],
)
def test_a_checkpoint_that_is_older_than_the_sink_is_refused(runs: list[int], mode: str, advice: str) -> None:
    """Spark reruns the newest batch alone: behind a copy of a checkpoint a batch of that number has other rows."""
    one = Memory(None)
    one.rows = replace(one.rows, mode=mode)
    for number in range(5):
        Batches([one], plan=7)(frame(), number)
    with pytest.raises(CheckpointError, match=rf"has batch 4 of this query, and .* runs batch 3 now: .*{advice}"):
        Batches([one], plan=7)(frame(), 3)
    assert one.taken == [0, 1, 2, 3, 4]


def test_outputs_of_one_name_are_told_apart() -> None:
    assert (Memory(None).identity, Memory("raw").identity) == ("rows", "rows/raw")


def test_without_a_query_there_is_nothing_to_remember_by(runs: list[int]) -> None:
    with pytest.raises(TidegateError, match="no batch of a streaming query"):
        Batches([], plan=7)(frame(None), 0)
    connect = SimpleNamespace(sparkSession=SimpleNamespace(), columns=[])
    with pytest.raises(TidegateError, match="Spark Connect does not tell"):
        Batches([], plan=7)(connect, 0)  # type: ignore[arg-type]
