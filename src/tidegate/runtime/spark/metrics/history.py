"""Numbers over the last hours: points of time with several numbers each, fewer the older they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HOURS_MS = 6 * 3_600_000
MOST_POINTS = 1_000


class History:
    """Points of the last six hours. Beyond `most` points every other point of the older half is dropped."""

    def __init__(self, columns: Sequence[str], most: int = MOST_POINTS) -> None:
        self.columns = tuple(columns)
        self._most = most
        self._points: list[tuple[float, ...]] = []

    def add(self, at_ms: float, values: Mapping[str, float | None]) -> None:
        """Add the values at `at_ms` of the wall clock; a column without a value is NaN.

        If the clock was set back, the earlier points go back with it.
        """
        if self._points and (ahead := self._points[-1][0] - at_ms) > 0:
            self._points = [(at - ahead, *rest) for at, *rest in self._points]
        row = (values.get(name) for name in self.columns)
        self._points.append((at_ms, *(float("nan") if value is None else value for value in row)))
        oldest = at_ms - HOURS_MS
        if self._points[0][0] < oldest:
            self._points = [point for point in self._points if point[0] >= oldest]
        if len(self._points) > self._most:
            half = len(self._points) // 2
            self._points = self._points[:half:2] + self._points[half:]

    def table(self) -> dict[str, list[float | None]]:
        """The points as columns: `at` (ms), then `columns`, with None for a missing value."""
        columns = zip(*self._points, strict=True) if self._points else [()] * (len(self.columns) + 1)
        return {
            name: [None if value != value else value for value in column]  # noqa: PLR0124 - NaN alone is not itself
            for name, column in zip(("at", *self.columns), columns, strict=True)
        }
