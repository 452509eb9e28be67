"""Alerts for hours with unusually few departures, compared with the timetable."""

from __future__ import annotations

import pandas as pd

FEWEST_SCHEDULED = 10
"""Hours with fewer scheduled departures raise no alert: two or three cancelled flights would be half of them."""


def timetable(reports: pd.DataFrame) -> pd.DataFrame:
    """Scheduled departures per airport and hour: origin, start (UTC), scheduled.

    A timetable is known before the day begins, so an alert that compares with it uses no data of the future.
    """
    start = reports["scheduled"].dt.floor("h").rename("start")
    return reports.groupby(["origin", start]).size().rename("scheduled").reset_index()


def is_alert(departures: pd.Series, scheduled: pd.Series) -> pd.Series:
    """Whether fewer than half of the scheduled departures took place, in an hour with FEWEST_SCHEDULED or more."""
    return (scheduled >= FEWEST_SCHEDULED) & (departures * 2 < scheduled)


def with_alerts(counts: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """`counts` (origin, start, departures, ...) with `scheduled` (0 without flights in the timetable) and `alert`."""
    joined = counts.merge(table, on=["origin", "start"], how="left")
    joined["scheduled"] = joined["scheduled"].fillna(0).astype("int64")
    joined["alert"] = is_alert(joined["departures"], joined["scheduled"])
    return joined


def hours_without_any(reports: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Hours with FEWEST_SCHEDULED or more flights in the timetable in which no plane left.

    Without an event there is no window and no row. So these hours raise no alert; the demo prints their number.
    """
    left = reports.dropna(subset="departure")
    seen = pd.DataFrame({"origin": left["origin"], "start": left["departure"].dt.floor("h")}).drop_duplicates()
    busy = table[table["scheduled"] >= FEWEST_SCHEDULED]
    return busy.merge(seen, how="left", indicator=True).query("_merge == 'left_only'")[["origin", "start", "scheduled"]]
