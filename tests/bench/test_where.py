"""Split of a micro-batch's time, from Spark's numbers and the clocks of two tasks: its parts add up to the whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks import event_log, where_drawn
from benchmarks.clock import Clock, Record
from benchmarks.split import (
    COMMIT,
    LOAD,
    MAP,
    MEANING,
    SCAN,
    STATEFUL,
    TASKS,
    as_json,
    dearest_of,
    median_of,
    of_stage,
    split,
)

DURATIONS = {
    "triggerExecution": 1_000,
    "addBatch": 900,
    "queryPlanning": 30,
    "latestOffset": 20,
    "walCommit": 10,
    "commitOffsets": 15,
}


DESCRIPTION = "\nid = i\nrunId = r\nbatch = 7"


def task(stage: int, id: int, launched: int, finished: int, reason: str = "Success", **metrics: str) -> dict[str, Any]:
    told = [{"Name": name, "Update": ms, "Metadata": "sql"} for name, ms in metrics.items()]
    other = {"Name": "internal.metrics.executorRunTime", "Update": 5, "Metadata": None}
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task End Reason": {"Reason": reason},
        "Task Info": {"Task ID": id, "Launch Time": launched, "Finish Time": finished, "Accumulables": [*told, other]},
    }


def stage(id: int, submitted: int, completed: int) -> dict[str, Any]:
    of = {"Stage ID": id, "Submission Time": submitted, "Completion Time": completed}
    return {"Event": "SparkListenerStageCompleted", "Stage Info": of}


def sql(kind: str, id: int, time: int, **more: str) -> dict[str, Any]:
    return {
        "Event": f"org.apache.spark.sql.execution.ui.SparkListenerSQLExecution{kind}",
        "executionId": id,
        "time": time,
        **more,
    }


EVENTS = [
    sql("Start", 0, 50, description="of another job"),
    sql("End", 0, 90),
    sql("Start", 1, 100, description=DESCRIPTION),
    sql("Start", 2, 110, description=DESCRIPTION),
    {
        "Event": "SparkListenerJobStart",
        "Stage IDs": [4, 5],
        "Properties": {"spark.job.description": DESCRIPTION},
    },
    task(4, 40, 210, 300),
    task(4, 42, 210, 490, reason="ExceptionFailure"),
    task(4, 41, 212, 480, **{SCAN: "60"}),
    stage(4, 200, 500),
    task(5, 50, 520, 900, **{LOAD: "25", COMMIT: "40"}),
    task(5, 51, 520, 700),
    stage(5, 510, 910),
    sql("End", 2, 980),
    sql("End", 1, 990),
]

RECORDS = {
    40: Record(MAP, 40, 0.22, 0.29, {"pack": 0.07}),
    41: Record(MAP, 41, 0.25, 0.45, {"Arrow out": 0.08, "pack": 0.1, "shuffle": 0.02}),
    50: Record(STATEFUL, 50, 0.6, 0.85, {"state load": 0.03, "kernel": 0.12, "state read": 0.04, "Arrow in": 0.06}),
    51: Record(STATEFUL, 51, 0.6, 0.69, {"kernel": 0.09}),
}


def parts() -> dict[tuple[str, str], float]:
    found = split(DURATIONS, event_log.read(EVENTS)["r", 7], RECORDS)
    return {(part.where, part.name): pytest.approx(part.ms) for part in found}


def test_the_parts_of_a_batch() -> None:
    """Each stage counts the task that ended last: 41, which waited for its scan, and 50, which committed."""
    assert parts() == {
        ("driver", "offsets and logs"): 20 + 10 + 15,
        ("driver", "planning"): 30,
        ("driver", "around the stages"): 890 - 300 - 400,
        ("map", "task start and end"): 50 + 20,
        ("map", "scan"): 60,
        ("map", "Arrow out"): 80 - 60,
        ("map", "pack"): 100,
        ("map", "shuffle"): 20 + 30,
        ("stateful", "task start and end"): 90 - 25 + 10,
        ("stateful", "state load"): 30 + 25,
        ("stateful", "shuffle"): 0,
        ("stateful", "state read"): 40,
        ("stateful", "kernel"): 120,
        ("stateful", "state write"): 0,
        ("stateful", "Arrow in"): 60 + 50 - 40,
        ("stateful", "commit"): 40,
        ("driver", "not accounted for"): 1_000 - 75 - 890,
    }


def test_of_tasks_that_had_one_core_in_a_row_the_parts_are_those_of_all() -> None:
    """A join has map tasks for both inputs: if two ran one after the other, Spark did not wait for only one of them."""
    task_ = event_log.Task
    stage_ = event_log.Stage(200, 500, [task_(1, 210, 300), task_(2, 210, 330), task_(3, 302, 400), task_(4, 331, 480)])
    records = {
        2: Record(MAP, 2, 0.22, 0.32, {"pack": 0.1}),
        4: Record(MAP, 4, 0.335, 0.475, {"scan": 0.04, "pack": 0.1}),
    }
    found: dict[str, float] = {}
    for part in of_stage(stage_, records):
        assert part.where == MAP
        found[part.name] = found.get(part.name, 0) + part.ms
    wanted = {"pack": 200, "scan": 40, "shuffle": 10 + 5, TASKS: 20 + 5 + 20}
    assert {name: ms for name, ms in found.items() if round(ms, 6)} == pytest.approx(wanted)
    assert sum(found.values()) == pytest.approx(300)


def test_the_parts_are_the_whole() -> None:
    found = split(DURATIONS, event_log.read(EVENTS)["r", 7], RECORDS)
    assert sum(part.ms for part in found) == pytest.approx(DURATIONS["triggerExecution"])
    assert [(part.where, part.name) for part in found] == list(MEANING)


def test_a_metric_never_takes_more_than_the_part_it_is_in() -> None:
    """Spark's scan may begin before Python waits for it, and its times are whole milliseconds."""
    waiting = RECORDS | {41: Record(MAP, 41, 0.25, 0.45, {"Arrow out": 0.05, "pack": 0.15})}
    found = split(DURATIONS, event_log.read(EVENTS)["r", 7], waiting)
    of = {(part.where, part.name): part.ms for part in found}
    assert of["map", "scan"] == pytest.approx(50)
    assert of["map", "Arrow out"] == 0


