"""Every error tidegate raises.

TidegateError
├── DefinitionError (also a ValueError)      a definition that cannot mean anything
├── DefinitionTypeError (also a TypeError)   an argument of the wrong kind
├── InputError                               rows or columns that cannot be read
├── AggregationError                         a value that cannot be computed: overflow, a function that raised
├── BufferFullError                          a strict buffer is above its bound
└── CheckpointError                          a checkpoint that this plan cannot go on from
TidegateWarning (a UserWarning)              legal, but probably not what was meant
"""

from __future__ import annotations

import sys
import warnings


class TidegateError(Exception):
    """Base of every error tidegate raises."""


class DefinitionError(TidegateError, ValueError):
    """A window, buffer, aggregate or topology that cannot mean anything; raised where it was written."""


class DefinitionTypeError(TidegateError, TypeError):
    """An argument of the wrong kind, for example an eager buffer where only a strict one makes sense."""


class InputError(TidegateError):
    """Input rows or columns that cannot be read as the plan says."""


class AggregationError(TidegateError):
    """A value that cannot be computed; names the key, the window and, for a function, the record."""


class BufferFullError(TidegateError):
    """A buffer that must not emit early holds more than its bound."""


class CheckpointError(TidegateError):
    """A checkpoint that this plan cannot go on from; nothing of it was changed."""


class TidegateWarning(UserWarning):
    """Legal, but probably not what was meant."""


def in_one_line(value: object, most: int = 100) -> str:
    """What an error shows of any value: its repr in one line, cut where it is long; of a table or frame, its kind."""
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "toArrow"):
        return f"a {type(value).__module__.partition('.')[0]} {type(value).__name__}"
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def warn(message: str) -> None:
    """Give a TidegateWarning at the line the user wrote: the nearest caller outside this package."""
    level, frame = 1, sys._getframe()  # noqa: SLF001 - there is no other way to see who called
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "tidegate":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, TidegateWarning, stacklevel=level)
