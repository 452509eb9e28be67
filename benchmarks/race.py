"""A race: contestants take turns over the same files, and all must emit the same rows.

The rows of a query go into a sink that drops them. On the way Spark computes a digest per micro-batch: the number of
rows, the sum and the exclusive or of their 64-bit hashes. So the rows of the measured runs themselves are compared, in
any order, and none has to be stored. A slow contestant runs only the first micro-batches; its digest is compared with
the digest of the same micro-batches of the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession

from benchmarks.contestant import FILES, Contestant
from benchmarks.inputs import HALVES
from benchmarks.measure import QUIET_PERCENT, Digest, Run, run
from benchmarks.options import Options, say

OURS = ("tidegate", FILES)


class Timed(Protocol):
    """A measured run: the numbers of its row in a table."""

    @property
    def rows(self) -> list[int]: ...
    @property
    def seconds(self) -> list[float]: ...
    @property
    def rate(self) -> float: ...
    @property
    def median_rate(self) -> float | None: ...
    @property
    def jvm_mib(self) -> float: ...
    @property
    def python_mib(self) -> float: ...
    @property
    def worker_mib(self) -> float: ...
    @property
    def busy_before_percent(self) -> float: ...


class Named(Protocol):
    """A contestant by name, with its label and settings."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def settings(self) -> dict[str, str]: ...


N = TypeVar("N", bound=Named)
R = TypeVar("R", bound=Timed)


@dataclass(frozen=True)
class Bar:
    """`ours` should be at least this many times as fast as the fastest of `others`."""

    at_least: float
    others: tuple[str, ...]
    ours: tuple[str, ...] = OURS


