"""Times and durations from users as integer milliseconds, which all other modules use; and back as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

from tidegate.arguments import whole_number
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line

MAX_MS = 2**63 - 1
"""The largest instant and the largest duration (292 million years)."""

Duration = timedelta | str

_UNIT_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_UNITS = {"microsecond", *_UNIT_MS}
_SHORT = {
    "ms": "millisecond",
    "msec": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
}
_PART = re.compile(r"\s*([+-]?)(\d+|(?=\.\d))(\.\d{0,9})?\s*([a-z]+)\s*", re.IGNORECASE)
_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
ROUND_MS = tuple(
    unit * n
    for unit, steps in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (_S, (1, 2, 5, 10, 15, 20, 30, 45)),
        (_M, (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)),
        (_H, (*range(1, 13), 18)),
        (_D, (1, 2, 3, 4, 5, 7, 10, 14, 21, 30, 60, 90, 180, 365)),
    )
    for n in steps
)
"""Round durations, as people write them (ms)."""
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Instant(int):
    """Epoch milliseconds that also compare with a datetime (without a time zone: UTC)."""

    def __eq__(self, other: object) -> bool:
        return int(self) == _comparable(other)

    def __ne__(self, other: object) -> bool:
        return int(self) != _comparable(other)

    def __lt__(self, other: Any) -> bool:
        return int(self) < _comparable(other)

    def __le__(self, other: Any) -> bool:
        return int(self) <= _comparable(other)

    def __gt__(self, other: Any) -> bool:
        return int(self) > _comparable(other)

    def __ge__(self, other: Any) -> bool:
        return int(self) >= _comparable(other)

    __hash__ = int.__hash__


class _Bounds(NamedTuple):
    start: int
    end: int


class Window(_Bounds):
    """The bounds of a window in epoch milliseconds. The kind of windows decides whether `end` belongs to the window.

    A window, and each of its bounds, compares with epoch milliseconds and with datetimes (without a time zone: UTC).

    Attributes:
        start: The start.
        end: The end.

    Examples:
        >>> window = Window(0, 120_000)
        >>> window == (0, 120_000), window.end_time.isoformat()
        (True, '1970-01-01T00:02:00+00:00')
    """

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> Self:
        """A window from `start` to `end`."""
        # Other values stay as they are: Spark's rows have None where a timestamp cannot reach the end.
        return super().__new__(cls, *(Instant(bound) if isinstance(bound, int) else bound for bound in (start, end)))

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]
        return cls(*iterable)

    @property
    def start_time(self) -> datetime:
        """The start as a datetime in UTC.

        Raises:
            OverflowError: No datetime reaches the start.
        """
        return _EPOCH + timedelta(milliseconds=self.start)

    @property
    def end_time(self) -> datetime:
        """The end as a datetime in UTC.

        Raises:
            OverflowError: No datetime reaches the end, for example of an unlimited window.
        """
        return _EPOCH + timedelta(milliseconds=self.end)


def duration_ms(value: Duration, argument: str) -> int:
    """Whole milliseconds of a timedelta, or of a string in Spark's format ("2 minutes", "1.5 seconds").

    Sub-millisecond parts are truncated, as Kafka's `Duration.toMillis` does.

    Raises DefinitionTypeError for anything else, DefinitionError for a string that is no duration.
    """
    if isinstance(value, timedelta):
        micros = value // _MICROSECOND
    elif isinstance(value, str):
        micros = _parse(value, argument)
    else:
        raise DefinitionTypeError(
            f"`{argument}` is {in_one_line(value)} ({type(value).__name__}), not a duration. "
            'Use a timedelta, for example timedelta(minutes=2), or a string such as "2 minutes".'
        )
    ms = micros // 1_000 if micros >= 0 else -(-micros // 1_000)
    if abs(ms) > MAX_MS:
        raise _too_long(value, argument)
    return ms


def _too_long(value: Duration, argument: str) -> DefinitionError:
    return DefinitionError(
        f"`{argument}` is {in_one_line(value)}: more milliseconds than 64 bits hold. Use a shorter one."
    )


def _parse(text: str, argument: str) -> int:
    """Microseconds of a string. As in Spark, seconds alone may have a fraction."""
    body = text.strip()
    if body.lower().startswith("interval "):
        body = body[len("interval ") :]
    total = position = 0
    while position < len(body):
        part = _PART.match(body, position)
        unit = part and _unit(part.group(4).lower())
        if not part or not unit or (part.group(3) and unit != "second"):
            break
        sign, whole, fraction, _ = part.groups(default="")
        try:
            number = int(whole or 0)
        except ValueError:  # Python reads 4,300 digits at most
            raise _too_long(text, argument) from None
        micros = number * (1 if unit == "microsecond" else _UNIT_MS[unit] * 1_000)
        micros += int(fraction[1:7].ljust(6, "0")) if fraction else 0
        total += -micros if sign == "-" else micros
        position = part.end()
    if not body or position < len(body):
        raise DefinitionError(
            f"`{argument}` is {text!r}, which is not a duration. Write a number and a unit of a fixed length "
            f'({", ".join(f"{name}s" for name in _UNIT_MS)}), for example "2 minutes" or "1 hour 30 minutes".'
        )
    return total


def _unit(word: str) -> str | None:
    name = _SHORT.get(word, word)
    if name not in _UNITS and len(name) > len("ds"):  # "mins", and not "hs"
        name = name.removesuffix("s")
        name = _SHORT.get(name, name)
    return name if name in _UNITS else None


def instant_ms(value: int | datetime) -> int:
    """Epoch milliseconds of an integer (unchanged) or a datetime; one without a time zone is UTC."""
    return _epoch_micros(value) // 1_000 if isinstance(value, datetime) else value


def given_instant_ms(value: Any, argument: str) -> int:
    """Epoch milliseconds of an argument: an integer of at most 64 bits, or a datetime as in `instant_ms`.

    Raises DefinitionTypeError for anything else, DefinitionError for a larger integer.
    """
    ms = instant_ms(value) if isinstance(value, datetime) else whole_number(value)
    if not isinstance(ms, int):  # NaT of pandas is a datetime, and no instant
        raise DefinitionTypeError(f"`{argument}` is {in_one_line(value)}, not epoch milliseconds or a datetime.")
    if abs(ms) > MAX_MS:
        raise DefinitionError(
            f"`{argument}` is {in_one_line(ms)}: more milliseconds than 64 bits hold. Use an instant nearer to 1970."
        )
    return ms


def _comparable(value: Any) -> Any:
    """Epoch milliseconds of a datetime; any other `value` unchanged, for Python to compare."""
    return _exact_ms(value) if isinstance(value, datetime) else value


def _exact_ms(value: datetime) -> float:
    """Epoch milliseconds with their fraction, so that a time with microseconds equals no bound of a window."""
    micros = _epoch_micros(value)
    return micros // 1_000 if micros % 1_000 == 0 else micros / 1_000


def _epoch_micros(value: datetime) -> int:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def later_ms(instant: Any, by: int) -> Any:
    """`instant` plus the duration `by`, at most MAX_MS, the last instant. A number or a numpy array, in ms."""
    by = min(by, MAX_MS)
    last = MAX_MS - max(by, 0)
    return (instant.clip(max=last) if hasattr(instant, "clip") else min(instant, last)) + by


def earlier_ms(instant: Any, by: int) -> Any:
    """`instant` minus the duration `by`, at most MAX_MS if that is negative. A number or a numpy array, in ms."""
    return later_ms(instant, -by) if by < 0 else instant - min(by, MAX_MS)


def rounded_up(ms: int) -> int:
    """The next duration of `ROUND_MS`, or `ms` itself beyond the last one."""
    return 0 if ms <= 0 else next((one for one in ROUND_MS if one >= ms), ms)


def show_ms(ms: int) -> str:
    """A duration for people: "2 minutes", "1 hour 30 minutes", "0 milliseconds"."""
    if ms < 0:
        return f"-{show_ms(-ms)}"
    parts = []
    rest = ms
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        n, rest = divmod(rest, _UNIT_MS[unit])
        if n:
            parts.append(f"{n} {unit}{'s' if n != 1 else ''}")
    return " ".join(parts) or "0 milliseconds"


def show_instant(ms: int) -> str:
    """An instant for people: its milliseconds and, where a calendar reaches it, the UTC time."""
    try:
        return f"{ms} ({(_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec='milliseconds')})"
    except OverflowError:
        return str(ms)
