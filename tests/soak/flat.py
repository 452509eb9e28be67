"""Whether a series of samples stays flat, by a slope within each process life that no single sample can turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 8


@dataclass(frozen=True)
class Series:
    """Samples `(time in s, value)` per life; it may grow by `tolerance` of its median over the time of the run."""

    name: str
    unit: str
    tolerance: float
    lives: Sequence[Sequence[tuple[float, float]]]

    @property
    def median(self) -> float:
        return float(np.median([value for life in self.lives for _, value in life]))

    @property
    def slope(self) -> float | None:
        """The median of the slopes between all pairs of samples of one life, per second; None with too few."""
        slopes = [_slopes(np.array(life)) for life in self.lives if len(life) >= FEWEST]
        return float(np.median(np.concatenate(slopes))) if slopes else None

    def growth(self, seconds: float) -> float | None:
        """Growth in this many seconds, as a share of the median."""
        return None if self.slope is None else self.slope * seconds / self.median if self.median else 0.0

    def flat(self, seconds: float) -> bool:
        growth = self.growth(seconds)
        return growth is not None and growth <= self.tolerance


def _slopes(samples: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(len(samples), 1)
    times, values = (samples[second, i] - samples[first, i] for i in (0, 1))
    return values[times > 0] / times[times > 0]
