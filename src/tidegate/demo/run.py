"""The demo from beginning to end."""

from __future__ import annotations

import shutil
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console

import tidegate as tg
from tidegate.demo import alerts, flights, grace, show
from tidegate.demo.check import directly, problems
from tidegate.demo.picture import Story, draw
from tidegate.demo.session import LOCAL, spark_session
from tidegate.demo.stream import Replay, Run
from tidegate.demo.topology import GRACE, windows
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_SIZE = 20_000
SMALLEST_BATCH = 1_000
"""The smallest batch size: each batch takes most of a second, whatever its size."""


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    batch_size: int = BATCH_SIZE
    grace: str = GRACE
    output: Path = Path("output")
    master: str = LOCAL
    watch: bool = False

    @property
    def batch_sizes(self) -> tuple[int, int]:
        """Two sizes that cut the stream in different places."""
        return self.batch_size, self.batch_size // 2 + 1


def run(options: Options, console: Console | None = None) -> int:
    """Run the demo. Returns 0 if every result is right, else 1."""
    console = console or Console(highlight=False)
    chosen = pd.Timedelta(milliseconds=windows(options.grace).grace_ms)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TidegateError(
            f"--output is {str(options.output)!r}, where no folder can be made: {error.strerror}. Name a folder, or "
            "one that is not there yet, in a place where you may write."
        ) from error

    reports = flights.reports(flights.read_flights())
    show.show_input(console, reports)
    costs = grace.costs(reports, grace.usual_graces(chosen))
    show.show_costs(console, costs, chosen, len(reports))

    timetable = alerts.timetable(reports)
    runs = _replay(options, console, reports, timetable)
    expected = directly(reports, windows(options.grace).grace_ms)
    wrong = problems(runs, reports, expected)

    late = grace.too_late(reports, chosen)
    silent = alerts.hours_without_any(reports, timetable)
    picture, table = options.output / "departures.png", options.output / "departures.csv"
    draw(Story(runs[0].rows, late, timetable, costs, chosen), picture)
    runs[0].rows.to_csv(table, index=False)

    show.show_results(console, runs[0], reports, late, silent)
    if wrong:
        show.show_problems(console, wrong)
        return 1
    show.show_open(console, expected)
    show.show_sentence(console, runs, costs, chosen, len(silent))
    show.show_files(console, picture, table)
    return 0


def _replay(options: Options, console: Console, reports: pd.DataFrame, timetable: pd.DataFrame) -> list[Run]:
    console.print(f"Spark starts; its log is {options.output / 'spark.log'}", markup=False)
    # The folders are kept after a failure: their checkpoints help to find the cause.
    folders = {size: options.output / f"replay-{size}" for size in options.batch_sizes}
    with spark_session(options.output / "spark.log", options.master) as spark:
        runs = []
        with _watched(spark, console) if options.watch else nullcontext():
            for size, folder in folders.items():
                _empty(folder)
                with show.progress_bar(console, size) as on_batch:
                    replay = Replay(spark, reports, timetable, options.grace, folder.absolute(), size, on_batch)
                    runs.append(replay.run())
    # Only after Spark has stopped: its state store maintenance still writes after a query has ended.
    for folder in folders.values():
        shutil.rmtree(folder)
    return runs


@contextmanager
def _watched(spark: SparkSession, console: Console) -> Iterator[None]:
    """Open the page of the queries in a browser. In a terminal the page stays until the user presses Enter."""
    endpoint = tg.metrics.serve(spark, port=0)
    console.print(f"Watch: {endpoint.page}", markup=False)
    webbrowser.open(endpoint.page)
    try:
        yield
        if sys.stdin.isatty():
            console.input(f"Both replays have ended. The page stays at {endpoint.page}; press Enter to go on. ")
    finally:
        endpoint.close()


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
