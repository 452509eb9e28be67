"""Seeds of random cases: a few in `make test`, many in `make test-deep`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(few: int, many: int) -> list[Any]:
    """The seeds below `many`, for `parametrize`; those from `few` on run in `make test-deep` and `make test-spark`."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(few, many))]
