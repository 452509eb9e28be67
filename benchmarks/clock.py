"""A clock that is always at one part, so that the seconds of its parts add up to the time it ran."""

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
    """What the clock of one task showed: which task, from when to when (s since 1970), and seconds by part."""

    kind: str
    task: int
    began: float
    ended: float
    seconds: dict[str, float]


class Clock:
    """Seconds by part; each moment belongs to the innermost part."""

    def __init__(self, part: str, now: Callable[[], float] = time.time) -> None:
        # The machine's time, not a counter of the process: Spark's events are told in it.
        self._now = now
        self._part = part
        self.began = self._since = now()
        self.seconds: dict[str, float] = defaultdict(float)

    def switch(self, part: str) -> str:
        """Go on with `part`; gives the one before."""
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
        """`given`, getting the next of which is `part`."""
        following = iter(given)
        while True:
            with self.at(part):
                each: Any = next(following, _END)
            if each is _END:
                return
            yield each

    def lent(self, given: Iterable[T], part: str) -> Iterator[T]:
        """`given`; what its taker does between one and the next is `part`."""
        for each in given:
            with self.at(part):
                yield each

    def told(self, kind: str, task: int) -> Record:
        self.switch(self._part)
        return Record(kind, task, self.began, self._since, dict(self.seconds))
