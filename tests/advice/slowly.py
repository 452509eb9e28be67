"""Cost of a grace, computed slowly and plainly: one record after the other, no Arrow, no numpy, no tidegate.

Written from SEMANTICS 1.2 and 2 and from the order that `tg.advise` says it assumes. It shares no code with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Record = dict[str, Any]
"""Columns k, ts, and p, o, at (arrival) if the recording has them; all integers but the key."""


@dataclass
class Recording:
    """Records in arrival order. `trigger` in ms; None: the shortest trigger, and one batch if there are no arrivals."""

    records: list[Record]
    size: int
    advance: int
    trigger: int | None = None
    slowest: bool = False
    guard: int | None = None

    def good(self) -> list[Record]:
        return [r for r in self.records if r["k"] is not None and r["ts"] is not None and r["ts"] >= 0]

    def batches(self) -> list[list[Record]]:
        """The micro-batches, each in the order of partition and offset."""
        ready: dict[int, int] = {}
        good = self.good()
        last: dict[Any, int] = {}
        for r in sorted(good, key=lambda r: (r["p"], r["o"], r["at"])):
            last[r["p"]] = max(last.get(r["p"], r["at"]), r["at"])
            ready[id(r)] = last[r["p"]]
        by_batch = defaultdict(list)
        for r in good:
            by_batch[ready[id(r)] // (self.trigger or 1)].append(r)
        self.ready = ready
        return [sorted(by_batch[b], key=lambda r: (r["p"], r["o"])) for b in sorted(by_batch)]

    @cached_property
    def seen(self) -> list[tuple[Record, int]]:
        """Each record with the stream time that it sees; no grace changes this stream time."""
        found: list[tuple[Record, int]] = []
        time, own = -1, {}
        for batch in self.batches():
            at_start, time_before = dict(own), time
            known = {*own, *(r["p"] for r in batch)}
            for r in batch:
                if self.guard is not None and r["ts"] > self.ready[id(r)] + self.guard:
                    continue
                own[r["p"]] = max(own.get(r["p"], -1), r["ts"])
                sees = own[r["p"]]
                if self.slowest:
                    sees = min([sees] + [at_start.get(q, -1) for q in known - {r["p"]}])
                found.append((r, max(time_before, sees)))
            if own:
                time = max(time, min(own.values()) if self.slowest else max(own.values()))
        return found

    def windows(self, ts: int) -> list[int]:
        return [s for s in range(0, ts + 1, self.advance) if s <= ts < s + self.size]


@dataclass
class Outcome:
    late: int = 0
    lost: int = 0
    rows: dict[tuple[Any, int], list[Record]] = field(default_factory=dict)
    open: int = 0
    waits: list[int] = field(default_factory=list)
    late_keys: Counter[Any] = field(default_factory=Counter)


def outcome(recording: Recording, grace: int) -> Outcome:
    """Result of one grace: late pairs, final rows (with their records), windows open at the end."""
    found, kept = Outcome(), defaultdict(list)
    seen = recording.seen
    for r, time in seen:
        left = 0
        for start in recording.windows(r["ts"]):
            if start + recording.size + grace <= time:
                found.late += 1
                found.late_keys[r["k"]] += 1
            else:
                left += 1
                kept[r["k"], start].append(r)
        found.lost += left == 0
    end = max((time for _, time in seen), default=-1)
    for (key, start), records in kept.items():
        close = start + recording.size + grace
        if close > end:
            found.open += 1
            continue
        found.rows[key, start] = records
        done = min(recording.ready[id(r)] // (recording.trigger or 1) for r, time in seen if time >= close)
        found.waits.append(
            (done + 1) * recording.trigger - close + grace if recording.trigger else done - close + grace
        )
    return found


def complete(recording: Recording) -> dict[tuple[Any, int], list[Record]]:
    """The records of each (key, window), whenever they come."""
    found = defaultdict(list)
    for r, _ in recording.seen:
        for start in recording.windows(r["ts"]):
            found[r["k"], start].append(r)
    return found


def alerts(recording: Recording, grace: int, alert: Callable[[list[Record]], bool]) -> tuple[int, int, int]:
    """Alerts raised, false ones, and missed ones among windows that have closed."""
    whole, rows = complete(recording), outcome(recording, grace).rows
    end = max((time for _, time in recording.seen), default=-1)
    raised = {name for name, records in rows.items() if alert(records)}
    right = {name for name, records in whole.items() if alert(records) and name[1] + recording.size + grace <= end}
    return len(raised), len(raised - right), len(right - raised)
