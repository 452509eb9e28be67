"""Chooses a grace on the first part of the stream and tests it on the rest, with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.advice.counts import Counts, Tally, together
from tidegate.advice.lateness import PARTS
from tidegate.instants import rounded_up
from tidegate.kernel.columns.arrays import Ints

CHOSEN_ON = PARTS * 4 // 5
"""The grace is chosen on these parts, the first 80 %, and tested on the others."""
DRAWS = 400
FEW = 20
"""With fewer late pairs beyond the grace, the choice is uncertain."""
_SURE = 0.01
_MOST_VALUES = 8_192
"""With more distinct latenesses, the interval of the grace is computed from classes of them."""
_SHARES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0)
"""Unless the user gave graces, the table has graces that leave these shares late."""


@dataclass(frozen=True)
class Choice:
    """A grace with its statistics; shares are of (record, window) pairs, times in ms.

    Attributes:
        grace: The shortest round grace that leaves at most the target share late, on the first 80 %.
        enough: The shortest such grace, to the millisecond.
        low: The lower end of its 95 % interval.
        high: The upper end of its 95 % interval.
        share: The late share on the first 80 %.
        tested: The late share on the last 20 %; None without any pair there.
        tested_low: The lower end of the 95 % interval of the long-run share.
        tested_high: The upper end of this interval.
        beyond: The number of pairs later than `enough`, on the first 80 %.
        drift: The late share of the last fifth divided by that of the first fifth; None if it may be chance.
    """

    grace: int
    enough: int
    low: int
    high: int
    share: float
    tested: float | None
    tested_low: float
    tested_high: float
    beyond: int
    drift: float | None


def choose(tally: Tally, target: float) -> Choice:
    """The choice for a target share, from the counts of `advice.lateness`."""
    late = [tally.counts(f"late/part/{part}") for part in range(PARTS)]
    among = np.array([tally.of(f"pairs/part/{part}") for part in range(PARTS)], np.int64)
    known = together(late[:CHOSEN_ON])
    size = int(among[:CHOSEN_ON].sum())
    enough = known.smallest_with(target * size)
    grace = rounded_up(enough)
    low, high = _bounds_of_grace(late[:CHOSEN_ON], among[:CHOSEN_ON], target)
    low, high = min(low, enough), max(high, enough)
    shares = _shares(late, among, grace)
    test = int(among[CHOSEN_ON:].sum())
    later = sum(counts.above(grace) for counts in late[CHOSEN_ON:])
    tested_low, tested_high = _bounds_of_share(shares[CHOSEN_ON:], among[CHOSEN_ON:])
    return Choice(
        grace=grace,
        enough=enough,
        low=low,
        high=high,
        share=known.above(grace) / max(size, 1),
        tested=later / test if test else None,
        tested_low=tested_low,
        tested_high=tested_high,
        beyond=known.above(enough),
        drift=_drift(late, among),
    )


def _shares(late: list[Counts], among: Ints, grace: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    above = np.array([counts.above(grace) for counts in late], np.float64)
    return above / np.maximum(among, 1)


def _drawn(parts: int) -> Ints:
    """Bootstrap draws of `parts` parts with replacement: how often each part is in each draw; always the same draws."""
    picks = np.random.default_rng(4711).integers(0, parts, (DRAWS, parts))
    drawn = np.zeros((DRAWS, parts), np.int64)
    np.add.at(drawn, (np.arange(DRAWS)[:, None], picks), 1)
    return drawn


def _bounds_of_grace(late: list[Counts], among: Ints, target: float) -> tuple[int, int]:
    """The 95 % bootstrap interval of the grace that is enough (ms).

    Whole parts are drawn because late records come in bursts; with single records the interval would be too narrow.
    """
    few = len(together(late).values) <= _MOST_VALUES
    coarse = late if few else [counts.rounded_up(np.zeros(0, np.int64)) for counts in late]
    values = np.unique(np.concatenate([np.zeros(1, np.int64), *(counts.values for counts in coarse)]))
    above = np.array([[counts.total] * len(values) for counts in coarse], np.float64)
    for row, counts in zip(above, coarse, strict=True):
        row -= np.concatenate(([0], np.cumsum(counts.counts)))[np.searchsorted(counts.values, values, side="right")]
    drawn = _drawn(len(late))
    left = drawn @ above
    enough = values[np.argmax(left <= target * (drawn @ among)[:, None], axis=1)]
    low, high = np.quantile(enough, [0.025, 0.975], method="inverted_cdf")
    return int(low), int(high)


def _bounds_of_share(shares: np.ndarray[tuple[int], np.dtype[np.float64]], among: Ints) -> tuple[float, float]:
    """The 95 % bootstrap interval of the late share."""
    drawn = _drawn(len(shares))
    sizes = drawn @ among
    found = (drawn @ (shares * among))[sizes > 0] / sizes[sizes > 0]
    if not len(found):
        return 0.0, 0.0
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def _drift(late: list[Counts], among: Ints) -> float | None:
    """The late share (without grace) of the last fifth divided by that of the first fifth.

    None unless the trend is significant: fewer than 1 % of shuffles of the parts show such a trend.
    """
    shares = _shares(late, among, 0)[among > 0]
    if len(shares) < PARTS // 2 or not shares.any():
        return None
    place = np.arange(len(shares)) - (len(shares) - 1) / 2
    trend = abs(place @ shares)
    draws = np.random.default_rng(4712).permuted(np.tile(shares, (DRAWS, 1)), axis=1)
    # Nearly equal counts as equal: sums of shares in another order differ in their last digits.
    if (np.abs(draws @ place) >= trend - 1e-9).mean() >= _SURE:
        return None
    fifth = len(shares) // 5
    first, last = shares[:fifth].mean(), shares[-fifth:].mean()
    return float(last / first) if first else float("inf")


def graces_of(tally: Tally, choice: Choice, today: int, asked: tuple[int, ...]) -> list[int]:
    """The graces of the table, in ms: the ones in `asked`, or round ones from 0 to the largest needed one; and always
    today's grace and the chosen one.
    """
    if asked:
        return sorted({*asked, today, choice.grace})
    late = tally.counts(*(f"late/part/{part}" for part in range(PARTS)))
    among = tally.of("pairs")
    wanted = [rounded_up(late.smallest_with(share * among)) for share in _SHARES]
    return sorted({0, today, choice.grace, *wanted})
