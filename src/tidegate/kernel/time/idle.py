"""Idle input: stream time goes on from its last value, at the pace of the wall clock.

        wall clock    0      60     70     75     80         idle_advance 60, records at 0 and 80
        stream time   10     10     20     25     25         never to "now", and not while records come

Stream time does not move before the first valid record: records without a key have no time. Only a step without
records moves it: the first batch after a stop of the query brings the records that came meanwhile, so it does not.
Several tasks must move stream time at the same instants, or they would not agree on it: a step before the next common
tick moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.instants import later_ms
from tidegate.kernel.time.stream_time import NEVER

TICKS = 10
"""Ticks in `idle_advance`: a window may leave one tick too late."""

SHORTEST_TICK_MS = 100


@dataclass
class Idle:
    """The wall clock of the last batch with records, the stream time after it, and the next common tick; all ms."""

    last_input: int = NEVER
    base_time: int = NEVER
    tick: int = NEVER

    def advance(self, after_ms: int, has_records: bool, wall_clock: int, stream_time: int, *, alone: bool) -> int:
        """The stream time after a step, given the stream time of its records. `alone`: no other task must agree."""
        pace = max(after_ms // TICKS, SHORTEST_TICK_MS)
        if self.tick > max(wall_clock, self.last_input + after_ms) + pace:
            # The tick is that of a longer `idle_advance` before a restart. Each task finds this in its first step.
            self.tick = self.last_input + after_ms + pace
        if has_records:
            self.last_input, self.base_time = wall_clock, stream_time
        elif self.base_time != NEVER and (alone or wall_clock >= self.tick):
            passed = max(0, wall_clock - self.last_input - after_ms)
            stream_time = max(stream_time, later_ms(self.base_time, passed))
        if has_records or wall_clock >= self.tick:
            self.tick = max(wall_clock, self.last_input + after_ms) + pace
        return stream_time
