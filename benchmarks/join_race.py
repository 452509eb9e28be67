"""A race of joins: like `race.Race`, over two folders of files; the last micro-batch closes all and is not timed.

A slow contestant runs only the first micro-batches and the closing one. Contestants emit a record without a partner in
different batches, so digests of the first batches of a longer run cannot be compared. Instead tidegate runs over the
same few files, untimed, and the digests of all rows are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.contestant import FILES, Contestant
from benchmarks.measure import Digest, Run, rows_of, run
from benchmarks.options import Options, say
from benchmarks.race import Bar, alternate, judged, report
from benchmarks.two_sides import Shape, first, write

TO_WARM_UP = 1
"""Micro-batches of the warm-up, which is not counted."""


@dataclass(frozen=True)
class JoinRace:
    """A workload whose contestants are queries over the two folders of a shape; fields as in `race.Race`."""

    name: str
    title: str
    shapes: dict[str, Shape]
    """By the size of the measurement."""
    contestants: tuple[Contestant, ...]
    bars: tuple[Bar, ...]
    check: Callable[[list[Contestant], SparkSession, Path], dict[str, str]] | None = None
    repeat: int = 1

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns, print the results and return them as JSON; AssertionError if rows differ."""
        contestants = [each for each in self.contestants if options.wants(each.name)]
        checked = self.check(contestants, spark, folder) if self.check is not None else {}
        for name, sentence in checked.items():
            say(f"  {name}: {sentence}")
        files = write(self.shapes[options.size], folder)
        for contestant in contestants if not options.smoke else ():
            run(spark, contestant, first(files, TO_WARM_UP))
        whole: dict[str, list[Run]] = defaultdict(list)

        def once(contestant: Contestant) -> Run:
            one = run(spark, contestant, first(files, contestant.batches))
            whole[contestant.name].append(one)
            return timed(one)

        runs = alternate(contestants, options.repeat or self.repeat, once)
        agreed = self._agreed(spark, contestants, whole, files)
        say(f"  {agreed}")
        found = report(contestants, runs)
        return found | {"agreement": {"timed runs": agreed, **checked}, "bars": judged(self.bars, runs)}

    def _agreed(
        self, spark: SparkSession, contestants: list[Contestant], runs: dict[str, list[Run]], files: Path
    ) -> str:
        """A sentence on the number of equal rows; AssertionError if rows differ."""
        over: dict[Path, list[Contestant]] = defaultdict(list)
        for contestant in contestants:
            if contestant.answers:
                over[first(files, contestant.batches)].append(contestant)
        sentences = []
        for folder, same in over.items():
            digests = {each.label: [Digest.all(one.digests) for one in runs[each.name]] for each in same}
            if not any(each.name.startswith("tidegate") for each in same):
                reference = next(each for each in self.contestants if each.name == FILES)
                digests[f"{reference.label} (not timed)"] = [Digest.all(run(spark, reference, folder).digests)]
            rows, batches = compared(digests).rows, len(rows_of(folder)) - 1
            sentences.append(f"{rows:,} rows of {batches} micro-batches, equal in every run of {len(same)} contestants")
        return "; ".join(sentences) or "nothing to compare"


def timed(one: Run) -> Run:
    """A run without its closing micro-batch: some contestants emit its rows in it, others in an empty one after it."""
    return replace(one, rows=one.rows[:-1], seconds=one.seconds[:-1])


def compared(digests: Mapping[str, Sequence[Digest]]) -> Digest:
    """The digest of all runs; AssertionError if they differ."""
    (label, reference), *_ = ((label, each) for label, mine in digests.items() for each in mine)
    for other, mine in digests.items():
        for each in mine:
            if each != reference:
                raise AssertionError(f"{other} gave other rows than {label}: {each}, not {reference}")
    return reference
