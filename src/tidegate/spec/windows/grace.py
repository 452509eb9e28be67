"""Checks the grace of any kind of windows."""

from __future__ import annotations

from tidegate.errors import DefinitionError
from tidegate.instants import Duration, duration_ms, show_ms


def grace_ms_of(grace: Duration) -> int:
    ms = duration_ms(grace, "grace")
    if ms < 0:
        raise DefinitionError(
            f"`grace` is {show_ms(ms)}: Grace period must not be negative. Use zero to take no record after the end."
        )
    return ms
