"""The topology of the demo: departures and mean delay per airport and hour, once, when they are final."""

from __future__ import annotations

import tidegate as tg

KEY, TIMESTAMP, PARTITION, OFFSET = "origin", "departure", "partition", "offset"
SIZE = "1 hour"
GRACE = "6 hours"
"""With six hours almost only the flights to Honolulu are late; the table of costs shows why (see demo.grace)."""


def windows(grace: str = GRACE) -> tg.TimeWindows:
    """The demo's windows."""
    return tg.TimeWindows.of_size_and_grace(SIZE, grace)


def final_departures(reports: tg.KStream, grace: str) -> tg.KTable:
    """The final number of departures and their mean delay in minutes, per airport and hour."""
    return (
        reports.group_by_key()
        .windowed_by(windows(grace))
        .agg(departures=tg.count(), mean_delay=tg.mean("dep_delay"))
        .suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    )
