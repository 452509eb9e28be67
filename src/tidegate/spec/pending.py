"""Pending: the rows that an operator holds back, and the times they wait for, as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tidegate.instants import Window, show_instant, show_ms
from tidegate.spec.pending_drawn import html

SHOWN = 5
"""The most windows that the text lists."""


@dataclass(frozen=True)
class Waiting:
    """A window whose result waits.

    Attributes:
        window: The window; None if it is not known.
        leaves_at: The stream time at which the result leaves.
        missing_ms: `leaves_at` minus the current stream time.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")).count()
        >>> final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        >>> driver = TopologyTestDriver(final)
        >>> driver.pipe_input({"user": "A", "ts": 3})
        >>> driver.pending().waiting[0]
        Waiting(window=Window(start=0, end=10), leaves_at=15, missing_ms=12)
    """

    window: Window | None
    leaves_at: int
    missing_ms: int


@dataclass(frozen=True)
class Buffered:
    """Keys that wait for a time limit.

    Attributes:
        clock: "stream" or "wall".
        leaves_at: The time of the clock at which the first key leaves.
        missing_ms: `leaves_at` minus the current time of the clock.
        keys: The number of waiting keys; None if a Spark query reports only its metrics.
        first: The first keys to leave, as text, each with its time.
        store: The name of the limit, if there are several.

    Examples:
        >>> calm = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock="stream")
        >>> driver = TopologyTestDriver(events.group_by_key().count().suppress(calm))
        >>> driver.pipe_input({"user": "A", "ts": 3})
        >>> waits = driver.pending().limits[0]
        >>> waits.keys, waits.leaves_at, waits.missing_ms
        (1, 13, 10)
    """

    clock: str
    leaves_at: int
    missing_ms: int
    keys: int | None = None
    first: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    store: str | None = None


@dataclass(frozen=True)
class Lookups:
    """Records of a stream that wait for late changes of a table (`grace` of a join).

    Attributes:
        leaves_at: The time of the stream at which the first record is looked up.
        clock: The time of the stream now.
        records: The number of waiting records; None if a Spark query reports only its metrics.
        first: The keys of the first records, as text, each with the time of its lookup.

    Examples:
        >>> users = tg.table("users", key="user", timestamp="ts", history="1 minute")
        >>> driver = TopologyTestDriver(events.join(users, grace="5 ms"))
        >>> driver.pipe_input({"user": "A", "ts": 3, "page": "home"}, "events")
        >>> driver.pending().lookups.leaves_at
        8
    """

    leaves_at: int
    clock: int
    records: int | None = None
    first: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    @property
    def missing_ms(self) -> int:
        """Time until the first lookup (ms)."""
        return self.leaves_at - self.clock


@dataclass(frozen=True)
class Pending:
    """The rows that one operator holds back; times in milliseconds.

    Attributes:
        name: The name of the operator.
        stream_time: The current stream time; None before the first record.
        waiting: Windows in the order in which they leave; from the metrics of a Spark query only the first one.
        open_windows: The number of open windows, whatever the number of their keys. From the metrics of a Spark query,
            the number of the task with most, where sliding windows and sessions count per key.
        held_by: With `stream_time="min_partition"`, the partition that holds stream time back, and its time. The
            partition is None from the metrics of a Spark query, if names of partitions are text.
        limits: The keys that each time limit holds back, in the order of the limits; limits that hold nothing are left
            out.
        lookups: In a join with a table, the records that wait for the table; None if no record waits.
        follows: The join whose stream time this operator uses, because the join follows its slowest partition; "" from
            the metrics of a Spark query, which do not name the join.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")).count()
        >>> final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        >>> driver = TopologyTestDriver(final)
        >>> driver.pipe_input({"user": "A", "ts": 3})
        >>> pending = driver.pending()
        >>> pending.stream_time, pending.open_windows
        (3, 1)
    """

    name: str
    stream_time: int | None
    waiting: tuple[Waiting, ...]
    open_windows: int
    held_by: tuple[int | str | None, int] | None = None
    limits: tuple[Buffered, ...] = ()
    lookups: Lookups | None = None
    follows: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """This object as plain data, for JSON.

        Returns:
            Dictionaries, lists, numbers and texts.

        Examples:
            >>> tg.Pending("events", 5, (), 0).to_dict()["stream_time"]
            5
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Pending:
        """Rebuild a `Pending` from the dict that `to_dict` returned.

        Args:
            fields: The dict.

        Returns:
            The `Pending`.

        Examples:
            >>> one = tg.Pending("events", 5, (), 0)
            >>> tg.Pending.from_dict(one.to_dict()) == one
            True
        """
        held, lookups = fields["held_by"], fields["lookups"]
        waiting = tuple(
            Waiting(one["window"] and Window(*one["window"]), one["leaves_at"], one["missing_ms"])
            for one in fields["waiting"]
        )
        return cls(
            name=fields["name"],
            stream_time=fields["stream_time"],
            waiting=waiting,
            open_windows=fields["open_windows"],
            held_by=None if held is None else (held[0], held[1]),
            limits=tuple(Buffered(**_with_pairs(one)) for one in fields["limits"]),
            lookups=None if lookups is None else Lookups(**_with_pairs(lookups)),
            follows=fields.get("follows"),
        )

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        return html(self, SHOWN)

    @property
    def buffered(self) -> Buffered | None:
        """The keys of the first time limit that holds any back; None if no limit does."""
        return self.limits[0] if self.limits else None

    @property
    def _moving(self) -> list[str]:
        """Text: what holds stream time back or advances it; empty if nothing waits for stream time."""
        if self.held_by is not None:
            return [f"  {_holding(*self.held_by)}"]
        if self.lookups is not None:
            return ["  A later record of the stream moves its time on; changes of the table do not."]
        if not self.waiting and all(limit.clock != "stream" for limit in self.limits):
            return []
        if self.follows is not None:
            return [f"  {_following(self.follows)}"]
        return ["  A record with a later timestamp, of any key and partition, moves stream time on."]

    def __str__(self) -> str:
        if self.stream_time is None and self.held_by is not None:
            return f"{self.name}: stream time has not begun. {_holding(*self.held_by)}"
        if self.stream_time is None:
            return (
                f"{self.name}: no record has been accepted yet, so nothing waits. Skipped records are counted by "
                "reason: in the drops of the test driver, and in the metrics."
            )
        lines = [f"{self.name}: stream time is {show_instant(self.stream_time)}."]
        if not self.waiting and not self.limits and self.lookups is None:
            open_ = f" Of {self.open_windows} open windows updates leave as they come." if self.open_windows else ""
            # An operator downstream of a join may still wait.
            held = self._moving if self.held_by is not None else []
            return "\n".join([f"{lines[0]} Nothing waits for it.{open_}", *held])
        for limit in self.limits:
            lines.append(f"  {_limited(limit)}")
            lines += _first(limit.first)
        if self.lookups is not None:
            lines += [f"  {_looked_up(self.lookups)}", *_first(self.lookups.first)]
        lines += [f"  {_line(one)}" for one in self.waiting[:SHOWN]]
        more = max(self.open_windows, len(self.waiting)) - min(SHOWN, len(self.waiting))
        if self.waiting and more > 0:
            lines.append(f"  and {more} more after {'it' if len(self.waiting) == 1 else 'them'}.")
        return "\n".join([*lines, *self._moving])


