"""Which grace the pairs of a join need: a record joins those that are open when it comes (SEMANTICS 7b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tidegate.advice.counts import Counts, Tally
from tidegate.advice.order import Arrived, Times, batches, delivered, in_order, see
from tidegate.advice.recorded import Recorded
from tidegate.instants import ROUND_MS, later_ms, rounded_up
from tidegate.kernel.columns.arrays import Ints

if TYPE_CHECKING:
    from tidegate.advice.partners import Sides

_SHARES = (0.1, 0.03, 0.01, 0.003, 0.001, 0)
_AT_ONCE = 1 << 22
"""So many pairs, about, are looked at at once."""


@dataclass(frozen=True)
class JoinGrace:
    """What a grace (ms) of the join loses: pairs one of whose records was closed when the other came.

    Attributes:
        grace: The grace.
        lost: The pairs, of those of the chosen windows; `share` of all of these.
        share: See `lost`.
    """

    grace: int
    lost: int
    share: float


@dataclass(frozen=True)
class Came:
    """When the records of both sides came: their place in the order in which the join takes them (`turn`), and the
    stream time over both inputs that they saw (ms); left and right records each as they are in their recording.
    """

    turn: Ints
    seen: Ints
    right_turn: Ints
    right_seen: Ints

    @classmethod
    def of(cls, left: Recorded, right: Recorded, trigger_ms: int | None, *, slowest: bool) -> Came:
        """From recordings with arrivals. Partitions of the two sides are different ones, the left ones first.

        `slowest`: stream time is that of the slowest partition.
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
        at_start = Times.at_start(behind + len(right.partitions))
        sees, _ = see(known.ts, known.partition, batch[order], at_start, slowest=slowest)
        seen, turn = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        seen[order] = sees.largest if sees.slowest is None else sees.slowest
        side = both.partition >= behind
        turn[np.lexsort((both.offset, both.partition, side, seen, batch))] = np.arange(len(order))
        return cls(turn[:split], seen[:split], turn[split:], seen[split:])

    def needed(self, sides: Sides, before_ms: int, after_ms: int) -> tuple[Counts, int]:
        """The grace (ms) that each pair needed; and how many pairs there are."""
        low, high = sides.within(before_ms, after_ms)
        size = high - low
        tally, up_to, first = Tally(np.array(ROUND_MS, np.int64)), np.cumsum(size), 0
        while first < len(size):
            known = int(up_to[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(up_to, known + _AT_ONCE, side="right")))
            of = size[first:last]
            left = np.repeat(np.arange(first, last), of)
            nth = np.arange(len(left)) - np.repeat(np.cumsum(of) - of, of)
            right = low[left] + nth
            came = sides.order[right]
            # What came first must be open when the other one comes: so long as its partners may still come.
            left_first = self.turn[left] < self.right_turn[came]
            reach = np.where(left_first, later_ms(sides.ts[left], after_ms), later_ms(sides.right_ts[right], before_ms))
            need = np.where(left_first, self.right_seen[came], self.seen[left]) - reach
            tally.add("needed", need[need > 0])
            first = last
        return tally.counts("needed"), int(up_to[-1]) if len(up_to) else 0


def graces_of(needed: Counts, pairs: int, target: float) -> tuple[int, list[JoinGrace]]:
    """The shortest round grace that loses at most this share of the pairs, and what others lose.

    needed  the grace (ms) of each pair that needs one
    """
    grace = rounded_up(needed.smallest_with(target * pairs))
    shown = {0, grace, *(rounded_up(needed.smallest_with(share * pairs)) for share in _SHARES)}
    return grace, [JoinGrace(ms, needed.above(ms), needed.above(ms) / max(pairs, 1)) for ms in sorted(shown)]
