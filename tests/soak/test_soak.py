"""The soak's rules for flat series, and a minute of it; `make soak` is an hour."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from soak.flat import Series

MINUTES = range(0, 3600, 60)


def series(*lives: list[tuple[float, float]]) -> Series:
    return Series("memory", "MiB", 0.15, lives)


def test_noise_and_a_spike_are_flat() -> None:
    noise = random.Random(1)
    life = [(float(at), 100 + noise.uniform(-5, 5)) for at in MINUTES]
    life[-3] = (life[-3][0], 1000.0)
    assert series(life).flat(3600)


def test_a_leak_that_restarts_hide_is_not_flat() -> None:
    lives = [[(start + at, 100 + at / 20) for at in range(0, 900, 30)] for start in (0.0, 900.0, 1800.0, 2700.0)]
    assert not series(*lives).flat(3600)
    assert series(*lives).slope == pytest.approx(1 / 20)


def test_falling_is_flat_and_too_few_samples_are_not() -> None:
    assert series([(float(at), 200 - at / 100) for at in MINUTES]).flat(3600)
    assert not series([(0.0, 1.0), (1.0, 1.0)]).flat(3600)


@pytest.mark.spark
@pytest.mark.slow
def test_a_minute_of_it(tmp_path: Path) -> None:
    """Restarts lose and repeat nothing, and every series has samples; a minute is too short to judge them."""
    pytest.importorskip("pyspark")
    pytest.importorskip("psutil")
    from soak.soak import Soak

    soak = Soak(tmp_path, 90)
    verdict = soak.run()
    assert verdict.compared.right, verdict
    assert verdict.unanswered == 0
    assert all(soak.samples.values()), {name: len(found) for name, found in soak.samples.items()}
