"""Functions of users who know nothing of state: they change their arguments and return any value that fits.

Each function is an object, made anew for each run and for the oracle, so that runs share no memory.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]
Pairs = list[tuple[str, Any]]


class Failed(RuntimeError):  # noqa: N818 - what becomes of a function
    """An error of a user's function."""


class _OfColumn:
    """Functions that read one column of a record."""

    def __init__(self, column: str) -> None:
        self.column = column


# -- aggregates ----------------------------------------------------------------------------------------------------


class Appending(_OfColumn):
    """Lists: the initializer returns one shared list, and everything is changed in place."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.shared: list[Any] = []

    def initializer(self) -> list[Any]:
        return self.shared

    def aggregator(self, key: Any, row: Row, aggregate: list[Any]) -> Any:
        aggregate.append(row[self.column])
        row.clear()
        return aggregate if len(aggregate) % 3 else tuple(aggregate)

    def merger(self, key: Any, a: list[Any], b: list[Any]) -> list[Any]:
        a.append(None)
        a.extend(b)
        b.clear()
        return a


class Growing(Appending):
    """Lists of values that may be nested; a long list becomes None."""

    def aggregator(self, key: Any, row: Row, aggregate: list[Any]) -> Any:
        aggregate.insert(0, row.pop(self.column))
        return None if len(aggregate) == 4 else aggregate


class Story(_OfColumn):
    """Structs changed in place, with fields that the type does not have."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.shared: dict[str, Any] = {"n": 0, "seen": []}

    def initializer(self) -> dict[str, Any]:
        return self.shared

    def aggregator(self, key: Any, row: Row, aggregate: dict[str, Any]) -> dict[str, Any]:
        aggregate["n"] += 1
        aggregate["seen"].append(row.pop(self.column))
        aggregate["no field of the type"] = row
        return aggregate

    def merger(self, key: Any, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        b["n"] += a["n"] * 10
        b["seen"][:0] = a["seen"]
        a.clear()
        return b


class Tally(_OfColumn):
    """Maps: they arrive as pairs and are returned as dicts."""

    def initializer(self) -> dict[str, int]:
        return {}

    def aggregator(self, key: Any, row: Row, aggregate: Pairs) -> Any:
        name = str(row[self.column])
        counts = dict(aggregate)
        counts[name] = (counts.get(name) or 0) + 1
        aggregate.append((name, -1))
        return counts if len(counts) % 2 else list(counts.items())

    def merger(self, key: Any, a: Pairs, b: Pairs) -> Any:
        a.extend(b)
        return dict(a)


class Events(_OfColumn):
    """Lists of structs; each element is the record itself, with all its columns."""

    def initializer(self) -> list[Any]:
        return []

    def aggregator(self, key: Any, row: Row, aggregate: list[Any]) -> list[Any]:
        row["s"] = row[self.column]
        row["i"] = len(aggregate)
        for event in aggregate:
            event["i"] += 1
        aggregate.append(row)
        return aggregate

    def merger(self, key: Any, a: list[Any], b: list[Any]) -> list[Any]:
        while a:
            b.insert(0, a.pop())
        return b


class Numbers(_OfColumn):
    """Whole numbers in all the types that can hold a number."""

    def initializer(self) -> Any:
        return np.int8(0)

    def aggregator(self, key: Any, row: Row, aggregate: int) -> Any:
        found = (aggregate * 2 + (row[self.column] or 0)) % 1_000_003
        return [np.int32(found), float(found), Decimal(found), pa.scalar(found), np.float64(found)][found % 5]

    def merger(self, key: Any, a: int, b: int) -> Any:
        return np.int64((a * 3 + b) % 1_000_003)


class Sums(Numbers):
    """Whole numbers, also over Arrow arrays, which are not of the type of the aggregate and have nulls in them."""

    def aggregator(self, key: Any, row: Row, aggregate: int) -> Any:
        found = (aggregate * 2 + (row[self.column] or 0)) % 1_000_003
        return None if found % 5 == 3 else found

    def vectors(self, key: Any, rows: pa.Table, aggregates: pa.Array) -> Any:
        values = rows[self.column].fill_null(0).to_numpy()
        found = (aggregates.to_numpy() * 2 + values) % 1_000_003
        kind = [pa.int64(), pa.int32(), pa.float64(), pa.decimal128(20, 0)][len(found) % 4]
        made = pa.array(found, mask=found % 5 == 3).cast(kind)
        return pa.chunked_array([made.slice(0, 1), made.slice(1)]) if len(found) % 2 else made


class Halves(Numbers):
    """Whole numbers, until a half comes: an error."""

    def aggregator(self, key: Any, row: Row, aggregate: int) -> Any:
        return aggregate + (0.5 if row[self.column] == 4 else 1.0)


class Failing(Numbers):
    """Raises at some record."""

    def aggregator(self, key: Any, row: Row, aggregate: int) -> Any:
        if row[self.column] == 4:
            raise Failed(f"{key!r} has a four")
        return aggregate + 1


class Wide(Numbers):
    """Larger than a long: an error."""

    def aggregator(self, key: Any, row: Row, aggregate: int) -> Any:
        return aggregate + (2**63 if row[self.column] == 4 else 1)


class Doubles(_OfColumn):
    """Doubles, returned as whole numbers and as numpy's."""

    def initializer(self) -> int:
        return 0

    def aggregator(self, key: Any, row: Row, aggregate: float) -> Any:
        found = (aggregate * 3 + float(row[self.column] or 0)) % 1_000
        return (
            [int(found), np.float64(found), pa.scalar(found), found][int(found) % 4] if found == int(found) else found
        )

    def merger(self, key: Any, a: float, b: float) -> Any:
        return np.float64(a / 4 + b)


class Singles(_OfColumn):
    """Floats from doubles: each is rounded."""

    def initializer(self) -> float:
        return 0.1

    def aggregator(self, key: Any, row: Row, aggregate: float) -> float:
        return aggregate * 1.1 + (row[self.column] or 0) / 10

    def merger(self, key: Any, a: float, b: float) -> float:
        return a / 3 + b


class History(_OfColumn):
    """Text, without an aggregate to begin with, and None at times."""

    def initializer(self) -> None:
        return None

    def aggregator(self, key: Any, row: Row, aggregate: str | None) -> str | None:
        value = row.pop(self.column)
        return None if value in (4, "zz") else f"{aggregate}+{value}"

    def merger(self, key: Any, a: str | None, b: str | None) -> str:
        return f"{a}|{b}"


class Titles(History):
    """Text, until a number comes: an error."""

    def aggregator(self, key: Any, row: Row, aggregate: str | None) -> Any:
        value = row.pop(self.column)
        return len(aggregate or "") if value in (4, "zz") else f"{aggregate}+{value}"


class Money(_OfColumn):
    """Decimals, as whole numbers at times."""

    def initializer(self) -> int:
        return 0

    def aggregator(self, key: Any, row: Row, aggregate: Decimal) -> Any:
        found = aggregate + Decimal("0.25") * (1 + (row[self.column] or 0) % 7)
        return int(found) if found == int(found) else found

    def merger(self, key: Any, a: Decimal, b: Decimal) -> Decimal:
        return a + b + 1


class Cents(Money):
    """Decimals, until one has too many digits: an error."""

    def aggregator(self, key: Any, row: Row, aggregate: Decimal) -> Any:
        return aggregate + Decimal("0.001" if row[self.column] == 4 else "0.01")


class Moments(_OfColumn):
    """Times, as those of Python, numpy and Arrow."""

    def initializer(self) -> datetime:
        return EPOCH

    def aggregator(self, key: Any, row: Row, aggregate: datetime) -> Any:
        found = aggregate + timedelta(minutes=(row[self.column] or 0) % 7)
        clock = found.replace(tzinfo=None)
        return [found, np.datetime64(clock, "us"), np.datetime64(clock, "m"), pa.scalar(found)][found.minute % 4]

    def merger(self, key: Any, a: datetime, b: datetime) -> datetime:
        return max(a, b)


class Flags(_OfColumn):
    """Booleans as numpy's."""

    def initializer(self) -> bool:
        return False

    def aggregator(self, key: Any, row: Row, aggregate: bool) -> Any:
        return np.bool_((row[self.column] is None) != aggregate)

    def merger(self, key: Any, a: bool, b: bool) -> Any:
        return np.bool_(a and b)


# -- reduce ------------------------------------------------------------------------------------------------------


def joined(a: str, b: str | None) -> str | None:
    return None if b == "x" else f"{a}+{b}"


def extended(a: list[Any], b: list[Any] | None) -> list[Any]:
    a.extend(b or [None])
    if b:
        b.clear()
    return a


def merged(a: dict[str, Any], b: dict[str, Any] | None) -> Any:
    if b is None:
        return None
    b["b"] = [*(a.pop("b") or []), "+", *(b["b"] or [])]
    a["another"] = b
    return (a.get("a"), b["b"])


def overlaid(a: Pairs, b: Pairs | None) -> Any:
    a.extend(b or [])
    return dict(a)


def added(a: int, b: int | None) -> Any:
    return float((a * 2 + (b or 0)) % 1_000_003)


def averaged(a: int, b: int | None) -> Any:
    return (a + (b or 0)) / 2


# -- behind another operator, where rows of one key and instant have no order -----------------------------------


class Timed(_OfColumn):
    """A step of rows that adds their time as a value, under the name of the column."""

    def __init__(self, column: str, names: list[str]) -> None:
        super().__init__(column)
        self.names = names

    def __call__(self, row: Row) -> Row:
        return {name: row.pop(name) for name in self.names if name in row} | {self.column: in_ms(row["timestamp"])}


class Diary:
    """Texts seen at each instant, in order of arrival of the instants; sorted within an instant."""

    def __init__(self, columns: tuple[str, str]) -> None:
        self.column, self.time = columns

    def initializer(self) -> list[Any]:
        return []

    def aggregator(self, key: Any, row: Row, aggregate: list[Any]) -> list[Any]:
        at, said = row[self.time], spelled(row.pop(self.column))
        if aggregate and aggregate[-1]["at"] == at:
            aggregate[-1]["said"] = sorted([*aggregate[-1]["said"], said])
        else:
            aggregate.append({"said": (said,), "at": at, "no field of the type": row})
        return aggregate

    def merger(self, key: Any, a: list[Any], b: list[Any]) -> list[Any]:
        b[:0] = a
        return b


def in_ms(value: Any) -> int:
    """An instant as milliseconds: Spark gives functions datetimes."""
    return value if isinstance(value, int) else (value.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


def summed(a: int, b: int | None) -> Any:
    return Decimal(a + (b or 0))


def later(a: str, b: str | None) -> str:
    return a if b is None else max(a, b)


class Shelf(_OfColumn):
    """Values of the rows in the group now, as sorted texts; never deleted."""

    def initializer(self) -> list[str]:
        return []

    def adder(self, key: Any, row: Row, aggregate: list[str]) -> Any:
        aggregate.append(spelled(row.pop(self.column)))
        return tuple(sorted(aggregate))

    def subtractor(self, key: Any, row: Row, aggregate: list[str]) -> list[str]:
        aggregate.remove(spelled(row[self.column]))
        row.clear()
        return aggregate


class Weight(_OfColumn):
    """A sum in several types; never deleted."""

    def initializer(self) -> Any:
        return np.int8(0)

    def adder(self, key: Any, row: Row, aggregate: int) -> Any:
        return self.added(aggregate, row[self.column])

    def subtractor(self, key: Any, row: Row, aggregate: int) -> Any:
        return self.taken(aggregate, row[self.column])

    def added(self, aggregate: int, value: int | None) -> Any:
        found = aggregate + (value or 0)
        return Decimal(found) if found % 2 else pa.scalar(found)

    def taken(self, aggregate: int, value: int | None) -> Any:
        return np.int64(aggregate - (value or 0))


# -- steps of streams -------------------------------------------------------------------------------------------


REMOVED = {"pa.int64()": 3, "pa.string()": "zz"}
"""By the type of its column, the value of a record that `Kept` removes."""


class Kept(_OfColumn):
    """A filter that empties the record, and whose truth is no boolean."""

    def __call__(self, row: Row) -> Any:
        value = row.pop(self.column)
        row.clear()
        return "yes" if value is None else np.bool_(value not in REMOVED.values())


class Part(_OfColumn):
    """A filter that keeps the records of one of two inputs."""

    def __init__(self, column: str, number: int) -> None:
        super().__init__(column)
        self.number = number

    def __call__(self, row: Row) -> bool:
        value = row.pop(self.column)
        row.clear()
        return (value or 0) % 2 == self.number


class Doubled(_OfColumn):
    """New values, and all other columns as they are; old nested values are changed on the way."""

    def __init__(self, column: str, names: list[str]) -> None:
        super().__init__(column)
        self.names = names

    def __call__(self, row: Row) -> Row:
        values = {name: row.pop(name) for name in self.names}
        for value in values.values():
            if isinstance(value, list):
                value.append(value[0] if value else None) if value and not isinstance(value[0], tuple) else None
            elif isinstance(value, dict):
                value["no field"] = row
        if isinstance(values[self.column], int) and not isinstance(values[self.column], bool):
            values[self.column] = np.int64(values[self.column])
        given = row | values
        row.clear()
        return given


class Cut(Doubled):
    """New values, of which some are not of their type: an error."""

    def __call__(self, row: Row) -> Row:
        values = super().__call__(row)
        if values[self.column] == 4:
            values[self.column] = 4.5
        return values


class Keyed(_OfColumn):
    """Another key, of type text; sometimes null."""

    def __call__(self, row: Row) -> Any:
        value = row.pop(self.column)
        row["__new"] = value
        return None if value is None else str(value)[:2]


# -- steps of tables --------------------------------------------------------------------------------------------


class Relabeled(_OfColumn):
    """A text of each result, the old values changed on the way."""

    def __call__(self, row: Row) -> Row:
        value = row.pop(self.column)
        text = spelled(value)
        if isinstance(value, list):
            value.clear()
        row.clear()
        return {"label": text, "__n": len(text)}


class Short(_OfColumn):
    """A filter of results."""

    def __call__(self, row: Row) -> Any:
        value = row.pop(self.column)
        return len(spelled(value)) % 3 != 0


def spelled(value: Any) -> str:
    """A value as text. Floats are rounded, because sums of floats depend on their order in the last digits."""
    if isinstance(value, float):
        return f"{value + 0.0:.3f}"
    if isinstance(value, dict):
        return ",".join(f"{name}={spelled(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(spelled, value))}]"
    return str(value)


# -- joins --------------------------------------------------------------------------------------------------------


class Paired:
    """A value joiner that empties its arguments after it spelled them."""

    def __call__(self, left: Row | None, right: Row | None) -> Row:
        told = [
            None if side is None else [spelled(value) for _, value in sorted(side.items())] for side in (left, right)
        ]
        for side in (left, right):
            if side is not None:
                side.clear()
        return {"pair": str(told), "parts": tuple(part for side in told for part in side or ["nobody"])}


# -- tables grouped anew ------------------------------------------------------------------------------------------


class Ledger(_OfColumn):
    """Text of the rows that came and left, in order; a long text becomes None."""

    def initializer(self) -> str:
        return ""

    def adder(self, key: Any, row: Row, aggregate: str) -> str:
        return f"{aggregate}+{spelled(row.pop(self.column))}"

    def subtractor(self, key: Any, row: Row, aggregate: str) -> str | None:
        return None if len(aggregate) > 20 else f"{aggregate}-{spelled(row.pop(self.column))}"

    def added(self, aggregate: str, value: str | None) -> str:
        return f"{aggregate}+{value}"

    def taken(self, aggregate: str, value: str | None) -> str | None:
        return None if aggregate == value else f"{aggregate}-{value}"


class Bag(_OfColumn):
    """A list of the values in the group now, changed in place; an empty one deletes the group."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.shared: list[Any] = []

    def initializer(self) -> list[Any]:
        return self.shared

    def adder(self, key: Any, row: Row, aggregate: list[Any]) -> Any:
        aggregate.append(row.pop(self.column))
        row.clear()
        return aggregate if len(aggregate) % 2 else tuple(aggregate)

    def subtractor(self, key: Any, row: Row, aggregate: list[Any]) -> Any:
        value = spelled(row[self.column])
        left = next((n for n, one in enumerate(aggregate) if spelled(one) == value), 0)
        aggregate[left : left + 1] = []
        return aggregate or None


class Balance(Weight):
    """Whole numbers in several types; a group whose balance is zero is deleted."""

    def taken(self, aggregate: int, value: int | None) -> Any:
        found = aggregate - (value or 0)
        return None if found == 0 else np.int64(found)
