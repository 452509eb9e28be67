"""Measurement and comparison of W7, W9 and W12, without a broker: wrong rows must fail a measurement."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks.agreement import expected
from benchmarks.inputs import FIRST_MS, GRACE_MS, SIZE_MS, Shape
from benchmarks.options import Options
from benchmarks.peers import marks, over_kafka
from benchmarks.peers.joined_topics import J5
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.topics import (
    PARTITIONS,
    Answer,
    Result,
    batches_of,
    last_ms,
    of_every_window,
    pieces,
    records_of,
    require,
    result_in_columns,
)
from benchmarks.race import UnableError
from benchmarks.sliding_rows import DIFFERENCE_MS
from benchmarks.sliding_rows import of_every_window as of_every_sliding_window
from benchmarks.workloads import sliding
from tools.maven import MavenError

SHAPE = Shape(keys=50, rows=400, batches=3)


def test_a_partition_has_its_users_in_an_order_in_which_none_is_late() -> None:
    written = np.concatenate(list(pieces(SHAPE)))
    assert len(written) == records_of(SHAPE)
    for partition in range(PARTITIONS):
        mine = written[written["partition"] == partition]
        assert mine["time"][-1] == last_ms(SHAPE) == mine["time"].max()
        assert mine["user"][-1] >= SHAPE.keys
        sofar = np.maximum.accumulate(mine["time"].astype(np.int64))
        assert 0 < (sofar - mine["time"]).max() < GRACE_MS
        assert set(mine["user"][:-1] % PARTITIONS) == {partition}


def test_each_micro_batch_has_its_share_of_every_partition_and_the_same_span() -> None:
    *batches, last = pieces(replace(SHAPE, rows=40_000))
    assert len(batches) == SHAPE.batches
    assert len(last) == PARTITIONS
    for batch in batches:
        assert np.bincount(batch["partition"]) == pytest.approx([10_000] * PARTITIONS, rel=0.2)
    begins = [int(batch["time"].min()) for batch in batches]
    # The first batch begins at the start of a window, without earlier records.
    assert [after - before for before, after in pairwise(begins[1:])] == pytest.approx([SHAPE.batch_span_ms], rel=0.01)


def test_the_records_written_are_those_that_the_direct_computation_counts() -> None:
    written = np.concatenate(list(pieces(SHAPE))[:-1])
    rows = of_every_window(SHAPE)
    assert sum(count for count, _ in rows.values()) == len(written)
    assert sum(total for _, total in rows.values()) == written["amount"].sum()
    closed = expected(SHAPE, ordered=True)
    assert closed.items() <= rows.items()
    assert 0 < len(closed) < len(rows)


def found(rows: Answer, records: int, one_each: bool = False) -> Result:
    return Result(rows=rows, records=records, one_each=one_each, last_ms=0)


def test_all_rows_once_are_right() -> None:
    rows = of_every_window(SHAPE)
    require(found(rows, len(rows)), SHAPE, "one", final=True, every=False)
    require(found(rows, 3 * len(rows)), SHAPE, "one", final=False, every=False)
    require(found(rows, 1200, one_each=True), SHAPE, "one", final=False, every=True)


@pytest.mark.parametrize("wrong", ["missing", "more", "different"])
def test_a_row_that_is_wrong_is_told(wrong: str) -> None:
    rows = dict(of_every_window(SHAPE))
    at = next(iter(rows))
    if wrong == "missing":
        del rows[at]
    elif wrong == "more":
        rows["user-9999999", FIRST_MS + SIZE_MS] = (1, 1)
    else:
        rows[at] = (rows[at][0], rows[at][1] + 1)
    with pytest.raises(AssertionError, match=r"one: 1 of \d+ rows differ"):
        require(found(rows, len(rows)), SHAPE, "one", final=True, every=False)


def test_a_final_row_twice_and_an_update_too_few_are_told() -> None:
    rows = of_every_window(SHAPE)
    with pytest.raises(AssertionError, match="final was not final"):
        require(found(rows, len(rows) + 1), SHAPE, "one", final=True, every=False)
    with pytest.raises(AssertionError, match="not one for each record"):
        require(found(rows, 1199), SHAPE, "one", final=False, every=True)


@pytest.mark.parametrize("wrong", ["nothing", "missing", "more", "different", "twice"])
def test_rows_in_columns_are_compared_as_well(wrong: str) -> None:
    rows = right = of_every_sliding_window(SHAPE)
    last = np.arange(len(right)) == len(right) - 1
    if wrong == "missing":
        rows = right.where(~last)
    elif wrong == "more":
        right = right.where(~last)
    elif wrong == "different":
        rows = replace(right, total=right.total + last)
    given = found(rows, len(rows) + (wrong == "twice"))

    def check() -> None:
        require(given, SHAPE, "one", final=True, every=False, wanted=lambda _: right)

    if wrong == "nothing":
        check()
    else:
        of = "final was not final" if wrong == "twice" else r"one: 1 of \d+ rows differ .* as that of \('user-00000"
        with pytest.raises(AssertionError, match=of):
            check()


def test_columns_are_not_compared_with_a_dict() -> None:
    rows = of_every_sliding_window(SHAPE)
    with pytest.raises(TypeError, match="columns"):
        require(found(rows, len(rows)), SHAPE, "one", final=True, every=False)


def test_every_contestant_of_w12_is_asked_for_the_same_windows() -> None:
    for each in over_kafka.of_w12():
        assert (each.final, each.every) == (True, False)
        assert each.read_back is result_in_columns
        if isinstance(each, KafkaStreams):
            assert each.windows == {"difference_ms": DIFFERENCE_MS, "grace_ms": GRACE_MS}
        else:
            assert each.ask is sliding.final


def test_the_clock_of_two_processes() -> None:
    first, second = [(1, 100), (400, 500), (602, 700)], [(1, 110), (602, 900)]
    assert marks.marks(batches_of(SHAPE)) == [1, 400, 800, 1204]
    assert marks.reached([first, second], [1, 400, 800, 1204]) == [100, 500, 900, 900]
    with pytest.raises(AssertionError, match="only 1,203 records of 1,204"):
        marks.reached([first, [(601, 900)]], [1, 1204])


def test_a_run_ends_with_the_last_result() -> None:
    peak = {"java": 1.0, "python": 2.0, "worker": 3.0}
    run = marks.run(batches_of(SHAPE), [1000, 2000, 4000, 5000], 6000, peak, 0.0)
    assert (run.rows, run.seconds) == ([400, 400, 404], [1.0, 2.0, 2.0])
    assert run.rate == 404 / 2
    early = marks.run(batches_of(SHAPE), [1000, 2000, 4000, 5000], 4500, peak, 0.0)
    assert early.seconds[-1] == 1.0


def test_without_a_broker_it_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(part: str) -> list[Path]:
        raise MavenError(f"mvn is not on the PATH, for the {part}")

    monkeypatch.setattr(over_kafka, "jars", missing)
    assert over_kafka.connector() == {}
    for workload in (over_kafka.W7, over_kafka.W9, over_kafka.W12, J5):
        found = workload.measure(None, Options("smoke", 1), tmp_path)
        why = "there is no broker: mvn is not on the PATH, for the connector"
        assert set(found.pop("unable").values()) == {why}
        assert found == {"contestants": {}, "agreement": {}, "bars": []}


def test_a_contestant_that_cannot_be_had_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(peer: str) -> Path:
        raise UnableError("pip failed")

    monkeypatch.setattr(over_kafka.environment, "python", missing)
    monkeypatch.setattr(over_kafka, "build", lambda project: "")
    able, why = over_kafka.able(list(over_kafka.of_w7()))
    assert [each.name for each in able] == [each.name for each in over_kafka.of_w7() if each.name != "quix"]
    assert why == {"quix": "pip failed"}


def test_every_bar_is_about_contestants_that_there_are() -> None:
    for workload in (over_kafka.W7, over_kafka.W9, over_kafka.W12, J5):
        names = [each.name for each in workload.contestants()]
        assert len(set(names)) == len(names)
        assert {name for bar in workload.bars for name in (*bar.ours, *bar.others)} <= set(names)
