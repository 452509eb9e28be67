"""The grace that the pairs of a join need: a record joins records that are open when it arrives (SEMANTICS 7b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tidegate.advice.counts import Counts, Tally
from tidegate.advice.order import Arrived, Times, batches, delivered, in_order, see
from tidegate.advice.recorded import Recorded
from tidegate.instants import ROUND_MS, later_ms, rounded_up
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.columns.groups import neighbours
from tidegate.kernel.columns.runs import expanded

if TYPE_CHECKING:
    from tidegate.advice.partners import Sides

_SHARES = (0.1, 0.03, 0.01, 0.003, 0.001, 0)
_AT_ONCE = 1 << 22
"""About how many pairs are processed at once."""


@dataclass(frozen=True)
class JoinGrace:
    """The pairs that a join loses with a grace: one record was closed when the other arrived.

    Attributes:
        grace: The grace in milliseconds.
        lost: The number of lost pairs of the chosen windows.
        share: `lost` as a share of all pairs of these windows.
    """

    grace: int
    lost: int
    share: float


@dataclass(frozen=True)
class JoinArrivals:
    """The arrival of the records of both sides: their position in the order in which the join processes them (`turn`),
    and the stream time over both inputs that they saw (`seen`, ms). Each side is in the order of its recording.
    """

    turn: Ints
    seen: Ints
    right_turn: Ints
    right_seen: Ints

    @classmethod
    def of(cls, left: Recorded, right: Recorded, trigger_ms: int | None, *, slowest: bool) -> JoinArrivals:
        """The arrivals of two recordings. Partitions of the two sides are distinct, the left ones come first.

        `slowest`: stream time is the time of the slowest partition.
        """
        sides, split = (left.arrived, right.arrived), len(left.arrived.ts)
        arrival = np.concatenate([np.zeros(0, np.int64), *(s.arrival for s in sides if s.arrival is not None)])
        behind = len(left.partitions)
        both = Arrived(
            np.concatenate([s.ts for s in sides]),
            np.concatenate([sides[0].partition, sides[1].partition + behind]),
            np.concatenate([s.offset for s in sides]),
            arrival,
        )
        ready, _ = delivered(both)
        batch = batches(ready, trigger_ms, len(both.ts))
        order = in_order(batch, both)
        known = both.take(order)
        at_start = Times.at_start(behind + len(right.partitions), behind)
        sees, _ = see(known.ts, known.partition, batch[order], at_start, slowest=slowest)
        seen, turn = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        seen[order] = sees.largest if sees.slowest is None else sees.slowest
        side = both.partition >= behind
        turn[np.lexsort((both.offset, both.partition, side, seen, batch))] = np.arange(len(order))
        return cls(turn[:split], seen[:split], turn[split:], seen[split:])

    def needed(self, sides: Sides, before_ms: int, after_ms: int) -> tuple[Counts, int]:
        """The graces (ms) of the pairs that needed one; and the number of all pairs."""
        low, high = sides.within(before_ms, after_ms)
        size, tally = high - low, Tally(np.array(ROUND_MS, np.int64))
        for first, last in neighbours(size, _AT_ONCE):
            left = np.repeat(np.arange(first, last), size[first:last])
            right = expanded(low[first:last], size[first:last], 1)
            right_row = sides.order[right]
            # The record that arrived first must still be open when the other one arrives.
            left_first = self.turn[left] < self.right_turn[right_row]
            reach = np.where(left_first, later_ms(sides.ts[left], after_ms), later_ms(sides.right_ts[right], before_ms))
            need = np.where(left_first, self.right_seen[right_row], self.seen[left]) - reach
            tally.add("needed", need[need > 0])
        return tally.counts("needed"), int(size.sum())


def graces_of(needed: Counts, pairs: int, target: float) -> tuple[int, list[JoinGrace]]:
    """The shortest round grace (ms) that loses at most the share `target` of the pairs, and the losses of some graces.

    needed  the grace (ms) of each pair that needs one
    """
    grace = rounded_up(needed.smallest_with(target * pairs))
    shown = {0, grace, *(rounded_up(needed.smallest_with(share * pairs)) for share in _SHARES)}
    return grace, [JoinGrace(ms, needed.above(ms), needed.above(ms) / max(pairs, 1)) for ms in sorted(shown)]
