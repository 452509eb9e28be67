"""Cases of which `make test` runs a few, and `make test-deep` and `make test-spark` all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

FEW_ON_SPARK = settings(
    max_examples=int(os.environ.get("TIDEGATE_SPARK_EXAMPLES", "2")),
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""Random cases on Spark: each takes seconds."""


def seeds(few: int, many: int) -> list[Any]:
    """The seeds below `many`, for `parametrize`; those from `few` on run in `make test-deep` and `make test-spark`."""
    return first(few, range(many))


def first(few: int, cases: Iterable[Any]) -> list[Any]:
    """These cases, for `parametrize`; those behind the first `few` run in `make test-deep` and `make test-spark`.

    A case that is a tuple has the values of several arguments.
    """
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=() if at < few else pytest.mark.full) for at, row in enumerate(rows)]
