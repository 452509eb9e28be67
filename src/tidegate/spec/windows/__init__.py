"""The windows. Each kind has a file that alone decides its shape and its close rule.

A window is *closed* for a record when the stream time the record sees has reached the window's close time.
A closed window accepts no more records, and its result is final. A record is *late* for each of its windows that is
closed for it.
"""

from tidegate.spec.windows.batch import BatchWindows
from tidegate.spec.windows.join import LEFT, RIGHT, JoinWindows
from tidegate.spec.windows.session import SessionWindows
from tidegate.spec.windows.sliding import SlidingWindows
from tidegate.spec.windows.time import TimeWindows
from tidegate.spec.windows.unlimited import UnlimitedWindows

AlignedWindows = TimeWindows | BatchWindows | UnlimitedWindows
"""Windows whose bounds depend only on timestamps and stream time. The start of a window determines when it closes."""

KeyedWindows = SlidingWindows | SessionWindows
"""Windows whose bounds depend on the other records of their key."""

Windows = TimeWindows | SlidingWindows | SessionWindows | BatchWindows | UnlimitedWindows
"""The windows of an aggregation."""

__all__ = [
    "LEFT",
    "RIGHT",
    "AlignedWindows",
    "BatchWindows",
    "JoinWindows",
    "KeyedWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Windows",
]
