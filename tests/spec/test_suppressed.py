"""Suppressions and their buffers: strict and eager, and methods that only a strict one may have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.errors import DefinitionError, DefinitionTypeError

B = tg.BufferConfig


@pytest.mark.parametrize(
    ("buffer", "kind", "held", "text"),
    [
        (B.unbounded(), tg.StrictBuffer, (None, None, "shut_down"), "unbounded"),
        (B.max_records(3), tg.EagerBuffer, (3, None, "emit_early"), "at most 3 records, then emit_early"),
        (B.max_bytes(9), tg.EagerBuffer, (None, 9, "emit_early"), "at most 9 bytes, then emit_early"),
        (
            B.max_records(3).with_max_bytes(9),
            tg.EagerBuffer,
            (3, 9, "emit_early"),
            "at most 3 records and 9 bytes, then emit_early",
        ),
        (
            B.max_records(3).shut_down_when_full(),
            tg.StrictBuffer,
            (3, None, "shut_down"),
            "at most 3 records, then shut_down",
        ),
        (
            B.max_bytes(9).spill_to_disk_when_full(),
            tg.StrictBuffer,
            (None, 9, "spill_to_disk"),
            "at most 9 bytes, then spill_to_disk",
        ),
        # A strict buffer stays strict when a bound is added, and an eager one stays eager.
        (
            B.max_records(3).shut_down_when_full().with_max_bytes(9).with_max_records(4),
            tg.StrictBuffer,
            (4, 9, "shut_down"),
            "at most 4 records and 9 bytes, then shut_down",
        ),
        (
            B.unbounded().with_max_records(2),
            tg.StrictBuffer,
            (2, None, "shut_down"),
            "at most 2 records, then shut_down",
        ),
        (
            B.max_records(2).shut_down_when_full().emit_early_when_full(),
            tg.EagerBuffer,
            (2, None, "emit_early"),
            "at most 2 records, then emit_early",
        ),
        (B.max_records(2).with_no_bound(), tg.StrictBuffer, (None, None, "shut_down"), "unbounded"),
        (B.max_records(0), tg.EagerBuffer, (0, None, "emit_early"), "at most 0 records, then emit_early"),
    ],
)
def test_buffers(buffer: Any, kind: type, held: tuple[Any, ...], text: str) -> None:
    assert type(buffer) is kind
    assert (buffer.max_records, buffer.max_bytes, buffer.strategy) == held
    assert str(buffer) == text


@pytest.mark.parametrize("bound", [np.int64(5), np.uint8(5)])
def test_a_bound_may_be_an_integer_of_numpy(bound: Any) -> None:
    for made in (B.max_records(bound), B.unbounded().with_max_bytes(bound)):
        assert type(made.max_records or made.max_bytes) is int
        assert "at most 5 " in str(made)
    with pytest.raises(DefinitionTypeError, match=r"^`max_records` is .*timedelta64.*, not a whole number\.$"):
        B.max_records(np.timedelta64(5, "s"))  # a subclass of numpy's integers


@pytest.mark.parametrize("argument", ["max_records", "max_bytes"])
def test_bounds_that_cannot_be(argument: str) -> None:
    first, then = getattr(B, argument), getattr(B.unbounded(), f"with_{argument}")
    for make in (first, then):
        with pytest.raises(DefinitionError) as negative:
            make(-1)
        assert str(negative.value) == (
            f"`{argument}` is -1: a bound must not be negative. Use 0 to let everything through at once, "
            "or unbounded() for no bound."
        )
        for value, kind in ((1.5, "float"), ("1", "str"), (True, "bool"), (None, "NoneType")):
            with pytest.raises(DefinitionTypeError) as wrong:
                make(value)
            assert str(wrong.value) == f"`{argument}` is {value!r} ({kind}), not a whole number."


@pytest.mark.parametrize(
    ("buffer", "got"),
    [
        (B.max_records(3), "an eager buffer, which emits early when full"),
        (B.max_records(3).shut_down_when_full().emit_early_when_full(), "an eager buffer, which emits early when full"),
        (3, "3, not a strict buffer"),
        (None, "None, not a strict buffer"),
    ],
)
def test_until_window_closes_takes_only_a_strict_buffer(buffer: Any, got: str) -> None:
    with pytest.raises(DefinitionTypeError) as caught:
        tg.Suppressed.until_window_closes(buffer)
    assert str(caught.value) == (
        f"`buffer` is {got}: a result that leaves early is not final. "
        "Use BufferConfig.unbounded(), or .shut_down_when_full() on a bounded one."
    )
    assert isinstance(caught.value, TypeError)


def test_until_window_closes_as_text() -> None:
    held = tg.Suppressed.until_window_closes(B.max_records(3).shut_down_when_full())
    assert held.name is None
    assert held.with_name("hold").name == "hold"
    assert str(held) == "until window closes, buffer at most 3 records, then shut_down"


@pytest.mark.parametrize(
    "held",
    [
        tg.Suppressed.until_window_closes(B.unbounded()),
        tg.Suppressed.until_time_limit("5 minutes", B.unbounded(), clock="stream"),
    ],
    ids=str,
)
def test_a_name_is_not_empty(held: Any) -> None:
    with pytest.raises(DefinitionError, match=r"`name` is empty: a suppression needs a name\. Leave with_name out"):
        held.with_name("")


def test_until_time_limit_holds_what_was_said() -> None:
    held = tg.Suppressed.until_time_limit("5 minutes", B.max_records(3), clock="stream").with_name("calm")
    assert (held.limit_ms, held.clock, held.measured_from, held.name) == (300_000, "stream", "first_update", "calm")
    assert str(held) == (
        "until 5 minutes of stream time since the first_update, buffer at most 3 records, then emit_early"
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"limit": "-1 ms"},
            DefinitionError,
            "`limit` is -1 millisecond: it must not be negative. Use zero for no limit.",
        ),
        ({"clock": "event"}, DefinitionError, "`clock` is 'event'. Use one of 'stream', 'wall'."),
        (
            {"measured_from": "start"},
            DefinitionError,
            "`measured_from` is 'start'. Use one of 'first_update', 'latest_update', 'window_start'.",
        ),
        ({"buffer": 3}, DefinitionTypeError, "`buffer` is 3, not a buffer. Use for example BufferConfig.unbounded()."),
    ],
)
def test_time_limits_that_cannot_be(arguments: Any, error: type[Exception], message: str) -> None:
    given = {"limit": "1 ms", "buffer": B.unbounded(), "clock": "stream"} | arguments
    with pytest.raises(error) as caught:
        tg.Suppressed.until_time_limit(given.pop("limit"), given.pop("buffer"), **given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("buffer", "tasks"),
    [
        (B.max_records(9_999), 1),
        (B.max_records(19_999), 1),
        (B.max_records(20_000), 2),
        (B.max_records(10**9), 8),
        (B.max_bytes(29_999_999), 2),
        (B.max_records(10**9).with_max_bytes(30_000_000), 3),
        (B.max_records(0), 1),
    ],
)
def test_a_bound_is_divided_over_tasks_that_get_enough_of_it(buffer: Any, tasks: int) -> None:
    assert min(8, buffer.worth_tasks) == tasks


@pytest.mark.parametrize("bound", [0, 1, 7, 20_001])
@pytest.mark.parametrize("tasks", [1, 2, 3, 8])
def test_shares_add_up_and_differ_by_one_at_most(bound: int, tasks: int) -> None:
    buffer = B.max_records(bound).with_max_bytes(2 * bound)
    buffer = buffer.shut_down_when_full() if bound else buffer.spill_to_disk_when_full()
    shares = [buffer.share(task, tasks) for task in range(tasks)]
    assert sum(share.max_records for share in shares) == bound
    assert sum(share.max_bytes for share in shares) == 2 * bound
    assert max(s.max_records for s in shares) - min(s.max_records for s in shares) <= 1
    assert shares == sorted(shares, key=lambda share: -share.max_records)
    assert {share.strategy for share in shares} == {buffer.strategy}
    assert B.unbounded().share(0, tasks) == B.unbounded()
