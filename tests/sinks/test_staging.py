"""Rows of a batch in a task: by output, the last one of each key, handed over or staged."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tidegate.errors import InputError
from tidegate.runtime.spark.sinks.staging import Lane, Part, Stage, last_of_each_key

SCHEMA = pa.schema({"k.x": pa.string(), "v": pa.int64()})


@dataclass
class Shelf:
    """A place in memory."""

    written: dict[str, list[pa.Table]] = field(default_factory=dict)

    def open(self) -> Any:
        name = str(len(self.written))
        tables = self.written[name] = []

        class Aside:
            write = staticmethod(tables.append)
            finish = staticmethod(lambda: name)

        return Aside()


def receipts(batches: list[pa.RecordBatch], *parts: Part, inline: int = 1 << 20, chunk: int = 1 << 20) -> Any:
    found = [batch.to_pylist()[0] for batch in Stage(parts, inline, chunk)(batches)]
    for receipt in found:
        if receipt["rows"] is not None:
            receipt["rows"] = pa.ipc.open_stream(receipt["rows"]).read_all().to_pylist()
    return found


def batch(*rows: tuple[str, str | None, int]) -> pa.RecordBatch:
    outputs, keys, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(outputs), pa.array(keys, pa.string()), pa.array(values, pa.int64())], names=["c0", "c1", "c2"]
    )


def part(output: str | None, shelf: Shelf, *key: str) -> Part:
    return Part(Lane(output, SCHEMA, key, shelf, "the table 't'"), (1, 2))


BATCHES = [batch(("raw", "a", 1), ("final", "a", 9), ("raw", "b", 2)), batch(("raw", "a", 3), ("late", "x", 0))]


def test_each_sink_gets_the_rows_of_its_output_and_of_a_key_the_last() -> None:
    raw, final, none = (part(output, Shelf(), *key) for output, *key in (("raw", "k.x"), ("final",), ("none",)))
    assert receipts(BATCHES, raw, final, none) == [
        {"sink": 0, "n": 2, "rows": [{"k.x": "b", "v": 2}, {"k.x": "a", "v": 3}], "aside": None},
        {"sink": 1, "n": 1, "rows": [{"k.x": "a", "v": 9}], "aside": None},
    ]


def test_more_rows_than_a_receipt_takes_are_put_aside() -> None:
    shelf, keyed = Shelf(), Shelf()
    assert receipts(BATCHES, part("raw", shelf), part("raw", keyed, "k.x"), inline=0, chunk=0) == [
        {"sink": 0, "n": 3, "rows": None, "aside": "0"},
        {"sink": 1, "n": 2, "rows": None, "aside": "0"},
    ]
    # Appended rows are written as they come; replacing rows, when the last row of each key is known.
    assert [[row["v"] for row in table.to_pylist()] for table in shelf.written["0"]] == [[1, 2], [3]]
    assert [[row["v"] for row in table.to_pylist()] for table in keyed.written["0"]] == [[2, 3]]


def test_a_key_without_a_value_is_an_error() -> None:
    with pytest.raises(InputError, match=r"a row has no 'k\.x', which is part of its key"):
        receipts([batch(("raw", None, 1))], part("raw", Shelf(), "k.x"))
    assert receipts([batch(("raw", None, 1))], part("raw", Shelf()))[0]["n"] == 1


def test_no_rows_give_no_receipt() -> None:
    assert receipts([], part("raw", Shelf())) == receipts(BATCHES, part("none", Shelf(), "k.x")) == []
    assert receipts(BATCHES) == []


def test_the_last_of_each_key_of_any_type() -> None:
    rows = pa.table(
        {
            ".k": pa.array([math.nan, 0.5, math.nan, None, None]),
            "at": pa.array([1, 1, 1, 2, 2], pa.timestamp("us", "UTC")),
            "v": [0, 1, 2, 3, 4],
        }
    )
    assert last_of_each_key(rows, (".k", "at"))["v"].to_pylist() == [1, 2, 4]
    assert last_of_each_key(rows.slice(0, 0), (".k",)).num_rows == 0
