"""Splits the time of a micro-batch into parts whose sum is the whole.

Every part is the time between two moments that Spark or a clock in a worker observed, or a time that Spark measured
between them. The parts of a stage are the parts of its last task, because the stage waits for it; and of the tasks
before it on its core, if it waited for a core, as the task of a second input may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.clock import Record
from benchmarks.event_log import Execution, Stage, Task

WHOLE, RUN = "triggerExecution", "addBatch"
"""Names in `durationMs`: the micro-batch, and the execution of its plan."""

LOAD, FETCH = "RocksDB: load - time taken to load the store", "fetch wait time"
COMMIT, SCAN = "time to commit changes", "scan time"

DRIVER, MAP, STATEFUL = "driver", "map", "stateful"
TASKS = "task start and end"
REST = "not accounted for"

MEANING: dict[tuple[str, str], str] = {
    (DRIVER, "offsets and logs"): "new files found, offsets written, the batch noted as done",
    (DRIVER, "planning"): "from the plan of the query to that of the batch",
    (DRIVER, "around the stages"): "the rest of running the plan: jobs started, code generated, between stages",
    (MAP, TASKS): "from the stage's start until Python's first line, and from the task's end to the stage's",
    (MAP, "scan"): "Parquet read, by Spark or in the worker",
    (MAP, "Arrow out"): "waiting for the next rows, less Spark's scan: rows made Arrow, and sent; or lines packed",
    (MAP, "pack"): "the map step of tidegate",
    (MAP, "shuffle"): "blobs handed to Spark and written, until the task ends",
    (STATEFUL, TASKS): "as above; in it the blobs are sorted by task and sent to Python",
    (STATEFUL, "state load"): "the store of the batch before opened, by Spark and in Python",
    (STATEFUL, "shuffle"): "blobs waited for and received",
    (STATEFUL, "state read"): "asked of the store",
    (STATEFUL, "kernel"): "the stateful step of tidegate",
    (STATEFUL, "state write"): "given to the store",
    (STATEFUL, "Arrow in"): "rows made frames and Arrow, sent, observed by Spark and given to the sink",
    (STATEFUL, "commit"): "the store made durable",
    (DRIVER, REST): "of the whole, what no part has",
}
"""The meaning of every part by (place, name), about in the order of time."""


@dataclass(frozen=True)
class Part:
    where: str
    name: str
    ms: float


def split(durations: Mapping[str, float], execution: Execution, records: Mapping[int, Record]) -> list[Part]:
    """The parts of a micro-batch in the order of MEANING; their sum is its `triggerExecution`.

    durations: its `durationMs`. records: the clocks of its tasks, by task id; KeyError if one is missing.
    """
    spent: dict[tuple[str, str], float] = defaultdict(float)
    for name, ms in durations.items():
        if name not in (WHOLE, RUN):
            spent[DRIVER, "planning" if name == "queryPlanning" else "offsets and logs"] += ms
    walls = 0.0
    for stage in execution.stages:
        walls += stage.completed - stage.submitted
        for part in of_stage(stage, records):
            spent[part.where, part.name] += part.ms
    spent[DRIVER, "around the stages"] = execution.ended - execution.began - walls
    spent[DRIVER, REST] = durations[WHOLE] - sum(spent.values())
    return [Part(where, name, spent[where, name]) for where, name in MEANING]


def of_stage(stage: Stage, records: Mapping[int, Record]) -> Iterator[Part]:
    """The parts of a stage; their sum is its time."""
    row, since = _in_a_row(stage.tasks), stage.submitted
    for task in row:
        record = records[task.id]
        spent = defaultdict(float, {name: seconds * 1000 for name, seconds in record.seconds.items()})
        spent[TASKS] += record.began * 1000 - since
        after = task.finished - record.ended * 1000
        if record.kind == MAP:
            spent["shuffle"] += after
            _moved(spent, task, "Arrow out", {SCAN: "scan"})
        else:
            spent["Arrow in"] += after
            _moved(spent, task, TASKS, {LOAD: "state load", FETCH: "shuffle"})
            _moved(spent, task, "Arrow in", {COMMIT: "commit"})
        if task is row[-1]:
            spent[TASKS] += stage.completed - task.finished
        since = task.finished
        for name, ms in spent.items():
            yield Part(record.kind, name, ms)


def _in_a_row(tasks: list[Task]) -> list[Task]:
    """The task that ended last, preceded by the tasks before it on its core: each began after the end of another."""
    row = [max(tasks, key=lambda one: one.finished)]
    while before := [one for one in tasks if one.finished <= row[0].launched]:
        row.insert(0, max(before, key=lambda one: one.finished))
    return row


def _moved(spent: dict[str, float], task: Task, out_of: str, measured: dict[str, str]) -> None:
    """Move times that Spark `measured` from the part `out_of` to other parts; at most all of it: Spark rounds to ms."""
    for metric, name in measured.items():
        ms = min(task.metrics.get(metric, 0.0), max(spent[out_of], 0.0))
        spent[out_of] -= ms
        spent[name] += ms


def as_json(parts: list[Part]) -> list[list[Any]]:
    return [[part.where, part.name, round(part.ms, 1)] for part in parts]


def median_of(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """The micro-batch of median time, the shorter one of the middle two."""
    return sorted(batches, key=lambda each: each["ms"])[(len(batches) - 1) // 2]


def dearest_of(batches: list[dict[str, Any]]) -> dict[str, Any]:
    return max(batches, key=lambda each: each["ms"])
