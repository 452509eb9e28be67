"""The check of the demo: rows, counts and alerts against results that plain Python computes, without tidegate.

A report is in time or late by the running maximum of the departures. One in time is added to its hour; hours are closed
at the end. There are no batches and no vectors, and no code shared with the kernel or with the table of costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from tidegate.demo.stream import Run

Hour = tuple[str, int]
"""An airport and the start of an hour, in ms."""

HOUR_MS = 3_600_000


@dataclass
class Result:
    """The expected result of one hour; `delay` is the sum in minutes, `timestamp` in ms."""

    departures: int = 0
    delay: int = 0
    timestamp: int = 0

    @property
    def mean_delay(self) -> float:
        return self.delay / self.departures


@dataclass
class Expected:
    """The expected results of all reports."""

    final: dict[Hour, Result] = field(default_factory=dict)
    still_open: dict[Hour, Result] = field(default_factory=dict)
    late: Counter[Hour] = field(default_factory=Counter)
    bad_timestamps: int = 0
    stream_time: int = -1


def directly(reports: pd.DataFrame, grace_ms: int) -> Expected:
    """Compute the expected results from the reports in the order of their arrival."""
    expected = Expected()
    hours: dict[Hour, Result] = {}
    for origin, departure, delay in _rows(reports):
        if departure is None:
            expected.bad_timestamps += 1
            continue
        expected.stream_time = max(expected.stream_time, departure)
        hour = (origin, departure - departure % HOUR_MS)
        if _closed(hour, expected.stream_time, grace_ms):
            expected.late[hour] += 1
            continue
        result = hours.setdefault(hour, Result())
        result.departures += 1
        result.delay += delay
        result.timestamp = max(result.timestamp, departure)
    for hour, result in hours.items():
        kept = expected.final if _closed(hour, expected.stream_time, grace_ms) else expected.still_open
        kept[hour] = result
    return expected


def alerts_directly(reports: pd.DataFrame, expected: Expected) -> set[Hour]:
    """The final hours in which fewer than half of at least 10 scheduled departures took place."""
    scheduled = Counter(
        (origin, time - time % HOUR_MS)
        for origin, time in zip(reports["origin"], _ms(reports["scheduled"]), strict=True)
    )
    return {
        hour
        for hour, result in expected.final.items()
        if scheduled[hour] >= 10 and result.departures < scheduled[hour] / 2
    }


def differences(rows: pd.DataFrame, expected: Expected) -> list[str]:
    """Differences between emitted and expected rows, as at most five sentences.

    `rows`: the emitted rows: origin, start and timestamp (UTC), departures, mean_delay.
    """
    return list(islice(_differences(rows, expected), 5))


def alert_differences(rows: pd.DataFrame, alerts: set[Hour]) -> list[str]:
    """Differences between the alerts of the rows and the expected ones, as at most five sentences."""
    raised = rows[rows["alert"]]
    came = set(zip(raised["origin"], _ms(raised["start"]), strict=True))
    wrong = [f"{_name(hour)} raised an alert, but should not" for hour in sorted(came - alerts)]
    missing = [f"{_name(hour)} raised no alert, but should" for hour in sorted(alerts - came)]
    return (wrong + missing)[:5]


def count_differences(said: dict[str, int], expected: Expected) -> list[str]:
    """Differences in the query's own counts (late, bad_timestamps, emitted, stream_time), as sentences."""
    counted = {
        "late": sum(expected.late.values()),
        "bad_timestamps": expected.bad_timestamps,
        "emitted": len(expected.final),
        "stream_time": expected.stream_time,
    }
    return [
        f"the query says {name} is {said[name]}, but it is {value}"
        for name, value in counted.items()
        if said[name] != value
    ]


def problems(runs: list[Run], reports: pd.DataFrame, expected: Expected) -> list[str]:
    """Differences as sentences; empty if every run has the expected results and all runs have the same rows."""
    alerts = alerts_directly(reports, expected)
    found = []
    for run in runs:
        wrong = differences(run.rows, expected) + alert_differences(run.rows, alerts)
        wrong += count_differences(asdict(run.counts), expected)
        if run.counts.records != len(reports):
            wrong.append(f"the query read {run.counts.records} reports, but there are {len(reports)}")
        found += [f"in batches of {run.batch_size:,}: {text}" for text in wrong]
    if not all(run.rows.equals(runs[0].rows) for run in runs):
        found.append("the batch sizes gave different rows")
    return found


def _differences(rows: pd.DataFrame, expected: Expected) -> Iterator[str]:
    seen: set[Hour] = set()
    starts, stamps = _ms(rows["start"]), _ms(rows["timestamp"])
    for origin, start, count, mean, stamp in zip(
        rows["origin"], starts, rows["departures"], rows["mean_delay"], stamps, strict=True
    ):
        hour = (origin, start)
        if hour in seen:
            yield f"{_name(hour)} came out twice"
            continue
        seen.add(hour)
        wanted = expected.final.get(hour)
        if wanted is None:
            yield f"{_name(hour)} came out, but is not final"
        elif (count, mean, stamp) != (wanted.departures, wanted.mean_delay, wanted.timestamp):
            yield f"{_name(hour)} came out as {(count, mean, stamp)}, but is {wanted}"
    for hour in expected.final.keys() - seen:
        yield f"{_name(hour)} is final, but did not come out"


def _closed(hour: Hour, stream_time: int, grace_ms: int) -> bool:
    return hour[1] + HOUR_MS + grace_ms <= stream_time


def _rows(reports: pd.DataFrame) -> Iterator[tuple[str, int | None, int]]:
    departures = [None if pd.isna(t) else round(t.timestamp() * 1000) for t in reports["departure"]]
    # A flight without a departure has no delay either, and is not counted.
    delays = [0 if pd.isna(d) else int(d) for d in reports["dep_delay"]]
    return zip(reports["origin"], departures, delays, strict=True)


def _ms(instants: pd.Series) -> list[int]:
    return [int(value) for value in instants.dt.as_unit("ms").astype("int64")]


def _name(hour: Hour) -> str:
    return f"{hour[0]} {pd.Timestamp(hour[1], unit='ms', tz='UTC'):%Y-%m-%d %H:%M} UTC"
