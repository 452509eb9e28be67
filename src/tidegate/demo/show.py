"""The screen output of the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidegate.demo.alerts import FEWEST_SCHEDULED
from tidegate.demo.check import Expected
from tidegate.demo.flights import AIRPORT_TIME, CANCELLED, LANDED, NO_AIR_TIME
from tidegate.demo.grace import Cost
from tidegate.demo.picture import AIRPORTS
from tidegate.demo.stream import Counts, Run

_HOUR = pd.Timedelta(hours=1)
_DAYS_SHOWN = 8


def show_input(console: Console, reports: pd.DataFrame) -> None:
    """Print the number of reports of each kind, and how cancelled and unlanded flights are handled."""
    of = reports["status"].value_counts()
    console.print(
        f"[bold]{len(reports):,} flights left, or should have left, New York in 2013.[/bold] The event is a departure, "
        "and\nits report comes in when the plane lands, 20 minutes to 12 hours later: reports arrive out of order.\n"
        f"  {of[LANDED]:>7,} landed\n"
        f"  {of[CANCELLED]:>7,} {CANCELLED}: the report has no timestamp; tidegate skips it and counts it\n"
        f"  {of[NO_AIR_TIME]:>7,} {NO_AIR_TIME}: reported when the slowest flight of the route would have landed\n"
    )


def show_costs(console: Console, costs: list[Cost], chosen: pd.Timedelta, reports: int) -> None:
    """Print the table of graces."""
    table = Table(title="What a grace costs (from tg.advise, before the stream runs)", title_justify="left")
    table.add_column("grace", justify="right")
    table.add_column("reports\ntoo late", justify="right")
    table.add_column("\nof all", justify="right")
    table.add_column("results\nincomplete", justify="right")
    table.add_column("a result waits\n(median)", justify="right")
    table.add_column("alerts\nraised", justify="right")
    table.add_column("of them wrong with\ncomplete counts", justify="right")
    for cost in costs:
        table.add_row(
            _span(cost.grace),
            f"{cost.late:,}",
            f"{cost.late / reports:.1%}",
            f"{cost.incomplete:,}",
            _span(cost.median_wait),
            f"{cost.alerts:,}",
            f"{cost.wrong_alerts:,}",
            style="bold" if cost.grace == chosen else "dim",
        )
    console.print(table)
    console.print(f"Chosen: [bold]{_span(chosen)}[/bold].", _why(chosen), "\n")


@contextmanager
def progress_bar(console: Console, batch_size: int) -> Iterator[Callable[[Counts, int], None]]:
    """A progress bar for one replay; call the yielded function after every batch."""
    bar = Progress(
        TextColumn("batches of {task.fields[size]:,}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        console=console,
    )
    with bar:
        task = bar.add_task("", total=None, size=batch_size, said="Spark starts the query")

        def on_batch(counts: Counts, batches: int) -> None:
            bar.update(task, total=batches, completed=counts.batches, said=_said(counts))

        yield on_batch


def show_results(console: Console, run: Run, reports: pd.DataFrame, late: pd.DataFrame, silent: pd.DataFrame) -> None:
    """Print the final table per airport, and the days with the most alerts."""
    console.print(_airports(run.rows, reports, late, silent))
    console.print(_days(run.rows))


def show_open(console: Console, expected: Expected) -> None:
    """Print the windows that were still open when the stream ended."""
    airports = pd.DataFrame(expected.still_open.keys(), columns=["origin", "start"])
    airports["departures"] = [result.departures for result in expected.still_open.values()]
    parts = []
    for origin, hours in airports.groupby("origin"):
        first, last = (f"{_local_ms(ms):%d %b %H:%M}" for ms in (hours["start"].min(), hours["start"].max()))
        parts.append(f"{origin} {len(hours)}, starting {first} to {last} ({hours['departures'].sum():,} departures)")
    if parts:
        console.print(
            f"[bold]Windows still open when the reports ended: {len(airports):,}.[/bold] Nothing came after them that "
            f"could close them, so they were not let out. {'; '.join(parts)}."
        )


def show_sentence(console: Console, runs: list[Run], costs: list[Cost], chosen: pd.Timedelta, silent: int) -> None:
    """Print the summary: numbers of reports, late reports, windows and alerts, after all checks passed."""
    counts = runs[0].counts
    cost = next(cost for cost in costs if cost.grace == chosen)
    console.print(
        f"[bold]{counts.records:,} reports, {counts.bad_timestamps:,} without a departure, {counts.late:,} too late "
        f"for their window, {counts.emitted:,} windows final,[/bold] every result checked against a direct "
        "computation over the reports that were in time: no difference."
    )
    sizes = " and ".join(f"{run.batch_size:,} ({run.counts.batches} batches, {run.seconds:.0f} s)" for run in runs)
    console.print(f"[bold]The rows are identical[/bold] in batches of {sizes}.")
    console.print(
        f"Each of the {cost.alerts:,} alerts was raised once, on a final count, and none was taken back. "
        f"{cost.wrong_alerts:,} would not have been raised had the reports that came too late been waited for. "
        f"{silent:,} hours with {FEWEST_SCHEDULED} or more departures scheduled had none: "
        "no event, no window, so no row and no alert."
    )


def show_problems(console: Console, problems: list[str]) -> None:
    """Print the failed checks, instead of the summary."""
    console.print("[bold red]The results are not what they must be:[/bold red]")
    for problem in problems:
        console.print(f"  {problem}", markup=False)


def show_files(console: Console, *paths: Path) -> None:
    """Print the paths of the written files."""
    console.print("Written:", ", ".join(str(path) for path in paths), markup=False)


def _said(counts: Counts) -> str:
    return (
        f"final {counts.emitted:>6,}  late {counts.late:>4,}  stream time {_local_ms(counts.stream_time):%d %b %H:%M}"
    )


def _airports(rows: pd.DataFrame, reports: pd.DataFrame, late: pd.DataFrame, silent: pd.DataFrame) -> Table:
    table = Table(title="Final results per airport", title_justify="left")
    table.add_column("airport")
    for name in ("windows\nfinal", "departures\nin them", "mean delay\n(min)", "cancelled\n(skipped)", "\ntoo late"):
        table.add_column(name, justify="right")
    table.add_column("\nalerts", justify="right")
    table.add_column("hours in which\nnothing left", justify="right")
    for code, name in AIRPORTS.items():
        final = rows[rows["origin"] == code]
        departures = final["departures"].sum()
        delay = (final["mean_delay"] * final["departures"]).sum() / max(departures, 1)
        here = reports[reports["origin"] == code]
        table.add_row(
            f"{code} {name}",
            f"{len(final):,}",
            f"{departures:,}",
            f"{delay:.1f}",
            f"{(here['status'] == CANCELLED).sum():,}",
            f"{(late['origin'] == code).sum():,}",
            f"{final['alert'].sum():,}",
            f"{(silent['origin'] == code).sum():,}",
        )
    return table


def _days(rows: pd.DataFrame) -> Table:
    table = Table(
        title=f"Alerts: fewer than half of {FEWEST_SCHEDULED} or more scheduled departures. The days with the most",
        title_justify="left",
    )
    table.add_column("day (New York)")
    table.add_column("hours with an alert", justify="right")
    table.add_column("where and when (departures of scheduled)")
    alerts = rows[rows["alert"]]
    local = alerts["start"].dt.tz_convert(AIRPORT_TIME)
    days = alerts.assign(local=local, day=local.dt.floor("D")).groupby("day")
    for day, hours in sorted(days, key=lambda pair: (-len(pair[1]), pair[0]))[:_DAYS_SHOWN]:
        worst = hours.assign(share=hours["departures"] / hours["scheduled"]).nsmallest(3, "share")
        shown = [
            f"{row.origin} {row.local:%H}h {row.departures} of {row.scheduled}" for row in worst.itertuples(index=False)
        ]
        table.add_row(f"{day:%a %d %b}", str(len(hours)), ", ".join(shown) + (", ..." if len(hours) > 3 else ""))
    return table


def _why(chosen: pd.Timedelta) -> str:
    if chosen != 6 * _HOUR:
        return "The demo's own choice is 6 h."
    return (
        "It takes in every flight but the ones to Honolulu, 11 hours away, and a few that were much delayed; "
        "12 h would lose none, and every result would wait half a day."
    )


def _span(span: pd.Timedelta) -> str:
    if pd.isna(span):
        return "-"
    hours, minutes = divmod(round(span / pd.Timedelta(minutes=1)), 60)
    return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"


def _local_ms(ms: int) -> pd.Timestamp:
    return pd.Timestamp(ms, unit="ms", tz="UTC").tz_convert(AIRPORT_TIME)
