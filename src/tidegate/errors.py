"""Every error tidegate raises.

TidegateError
├── DefinitionError (also a ValueError)      an invalid definition
├── DefinitionTypeError (also a TypeError)   an argument of the wrong type
├── InputError                               rows or columns that cannot be read
├── AggregationError                         a value that cannot be computed: overflow, or a function that raised
├── BufferFullError                          a strict buffer exceeds its bound
└── CheckpointError                          a checkpoint that this plan cannot go on from
TidegateWarning (a UserWarning)              legal, but probably not intended
"""

from __future__ import annotations

import sys
import warnings

MORE_MEMORY = (
    "Give the Python workers more (the machine's memory, and spark.executor.pyspark.memory if it is set), and start "
    "the query again: it goes on with this batch"
)
"""Remedy for too little memory."""


class TidegateError(Exception):
    """Base of every error tidegate raises.

    Examples:
        >>> try:
        ...     tg.TimeWindows.of_size_with_no_grace("0 ms")
        ... except tg.TidegateError as error:
        ...     print(type(error).__name__)
        DefinitionError
    """


class DefinitionError(TidegateError, ValueError):
    """An invalid window, buffer, aggregate or topology; raised where the user defines it.

    Examples:
        >>> try:
        ...     tg.TimeWindows.of_size_with_no_grace("10 ms").advance_by("20 ms")
        ... except tg.DefinitionError as error:
        ...     print(str(error).partition(":")[0])
        `advance` is 20 milliseconds but `size` is 10 milliseconds
    """


class DefinitionTypeError(TidegateError, TypeError):
    """An argument of the wrong type, for example an eager buffer where only a strict one makes sense.

    Examples:
        >>> try:
        ...     tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(5))
        ... except tg.DefinitionTypeError as error:
        ...     print(str(error).partition(":")[0])
        `buffer` is an eager buffer, which emits early when full
    """


class InputError(TidegateError):
    """Input rows or columns that do not fit the plan.

    Examples:
        >>> try:
        ...     TopologyTestDriver(events.group_by_key().count()).pipe_input({"ts": 1})
        ... except tg.InputError as error:
        ...     print(str(error).partition(".")[0])
        Record 0 has no column 'user', which the stream needs; it has 'ts'
    """


class AggregationError(TidegateError):
    """A value that cannot be computed. The message names the key, the window and, for a function, the record.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().reduce(lambda a, b: a / b, "price"))
        >>> try:
        ...     driver.pipe_batch([{"user": "A", "ts": ts, "price": price} for ts, price in enumerate([1.0, 0.0])])
        ... except tg.AggregationError as error:
        ...     print("division by zero" in str(error))
        True
    """


class BufferFullError(TidegateError):
    """A strict buffer, which must not emit early, exceeds its bound.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> buffer = tg.BufferConfig.max_records(1).shut_down_when_full()
        >>> driver = TopologyTestDriver(counts.suppress(tg.Suppressed.until_window_closes(buffer)))
        >>> try:
        ...     driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "B", "ts": 2}])
        ... except tg.BufferFullError as error:
        ...     print(type(error).__name__)
        BufferFullError
    """


class CheckpointError(TidegateError):
    """A plan cannot go on from a checkpoint; the checkpoint is not changed.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().count())
        >>> driver.pipe_input({"user": "A", "ts": 1})
        >>> try:
        ...     other = TopologyTestDriver(events.group_by("page").count(), state=driver.state())
        ...     other.pipe_input({"user": "A", "ts": 2, "page": "home"})
        ... except tg.CheckpointError as error:
        ...     print(str(error).partition(" (")[0])
        The checkpoint was written by another plan
    """


class TidegateWarning(UserWarning):
    """A legal definition that is probably not intended.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     windows = tg.TimeWindows.of_size_with_no_grace("1 day").advance_by("1 second")
        >>> caught[0].category.__name__
        'TidegateWarning'
    """


def in_one_line(value: object) -> str:
    """A value as an error shows it: its repr in one line of at most 100 characters; of a table or frame its type."""
    if any(hasattr(type(value), name) for name in ("__arrow_c_stream__", "toArrow")):
        return f"a {type(value).__module__.partition('.')[0]} {type(value).__name__}"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more digits than Python shows
        return f"a value of the type {type(value).__name__}, too long to show"
    return text if len(text) <= 100 else f"{text[:97]}..."


def warn(message: str) -> None:
    """Issue a TidegateWarning at the user's line: the nearest caller outside this package."""
    level, frame = 1, sys._getframe()  # noqa: SLF001 - there is no other way to see who called
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "tidegate":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, TidegateWarning, stacklevel=level)