def test_a_task_without_a_record_is_an_error() -> None:
    with pytest.raises(KeyError):
        split(DURATIONS, event_log.read(EVENTS)["r", 7], {41: RECORDS[41]})


def test_only_micro_batches_are_read_from_a_log(tmp_path: Path) -> None:
    (tmp_path / "app").write_text("\n".join(map(json.dumps, EVENTS)), encoding="utf-8")
    ((key, execution),) = event_log.executions(tmp_path).items()
    assert key == ("r", 7)
    assert [[one.id for one in stage.tasks] for stage in execution.stages] == [[40, 41], [50, 51]]


def ticking() -> Clock:
    """A clock that advances by a second at each look."""
    return Clock("a", now=itertools.count().__next__)


def test_a_moment_belongs_to_the_innermost_part() -> None:
    clock = ticking()
    with clock.at("b"), clock.at("c"):
        pass
    record = clock.record("map", 3)
    assert record.seconds == {"a": 2, "b": 2, "c": 1}
    assert sum(record.seconds.values()) == record.ended - record.began


def test_what_is_pulled_and_what_is_lent() -> None:
    """A generator that pulls its input, and a consumer that takes its time."""
    clock = ticking()

    def made() -> Iterator[int]:
        for each in clock.pulled([1, 2], "in"):
            yield each * 10

    assert list(clock.lent(made(), "out")) == [10, 20]
    assert clock.seconds["in"] == 3  # the end is asked for too
    assert clock.seconds["out"] == 2


def work() -> dict[str, Any]:
    found = as_json(split(DURATIONS, event_log.read(EVENTS)["r", 7], RECORDS))
    twice = [[where, name, 2 * ms] for where, name, ms in found]
    batches = [{"batch": 6, "ms": 2_000, "parts": twice}, {"batch": 7, "ms": 1_000, "parts": found}]
    return {"title": "a title", "contestants": {"tidegate": {"label": "ours & theirs", "batches": batches}}}


def test_the_median_and_the_dearest_batch() -> None:
    batches = work()["contestants"]["tidegate"]["batches"]
    assert (median_of(batches)["batch"], dearest_of(batches)["batch"]) == (7, 6)


def test_a_drawing_has_a_bar_as_long_as_its_batch() -> None:
    root = ET.fromstring(where_drawn.drawn("W1", work()))
    rects = [each for each in root.findall("{*}rect") if each.get("height") == str(where_drawn.BAR)]
    rows = {y: [float(r.get("width", 0)) for r in rects if r.get("y") == y] for y in {r.get("y") for r in rects}}
    assert [len(widths) for widths in rows.values()] == [len(MEANING)] * 2
    lengths = sorted(sum(widths) for widths in rows.values())
    whole = where_drawn.WIDTH - 2 * where_drawn.SIDE
    assert lengths == pytest.approx([whole / 2, whole], abs=2)
    written = "".join(text.text or "" for text in root.findall("{*}text"))
    assert "ours & theirs, dearest batch: 2,000 ms" in written


def test_every_part_has_a_colour_and_only_parts_have() -> None:
    assert set(where_drawn.FILLS) == {name for _, name in MEANING}


def test_the_section_tells_the_largest_parts(tmp_path: Path) -> None:
    text = where_drawn.section({"workloads": {"W1": work()}}, "Measured so.", tmp_path / "benchmarks")
    assert "* ours & theirs: 1,000 ms; most in around the stages (driver) 19%, kernel (stateful) 12%" in text
    assert "not accounted for 3.5%" in text
    assert "(benchmarks/where-W1.svg)" in text
    assert (tmp_path / "benchmarks" / "where-W1.svg").exists()


def test_a_rest_of_nothing_has_no_sign(tmp_path: Path) -> None:
    whole = work()
    for batch in whole["contestants"]["tidegate"]["batches"]:
        batch["parts"][-1][2] = -0.2
    text = where_drawn.section({"workloads": {"W1": whole}}, "Measured so.", tmp_path / "benchmarks")
    assert "not accounted for 0.0%" in text
