"""Errors: each is a TidegateError, and a wrong definition also raises a ValueError or a TypeError."""

from __future__ import annotations

import pytest

import tidegate as tg


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (tg.DefinitionError, ValueError),
        (tg.DefinitionTypeError, TypeError),
        (tg.InputError, Exception),
        (tg.AggregationError, Exception),
        (tg.BufferFullError, Exception),
        (tg.CheckpointError, Exception),
    ],
)
def test_every_error_is_a_tidegate_error(error: type[Exception], base: type[Exception]) -> None:
    assert issubclass(error, tg.TidegateError)
    assert issubclass(error, base)


def test_a_warning_is_a_user_warning_and_no_error() -> None:
    assert issubclass(tg.TidegateWarning, UserWarning)
    assert not issubclass(tg.TidegateWarning, tg.TidegateError)
