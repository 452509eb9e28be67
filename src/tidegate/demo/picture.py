"""The picture: a year of final results, one week hour by hour, and the cost of each grace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from tidegate.demo.alerts import FEWEST_SCHEDULED
from tidegate.demo.flights import AIRPORT_TIME
from tidegate.demo.grace import Cost

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
WEEK = (pd.Timestamp("2013-02-05", tz=AIRPORT_TIME), pd.Timestamp("2013-02-12", tz=AIRPORT_TIME))
"""The week of the blizzard of 8 and 9 February."""

FINAL, TIMETABLE, SILENT, ALERT, LATE = "#2b6a99", "#a8adb3", "#f6dede", "#c8102e", "#e08a00"


@dataclass(frozen=True)
class Story:
    """The data of the picture: final `rows`, reports `too_late` (origin, start), the `timetable`, `costs` of graces."""

    rows: pd.DataFrame
    too_late: pd.DataFrame
    timetable: pd.DataFrame
    costs: list[Cost]
    grace: pd.Timedelta


def draw(story: Story, path: Path) -> None:
    """Write the picture to `path` as PNG."""
    # A Figure without pyplot needs no display and no global state.
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(15, 13), dpi=110, layout="constrained")
    year, week, cost = figure.subfigures(3, 1, height_ratios=[4.2, 6, 3.6], hspace=0.03)
    _draw_year(year, story)
    _draw_week(week, story)
    _draw_costs(cost, story)
    figure.savefig(path, metadata={"Software": None})


def _draw_year(figure: Any, story: Story) -> None:
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    figure.suptitle("A year of final results: departures from New York per day", x=0.01, ha="left", weight="bold")
    rows = story.rows.assign(day=_local(story.rows["start"]).dt.floor("D"))
    days = rows.groupby("day")["departures"].sum()
    scheduled = story.timetable.groupby(_local(story.timetable["start"]).dt.floor("D"))["scheduled"].sum()
    top.step(scheduled.index, scheduled, where="post", color=TIMETABLE, lw=1, label="timetable")
    top.step(days.index, days, where="post", color=FINAL, lw=1.2, label="final count")
    alerts = rows[rows["alert"]].groupby("day").size()
    top.scatter(
        _later(alerts.index, hours=12),
        days.reindex(alerts.index),
        s=14 + 14 * alerts,
        color=ALERT,
        alpha=0.75,
        lw=0,
        zorder=3,
        label="days with alerts (area: how many hours)",
    )
    top.set_ylim(0)
    top.set_ylabel("departures")
    top.legend(loc="lower right", ncols=3, frameon=False)
    late = story.too_late.groupby(_local(story.too_late["start"]).dt.floor("D")).size()
    bottom.bar(_later(late.index, hours=12), late, width=0.9, color=LATE)
    bottom.set_ylabel("too late")
    bottom.yaxis.get_major_locator().set_params(integer=True)
    bottom.set_title(
        f"reports that came too late for their window, per day: {len(story.too_late):,} in all",
        fontsize="medium",
        loc="left",
        color=LATE,
    )
    _month_axis(bottom)
    _quiet(top, bottom)


def _draw_week(figure: Any, story: Story) -> None:
    figure.suptitle(
        "One week hour by hour: the blizzard of 8 and 9 February (New York time)", x=0.01, ha="left", weight="bold"
    )
    axes = figure.subplots(len(AIRPORTS), 1, sharex=True, sharey=True)
    for axis, (code, name) in zip(axes, AIRPORTS.items(), strict=True):
        _draw_airport(axis, code, story)
        axis.set_ylabel(f"{code}\n{name}", rotation=0, ha="right", va="center")
    axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5, frameon=False, borderaxespad=0)
    axes[0].set_ylim(0, 38)
    _day_axis(axes[-1])
    _quiet(*axes)


def _draw_airport(axis: Any, code: str, story: Story) -> None:
    hours = pd.date_range(*WEEK, freq="h")
    scheduled = _by_hour(story.timetable, code, "scheduled").reindex(hours, fill_value=0)
    of_airport = _by_hour(story.rows, code, "departures")
    final = of_airport.reindex(hours, fill_value=0)
    silent = scheduled.where((scheduled >= FEWEST_SCHEDULED) & ~hours.isin(of_airport.index), 0)
    axis.step(hours, scheduled, where="post", color=TIMETABLE, lw=1, label="timetable")
    axis.fill_between(hours, final, step="post", color=FINAL, alpha=0.85, lw=0, label="final count")
    axis.fill_between(hours, silent, step="post", color=SILENT, lw=0, label="nothing left: no event, no row, no alert")
    alerts = _within_week(_by_hour(story.rows, code, "alert").pipe(lambda raised: raised[raised.astype(bool)]))
    _mark(axis, final, alerts, 2.5, "alert: fewer than half", color=ALERT, s=26)
    late = _within_week(_by_hour(_count(story.too_late), code, "late"))
    _mark(axis, final, late, 6, "a report came too late", color=LATE, s=34, marker="v")


def _mark(axis: Any, heights: pd.Series, marked: pd.Series, above: float, label: str, **look: Any) -> None:
    """Draw markers in the middle of the marked hours, above their bars."""
    axis.scatter(_later(marked.index, minutes=30), heights[marked.index] + above, zorder=3, label=label, **look)


def _later(index: Any, **span: float) -> Any:
    return index + timedelta(**span)


def _within_week(series: pd.Series) -> pd.Series:
    return series[(series.index >= WEEK[0]) & (series.index < WEEK[1])]


def _count(too_late: pd.DataFrame) -> pd.DataFrame:
    return too_late.groupby(["origin", "start"]).size().rename("late").reset_index()


def _draw_costs(figure: Any, story: Story) -> None:
    late, wrong, wait = figure.subplots(1, 3, sharey=True)
    figure.suptitle("What a grace costs", x=0.01, ha="left", weight="bold")
    _draw_cost(late, story, "reports too late, in no result", [cost.late for cost in story.costs], LATE)
    wrong_alerts = [cost.wrong_alerts for cost in story.costs]
    _draw_cost(wrong, story, "alerts that the complete counts would not raise", wrong_alerts, ALERT)
    waits = [cost.median_wait / pd.Timedelta(hours=1) for cost in story.costs]
    _draw_cost(wait, story, "hours a result waits after the end of its hour (median)", waits, FINAL)
    late.set_ylabel("grace")
    late.invert_yaxis()


def _draw_cost(axis: Any, story: Story, title: str, values: list[Any], color: str) -> None:
    names = [f"{cost.grace / pd.Timedelta(hours=1):g} h" for cost in story.costs]
    bars = axis.barh(names, values, color=color)
    labels = axis.bar_label(
        bars, [f"{value:,}" if isinstance(value, int) else f"{value:.1f}" for value in values], padding=3
    )
    for cost, bar, label in zip(story.costs, bars, labels, strict=True):
        chosen = cost.grace == story.grace
        bar.set_alpha(1 if chosen else 0.4)
        label.set_weight("bold" if chosen else "normal")
    axis.set_title(title, fontsize="medium", loc="left", color=color)
    axis.margins(x=0.15)
    axis.set_xticks([])
    _quiet(axis)


def _by_hour(frame: pd.DataFrame, code: str, column: str) -> pd.Series:
    of_airport = frame[frame["origin"] == code]
    return of_airport.set_index(_local(of_airport["start"]))[column].sort_index()


def _local(instants: pd.Series) -> pd.Series:
    return instants.dt.tz_convert(AIRPORT_TIME)


def _month_axis(axis: Any) -> None:
    _ticks(axis, "MonthLocator", "%b")
    axis.set_xlim(pd.Timestamp("2013-01-01", tz=AIRPORT_TIME), pd.Timestamp("2014-01-01", tz=AIRPORT_TIME))
    _left_of_ticks(axis)


def _day_axis(axis: Any) -> None:
    _ticks(axis, "DayLocator", "%a %d %b")
    axis.set_xlim(*WEEK)
    _left_of_ticks(axis)


def _ticks(axis: Any, locator: str, text: str) -> None:
    from matplotlib import dates

    axis.xaxis.set_major_locator(getattr(dates, locator)(tz=AIRPORT_TIME))
    axis.xaxis.set_major_formatter(dates.DateFormatter(text, tz=AIRPORT_TIME))  # type: ignore[no-untyped-call]


def _left_of_ticks(axis: Any) -> None:
    """Put the names of months and days inside their intervals, and hide the label at the right edge."""
    *labels, last = axis.get_xticklabels()
    for label in labels:
        label.set_ha("left")
    last.set_visible(False)


def _quiet(*axes: Any) -> None:
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", color="#eeeeee")
        axis.set_axisbelow(True)
