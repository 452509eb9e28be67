"""The advice: the cost of each grace, the chosen one with its reasons, and other findings about the stream."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate.advice.choice import CHOSEN_ON, FEW, Choice, choose, graces_of
from tidegate.advice.counts import Counts, Tally
from tidegate.advice.lateness import DAY_HOURS, PARTS
from tidegate.advice.question import Question
from tidegate.advice.results import MOST_KEYS
from tidegate.instants import rounded_up, show_ms
from tidegate.spec.windows import TimeWindows

FORMAT = 1
"""The version of `Advice.as_dict`."""
_USUAL_GAPS = 0.999


@dataclass(frozen=True)
class Cost:
    """The cost of one grace over the whole recording; times in ms.

    Attributes:
        grace: The grace.
        late: The number of (record, window) pairs that arrive after their window closed.
        late_share: Their share of all pairs.
        lost: The number of records that are late for all of their windows.
        results: The number of final rows that leave before the end of the recording.
        incomplete: The number of these rows that lack a record.
        missing: The number of rows that never leave, because all of their records are late.
        still_open: The number of results of windows that are open when the recording ends.
        wait: The median time by arrivals from the end of a window until its row leaves; None without arrivals, or if no
            row leaves.
        wait_p95: The 95 % quantile of these times.
        stream_wait: The median of the wait in stream time; None if no row leaves.
        open_windows: The most windows with records that are open at once.
        state_bytes: The size of a row of state for each of these windows, before compression.
        alerts: The number of rows that raise an alert; None without a condition, as the next two.
        false_alerts: The number of these rows that raise none when they are complete.
        missed_alerts: The number of rows that raise one only when they are complete, or that never leave.
        late_by_slowest: Late pairs with `stream_time="min_partition"`; None if not known.
        late_by_guarded: Late pairs with the `max_future_skew` of `Advice.guard`; None if not known.
        late_by_own: Late pairs if each partition had its own stream time.
    """

    grace: int
    late: int
    late_share: float
    lost: int
    results: int
    incomplete: int
    missing: int
    still_open: int
    wait: float | None
    wait_p95: int | None
    stream_wait: float | None
    open_windows: int
    state_bytes: int
    alerts: int | None
    false_alerts: int | None
    missed_alerts: int | None
    late_by_slowest: int | None
    late_by_guarded: int | None
    late_by_own: int

    @property
    def wrong(self) -> int:
        """Results that would differ with all records: incomplete or missing ones."""
        return self.incomplete + self.missing

    @property
    def changed_alerts(self) -> int | None:
        """Alerts that would differ with all records: false or missed ones."""
        if self.false_alerts is None or self.missed_alerts is None:
            return None
        return self.false_alerts + self.missed_alerts


@dataclass(frozen=True)
class Idle:
    """Gaps between arrivals over all partitions, in ms.

    Attributes:
        longest: The longest gap.
        usual: The 99.9 % quantile of the gaps.
        advance: An `idle_advance` between usual gaps and the longest one; None if there is none.
        longer: The number of gaps longer than `advance`.
        waited: Their total length.
    """

    longest: int
    usual: int
    advance: int | None
    longer: int
    waited: int


@dataclass(frozen=True)
class Sessions:
    """The number of sessions by inactivity gap.

    Attributes:
        gaps: The number of sessions by the gap (ms).
        bend: The gap (ms) at which this curve bends most; None if it does not.
    """

    gaps: dict[int, int]
    bend: int | None


@dataclass(frozen=True)
class Advice:
    """The result of `tg.advise`; times in milliseconds.

    `str()` gives the text, `html()` a page, `as_dict()` and `json()` the numbers.

    Attributes:
        windows: The windows.
        today: Their grace today.
        target: The share of pairs that may be late.
        records: The number of records that are not skipped.
        pairs: The number of their (record, window) pairs.
        skipped: The number of other records, by reason.
        choice: The chosen grace for the target share, with its test.
        costs: The cost of each grace, ascending.
        guard: The `max_future_skew` of `late_by_guarded`.
        future: The number of records that this guard skips.
        hours: Late shares (without grace, with the chosen one) by hour of day in UTC; None without records.
        parts: Late shares by part of the stream, in order.
        partitions: (name, records or None, pairs late with today's grace), the worst first.
        keys: (key, None, pairs late with today's grace), the worst first.
        idle: Gaps between arrivals; None if arrivals are not known.
        sessions: The number of sessions by inactivity gap.
        order: The assumed order of the records.
        warnings: Warnings about the advice.

    Examples:
        >>> recorded = pa.table({"user": ["A"] * 6, "ts": [10, 11, 13, 11, 14, 10]})
        >>> windows = tg.TimeWindows.of_size_and_grace("2 ms", "2 ms")
        >>> found = tg.advise(recorded, key="user", timestamp="ts", windows=windows)
        >>> found.records, found.today
        (6, 2)
    """

    windows: str
    today: int
    target: float
    records: int
    pairs: int
    skipped: dict[str, int]
    choice: Choice
    costs: list[Cost]
    guard: int | None
    future: int
    hours: list[tuple[float, float] | None]
    parts: list[tuple[float, float] | None]
    partitions: list[tuple[str, int | None, int]]
    keys: list[tuple[str, int | None, int]]
    idle: Idle | None
    sessions: Sessions
    order: str
    warnings: list[str] = field(default_factory=list)

    def cost(self, grace_ms: int) -> Cost:
        """The cost of a grace in `costs`.

        Args:
            grace_ms: The grace.

        Returns:
            The cost.

        Raises:
            KeyError: The grace is not in `costs`.

        Examples:
            >>> recorded = pa.table({"user": ["A"] * 6, "ts": [10, 11, 13, 11, 14, 10]})
            >>> windows = tg.TimeWindows.of_size_and_grace("2 ms", "2 ms")
            >>> tg.advise(recorded, key="user", timestamp="ts", windows=windows).cost(2).late
            1
        """
        return {cost.grace: cost for cost in self.costs}[grace_ms]

    @property
    def chosen(self) -> Cost:
        """The cost of the chosen grace."""
        return self.cost(self.choice.grace)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON.

        Returns:
            A dict.

        Examples:
            >>> recorded = pa.table({"user": ["A"] * 6, "ts": [10, 11, 13, 11, 14, 10]})
            >>> windows = tg.TimeWindows.of_size_and_grace("2 ms", "2 ms")
            >>> tg.advise(recorded, key="user", timestamp="ts", windows=windows).as_dict()["pairs"]
            6
        """
        costs = [asdict(cost) | {"wrong": cost.wrong, "changed_alerts": cost.changed_alerts} for cost in self.costs]
        return {"format": FORMAT} | asdict(self) | {"costs": costs}

    def json(self) -> str:
        """`as_dict` as JSON text; infinite numbers become null.

        Returns:
            The text.

        Examples:
            >>> recorded = pa.table({"user": ["A"] * 6, "ts": [10, 11, 13, 11, 14, 10]})
            >>> windows = tg.TimeWindows.of_size_and_grace("2 ms", "2 ms")
            >>> tg.advise(recorded, key="user", timestamp="ts", windows=windows).json().splitlines()[1]
            '  "format": 1,'
        """
        return json.dumps(_finite(self.as_dict()), indent=2, allow_nan=False)

    def __str__(self) -> str:
        from tidegate.advice.text import text

        return text(self)

    def html(self) -> str:
        """A self-contained HTML page, without network and script.

        Returns:
            The page.

        Examples:
            >>> recorded = pa.table({"user": ["A"] * 6, "ts": [10, 11, 13, 11, 14, 10]})
            >>> windows = tg.TimeWindows.of_size_and_grace("2 ms", "2 ms")
            >>> tg.advise(recorded, key="user", timestamp="ts", windows=windows).html()[:15]
            '<!doctype html>'
        """
        from tidegate.advice.page import page

        return page(self)

    def _repr_html_(self) -> str:
        from tidegate.advice.page import fragment

        return fragment(self)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


@dataclass(frozen=True)
class Found:
    """Counts over a recording: `records` by `advice.lateness`, the names of partitions by number, the `gaps` between
    arrivals. `waited` counts records that waited for a smaller offset of their partition.
    """

    question: Question
    skipped: dict[str, int]
    records: Tally
    partitions: tuple[str, ...]
    guard: int | None
    gaps: Counts | None
    waited: int

    def choice(self) -> Choice:
        """The chosen grace for the target share."""
        return choose(self.records, self.question.target)

    def graces(self, choice: Choice) -> list[int]:
        """The graces of the table."""
        return graces_of(self.records, choice, self.question.windows.grace_ms, self.question.graces_ms)

    def advice(self, choice: Choice, results: Tally) -> Advice:
        """The advice, from the counts of results for `graces` (`advice.results`)."""
        graces, today = self.graces(choice), self.question.windows.grace_ms
        costs = [_cost(grace, self, results) for grace in graces]
        by_partition = [
            (name, self.records.of(f"records_of/{number}"), self.records.of(f"late_of/{number}"))
            for number, name in enumerate(self.partitions)
        ]
        by_partition.sort(key=lambda one: (-one[2] / max(one[1], 1), one[0]))
        keys = [(name, None, counts.total) for name, counts in results.below("key/").items()]
        keys.sort(key=lambda one: (-one[2], one[0]))
        idle = None if self.gaps is None else _idle(self.gaps)
        advice = Advice(
            windows=str(self.question.windows),
            today=today,
            target=self.question.target,
            records=self.records.of("records"),
            pairs=self.records.of("pairs"),
            skipped=self.skipped,
            choice=choice,
            costs=costs,
            guard=self.guard,
            future=self.records.of("future"),
            hours=[self._shares("hour", hour, choice.grace) for hour in range(DAY_HOURS)],
            parts=[self._shares("part", part, choice.grace) for part in range(PARTS)],
            partitions=[*by_partition[:MOST_KEYS]],
            keys=[*keys[:MOST_KEYS]],
            idle=idle,
            sessions=_sessions(results),
            order=_order(self.question, len(self.partitions)),
        )
        advice.warnings.extend(_warnings(advice, self, len(self.partitions)))
        return advice

    def _shares(self, by: str, which: int, grace: int) -> tuple[float, float] | None:
        among = self.records.of(f"pairs/{by}/{which}")
        late = self.records.counts(f"late/{by}/{which}")
        return (late.total / among, late.above(grace) / among) if among else None


def _cost(grace: int, found: Found, results: Tally) -> Cost:
    records = found.records
    late = sum(records.counts(f"late/part/{part}").above(grace) for part in range(PARTS))
    out, incomplete, missing, still_open = _rows(grace, found.question, results)
    wait, stream_wait = (results.counts(f"{name}/{grace}") for name in ("wait", "stream_wait"))
    open_windows = _peak(results.counts(f"open/{grace}"))
    alerts = found.question.alert is not None
    return Cost(
        grace=grace,
        late=late,
        late_share=late / max(records.of("pairs"), 1),
        lost=records.counts("lost").above(grace),
        results=out,
        incomplete=incomplete,
        missing=missing,
        still_open=still_open,
        wait=wait.median(),
        wait_p95=wait.quantile(0.95) if wait.total else None,
        stream_wait=stream_wait.median(),
        open_windows=open_windows,
        state_bytes=open_windows * results.of("state_bytes") // max(results.of("state_rows"), 1),
        alerts=results.of(f"alerts/{grace}") if alerts else None,
        false_alerts=results.of(f"false/{grace}") if alerts else None,
        missed_alerts=results.of(f"missed/{grace}") if alerts else None,
        late_by_slowest=records.counts("late_by_slowest").above(grace) if records.of("with_slowest") else None,
        late_by_guarded=records.counts("late_by_guarded").above(grace) if found.guard is not None else None,
        late_by_own=records.counts("late_by_own").above(grace),
    )


def _rows(grace: int, question: Question, results: Tally) -> tuple[int, int, int, int]:
    """The numbers of rows that leave, that leave incomplete, that are missing, and that are open at the end."""
    if not isinstance(question.windows, TimeWindows):
        names = ("out", "incomplete", "missing", "still_open")
        out, incomplete, missing, still_open = (results.of(f"{name}/{grace}") for name in names)
        return out, incomplete, missing, still_open
    missing = results.counts("first_needed").above(grace)
    still_open = results.counts("open_from").at_most(grace)
    out = results.of("results") - missing - still_open
    return out, results.counts("all_needed").above(grace) - missing, missing, still_open


def _peak(steps: Counts) -> int:
    """The largest running sum of +1 and -1 by cell."""
    return int(steps.counts.cumsum().max(initial=0))


def _idle(gaps: Counts) -> Idle:
    usual = gaps.quantile(_USUAL_GAPS)
    advance = rounded_up(2 * max(usual, 1))
    longer = gaps.above(advance)
    mine = gaps.values > advance
    waited = int((gaps.values[mine] * gaps.counts[mine]).sum())
    return Idle(gaps.largest, usual, advance if longer else None, longer, waited)


def _sessions(results: Tally) -> Sessions:
    between, keys = results.counts("between"), results.of("keys")
    if not between.total:
        return Sessions({}, None)
    gaps = sorted({rounded_up(between.quantile(share)) for share in (i / 24 for i in range(25))} - {0})
    curve = {gap: keys + between.above(gap) for gap in gaps}
    return Sessions(curve, _bend(list(curve.items())))


def _bend(curve: list[tuple[int, int]]) -> int | None:
    """The gap at which the curve lies furthest below the line between its ends, both axes logarithmic."""
    from math import log

    if len(curve) < 3:
        return None
    points = [(log(gap), log(sessions)) for gap, sessions in curve]
    (x0, y0), (x1, y1) = points[0], points[-1]
    depth = [y0 + (y1 - y0) * (x - x0) / (x1 - x0) - y for x, y in points]
    best = max(range(len(curve)), key=lambda i: depth[i])
    return curve[best][0] if depth[best] > 0 else None


def _order(question: Question, partitions: int) -> str:
    if question.arrival is not None:
        trigger = question.trigger_ms
        batch = "one millisecond, the shortest there is" if trigger is None else show_ms(trigger)
        within = "by partition and offset" if question.offset is not None else "by arrival and timestamp"
        return (
            f"Records come by {question.arrival!r} in batches of {batch}, in a batch {within}, and never before one "
            "with a smaller offset of their partition. A record sees the largest timestamp of the batches before and "
            "of its own partition."
        )
    if question.offset is None:
        return "Records come in the order in which they are given, as one partition."
    return f"Records come by {question.offset!r} within {question.partition!r}. " + (
        "There is one partition, so this is the order of the stream."
        if partitions < 2
        else "Without arrivals the order between partitions is unknown: a record sees only its own partition's time."
    )


def _warnings(advice: Advice, found: Found, partitions: int) -> list[str]:
    choice, target = advice.choice, advice.target
    said = []
    if not advice.records:
        return ["There is no record with a key and a time: nothing can be said."]
    if partitions > 1 and found.question.arrival is None:
        said.append(
            "There are several partitions and no arrivals, so records that are late because another partition is ahead "
            "are not counted. Give arrival=, for example Kafka's own timestamp."
        )
    if choice.beyond < FEW and choice.enough:
        said.append(
            f"The grace rests on {choice.beyond} pairs that were later than it; {FEW} would make it sure. Record "
            "for longer, or allow a larger share."
        )
    if choice.tested is not None and choice.tested > target:
        said.append(
            f"On the last {100 - 100 * CHOSEN_ON // PARTS} % the chosen grace leaves {choice.tested:.3%} late, more "
            f"than the target of {target:.3%}: the future need not be like the past."
        )
    if choice.drift is not None:
        grew = "from none" if choice.drift == float("inf") else f"{choice.drift:.1f} times"
        said.append(
            f"Lateness drifts: the late share of the last fifth is {grew} that of the first, which is not chance. "
            "Look at the parts of the stream, and choose again before long."
        )
    if found.waited:
        said.append(
            f"{found.waited:,} records have an arrival before that of a smaller offset of their partition. They were "
            "taken when the last of those had come; an arrival that the broker writes would not go back."
        )
    if partitions > 1 and not found.records.of("with_slowest") and found.question.arrival is not None:
        said.append(f"There are {partitions:,} partitions: the time of the slowest one was not computed.")
    return said
