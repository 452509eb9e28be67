"""A legal but probably unintended definition warns at its own line, and a usual one does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg

UNBOUNDED = tg.BufferConfig.unbounded()
FINAL = tg.Suppressed.until_window_closes(UNBOUNDED)
WINDOWS = tg.TimeWindows.of_size_and_grace("2 minutes", "30 seconds")
UNLIMITED = tg.UnlimitedWindows.start_on(0)


def windowed(windows: Any = WINDOWS) -> tg.TimeWindowedKStream:
    return tg.stream("events", key="user", timestamp="ts").group_by_key().windowed_by(windows)


def prices() -> tg.KTable:
    return tg.table("prices", key="item", timestamp="ts")


def debounced(table: tg.KTable, buffer: Any, measured_from: str = "latest_update") -> tg.KTable:
    limit = tg.Suppressed.until_time_limit("5 minutes", buffer, clock="stream", measured_from=measured_from)
    return table.suppress(limit)


def warned(make: Callable[[], Any]) -> list[str]:
    """The warnings of `make`, all at the line of `make`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    assert {(one.category, one.filename, one.lineno) for one in caught} <= {
        (tg.TidegateWarning, __file__, make.__code__.co_firstlineno)
    }
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    "make",
    [
        lambda: windowed().count().suppress(FINAL),
        lambda: (
            windowed(tg.SlidingWindows.of_time_difference_and_grace("1 minute", "1 minute")).count().suppress(FINAL)
        ),
        lambda: windowed(tg.SessionWindows.of_inactivity_gap_and_grace("1 minute", "1 hour")).count().suppress(FINAL),
        lambda: windowed(tg.BatchWindows.of_size("1 minute")).count().suppress(FINAL),
        lambda: windowed(UNLIMITED).count(),
        lambda: debounced(windowed(UNLIMITED).count(), UNBOUNDED, "first_update"),
        lambda: debounced(windowed(UNLIMITED).count(), tg.BufferConfig.max_records(10)),
        lambda: debounced(windowed().count(), UNBOUNDED),
        lambda: debounced(prices(), UNBOUNDED, "first_update"),
        lambda: debounced(prices(), tg.BufferConfig.max_bytes(1_000)),
        lambda: (
            windowed()
            .count()
            .suppress(FINAL)
            .suppress(tg.Suppressed.until_time_limit("1 minute", UNBOUNDED, clock="stream"))
        ),
        lambda: tg.TimeWindows.of_size_and_grace("1 hour", "0 seconds").advance_by("1 minute"),
        lambda: tg.TimeWindows.of_size_and_grace("1000 ms", "0 seconds").advance_by("1 ms"),
        lambda: tg.TimeWindows.of_size_and_grace("365 days", "0 seconds").advance_by("1 day"),
    ],
)
def test_what_is_usual_does_not_warn(make: Callable[[], Any]) -> None:
    assert warned(make) == []


def test_final_results_of_final_results() -> None:
    on_close = windowed().emit_strategy(tg.EmitStrategy.on_window_close()).count()
    message = (
        "suppress(until window closes, buffer unbounded) has nothing to do: the table before it emits final results "
        "already (on window close, or through another suppress). Leave one of the two out."
    )
    assert warned(lambda: on_close.suppress(FINAL)) == [message]
    once = windowed().count().suppress(FINAL)
    assert warned(lambda: once.suppress(FINAL)) == [message]


def test_final_results_of_windows_that_never_close() -> None:
    [message] = warned(lambda: windowed(UNLIMITED).count().suppress(FINAL))
    assert message == (
        "suppress(until window closes, buffer unbounded) on UnlimitedWindows from 0 ms: an unlimited window never "
        "closes, so nothing ever comes out and the state only grows. Use until_time_limit, or no suppression."
    )


@pytest.mark.parametrize("make", [prices, lambda: windowed(UNLIMITED).count()], ids=["table", "unlimited"])
@pytest.mark.parametrize("buffer", [UNBOUNDED, tg.BufferConfig.max_records(10).spill_to_disk_when_full()], ids=str)
def test_a_buffer_that_nothing_bounds(make: Callable[[], tg.KTable], buffer: Any) -> None:
    with pytest.warns(tg.TidegateWarning) as caught:
        debounced(make(), buffer)
    [message] = [str(one.message) for one in caught]
    assert message == (
        f"suppress(until 5 minutes of stream time since the latest_update, buffer {buffer}): the limit begins again "
        "with every update and the buffer has no bound, so a key that is updated more often than every 5 minutes never "
        'comes out. Use measured_from="first_update", or a bound, as in BufferConfig.max_records(1_000_000).'
    )


def test_a_hopping_window_of_thousands_of_panes() -> None:
    day = tg.TimeWindows.of_size_and_grace("1 day", "0 seconds")
    [message] = warned(lambda: day.advance_by("7 seconds"))
    assert message == (
        "A window of 1 day that starts every 7 seconds is put together from 86,400 panes of 1 second, their largest "
        "common measure: every close reads them all, and a record is in up to 12,343 windows. "
        "Use a longer advance, or one that divides the size."
    )
    assert len(warned(lambda: day.advance_by("1 minute"))) == 1


def test_a_warning_can_be_made_an_error_before_anything_runs() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", tg.TidegateWarning)
        with pytest.raises(tg.TidegateWarning):
            windowed(UNLIMITED).count().suppress(FINAL)
