"""Streams whose records become rows in the Python workers: what Spark hands over for them, and who makes rows of it.

Rows cost more on their way out of the JVM, and being made there, than all that tidegate does with them (decision 0009).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from tidegate.plan import Operation, Stream


@dataclass
class Counts:
    """Of the records that a worker has opened: all of them, and those of which there is no row."""

    records: int = 0
    malformed: int = 0


class Opener(ABC):
    """Makes rows in a worker. It is pickled into the plan.

    observed  the name of the observation with the sums of what all workers count (`Raw.observed`); None if Spark has
              counted the records, so that the workers do not
    """

    observed: str | None = None

    @abstractmethod
    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        """The rows in what Spark handed over: the wanted columns, and `WALL_CLOCK` if it came along.

        What is opened is added to `counts` if it is observed.
        """


class Raw(Protocol):
    """What a stream holds of its source besides a DataFrame of rows (`plan.Stream.raw`)."""

    @property
    def contiguous(self) -> bool:
        """Whether one map task reads an unbroken stretch of each partition, in order (frames.contiguous)."""

    @property
    def observed(self) -> str | None:
        """The name of the observation with the counts of its records, None if there is none."""

    def handed_over(self, wanted: pa.Schema, observed: str | None = None) -> tuple[DataFrame, Opener]:
        """What goes to the workers instead of rows with these columns, and who opens it.

        observed  the name of the observation here, where another input of the query has its own name
        """


def columns_read(op: Operation, stream: Stream, names: tuple[str, ...]) -> list[str]:
    """Which columns of a record the operation needs, in the order of `names`; all of them before a step."""
    if stream.steps:
        return list(names)
    used = {*op.key, stream.timestamp, stream.partition, stream.offset, op.deleted, *op.input_columns(names)}
    used |= {*op.other_columns(names), *(op.counts_as_value(names) if op.skips_null_values else ())}
    return [name for name in names if name in used]
