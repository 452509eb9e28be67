"""Time by marks: the times when a contestant without micro-batches had read so many records, as batches of a `Run`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from benchmarks.measure import Run


def marks(batches: Sequence[int]) -> list[int]:
    """The numbers of records whose time is measured: the first record, and the end of each micro-batch of Spark."""
    return [1, *accumulate(batches)]


def run(batches: Sequence[int], reached_ms: list[int], last_ms: int, peak: dict[str, float], busy: float) -> Run:
    """The measured run; its last batch ends when the broker has the last result, or when the last record is read."""
    at = [*reached_ms[:-1], max(reached_ms[-1], last_ms)]
    return Run(
        rows=list(batches),
        # Marks are checked every few ms: in a trial two may be seen at once.
        seconds=[max(1, after - before) / 1000 for before, after in zip(at, at[1:], strict=False)],
        digests=[],
        jvm_mib=peak["java"],
        python_mib=peak["python"],
        worker_mib=peak["worker"],
        busy_before_percent=busy,
    )


def reached(progress: list[list[tuple[int, int]]], wanted: list[int]) -> list[int]:
    """Times (ms) when the processes together had read `wanted` records; `progress`: (records so far, ms) by process."""
    steps = []
    for one in progress:
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
