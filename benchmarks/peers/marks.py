"""Time by marks: when a contestant that runs on its own had read so many records, as the batches of a `Run`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from benchmarks.measure import Run


def marks(batches: Sequence[int]) -> list[int]:
    """The numbers of records to tell the time of: the first, and the ends of what is a micro-batch for Spark."""
    return [1, *accumulate(batches)]


def run(batches: Sequence[int], reached_ms: list[int], last_ms: int, peak: dict[str, float], busy: float) -> Run:
    """What was measured; the last batch ends when the broker has the last result, or the contestant its last record."""
    at = [*reached_ms[:-1], max(reached_ms[-1], last_ms)]
    return Run(
        rows=list(batches),
        # A mark is looked at every few ms: in a trial two may be seen at once.
        seconds=[max(1, after - before) / 1000 for before, after in zip(at, at[1:], strict=False)],
        digests=[],
        jvm_mib=peak["java"],
        python_mib=peak["python"],
        worker_mib=peak["worker"],
        busy_before_percent=busy,
    )


def reached(told: list[list[tuple[int, int]]], wanted: list[int]) -> list[int]:
    """When the processes of a contestant together had read so many records; of each is told (how many so far, ms)."""
    steps = []
    for one in told:
        before = [0, *(records for records, _ in one)]
        steps += [(ms, records - sofar) for (records, ms), sofar in zip(one, before, strict=False)]
    steps.sort()
    found: list[int] = []
    sofar = 0
    for ms, more in steps:
        sofar += more
        while len(found) < len(wanted) and sofar >= wanted[len(found)]:
            found.append(ms)
    if len(found) < len(wanted):
        raise AssertionError(f"only {sofar:,} records of {wanted[-1]:,} were processed")
    return found
