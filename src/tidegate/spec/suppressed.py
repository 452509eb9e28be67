"""Suppressed and its buffers: which updates are held back, and what happens when a buffer is full.

Whether a result is *final* must not depend on memory. So `until_window_closes` takes only a `StrictBuffer`, which never
emits early (KIP-328; Kafka's `StrictBufferConfig`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from tidegate.arguments import is_one_of, whole_number
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.instants import Duration, duration_ms, show_ms


def _bound(value: Any, argument: str) -> int:
    bound = whole_number(value)
    if bound is None:
        raise DefinitionTypeError(f"`{argument}` is {in_one_line(value)} ({type(value).__name__}), not a whole number.")
    if bound < 0:
        raise DefinitionError(
            f"`{argument}` is {in_one_line(bound)}: a bound must not be negative. Use 0 to let everything through at "
            "once, or unbounded() for no bound."
        )
    return bound


SHARE_RECORDS, SHARE_BYTES = 10_000, 10_000_000
"""The smallest share of a bound that a task gets; an operator with a smaller bound uses fewer tasks, down to one."""


def _part(bound: int | None, task: int, tasks: int) -> int | None:
    return None if bound is None else bound // tasks + (task < bound % tasks)


@dataclass(frozen=True)
class Buffer:
    """The bounds of a suppression's buffer; None is no bound. `BufferConfig` has the factories."""

    max_records: int | None = None
    max_bytes: int | None = None
    strategy: str = "shut_down"

    def with_max_records(self, records: int) -> Self:
        """The same buffer with a bound of `records` keys.

        Args:
            records: The bound.

        Returns:
            The buffer.

        Raises:
            DefinitionError: The bound is negative.
            DefinitionTypeError: The bound is no whole number.

        Examples:
            >>> print(tg.BufferConfig.max_bytes(1_000_000).with_max_records(500))
            at most 500 records and 1000000 bytes, then emit_early
        """
        return replace(self, max_records=_bound(records, "max_records"))

    def with_max_bytes(self, size: int) -> Self:
        """The same buffer with a bound of `size` bytes of keys and values.

        Args:
            size: The bound.

        Returns:
            The buffer.

        Raises:
            DefinitionError: The bound is negative.
            DefinitionTypeError: The bound is no whole number.

        Examples:
            >>> print(tg.BufferConfig.max_records(500).with_max_bytes(1_000_000))
            at most 500 records and 1000000 bytes, then emit_early
        """
        return replace(self, max_bytes=_bound(size, "max_bytes"))

    @property
    def bounded(self) -> bool:
        """Whether the buffer enforces a bound; a buffer that spills does not."""
        return self.strategy != "spill_to_disk" and (self.max_records is not None or self.max_bytes is not None)

    @property
    def worth_tasks(self) -> int:
        """The most tasks that may share the bound: a share smaller than SHARE_* would be full by chance alone."""
        shares = [self.max_records // SHARE_RECORDS] if self.max_records is not None else []
        shares += [self.max_bytes // SHARE_BYTES] if self.max_bytes is not None else []
        return max(1, min(shares))

    def share(self, task: int, tasks: int) -> Self:
        """The share of one task: equal parts of the bounds; the first tasks get one more each until the rest is used.

        Args:
            task: The number of the task.
            tasks: The number of tasks.

        Returns:
            The buffer with the bounds of this task.

        Examples:
            >>> print(tg.BufferConfig.max_records(5).share(0, 2))
            at most 3 records, then emit_early
        """
        return replace(
            self, max_records=_part(self.max_records, task, tasks), max_bytes=_part(self.max_bytes, task, tasks)
        )

    def with_no_bound(self) -> StrictBuffer:
        """A buffer without bounds.

        Returns:
            The buffer.

        Examples:
            >>> print(tg.BufferConfig.max_records(5).with_no_bound())
            unbounded
        """
        return StrictBuffer()

    def shut_down_when_full(self) -> StrictBuffer:
        """Stop the query instead of emitting early; the batch that overflows changes nothing.

        Returns:
            A strict buffer. With a bound of 0 the first row that has to wait stops the query.

        Examples:
            >>> print(tg.BufferConfig.max_records(1_000).shut_down_when_full())
            at most 1000 records, then shut_down
        """
        return StrictBuffer(self.max_records, self.max_bytes, "shut_down")

    def emit_early_when_full(self) -> EagerBuffer:
        """Emit the oldest entries early instead of growing above the bound.

        Returns:
            An eager buffer.

        Examples:
            >>> print(tg.BufferConfig.max_records(1_000).emit_early_when_full())
            at most 1000 records, then emit_early
        """
        return EagerBuffer(self.max_records, self.max_bytes, "emit_early")

    def spill_to_disk_when_full(self) -> StrictBuffer:
        """Keep rows above the bound on disk only: no row leaves early and the query does not stop.

        Returns:
            A strict buffer.

        Examples:
            >>> print(tg.BufferConfig.max_records(1_000).spill_to_disk_when_full())
            at most 1000 records, then spill_to_disk
        """
        return StrictBuffer(self.max_records, self.max_bytes, "spill_to_disk")

    def __str__(self) -> str:
        bounds = [f"{self.max_records} records"] if self.max_records is not None else []
        bounds += [f"{self.max_bytes} bytes"] if self.max_bytes is not None else []
        return f"at most {' and '.join(bounds)}, then {self.strategy}" if bounds else "unbounded"


@dataclass(frozen=True)
class StrictBuffer(Buffer):
    """A buffer that never emits early: it shuts the query down or spills when full, or has no bound.

    Attributes:
        max_records: The largest number of keys; None is no bound.
        max_bytes: The largest size of keys and values; None is no bound.
        strategy: "shut_down" or "spill_to_disk".

    Examples:
        >>> isinstance(tg.BufferConfig.unbounded(), tg.StrictBuffer)
        True
    """


@dataclass(frozen=True)
class EagerBuffer(Buffer):
    """A buffer that emits its oldest entries early when full.

    Attributes:
        max_records: The largest number of keys; None is no bound.
        max_bytes: The largest size of keys and values; None is no bound.
        strategy: "emit_early".

    Examples:
        >>> isinstance(tg.BufferConfig.max_records(10), tg.EagerBuffer)
        True
    """

    strategy: str = "emit_early"


class BufferConfig:
    """Factories of buffers.

    Examples:
        >>> print(tg.BufferConfig.max_records(1_000).shut_down_when_full())
        at most 1000 records, then shut_down
    """

    @staticmethod
    def unbounded() -> StrictBuffer:
        """A buffer without bounds.

        Returns:
            A strict buffer, which `until_window_closes` takes.

        Examples:
            >>> print(tg.BufferConfig.unbounded())
            unbounded
        """
        return StrictBuffer()

    @staticmethod
    def max_records(records: int) -> EagerBuffer:
        """A buffer of at most `records` keys that emits early when full.

        Args:
            records: The bound.

        Returns:
            An eager buffer. `.shut_down_when_full()` and `.spill_to_disk_when_full()` turn it into a strict one.

        Raises:
            DefinitionError: The bound is negative.
            DefinitionTypeError: The bound is no whole number.

        Examples:
            >>> print(tg.BufferConfig.max_records(1_000))
            at most 1000 records, then emit_early
        """
        return EagerBuffer().with_max_records(records)

    @staticmethod
    def max_bytes(size: int) -> EagerBuffer:
        """A buffer of at most `size` bytes that emits early when full.

        Args:
            size: The bound.

        Returns:
            An eager buffer. `.shut_down_when_full()` and `.spill_to_disk_when_full()` turn it into a strict one.

        Raises:
            DefinitionError: The bound is negative.
            DefinitionTypeError: The bound is no whole number.

        Examples:
            >>> print(tg.BufferConfig.max_bytes(10_000_000))
            at most 10000000 bytes, then emit_early
        """
        return EagerBuffer().with_max_bytes(size)


@dataclass(frozen=True)
class UntilWindowCloses:
    """Hold the results of a window back until the window closes; then emit the last one.

    Attributes:
        buffer: The bounds on waiting results, and what happens when the buffer is full.
        name: The name of the suppression in the checkpoint; None derives one.

    Examples:
        >>> print(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        until window closes, buffer unbounded
    """

    buffer: StrictBuffer
    name: str | None = None

    def with_name(self, name: str) -> UntilWindowCloses:
        """The same suppression under a name of its own, part of the checkpoint and of messages.

        Args:
            name: The name.

        Returns:
            The suppression.

        Raises:
            DefinitionError: The name is empty.
            DefinitionTypeError: The name is no text.

        Examples:
            >>> tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()).with_name("final").name
            'final'
        """
        return replace(self, name=_text(name))

    def __str__(self) -> str:
        return f"until window closes, buffer {self.buffer}"


@dataclass(frozen=True)
class UntilTimeLimit:
    """Hold updates of a key back for `limit_ms`, then emit the last one.

    Attributes:
        limit_ms: How long updates wait, in milliseconds.
        buffer: The bounds on waiting updates, and what happens when the buffer is full.
        clock: "stream" or "wall".
        measured_from: "first_update", "latest_update" or "window_start".
        name: The name of the suppression in the checkpoint; None derives one.

    Examples:
        >>> print(tg.Suppressed.until_time_limit("1 minute", tg.BufferConfig.unbounded(), clock="stream"))
        until 1 minute of stream time since the first_update, buffer unbounded
    """

    limit_ms: int
    buffer: Buffer
    clock: str
    measured_from: str = "first_update"
    name: str | None = None

    def with_name(self, name: str) -> UntilTimeLimit:
        """The same suppression under a name of its own, part of the checkpoint and of messages.

        Args:
            name: The name.

        Returns:
            The suppression.

        Raises:
            DefinitionError: The name is empty.
            DefinitionTypeError: The name is no text.

        Examples:
            >>> calm = tg.Suppressed.until_time_limit("1 minute", tg.BufferConfig.unbounded(), clock="wall")
            >>> calm.with_name("calm").name
            'calm'
        """
        return replace(self, name=_text(name))

    def __str__(self) -> str:
        return (
            f"until {show_ms(self.limit_ms)} of {self.clock} time since the {self.measured_from}, buffer {self.buffer}"
        )


class Suppressed:
    """Factories of suppressions, for `KTable.suppress`.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    """

    @staticmethod
    def until_window_closes(buffer: StrictBuffer) -> UntilWindowCloses:
        """Only final results: one row per key and window, when the window is closed.

        Args:
            buffer: A strict buffer, for example `BufferConfig.unbounded()`.

        Returns:
            The suppression.

        Raises:
            DefinitionTypeError: `buffer` is no strict buffer: a result that leaves early is not final.

        Examples:
            >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
            >>> driver = TopologyTestDriver(
            ...     counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
            ... )
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 2}, {"user": "A", "ts": 10}])
            >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
            [((0, 10), 2)]
        """
        if not isinstance(buffer, StrictBuffer):
            eager = "an eager buffer, which emits early when full"
            got = eager if isinstance(buffer, Buffer) else f"{in_one_line(buffer)}, not a strict buffer"
            raise DefinitionTypeError(
                f"`buffer` is {got}: a result that leaves early is not final. "
                "Use BufferConfig.unbounded(), or .shut_down_when_full() on a bounded one."
            )
        return UntilWindowCloses(buffer)

    @staticmethod
    def until_time_limit(
        limit: Duration,
        buffer: Buffer,
        *,
        clock: Literal["stream", "wall"],
        measured_from: Literal["first_update", "latest_update", "window_start"] = "first_update",
    ) -> UntilTimeLimit:
        """At most one row per key and `limit`.

        Args:
            limit: How long updates of a key wait; zero emits every update at once.
            buffer: The bounds on waiting updates, and what happens when the buffer is full.
            clock: "stream" waits by stream time, "wall" by the wall clock.
            measured_from: The wait counts from the "first_update", the "latest_update" or the "window_start".

        Returns:
            The suppression.

        Raises:
            DefinitionError: The limit is negative, or `clock` or `measured_from` is unknown.
            DefinitionTypeError: `limit` is no duration, or `buffer` no buffer.

        Examples:
            >>> calm = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.unbounded(), clock="stream")
            >>> driver = TopologyTestDriver(events.group_by_key().count().suppress(calm))
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 2}])
            >>> driver.read_output()
            []
            >>> driver.pipe_input({"user": "B", "ts": 12})
            >>> [(row["user"], row["count"]) for row in driver.read_output()]
            [('A', 2)]
        """
        limit_ms = duration_ms(limit, "limit")
        if limit_ms < 0:
            raise DefinitionError(f"`limit` is {show_ms(limit_ms)}: it must not be negative. Use zero for no limit.")
        if not isinstance(buffer, Buffer):
            raise DefinitionTypeError(
                f"`buffer` is {buffer!r}, not a buffer. Use for example BufferConfig.unbounded()."
            )
        _one_of("clock", clock, ("stream", "wall"))
        _one_of("measured_from", measured_from, ("first_update", "latest_update", "window_start"))
        return UntilTimeLimit(limit_ms, buffer, clock, measured_from)


def _text(name: str) -> str:
    if not isinstance(name, str):
        raise DefinitionTypeError(f"`name` is {name!r}, not a string.")
    if not name:
        raise DefinitionError("`name` is empty: a suppression needs a name. Leave with_name out for a derived one.")
    return name


def _one_of(argument: str, value: str, allowed: tuple[str, ...]) -> None:
    if not is_one_of(value, allowed):
        raise DefinitionError(f"`{argument}` is {in_one_line(value)}. Use one of {', '.join(map(repr, allowed))}.")
