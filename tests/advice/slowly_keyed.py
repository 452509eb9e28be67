"""Cost of a grace for sliding windows and sessions, computed slowly and plainly: one record after the other.

Written from SEMANTICS 1.2, 3, 4 and 14, with sets of records. It shares no code with tidegate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from advice.slowly import Record, Recording

Window = tuple[Any, int, int]
"""Key, start, end; both ends included."""
FOREVER = 2**80


@dataclass
class Keyed:
    """`kind` is "sliding" or "session", `reach` the difference or the gap (ms), `recording` the records in batches."""

    recording: Recording
    kind: str
    reach: int

    @cached_property
    def seen(self) -> list[tuple[int, Record, int]]:
        """(number, record, stream time) in the operator's order: by stream time seen, then by partition and offset."""
        found = list(enumerate(self.recording.seen))
        batch = {id(r): b for b, records in enumerate(self.recording.batches()) for r in records}
        found.sort(key=lambda one: (batch[id(one[1][0])], one[1][1], one[1][0]["p"], one[1][0]["o"]))
        return [(number, r, time) for number, (r, time) in found]

    def outcome(self, grace: int) -> Outcome:
        found = Outcome()
        for key in dict.fromkeys(r["k"] for _, r, _ in self.seen):
            mine = [(number, r["ts"], time) for number, r, time in self.seen if r["k"] == key]
            if self.kind == "session":
                self._sessions(found, key, mine, grace)
            else:
                self._sliding(found, key, mine, grace)
        return found

    def complete(self) -> dict[Window, frozenset[int]]:
        return self.outcome(FOREVER).rows

    def close(self, end: int) -> int:
        """The last stream time at which a window with this end is open without grace."""
        return end + (self.reach if self.kind == "session" else 0)

    def _sessions(self, found: Outcome, key: Any, records: list[tuple[int, int, int]], grace: int) -> None:
        there: list[tuple[int, int, frozenset[int]]] = []
        for number, ts, time in records:
            closed_before = time - grace - self.reach
            met = [s for s in there if s[1] >= closed_before and s[0] - self.reach <= ts <= s[1] + self.reach]
            start, end = min([ts, *(s[0] for s in met)]), max([ts, *(s[1] for s in met)])
            if end < closed_before:
                found.late.append(number)
                continue
            there = [s for s in there if s not in met]
            there.append((start, end, frozenset({number}).union(*(s[2] for s in met))))
        found.rows |= {(key, start, end): records for start, end, records in there}

    def _sliding(self, found: Outcome, key: Any, records: list[tuple[int, int, int]], grace: int) -> None:
        d, there = self.reach, {}
        for number, ts, time in records:
            if ts + d < time - grace:
                found.late.append(number)
                continue
            there |= _Turn(d, there, number, ts, time - grace).new()
        found.rows |= {(key, start, start + d): held for start, (_, held) in there.items()}

    def needs(self) -> Iterator[tuple[int, Window, int]]:
        """(record, window, the grace it needed) of every pair, by trying one grace after the other."""
        complete = self.complete()
        seen = {number: time for number, _, time in self.seen}
        if self.kind == "sliding":
            for window, records in complete.items():
                for number in records:
                    yield number, window, max(0, seen[number] - window[2])
            return
        late = [set(self.outcome(grace).late) for grace in range(max(seen.values(), default=0) + 1)]
        for window, records in complete.items():
            for number in records:
                # A longer grace makes no further record late.
                known = [number in of_grace for of_grace in late]
                assert known == sorted(known, reverse=True)
                yield number, window, sum(known)

    def cost(self, grace: int, alert: Callable[[frozenset[int]], bool]) -> dict[str, Any]:
        """Costs of a grace as `tg.advise` names them, over rows emitted before the end and rows due before it."""
        found, complete = self.outcome(grace), self.complete()
        times = [time for _, _, time in self.seen]
        end = max(times, default=-1)
        out = {w: records for w, records in found.rows.items() if self.close(w[2]) + grace < end}
        of = {w: self._of(w, complete) for w in found.rows}
        due = [w for w in complete if self.close(w[2]) + grace < end]
        right = {of[w] for w, records in out.items() if alert(records)}
        waits = []
        trigger = self.recording.trigger
        for _, _, last in out:
            closes = self.close(last) + 1
            done = min(
                self.recording.ready[id(r)] // (trigger or 1) for _, r, time in self.seen if time >= closes + grace
            )
            waits.append(((done + 1) * trigger if trigger else done) - closes)
        return {
            "results": len(out),
            "incomplete": sum(of[w] is None or records != complete[of[w]] for w, records in out.items()),
            "missing": sum(w not in of.values() for w in due),
            "still_open": len(found.rows) - len(out),
            "wait": median(waits) if waits else None,
            "alerts": sum(map(alert, out.values())),
            "false_alerts": sum(
                alert(records) and (of[w] is None or not alert(complete[of[w]])) for w, records in out.items()
            ),
            "missed_alerts": sum(alert(complete[w]) and w not in right for w in due),
        }

    def _of(self, window: Window, complete: dict[Window, frozenset[int]]) -> Any:
        """The complete window that contains the window of a row."""
        if self.kind == "sliding":
            return window if window in complete else None
        key, start, end = window
        return next(w for w in complete if w[0] == key and w[1] <= start and end <= w[2])