def _with_pairs(limit: Mapping[str, Any]) -> dict[str, Any]:
    return dict(limit) | {"first": tuple((key, at) for key, at in limit["first"])}


def _first(keys: Sequence[tuple[str, int]]) -> list[str]:
    return [f"    {key}: {show_instant(at)}" for key, at in keys[:SHOWN]]


def _wait(count: int | None, what: str) -> str:
    """Text such as "2 keys wait"; `count` is None if the number is not known."""
    return f"1 {what} waits" if count == 1 else f"{'' if count is None else f'{count} '}{what}s wait"


def _looked_up(one: Lookups) -> str:
    return (
        f"{_wait(one.records, 'record')} for changes of the table; the first is looked up when the time of the "
        f"stream, now {show_instant(one.clock)}, is {show_instant(one.leaves_at)}: {show_ms(one.missing_ms)} to go"
    )


def _holding(partition: int | str | None, time: int) -> str:
    how_far = f"it has come to {show_instant(time)}" if time >= 0 else "no record of it has come yet"
    if partition is None:
        return f"A partition holds stream time back: {how_far}. The state in the checkpoint has its name."
    side = str(partition).startswith(("left side", "right side"))  # of a join
    who = f"The {partition}" if side else f"Partition {partition!r}"
    return f"{who} holds stream time back: {how_far}."


