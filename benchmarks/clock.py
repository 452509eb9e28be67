"""A clock that counts each moment for one part, so that the seconds of the parts add up to its running time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_END = object()


@dataclass(frozen=True)
class Record:
    """The clock of one task: its kind ("map" or "stateful"), its id, begin and end (s since 1970), seconds by part."""

    kind: str
    task: int
    began: float
    ended: float
    seconds: dict[str, float]


class Clock:
    """Seconds by part; each moment belongs to the innermost part."""

    def __init__(self, part: str, now: Callable[[], float] = time.time) -> None:
        # The wall clock, not a counter of the process: Spark's events have wall-clock times.
        self._now = now
        self._part = part
        self.began = self._since = now()
        self.seconds: dict[str, float] = defaultdict(float)

    def switch(self, part: str) -> str:
        """Go on with `part`; returns the part before."""
        now = self._now()
        self.seconds[self._part] += now - self._since
        before, self._part, self._since = self._part, part, now
        return before

    @contextmanager
    def at(self, part: str) -> Iterator[None]:
        before = self.switch(part)
        try:
            yield
        finally:
            self.switch(before)

    def pulled(self, given: Iterable[T], part: str) -> Iterator[T]:
        """Yields the items of `given`; the time to get each of them counts for `part`."""
        following = iter(given)
        while True:
            with self.at(part):
                each: Any = next(following, _END)
            if each is _END:
                return
            yield each

    def lent(self, given: Iterable[T], part: str) -> Iterator[T]:
        """Yields the items of `given`; the time that the caller spends on each of them counts for `part`."""
        for each in given:
            with self.at(part):
                yield each

    def record(self, kind: str, task: int) -> Record:
        self.switch(self._part)
        return Record(kind, task, self.began, self._since, dict(self.seconds))
