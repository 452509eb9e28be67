"""Types of columns, values to draw for them, and the odd names that users give them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

Value = Any


@dataclass(frozen=True)
class Kind:
    """A type as code, and how to draw a value of it."""

    code: str
    draw: Callable[[Random], Value]

    @property
    def type(self) -> pa.DataType:
        """The Arrow type."""
        return eval(self.code, {"pa": pa})


def _one_of(*values: Value) -> Callable[[Random], Value]:
    return lambda random: random.choice(values)


def _long(random: Random) -> int:
    return random.choice([0, 1, 2, 3, 4, -3, 10**12])


def _list(random: Random) -> list[Any]:
    return [random.choice([None, 1, 2, 3]) for _ in range(random.randint(0, 3))]


def _struct(random: Random) -> dict[str, Any]:
    return {
        "a": random.choice([None, 1, 2]),
        "b": [random.choice([None, "x", "ü"]) for _ in range(random.randint(0, 2))],
    }


def _map(random: Random) -> list[tuple[str, Any]]:
    return [(key, random.choice([None, 1, 2])) for key in random.sample(["x", "y", "__z", "a.b"], random.randint(0, 3))]


def _times(random: Random) -> dict[str, Any]:
    pairs = [(key, _clocks(None)(random)) for key in random.sample("xy", random.randint(0, 2))]
    return {"at": random.choice([None, _clocks(UTC)(random)]), "of": pairs}


def _structs(random: Random) -> list[dict[str, Any]]:
    return [{"a": random.choice([None, 1]), "s": random.choice("xy")} for _ in range(random.randint(0, 2))]


def _clocks(zone: Any) -> Callable[[Random], Value]:
    """Times that every format of files has."""
    days = (datetime(1960, 1, 1, tzinfo=zone), datetime(2020, 2, 29, tzinfo=zone), datetime(2100, 12, 31, tzinfo=zone))
    return _one_of(*days, days[1] + timedelta(hours=12, microseconds=1))


_DIGITS = [Decimal(text).quantize(Decimal("1e-18")) for text in ("0", "1e-18", "-7.25", "12345.678901234567890123")]

OF_BOTH: dict[str, Kind] = {
    "short": Kind("pa.int16()", _one_of(0, 1, -1, 2**15 - 1)),
    "float": Kind("pa.float32()", _one_of(0.0, -0.0, math.nan, -math.inf, 1.5, 0.10000000149011612)),
    "digits": Kind("pa.decimal128(38, 18)", _one_of(*_DIGITS)),
    "date": Kind("pa.date32()", _one_of(date(1969, 12, 31), date(2020, 2, 29), date(2100, 1, 1))),
    "instant": Kind('pa.timestamp("us", "UTC")', _clocks(UTC)),
    "clock": Kind('pa.timestamp("us")', _clocks(None)),
    "span": Kind(
        'pa.duration("us")',
        _one_of(timedelta(0), timedelta(microseconds=-1), timedelta(days=3, seconds=5), timedelta(hours=1)),
    ),
}
"""Kinds of keys and of values."""

VALUES: dict[str, Kind] = OF_BOTH | {
    "long": Kind("pa.int64()", _long),
    "double": Kind("pa.float64()", _one_of(0.0, -0.0, -1.5, 0.1, 2.0, 1e6, math.nan, math.inf)),
    "string": Kind("pa.string()", _one_of("x", "y", "", "ü", "zz", "NaN")),
    "boolean": Kind("pa.bool_()", _one_of(True, False)),
    "decimal": Kind("pa.decimal128(12, 3)", _one_of(*map(Decimal, ("0.001", "-7.250", "12345.678")))),
    "binary": Kind("pa.binary()", _one_of(b"", b"x", b"\xff\x00")),
    "list": Kind("pa.list_(pa.int64())", _list),
    "struct": Kind(
        'pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.list_(pa.string()), nullable=False)])', _struct
    ),
    "map": Kind("pa.map_(pa.string(), pa.int64())", _map),
    "structs": Kind('pa.list_(pa.struct([("a", pa.int64()), ("s", pa.string())]))', _structs),
    "times": Kind(
        'pa.struct([("at", pa.timestamp("us", "UTC")), ("of", pa.map_(pa.string(), pa.timestamp("us")))])', _times
    ),
}
"""Value columns, by the name of their kind."""

NESTED = ("list", "struct", "map", "structs", "times")
NUMBERS = ("long", "double", "decimal", "short", "float", "digits")
ORDERED = ("long", "double", "string", "boolean", "decimal", *OF_BOTH)

KEYS: dict[str, Kind] = OF_BOTH | {
    "string": Kind("pa.string()", _one_of("a", "b", "ab", "", "ü", "\U0001f600", "ﬁ", "A")),
    "long": Kind("pa.int64()", _one_of(0, 1, -1, 300, 2**53 + 1, -(2**63))),
    "int": Kind("pa.int32()", _one_of(0, 1, -1, 2**31 - 1)),
    "double": Kind("pa.float64()", _one_of(0.0, -0.0, math.nan, -math.nan, math.inf, 1.5)),
    "boolean": Kind("pa.bool_()", _one_of(True, False)),
    "decimal": Kind("pa.decimal128(12, 3)", _one_of(*map(Decimal, ("0.000", "-7.250", "12345.678")))),
    "binary": Kind("pa.binary()", _one_of(b"", b"a", b"\xff\x00", b"ab")),
}
"""Key columns, by the name of their kind."""

PLAIN = ("k", "j", "n", "x", "s", "v", "w", "z", "user", "amount")
ODD = (
    "__op",
    "__deleted",
    "__start",
    "__window",
    "__timestamp",
    "__kind",
    "start",
    "end",
    "key",
    "value",
    "row",
    "op",
    "live",
    "seen",
    "since",
    "until",
    "status",
    "kind",
    "chunk",
    "pane",
    "open",
    "count",
    "empty",
    "wall_clock",
    "place",
    "task",
    "rows",
    "k:k",
    "v:n",
    "r:x",
    "s:0:0",
    "two words",
    "a b  c ",
    "ü",
    "größe",
    "名前",
    "\U0001f600",
    "'quoted'",
    '"double"',
    "semi;colon",
    "a-b",
    "1",
    "select",
    "_corrupt_record",
    "_metadata",
)
"""Names that tidegate, Spark or Debezium use themselves, and names that need quotes."""

QUOTED = ("a.b", ".", "back`tick", "`both`", "a.`b`")
"""Names that Spark resolves differently unless they are quoted."""

SAME_BUT_FOR_CASE = (("n", "N"), ("User", "user"), ("ÜBER", "über"))


def scale_of(code: str) -> int | None:
    """The scale of a type, as code; None if it is no decimal."""
    kind = Kind(code, _long).type if code else pa.null()
    return kind.scale if pa.types.is_decimal(kind) else None


def same_key(value: Value) -> Value:
    """A key as grouping compares it: -0.0 is 0.0, and there is one NaN."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value
