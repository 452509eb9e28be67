"""Ways to do the same, measured in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median


def medians(ways: Mapping[str, Callable[[], float]], turns: int) -> dict[str, float]:
    """The median of the seconds of each way; ways take turns, and the first turn is not counted."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 + turns):
        for name, way in ways.items():
            found[name].append(way())
    return {name: median(each[1:]) for name, each in found.items()}
