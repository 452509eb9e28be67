"""The kinds of windows of an aggregation."""

from __future__ import annotations

from tidegate.spec.windows.batch import BatchWindows
from tidegate.spec.windows.session import SessionWindows
from tidegate.spec.windows.sliding import SlidingWindows
from tidegate.spec.windows.time import TimeWindows
from tidegate.spec.windows.unlimited import UnlimitedWindows

AlignedWindows = TimeWindows | BatchWindows | UnlimitedWindows
"""Windows whose bounds depend only on timestamps and stream time. The start of a window determines when it closes."""

KeyedWindows = SlidingWindows | SessionWindows
"""Windows whose bounds depend on the other records of their key."""

Windows = TimeWindows | SlidingWindows | SessionWindows | BatchWindows | UnlimitedWindows