@dataclass(frozen=True)
class Race:
    """A workload whose contestants are queries over one folder of files, which `write(size, folder)` makes."""

    name: str
    title: str
    write: Callable[[str, Path], Path]
    contestants: tuple[Contestant, ...]
    bars: tuple[Bar, ...]
    check: Callable[[list[Contestant], SparkSession, Path], dict[str, str]] | None = None
    """A further comparison, on an input of its own: a sentence per contestant."""
    repeat: int = 1
    """Turns of each contestant, unless the command line has `--repeat`."""

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns, print the results and return them as JSON; AssertionError if rows differ."""
        contestants = [each for each in self.contestants if options.wants(each.name)]
        checked = self.check(contestants, spark, folder) if self.check is not None else {}
        for name, sentence in checked.items():
            say(f"  {name}: {sentence}")
        files = self.write(options.size, folder)
        runs = turns(spark, replace(options, repeat=options.repeat or self.repeat), contestants, files)
        agreed = agreement(contestants, runs)
        say(f"  {agreed}")
        found = report(contestants, runs)
        return found | {"agreement": {"timed runs": agreed, **checked}, "bars": judged(self.bars, runs)}


def turns(spark: SparkSession, options: Options, contestants: list[Contestant], files: Path) -> dict[str, list[Run]]:
    """Runs in the order A B C A B C, after a turn that is not counted: Java is slow until it has compiled its code."""
    for contestant in contestants if not options.smoke else ():
        run(spark, contestant, prefix(files, contestant.batches))
    return alternate(contestants, options.repeat, lambda each: run(spark, each, prefix(files, each.batches)))


class UnableError(Exception):
    """A contestant cannot be run here; the message has the reason and the remedy."""


def alternate(
    contestants: Sequence[N], repeat: int, once: Callable[[N], R], unable: dict[str, str] | None = None
) -> dict[str, list[R]]:
    """Runs in the order A B C A B C: a disturbance of a turn affects all contestants.

    A contestant that raises UnableError is left out from then on, and `unable` gets its message.
    """
    unable = {} if unable is None else unable
    runs: dict[str, list[R]] = {each.name: [] for each in contestants}
    for turn in range(1, repeat + 1):
        for contestant in contestants:
            if contestant.name in unable:
                continue
            try:
                one = once(contestant)
            except UnableError as error:
                unable[contestant.name] = str(error)
                del runs[contestant.name]
                say(f"  {contestant.name} is not measured: {error}")
                continue
            runs[contestant.name].append(one)
            say(
                f"  turn {turn}/{repeat}  {contestant.label:38} {sum(one.seconds):7.1f} s"
                f"  {one.rate / 1e6:7.4f} M rows/s{_disturbed(one)}"
            )
    return runs


def prefix(files: Path, batches: int | None) -> Path:
    """A folder with the files of the first `batches` micro-batches; None: all."""
    every = sorted(files.glob("*.parquet"))
    if batches is None or batches * HALVES >= len(every):
        return files
    target = files.with_name(f"{files.name}-first-{batches}")
    if not target.exists():
        target.mkdir()
        for path in every[: batches * HALVES]:
            os.link(path, target / path.name)
    return target


def agreement(contestants: list[Contestant], runs: dict[str, list[Run]]) -> str:
    """A sentence on the number of equal rows; AssertionError if rows differ."""
    answering = [each for each in contestants if each.answers]
    if not answering:
        return "nothing to compare"
    longest = max((each for each in answering), key=lambda each: len(runs[each.name][0].rows))
    reference = runs[longest.name][0]
    for contestant in answering:
        for one in runs[contestant.name]:
            wanted = Digest.all(reference.digests[: len(one.rows)])
            if contestant.batches is None:
                wanted = Digest.all(reference.digests)
            if (got := Digest.all(one.digests)) != wanted:
                raise AssertionError(
                    f"{contestant.label} gave other rows than {longest.label} over {len(one.rows)} micro-batches: "
                    f"{got}, not {wanted}"
                )
    return f"{Digest.all(reference.digests).rows:,} rows, equal in every run of {len(answering)} contestants"


def report(contestants: Sequence[Named], runs: Mapping[str, Sequence[Timed]]) -> dict[str, Any]:
    """Print the table of a race, and return its numbers by contestant."""
    say(f"\n  {'M rows/s':40} {'sustained':>10} {'median':>8} {'worker MiB':>11} {'Python MiB':>11} {'JVM MiB':>8}")
    found: dict[str, Any] = {}
    for contestant in contestants:
        mine = runs[contestant.name]
        rate = round(median(one.rate for one in mine))
        in_median = _in_median_batch(mine)
        worker, python, jvm = (
            round(max(getattr(one, f"{of}_mib") for one in mine)) for of in ("worker", "python", "jvm")
        )
        found[contestant.name] = {
            "label": contestant.label,
            "rows_per_s": rate,
            "rows_per_s_median_batch": in_median,
            "peak_worker_mib": worker,
            "peak_python_mib": python,
            "peak_jvm_mib": jvm,
            "batches": len(mine[0].rows),
            "settings": contestant.settings,
            "runs": [asdict(one) for one in mine],  # type: ignore[call-overload]
        }
        batch = "" if in_median is None else f"{in_median / 1e6:.4f}"
        say(f"  {contestant.label:40} {rate / 1e6:10.4f} {batch:>8} {worker:11,} {python:11,} {jvm:8,}")
    if any(_disturbed(one) for mine in runs.values() for one in mine):
        say("  Something else was using the CPU: measure again on a quiet machine before you quote these.")
    return {"contestants": found}


def _in_median_batch(runs: Sequence[Timed]) -> int | None:
    """Rows per second in the median batch; None: the runs have no batches."""
    rates = [one.median_rate for one in runs if one.median_rate is not None]
    return round(median(rates)) if rates else None


def judged(bars: tuple[Bar, ...], runs: Mapping[str, Sequence[Timed]]) -> list[dict[str, Any]]:
    """Each bar for each contestant of tidegate: its speed over the fastest of the others, within a turn."""
    verdicts = []
    for bar in bars:
        for name in (name for name in bar.ours if name in runs):
            others = [other for other in bar.others if other in runs]
            if not others:
                continue
            times = min(ratio(runs[name], runs[other]) for other in others)
            verdicts.append({"contestant": name, "others": others, "times": times, "at_least": bar.at_least})
            who, verdict = " and ".join(others), "reached" if times >= bar.at_least else "NOT reached"
            say(f"  {name} is {times:.2f} times as fast as {who}; the bar of {bar.at_least:.3g} is {verdict}")
    return verdicts


def ratio(mine: Sequence[Timed], others: Sequence[Timed]) -> float:
    """Median over the turns of the speed of `mine` over the speed of `others` in the same turn."""
    return round(median(a.rate / b.rate for a, b in zip(mine, others, strict=True)), 2)


def _disturbed(one: Timed) -> str:
    if one.busy_before_percent <= QUIET_PERCENT:
        return ""
    return f"  the CPU was {one.busy_before_percent:.0f} % busy before"
