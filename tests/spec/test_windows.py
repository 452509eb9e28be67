"""Windows: their shape, their close rule, and invalid windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pandas as pd
import pytest

import tidegate as tg
from tidegate.errors import DefinitionError, DefinitionTypeError

TEN = tg.TimeWindows.of_size_and_grace("10 milliseconds", "3 milliseconds")


def test_what_they_hold() -> None:
    windows = tg.TimeWindows.of_size_and_grace("10 minutes", timedelta(minutes=1)).advance_by("5 minutes")
    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (600_000, 300_000, 60_000)
    assert str(windows) == "TimeWindows of 10 minutes, one every 5 minutes"


def test_without_advance_they_tumble() -> None:
    windows = tg.TimeWindows.of_size_with_no_grace("10 minutes")
    assert (windows.advance_ms, windows.grace_ms) == (600_000, 0)
    assert str(windows) == "TimeWindows of 10 minutes"


@pytest.mark.parametrize(("ms", "starts"), [(0, [0]), (9, [0]), (10, [10]), (25, [20])])
def test_the_window_of_a_record(ms: int, starts: list[int]) -> None:
    assert TEN.windows_for(ms) == [tg.Window(start, start + 10) for start in starts]


@pytest.mark.parametrize(
    ("advance", "ms", "starts"),
    [
        # No window starts below 0, so the first records have fewer.
        (5, 0, [0]),
        (5, 4, [0]),
        (5, 5, [0, 5]),
        (5, 9, [0, 5]),
        (5, 10, [5, 10]),
        # An advance that does not divide the size: the number of windows varies.
        (4, 8, [0, 4, 8]),
        (4, 10, [4, 8]),
        (4, 12, [4, 8, 12]),
        (1, 3, [0, 1, 2, 3]),
    ],
)
def test_hopping_windows_of_a_record(advance: int, ms: int, starts: list[int]) -> None:
    windows = TEN.advance_by(f"{advance} ms")
    assert [window.start for window in windows.windows_for(ms)] == starts
    assert all(start <= ms < start + 10 for start in starts)


def test_closed_when_stream_time_reaches_end_and_grace() -> None:
    assert TEN.close_ms(20) == 33


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tg.TimeWindows.of_size_and_grace("0 ms", "1 ms"),
            '`size` is 0 milliseconds: a window\'s size must be larger than zero. Use for example "2 minutes".',
        ),
        (
            lambda: tg.TimeWindows.of_size_and_grace("-2 minutes", "1 ms"),
            '`size` is -2 minutes: a window\'s size must be larger than zero. Use for example "2 minutes".',
        ),
        (
            # A size of less than a millisecond counts as zero.
            lambda: tg.TimeWindows.of_size_and_grace(timedelta(microseconds=900), "1 ms"),
            '`size` is 0 milliseconds: a window\'s size must be larger than zero. Use for example "2 minutes".',
        ),
        (
            lambda: tg.TimeWindows.of_size_and_grace("1 ms", "-1 ms"),
            "`grace` is -1 millisecond: Grace period must not be negative. Use zero to take no record after the end.",
        ),
        (
            lambda: TEN.advance_by("0 ms"),
            (
                "`advance` is 0 milliseconds: the advancement interval must be larger than zero. "
                "Use at most the size, 10 milliseconds."
            ),
        ),
        (
            lambda: TEN.advance_by("-5 ms"),
            (
                "`advance` is -5 milliseconds: the advancement interval must be larger than zero. "
                "Use at most the size, 10 milliseconds."
            ),
        ),
        (
            lambda: TEN.advance_by("11 ms"),
            (
                "`advance` is 11 milliseconds but `size` is 10 milliseconds: windows would leave gaps and records in "
                "them would be lost. Use an advancement interval of at most 10 milliseconds."
            ),
        ),
        (
            lambda: tg.UnlimitedWindows.start_on(-1),
            "`start` is -1 ms: an instant must not be negative. Use 0 or later.",
        ),
        (
            lambda: tg.UnlimitedWindows.start_on(2**63),
            "`start` is 9223372036854775808: more milliseconds than 64 bits hold. Use an instant nearer to 1970.",
        ),
    ],
)
def test_windows_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("start", ["0", 1.5, True, None, pd.NaT])
def test_a_start_that_is_no_instant(start: Any) -> None:
    with pytest.raises(DefinitionTypeError, match=r"`start` is .*, not epoch milliseconds or a datetime\."):
        tg.UnlimitedWindows.start_on(start)


def test_unlimited_windows_never_close_and_begin_at_their_start() -> None:
    windows = tg.UnlimitedWindows.start_on(5)
    assert windows.windows_for(4) == []
    assert windows.windows_for(5) == [tg.Window(5, 2**63 - 1)]
    assert windows.close_ms(5) == 2**63 - 1


def test_they_are_values() -> None:
    assert tg.TimeWindows.of_size_and_grace("60 seconds", "0 ms") == tg.TimeWindows.of_size_with_no_grace("1 minute")
    before = TEN.advance_ms
    TEN.advance_by("5 ms")
    assert TEN.advance_ms == before