def _following(join: str) -> str:
    named = f"the join {join!r}" if join else "the join in front of it"
    return f"Its stream time is that of {named}, which goes by its slowest partition and says what holds it back."


def together(tasks: Iterable[Pending], open_windows: int) -> Pending:
    """One `Pending` from those of all tasks of an operator; `open_windows` counts the distinct windows of all tasks."""
    found = list(tasks)
    now = max((one.stream_time for one in found if one.stream_time is not None), default=None)
    windows = {(one.leaves_at, one.window or Window(0, 0)): one for task in found for one in task.waiting}
    waiting = tuple(replace(windows[at], missing_ms=at[0] - (now or 0)) for at in sorted(windows))
    held = [task.held_by for task in found if task.held_by is not None]
    return Pending(
        name=found[0].name,
        stream_time=now,
        waiting=waiting,
        open_windows=open_windows,
        held_by=min(held, key=lambda one: one[1], default=None),
        limits=_buffers([limit for task in found for limit in task.limits]),
        lookups=_lookups([task.lookups for task in found if task.lookups is not None]),
        follows=found[0].follows,
    )


def _buffers(tasks: list[Buffered]) -> tuple[Buffered, ...]:
    """The buffers of all tasks, merged by limit."""
    stores = dict.fromkeys(one.store for one in tasks)
    return tuple(_one_buffer([one for one in tasks if one.store == store]) for store in stores)


def _one_buffer(tasks: list[Buffered]) -> Buffered:
    at, now = min(one.leaves_at for one in tasks), max(one.leaves_at - one.missing_ms for one in tasks)
    return Buffered(
        tasks[0].clock, at, at - now, sum(one.keys or 0 for one in tasks), _first_of_all(tasks), tasks[0].store
    )


def _lookups(tasks: list[Lookups]) -> Lookups | None:
    """The waiting lookups of all tasks, merged; None if there are none."""
    if not tasks:
        return None
    at, clock = min(one.leaves_at for one in tasks), max(one.clock for one in tasks)
    return Lookups(at, clock, sum(one.records or 0 for one in tasks), _first_of_all(tasks))


def _first_of_all(tasks: Sequence[Buffered | Lookups]) -> tuple[tuple[str, int], ...]:
    """The first `SHOWN` (key, time at which it leaves) pairs over all tasks."""
    first = sorted((entry for one in tasks for entry in one.first), key=lambda entry: (entry[1], entry[0]))
    return tuple(first[:SHOWN])


def _line(one: Waiting) -> str:
    what = f"window {one.window.start} to {one.window.end} ms" if one.window is not None else "the next result"
    return f"{what} waits for stream time {show_instant(one.leaves_at)}: {show_ms(one.missing_ms)} to go"


def _limited(one: Buffered) -> str:
    clock = "stream time" if one.clock == "stream" else "the wall clock"
    limit = "a time limit" if one.store is None else f"the time limit {one.store!r}"
    return (
        f"{_wait(one.keys, 'key')} for {limit}; the first leaves when {clock} is {show_instant(one.leaves_at)}: "
        f"{show_ms(max(one.missing_ms, 0))} to go"
    )
