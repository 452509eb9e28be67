"""Sources whose records the Python workers decode: `Undecoded` is such a source, a `RowDecoder` decodes in a worker.

To make rows in the JVM and move them to Python costs more than all that tidegate does with them (decision 0009).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.plan import Operation, Stream


@dataclass
class Counts:
    """Numbers of records that a worker has decoded: `records` of all, `malformed` of those without a row."""

    records: int = 0
    malformed: int = 0


MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The argument of `DataFrame.mapInArrow`."""

Pack = Callable[[Iterator[pa.RecordBatch], Counts], Iterable[tuple[int, bytes]]]
"""Packs the record batches of an input partition: (task, blob) pairs."""


class RowDecoder(ABC):
    """Decodes records in a worker. It is pickled into the plan.

    observed  name of the observation with the sums of `Counts` of all workers (`Undecoded.observed`); None if Spark has
              counted the records and the workers do not
    """

    observed: str | None = None

    @abstractmethod
    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        """The rows in these batches of records: the wanted columns, and `WALL_CLOCK` if the batches have it.

        Decoded records are added to `counts` if `observed` is a name.
        """

    def packed(self, batches: Iterator[pa.RecordBatch]) -> Generator[tuple[int, bytes], None, Iterator[pa.RecordBatch]]:
        """The blobs in front of these batches, which an earlier worker has packed; returns the batches behind them."""
        yield from ()
        return batches

    def keeping_dictionaries(self, names: frozenset[str]) -> RowDecoder:
        """The row decoder that may leave these columns dictionary-encoded, where they are so in the source."""
        return self


class Undecoded(Protocol):
    """A source of records that workers decode (`plan.Stream.undecoded`); its stream has a DataFrame of rows too."""

    @property
    def contiguous(self) -> bool:
        """Whether one map task reads an unbroken stretch of each partition, in order (frames.contiguous)."""

    @property
    def observed(self) -> str | None:
        """The name of the observation with the counts of its records, None if there is none."""

    def for_workers(
        self, wanted: pa.Schema, observed: str | None = None, pack: Pack | None = None
    ) -> tuple[DataFrame, RowDecoder]:
        """The DataFrame that goes to the workers instead of rows with the columns `wanted`, and its row decoder.

        observed  name of the observation, where another input of the query has `self.observed`
        pack      packs rows with the columns `wanted`: for a worker that has rows before Spark has seen all records
        """


def without_faults(
    records: DataFrame, fault: Column, number: Column, observed: str, fine: Column | None = None
) -> DataFrame:
    """The records without a `fault`. Spark counts all records and the malformed ones in `observedMetrics`.

    number    the number of records
    observed  the name of the observation
    fine      whether a record has no fault, if that is more than a fault that is null
    """
    # The filter is behind the observation, and Spark pushes none through one: a record would be decoded twice.
    counts = [number.alias("records"), F.count_if(fault.isNotNull()).alias("malformed")]
    return records.observe(observed, *counts).where(fault.isNull() if fine is None else fine)


def columns_read(op: Operation, stream: Stream, names: tuple[str, ...]) -> list[str]:
    """Columns of a record that the operation reads, in the order of `names`; all of them if the stream has steps."""
    if stream.steps:
        return list(names)
    used = {*op.key, stream.timestamp, stream.partition, stream.offset, op.deleted, *op.input_columns(names)}
    used |= {*op.other_columns(names), *(op.counts_as_value(names) if op.skips_null_values else ())}
    return [name for name in names if name in used]
