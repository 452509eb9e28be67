"""W1 in Pathway: rows through its Python connector, tumbling windows that emit their result once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pyarrow as pa

from benchmarks.inputs import GRACE_MS, SIZE_MS
from benchmarks.peers.contract import Report, Task, installed, millis, pieces, task

COMMIT_MS = 100
"""Interval at which rows that were read are committed together: committed rows close windows."""


def main() -> None:
    work = task()
    # Workers are threads of its engine; `pathway spawn --threads` sets this variable. Its free licence allows up to 8.
    os.environ["PATHWAY_THREADS"] = str(work.parallelism)
    import pathway as pw

    class Row(pw.Schema):
        user: str
        ts: int
        amount: int

    class Files(pw.io.python.ConnectorSubject):
        """Both source partitions in turn, a piece of each: they are one stream, and must not drift apart."""

        began, rows = 0.0, 0

        @property
        def _deletions_enabled(self) -> bool:
            # Its documentation: "may help to improve the performance" (pw.io.python.ConnectorSubject).
            return False

        def run(self) -> None:
            self.began = time.monotonic()
            for piece in in_turn(work):
                user, ts, amount = piece.columns
                for one, when, much in zip(user.to_pylist(), millis(ts).to_pylist(), amount.to_pylist(), strict=True):
                    self.next(user=one, ts=when, amount=much)
                self.rows += piece.num_rows

    files = Files()
    events = pw.io.python.read(files, schema=Row, autocommit_duration_ms=COMMIT_MS)
    # One result per window, when its end and the grace have passed; closed windows are forgotten ("Controlling
    # Temporal Behavior of Windows" in its user guide).
    once = pw.temporal.exactly_once_behavior(shift=GRACE_MS)
    windows = events.windowby(
        events.ts, window=pw.temporal.tumbling(duration=SIZE_MS, origin=0), instance=events.user, behavior=once
    )
    totals = windows.reduce(
        user=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        count=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.amount),
    )
    pw.io.csv.write(totals, str(work.output / "rows.csv"))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.monotonic() - files.began
    settings = {"threads": str(work.parallelism), "autocommit_duration_ms": str(COMMIT_MS), "persistence": "no"}
    Report(files.rows, seconds, None, installed("pathway", "pyarrow"), settings).say()


def in_turn(work: Task) -> Iterator[pa.RecordBatch]:
    for together in zip(*map(pieces, work.halves()), strict=True):
        yield from together


if __name__ == "__main__":
    main()
