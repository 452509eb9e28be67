"""The way of a batch's rows to its sinks: one job, in which each task puts its rows where the sink's commit finds them.

A task sends few rows with its receipt. It puts many rows aside itself, under a unique name, and its receipt has the
name. Rows that a failed or a second attempt put aside are in no receipt, and so in no commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.errors import InputError
from tidegate.kernel.columns.arrays import as_schema
from tidegate.runtime.spark.frames.names import numbers

INLINE_BYTES = 1 << 20
"""Most bytes of a sink's rows that one task sends to the driver; a task puts more aside."""
CHUNK_BYTES = 8 << 20
"""About so many bytes of rows that are only appended are put aside at a time."""

_RECEIPTS = "sink int, n long, rows binary, aside string"


class Aside(Protocol):
    """Rows of one task that are on their way to a place of their own."""

    def write(self, rows: pa.Table) -> None: ...

    def finish(self) -> str:
        """The name under which the commit finds the rows."""


class Place(Protocol):
    """The place where tasks put rows aside; it travels to them."""

    def open(self) -> Aside: ...


@dataclass(frozen=True)
class Lane:
    """The rows that go to one sink, as tasks must know them.

    output   the output of the rows; None if there is only one
    schema   names and Arrow types that the sink gets
    key      of a task's rows with the same key only the last one goes on; empty: all rows go on
    place    the place where a task puts many rows aside
    called   the name of the sink in errors
    """

    output: str | None
    schema: pa.Schema
    key: tuple[str, ...]
    place: Place
    called: str


@dataclass
class Staged:
    """The rows of one batch for one sink: the rows that came with receipts, and the names of rows put aside."""

    schema: pa.Schema
    inline: list[pa.Table] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def table(self) -> pa.Table:
        """The rows that came with the receipts."""
        return pa.concat_tables([self.schema.empty_table(), *self.inline])


def staged(frame: DataFrame, lanes: Sequence[tuple[Sequence[Column], Lane]]) -> list[Staged]:
    """Run the batch once, and give the rows of each lane; each comes with the columns of the frame that it takes.

    The batch runs without lanes too: otherwise no state of the batch would be written.
    """
    columns = [F.col("output")] if any(lane.output is not None for _, lane in lanes) else []
    parts: list[Part] = []
    for taken, lane in lanes:
        parts.append(Part(lane, tuple(range(len(columns), len(columns) + len(taken)))))
        columns += taken
    # Under numbered names, because a name may hold anything.
    chosen = frame.select(*[column.alias(f"c{i}") for i, column in enumerate(columns)])
    receipts = chosen.mapInArrow(Stage(tuple(parts), INLINE_BYTES, CHUNK_BYTES), _RECEIPTS).collect()
    results = [Staged(lane.schema) for _, lane in lanes]
    for receipt in receipts:
        result = results[receipt["sink"]]
        result.count += receipt["n"]
        if receipt["aside"] is None:
            result.inline.append(pa.ipc.open_stream(bytes(receipt["rows"])).read_all())
        else:
            result.aside.append(receipt["aside"])
    return results


@dataclass(frozen=True)
class Part:
    """A lane, and the places of its columns among those that tasks get."""

    lane: Lane
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """The task: takes the rows of all outputs, gives a receipt for each sink that has some of them."""

    parts: tuple[Part, ...]
    inline_bytes: int
    chunk_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [_Held(part, self) for part in self.parts]
        for batch in batches:
            by_output: dict[str | None, pa.Table] = defaultdict(lambda: None)
            for each in held:
                output = each.lane.output
                if by_output[output] is None:
                    by_output[output] = _of_output(batch, output)
                each.take(by_output[output])
        for number, each in enumerate(held):
            if each.count:
                yield each.receipt(number)


def _of_output(batch: pa.RecordBatch, output: str | None) -> pa.Table:
    rows = pa.Table.from_batches([batch])
    return rows if output is None else rows.filter(pc.equal(rows.column(0), output))


class _Held:
    """The rows that one task has for one sink."""

    def __init__(self, part: Part, stage: Stage) -> None:
        self.lane, self.count, self._stage = part.lane, 0, stage
        self._columns = list(part.columns)
        self._rows: list[pa.Table] = []
        self._bytes = 0
        self._aside: Aside | None = None

    def take(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        rows = as_schema(rows.select(self._columns).rename_columns(self.lane.schema.names), self.lane.schema)
        for name in self.lane.key:
            if rows.column(name).null_count:
                raise InputError(
                    f"{self.lane.called}: a row has no {name!r}, which is part of its key, so it replaces no other "
                    'row. Filter such rows, or use mode="append".'
                )
        self._rows.append(rows)
        self._bytes += rows.nbytes
        self.count += rows.num_rows
        # The last row of a key is known only at the end.
        if not self.lane.key and self._bytes > self._stage.chunk_bytes:
            self._put_aside()

    def receipt(self, number: int) -> pa.RecordBatch:
        if self.lane.key:
            last = last_of_each_key(pa.concat_tables(self._rows), self.lane.key)
            self._rows, self._bytes, self.count = [last], last.nbytes, last.num_rows
        rows = aside = None
        if self._aside is None and self._bytes <= self._stage.inline_bytes:
            rows = _encoded(pa.concat_tables(self._rows))
        else:
            self._put_aside()
            assert self._aside is not None
            aside = self._aside.finish()
        return pa.RecordBatch.from_arrays(
            [
                pa.array([number], pa.int32()),
                pa.array([self.count], pa.int64()),
                pa.array([rows], pa.binary()),
                pa.array([aside], pa.string()),
            ],
            names=["sink", "n", "rows", "aside"],
        )

    def _put_aside(self) -> None:
        if self._aside is None:
            self._aside = self.lane.place.open()
        if self._rows:
            self._aside.write(pa.concat_tables(self._rows))
        self._rows, self._bytes = [], 0


def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows: a later one replaces an earlier one anyway."""
    if rows.num_rows < 2:
        return rows
    keys = rows.select(list(key))
    names = numbers(keys.column_names)
    numbered = keys.rename_columns(names).append_column("row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(names).aggregate([("row", "max")])["row_max"]
    return rows if len(last) == rows.num_rows else rows.take(last.combine_chunks().sort())


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
