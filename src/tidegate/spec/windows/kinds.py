"""The kinds of windows of an aggregation."""

from __future__ import annotations

from tidegate.spec.windows.batch import BatchWindows
from tidegate.spec.windows.session import SessionWindows
from tidegate.spec.windows.sliding import SlidingWindows
from tidegate.spec.windows.time import TimeWindows
from tidegate.spec.windows.unlimited import UnlimitedWindows

AlignedWindows = TimeWindows | BatchWindows | UnlimitedWindows
"""Windows that follow from timestamps and stream time alone: each closes at a stream time known from its start."""

KeyedWindows = SlidingWindows | SessionWindows
"""Windows that follow from what their key already has."""

Windows = TimeWindows | SlidingWindows | SessionWindows | BatchWindows | UnlimitedWindows
