"""The cost of a grace: with a longer one fewer reports are late, and every result waits longer."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

import tidegate as tg
from tidegate.advice.advice import Cost as Said
from tidegate.demo.alerts import timetable, with_alerts
from tidegate.demo.topology import KEY, OFFSET, PARTITION, SIZE, TIMESTAMP

GRACES_H = (0, 1, 2, 3, 4, 5, 6, 8, 12)
ARRIVAL = "reported"
_HOUR = pd.Timedelta(hours=1)
_MS = pd.Timedelta(milliseconds=1)


@dataclass(frozen=True)
class Cost:
    """One row of the table; waits are from the end of a window to the arrival of the report that closed it."""

    grace: pd.Timedelta
    late: int
    results: int
    incomplete: int
    median_wait: pd.Timedelta
    alerts: int
    wrong_alerts: int


def costs(reports: pd.DataFrame, graces: list[pd.Timedelta]) -> list[Cost]:
    """The cost of each grace over the whole stream, from `tg.advise`."""
    table = timetable(reports)

    def is_alert(rows: pa.Table) -> pd.Series:
        counts = rows.to_pandas()
        counts["start"] = pd.to_datetime(counts["start"], unit="ms", utc=True)
        return with_alerts(counts, table)["alert"]

    advice = tg.advise(
        reports,
        key=KEY,
        timestamp=TIMESTAMP,
        partition=PARTITION,
        offset=OFFSET,
        arrival=ARRIVAL,
        windows=tg.TimeWindows.of_size_with_no_grace(SIZE),
        graces=graces,
        aggregates={"departures": tg.count()},
        alert=is_alert,
    )
    return [_cost(grace, advice.cost(grace // _MS)) for grace in graces]


def too_late(reports: pd.DataFrame, grace: pd.Timedelta) -> pd.DataFrame:
    """The reports that arrive after their window closed, with the `start` of that window."""
    arrivals = reports.dropna(subset=TIMESTAMP)
    start = arrivals[TIMESTAMP].dt.floor("h")
    arrivals = arrivals.assign(start=start, stream_time=arrivals[TIMESTAMP].cummax())
    return arrivals[arrivals["start"] + _HOUR + grace <= arrivals["stream_time"]]


def usual_graces(chosen: pd.Timedelta) -> list[pd.Timedelta]:
    """The graces of the table: GRACES_H and the chosen one."""
    return sorted({chosen, *(pd.Timedelta(hours=h) for h in GRACES_H)})


def _cost(grace: pd.Timedelta, said: Said) -> Cost:
    return Cost(
        grace=grace,
        late=said.late,
        results=said.results,
        incomplete=said.incomplete,
        median_wait=_wait(said.wait),
        alerts=said.alerts or 0,
        wrong_alerts=said.false_alerts or 0,
    )


def _wait(ms: float | None) -> pd.Timedelta:
    """A wait; NaT if no result left."""
    return pd.Timedelta("NaT" if ms is None else f"{ms} ms")