Held = tuple[int, frozenset[int]]
"""The newest timestamp of a sliding window, and its records."""


class _Turn:
    """Changes that one record makes to the sliding windows of its key, by window start (SEMANTICS 3.1, 3.2)."""

    def __init__(self, d: int, there: dict[int, Held], number: int, ts: int, opens: int) -> None:
        self.d, self.there, self.number, self.ts, self.opens = d, there, number, ts, opens
        self.made: dict[int, Held] = {}

    def new(self) -> dict[int, Held]:
        if self.ts < self.d:
            self._early()
        else:
            self._regular()
        return self.made

    def _put(self, start: int, base: Held | None) -> None:
        if start + self.d >= self.opens:
            newest, held = base or (-1, frozenset())
            self.made[start] = (max(newest, self.ts), held | {self.number})

    def _right(self, candidate: Held | None) -> None:
        if self.ts + 1 not in self.there and candidate is not None and candidate[0] > self.ts:
            self.made[self.ts + 1] = candidate

    def _early(self) -> None:
        combined, candidate = self.there.get(0), None
        for start in sorted(s for s in self.there if 0 < s <= self.ts):
            candidate = self.there[start]
            self._put(start, candidate)
        if candidate is None and combined is not None and combined[0] > self.ts:
            candidate = combined
        self._right(candidate)
        if combined is not None and combined[0] < self.ts and combined[0] + 1 not in self.there:
            self._put(combined[0] + 1, None)
        self._put(0, combined)

    def _regular(self) -> None:
        d, ts = self.d, self.ts
        candidate = before = previous = None
        for start in sorted((s for s in self.there if max(0, ts - 2 * d) <= s <= ts), reverse=True):
            window = self.there[start]
            if start + d < ts:
                before, previous = window, window[0]
                break
            self._put(start, window)
            if start + d > ts:
                candidate = candidate or window
                continue
            if window[0] >= ts:
                return
            previous = window[0]
        if previous is not None and previous + 1 not in self.there and previous + 1 + d >= ts:
            self._put(previous + 1, None)
        if ts - d not in self.there:
            self._put(ts - d, before if before is not None and before[0] >= ts - d else None)
        self._right(candidate)


@dataclass
class Outcome:
    """`late`: the records late for all their windows; `rows`: the records of each window."""

    late: list[int] = field(default_factory=list)
    rows: dict[Window, frozenset[int]] = field(default_factory=dict)
