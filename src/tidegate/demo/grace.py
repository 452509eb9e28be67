"""What a grace costs: the longer it is, the fewer reports come too late, and the longer every result waits."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tidegate.demo.alerts import timetable, with_alerts

GRACES_H = (0, 1, 2, 3, 4, 5, 6, 8, 12)
_HOUR = pd.Timedelta(hours=1)


@dataclass(frozen=True)
class Cost:
    """One row of the table; waits are measured from the end of a window to the report that closed it."""

    grace: pd.Timedelta
    late: int
    results: int
    incomplete: int
    median_wait: pd.Timedelta
    alerts: int
    wrong_alerts: int


def costs(reports: pd.DataFrame, graces: list[pd.Timedelta]) -> list[Cost]:
    """What each grace would cost over the whole stream, in plain pandas and without tidegate."""
    arrivals = _arrivals(reports)
    table = timetable(reports)
    complete = with_alerts(_counts(arrivals), table)
    return [_cost(arrivals, table, complete, grace) for grace in graces]


def too_late(reports: pd.DataFrame, grace: pd.Timedelta) -> pd.DataFrame:
    """The reports that come after their window closed, with the `start` of that window."""
    arrivals = _arrivals(reports)
    return arrivals[_late(arrivals, grace)]


def usual_graces(chosen: pd.Timedelta) -> list[pd.Timedelta]:
    """The graces the table shows: GRACES_H and the chosen one."""
    return sorted({chosen, *(pd.Timedelta(hours=h) for h in GRACES_H)})


def _arrivals(reports: pd.DataFrame) -> pd.DataFrame:
    """Reports with a departure, the `start` of their hour and the stream time they see."""
    arrivals = reports.dropna(subset="departure")
    start = arrivals["departure"].dt.floor("h")
    return arrivals.assign(start=start, stream_time=arrivals["departure"].cummax())


def _late(arrivals: pd.DataFrame, grace: pd.Timedelta) -> pd.Series:
    return arrivals["start"] + _HOUR + grace <= arrivals["stream_time"]


def _counts(arrivals: pd.DataFrame) -> pd.DataFrame:
    return arrivals.groupby(["origin", "start"]).size().rename("departures").reset_index()


def _cost(arrivals: pd.DataFrame, table: pd.DataFrame, complete: pd.DataFrame, grace: pd.Timedelta) -> Cost:
    late = _late(arrivals, grace)
    counts = _counts(arrivals[~late])
    # Only what has left: the last windows stay open, whatever the grace.
    closed = counts[counts["start"] + _HOUR + grace <= arrivals["stream_time"].max()]
    shown = with_alerts(closed, table).merge(complete, on=["origin", "start"], suffixes=("", "_complete"))
    return Cost(
        grace=grace,
        late=int(late.sum()),
        results=len(closed),
        incomplete=int((shown["departures"] < shown["departures_complete"]).sum()),
        median_wait=_median_wait(arrivals, closed["start"] + _HOUR, grace),
        alerts=int(shown["alert"].sum()),
        wrong_alerts=int((shown["alert"] & ~shown["alert_complete"]).sum()),
    )


def _median_wait(arrivals: pd.DataFrame, ends: pd.Series, grace: pd.Timedelta) -> pd.Timedelta:
    closed_by = arrivals["stream_time"].searchsorted(ends + grace)
    waits = arrivals["reported"].iloc[closed_by].reset_index(drop=True) - ends.reset_index(drop=True)
    return pd.Timedelta(waits.median())
