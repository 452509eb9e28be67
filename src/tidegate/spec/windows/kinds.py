"""The kinds of windows of an aggregation, and what they have in common."""

from __future__ import annotations

from tidegate.instants import show_ms
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


def needed_ms(windows: Windows) -> tuple[int, str]:
    """How long windows need their state at least, and what that is made of (SEMANTICS 8, Kafka's rule)."""
    if isinstance(windows, SlidingWindows):
        parts = {"twice the time difference": 2 * windows.time_difference_ms, "grace": windows.grace_ms}
    elif isinstance(windows, SessionWindows):
        parts = {"gap": windows.inactivity_gap_ms, "grace": windows.grace_ms}
    elif isinstance(windows, UnlimitedWindows):
        parts = {}
    else:
        parts = {"size": windows.size_ms, "grace": windows.grace_ms}
    return sum(parts.values()), " plus ".join(f"{name} ({show_ms(ms)})" for name, ms in parts.items())
