"""What a suppression until a time limit must hold and let out, written from SEMANTICS section 6 alone.

One update after the other, whole lists, no heap: whoever waits is looked through every time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oracle import Row, serialized


class Full(Exception):  # noqa: N818 - what the operator calls it
    """A strict buffer holds more than its bound."""


@dataclass(frozen=True)
class Limit:
    """`measured_from` as in the public interface; `strategy` is "emit_early", "shut_down" or "spill_to_disk"."""

    ms: int
    max_records: int | None = None
    strategy: str = "emit_early"
    measured_from: str = "first_update"


@dataclass
class Waiting:
    """The newest update of a key and window, and its buffer time."""

    place: Any
    time: int
    row: Row


@dataclass
class Suppression:
    """Takes the rows that its parent forwards. `key` are the key columns, `by_end` whether windows are sessions."""

    limit: Limit
    key: tuple[str, ...]
    by_end: bool = False
    stream_time: int = -1
    held: dict[Any, Waiting] = field(default_factory=dict)

    def take(self, row: Row) -> list[Row]:
        """One update; the rows that leave because of it. Raises Full."""
        self.stream_time = max(self.stream_time, row["timestamp"])
        place = self._place(row)
        measured = row["timestamp"]
        if self.limit.measured_from == "window_start" and "window" in row:
            measured = row["window"][0]
        known = self.held.get(place)
        if known is not None and self.limit.measured_from != "latest_update":
            measured = known.time
        self.held[place] = Waiting(place, measured, row)
        leaving = []
        while self.held and self._oldest().time <= self.stream_time - self.limit.ms:
            leaving.append(self._pop())
        while self._over():
            if self.limit.strategy == "shut_down":
                raise Full
            leaving.append(self._pop())
        return leaving

    def _over(self) -> bool:
        bound = self.limit.max_records
        return bound is not None and self.limit.strategy != "spill_to_disk" and len(self.held) > bound

    def _oldest(self) -> Waiting:
        return min(self.held.values(), key=lambda waiting: (waiting.time, waiting.place))

    def _pop(self) -> Row:
        return self.held.pop(self._oldest().place).row

    def _place(self, row: Row) -> Any:
        """Key and window, as their serialized bytes sort: of a session its end comes before its start."""
        start, end = row.get("window", (0, 0))
        key = serialized(tuple(row[column] for column in self.key))
        return (*key, end, start) if self.by_end else (*key, start, end)
