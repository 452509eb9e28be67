"""Durations and instants at the door."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.instants import MAX_MS, Window, duration_ms, earlier_ms, instant_ms, later_ms, show_instant, show_ms

SECOND, MINUTE, HOUR, DAY, WEEK = 1_000, 60_000, 3_600_000, 86_400_000, 604_800_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5 milliseconds", 5),
        ("1 millisecond", 1),
        ("5 msec", 5),
        ("5 msecs", 5),
        ("5 ms", 5),
        ("5 seconds", 5 * SECOND),
        ("1 second", SECOND),
        ("5 sec", 5 * SECOND),
        ("5 secs", 5 * SECOND),
        ("5 minutes", 5 * MINUTE),
        ("1 minute", MINUTE),
        ("5 min", 5 * MINUTE),
        ("5 mins", 5 * MINUTE),
        ("5 hours", 5 * HOUR),
        ("1 hour", HOUR),
        ("5 days", 5 * DAY),
        ("1 day", DAY),
        ("5 weeks", 5 * WEEK),
        ("1 week", WEEK),
        ("2 MINUTES", 2 * MINUTE),
        ("interval 2 minutes", 2 * MINUTE),
        ("INTERVAL 2 minutes", 2 * MINUTE),
        ("1 hour 30 minutes", 90 * MINUTE),
        ("  1   hour  30minutes ", 90 * MINUTE),
        ("1 hour -30 minutes", 30 * MINUTE),
        ("+2 minutes", 2 * MINUTE),
        ("-2 minutes", -2 * MINUTE),
        ("0 seconds", 0),
        ("30s", 30 * SECOND),
        ("5m", 5 * MINUTE),
        ("1h", HOUR),
        ("7 d", 7 * DAY),
        ("1h30m", 90 * MINUTE),
        ("1.5 seconds", 1_500),
        ("-1.5 seconds", -1_500),
        ("0.5s", 500),
        (".25 seconds", 250),
        ("1. seconds", SECOND),
        ("1 minute 0.001 second", MINUTE + 1),
        ("1.000999999 seconds", SECOND),
        ("2500 microseconds", 2),
        ("-2500 microseconds", -2),
        ("1 microsecond", 0),
        ("1 millisecond 999 microseconds 0.000001 seconds", 2),
    ],
)
def test_a_string_reads_as_spark_reads_it(text: str, ms: int) -> None:
    assert duration_ms(text, "size") == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "soon",
        "2",
        "minutes",
        "2 fortnights",
        "1 month",
        "1 year",
        "2 minutes and",
        "1.5 hours",
        "1.5 milliseconds",
        "1.0000000001 seconds",
        ". seconds",
        "1..5 seconds",
        "+.seconds",
        "2 minutes 3",
        "interval",
        "interval ",
        "2 hs",
        "2 ss",
        "minutes 2",
        "2 minute seconds",
        "1,5 hours",
        "2 minutesss",
    ],
)
def test_a_string_that_is_no_duration(text: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        duration_ms(text, "grace")
    assert str(caught.value) == (
        f"`grace` is {text!r}, which is not a duration. Write a number and a unit of a fixed length (milliseconds, "
        'seconds, minutes, hours, days, weeks), for example "2 minutes" or "1 hour 30 minutes".'
    )


@pytest.mark.parametrize("text", ["9" * 30 + " seconds", "9" * 5_000 + " seconds", "1 day " + "9" * 5_000 + " ms"])
def test_a_duration_of_very_many_digits(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"more milliseconds than 64 bits hold\. Use a shorter one\.$") as caught:
        duration_ms(text, "size")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (timedelta(minutes=2), 2 * MINUTE),
        (timedelta(microseconds=1_999), 1),
        (timedelta(microseconds=999), 0),
        # Kafka's Duration.toMillis truncates towards zero.
        (timedelta(microseconds=-1_999), -1),
        (timedelta(milliseconds=-3), -3),
        # Floating point in between would lose this millisecond.
        (timedelta(days=999_999_999, milliseconds=1), 999_999_999 * DAY + 1),
    ],
)
def test_a_timedelta_is_truncated_to_milliseconds(value: timedelta, ms: int) -> None:
    assert duration_ms(value, "size") == ms


@pytest.mark.parametrize(("value", "kind"), [(120, "int"), (2.5, "float"), (None, "NoneType"), (b"2 minutes", "bytes")])
def test_anything_else_is_not_a_duration(value: Any, kind: str) -> None:
    with pytest.raises(DefinitionTypeError) as caught:
        duration_ms(value, "advance")
    assert str(caught.value) == (
        f"`advance` is {value!r} ({kind}), not a duration. "
        'Use a timedelta, for example timedelta(minutes=2), or a string such as "2 minutes".'
    )


def test_the_longest_duration_and_one_longer() -> None:
    assert duration_ms(f"{2**63 - 1} ms", "size") == 2**63 - 1
    with pytest.raises(DefinitionError, match=r"`size` is '9223372036854775808 ms': more milliseconds than 64 bits"):
        duration_ms(f"{2**63} ms", "size")


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (-5, -5),
        (datetime(1970, 1, 1, 0, 0, 1), 1_000),  # noqa: DTZ001 - the case is that it has no time zone
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(1970, 1, 1, 0, 0, 0, 1_999, UTC), 1),
        # Down, not towards zero: an instant belongs to the millisecond it lies in, as Spark's unix_millis has it.
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), -1),
    ],
)
def test_instants(value: int | datetime, ms: int) -> None:
    assert instant_ms(value) == ms


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 milliseconds"),
        (1, "1 millisecond"),
        (90 * MINUTE, "1 hour 30 minutes"),
        (2 * WEEK, "14 days"),
        (DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5, "1 day 2 hours 3 minutes 4 seconds 5 milliseconds"),
        (-MINUTE, "-1 minute"),
    ],
)
def test_durations_for_people_read_back(ms: int, text: str) -> None:
    assert show_ms(ms) == text
    assert duration_ms(text, "size") == ms


def test_instants_for_people() -> None:
    assert show_instant(1_500) == "1500 (1970-01-01T00:00:01.500+00:00)"
    assert show_instant(2**63 - 1) == "9223372036854775807"


@pytest.mark.parametrize(
    ("pair", "equal"),
    [
        ((0, 120_000), True),
        ((datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 2)), True),  # noqa: DTZ001 - without a time zone: UTC
        ((datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 120_000), True),
        ((0, datetime(1970, 1, 1, 0, 2, 0, 1, UTC)), False),
        ((0, 120_001), False),
        ((0, 120_000, 1), False),
        ([0, 120_000], False),
        (None, False),
    ],
)
def test_a_window_equals_a_pair_of_its_bounds(pair: Any, equal: bool) -> None:
    window = Window(0, 120_000)
    assert (window == pair) is (pair == window) is equal
    assert (window != pair) is (pair != window) is not equal


def test_the_bounds_of_a_window_as_datetimes() -> None:
    window = Window(0, 120_000)
    assert (window.start_time, window.end_time) == (
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 2, tzinfo=UTC),
    )
    assert {window: 1}[Window(0, 120_000)] == 1
    assert sorted([Window(1, 2), window]) == [window, Window(1, 2)]
    with pytest.raises(OverflowError):
        _ = Window(0, 2**63 - 1).end_time


@pytest.mark.parametrize("given", [int, lambda ms: np.array([ms])], ids=["a number", "an array"])
def test_no_instant_is_past_the_last_one(given: Any) -> None:
    assert later_ms(given(MAX_MS - 5), 5) == later_ms(given(MAX_MS - 5), 10) == MAX_MS
    assert earlier_ms(given(MAX_MS - 5), -5) == earlier_ms(given(MAX_MS - 5), -10) == MAX_MS
    assert later_ms(given(MAX_MS), -10) == earlier_ms(given(MAX_MS), 10) == MAX_MS - 10


def test_a_window_and_its_bounds_compare_with_datetimes_and_with_epoch_ms() -> None:
    window, at = Window(0, 120_000), datetime(1970, 1, 1, tzinfo=UTC)
    later = at + timedelta(minutes=2)
    assert (window.start, window.end) == (at, later)
    assert (window.start, window.end) == (0, 120_000)
    assert at == window.start != later
    assert window.start < later > at <= window.start <= 0
    assert window.end > at
    assert window.end >= later
    assert window.start == datetime(1970, 1, 1)  # noqa: DTZ001 - without a time zone: UTC
    assert window.start != at + timedelta(microseconds=1)
    assert window < (at, later + timedelta(microseconds=1))
    assert (window.start == "1970", window.start != "1970", window.start == None) == (False, True, False)  # noqa: E711
    with pytest.raises(TypeError):
        _ = window.start < "1970"
    assert (repr(window), repr(window.start)) == ("Window(start=0, end=120000)", "0")
    assert pickle.loads(pickle.dumps(window)) == window
    assert window._replace(start=1).start > at
    assert tuple(Window(0, None)) == (0, None)  # type: ignore[arg-type]
