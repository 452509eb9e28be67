"""Reads the times of stages and tasks of streaming micro-batches from Spark's event log.

The log is Spark's own (`spark.eventLog.enabled`), a line of JSON per event, and is complete when its session has ended.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OF_BATCH = re.compile(r"runId = (\S+)\nbatch = (\d+)")

Key = tuple[str, int]
"""The run of a query, and the micro-batch."""


@dataclass(frozen=True)
class Task:
    """One successful task: its id, launch and finish (ms since 1970), and its updates of Spark's SQL metrics."""

    id: int
    launched: float
    finished: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    submitted: float
    completed: float
    tasks: list[Task]


@dataclass(frozen=True)
class Execution:
    """The execution of a micro-batch: its begin and end (ms since 1970), and its stages in order of completion."""

    began: float
    ended: float
    stages: list[Stage]


def settings(folder: Path) -> dict[str, str]:
    """Settings of a session that writes its log to `folder`, in one uncompressed file."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.resolve().as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def executions(folder: Path) -> dict[Key, Execution]:
    """The executions of all micro-batches of the sessions that wrote to `folder`."""
    found: dict[Key, Execution] = {}
    for path in folder.iterdir():
        with path.open(encoding="utf-8") as lines:
            found |= read(json.loads(line) for line in lines)
    return found


def read(events: Iterable[dict[str, Any]]) -> dict[Key, Execution]:
    spans: dict[Key, list[float]] = defaultdict(list)
    keys: dict[int, Key] = {}
    of_stage: dict[int, Key] = {}
    tasks: dict[int, list[Task]] = defaultdict(list)
    stages: dict[Key, list[Stage]] = defaultdict(list)
    for event in events:
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerSQLExecutionStart" and (key := _key(event.get("description"))):
            keys[event["executionId"]] = key
            spans[key].append(event["time"])
        elif kind == "SparkListenerSQLExecutionEnd" and event["executionId"] in keys:
            spans[keys[event["executionId"]]].append(event["time"])
        elif kind == "SparkListenerJobStart" and (key := _key(event["Properties"].get("spark.job.description"))):
            of_stage |= dict.fromkeys(event["Stage IDs"], key)
        elif kind == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            tasks[event["Stage ID"]].append(_task(event["Task Info"]))
        elif kind == "SparkListenerStageCompleted" and (info := event["Stage Info"])["Stage ID"] in of_stage:
            stage = Stage(info["Submission Time"], info["Completion Time"], tasks[info["Stage ID"]])
            stages[of_stage[info["Stage ID"]]].append(stage)
    return {key: Execution(min(times), max(times), stages[key]) for key, times in spans.items()}


def _key(description: str | None) -> Key | None:
    found = OF_BATCH.search(description or "")
    return (found[1], int(found[2])) if found else None


def _task(info: dict[str, Any]) -> Task:
    metrics = {one["Name"]: float(one["Update"]) for one in info["Accumulables"] if one.get("Metadata") == "sql"}
    return Task(info["Task ID"], info["Launch Time"], info["Finish Time"], metrics)
