"""`tidegate state` without Spark: rows as a DataFrame gives them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate.cli.main import main

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidegate.runtime.spark.frames.arrow import arrow_schema

MINUTE = 60_000_000
WINDOW = StructType().add("start", TimestampType()).add("end", TimestampType())


class Frame:
    """A DataFrame with rows made of Spark's own values: times are microseconds."""

    def __init__(self, schema: StructType, *rows: tuple[Any, ...]) -> None:
        self.schema, self.rows = schema, rows
        self.columns = schema.names

    def limit(self, most: int) -> Frame:
        assert most < 2**31, "Spark counts in 32 bits"
        return Frame(self.schema, *self.rows[:most])

    def toArrow(self) -> pa.Table:
        columns = ([_internal(value) for value in column] for column in zip(*self.rows, strict=True))
        wanted = arrow_schema(self.schema)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, wanted, strict=True)], schema=wanted)


def _internal(value: Any) -> Any:
    """A value as Arrow takes it; tuples are windows."""
    if isinstance(value, tuple):
        return {"start": value[0], "end": value[1]}
    return list(value.items()) if isinstance(value, dict) else value


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], frame: Frame, *arguments: str) -> str:
    monkeypatch.setattr("tidegate.cli.state.session", lambda *_: None)
    monkeypatch.setattr("tidegate.cli.state.read_state", lambda *_, **__: frame)
    assert main(["state", "checkpoint", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("in_new_york")
def test_times_are_in_utc_as_those_that_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = StructType().add("k", StringType()).add("window", WINDOW).add("local", TimestampNTZType())
    schema = schema.add("seen", ArrayType(TimestampType())).add("by", MapType(TimestampType(), TimestampType()))
    frame = Frame(schema, ("a", (0, MINUTE), 2 * MINUTE, [3 * MINUTE], {4 * MINUTE: 5 * MINUTE}))
    _, row = said(monkeypatch, capsys, frame).splitlines()
    assert row.startswith("a  1970-01-01 00:00:00 to 1970-01-01 00:01:00  1970-01-01 00:02:00  ")
    (found,) = json.loads(said(monkeypatch, capsys, frame, "--json"))
    assert found == {
        "k": "a",
        "window": {"start": "1970-01-01T00:00:00", "end": "1970-01-01T00:01:00"},
        "local": "1970-01-01T00:02:00",
        "seen": ["1970-01-01T00:03:00"],
        "by": {"1970-01-01T00:04:00": "1970-01-01T00:05:00"},
    }


def test_a_record_of_a_far_future_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stream time that such a record has moved is why somebody looks. Python's times end with the year 9999."""
    far = 287_962_214_400_000_000
    schema = (
        StructType().add("k", StringType()).add("window", WINDOW).add("day", DateType()).add("seen", TimestampType())
    )
    frame = Frame(schema, ("a", (far, far + MINUTE), 4_000_000, far + 1), ("b", (0, MINUTE), -800_000, 0))
    _, first, second = said(monkeypatch, capsys, frame).splitlines()
    assert first == "a  +11095-02-28T00:00:00 to +11095-02-28T00:01:00  +12921-08-18  +11095-02-28T00:00:00.000001"
    assert second.split()[-3:] == ["-221-09-04", "1970-01-01", "00:00:00"]
    (found, _) = json.loads(said(monkeypatch, capsys, frame, "--json"))
    assert (found["window"]["start"], found["day"]) == ("+11095-02-28T00:00:00", "+12921-08-18")


def test_json_has_values_that_json_has_not_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = StructType().add("mean", DoubleType()).add("most", ArrayType(DoubleType())).add("raw", BinaryType())
    schema = schema.add("sum", DecimalType(5, 2)).add("by", MapType(LongType(), BooleanType()))
    nan, infinity = float("nan"), float("inf")
    frame = Frame(schema, (nan, [infinity, -infinity, 1.5, None], b"\x01\xff", Decimal("1.50"), {7: True}))
    text = said(monkeypatch, capsys, frame, "--json")
    assert json.loads(text, parse_constant=pytest.fail) == [
        {
            "mean": "NaN",
            "most": ["Infinity", "-Infinity", 1.5, None],
            "raw": "01ff",
            "sum": "1.50",
            "by": {"7": True},
        }
    ]


@pytest.mark.parametrize("limit", [2**31 - 2, 2**31 - 1, 10**12])
def test_as_many_rows_as_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: int
) -> None:
    frame = Frame(StructType().add("k", StringType()), *((str(row),) for row in range(30)))
    assert len(said(monkeypatch, capsys, frame, "--limit", str(limit)).splitlines()) == 31
    assert len(json.loads(said(monkeypatch, capsys, frame, "--json", "--limit", str(limit)))) == 30
