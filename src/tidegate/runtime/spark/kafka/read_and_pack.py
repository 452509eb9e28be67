"""Plain records are packed by the worker that reads them, as long as all records of its map task are plain.

Rows would otherwise pass through Spark on their way to a second worker: 56 bytes for each record of D1. A blob has a
tenth of that or less. Odd records have to come back from Spark before the records behind them are packed. So from the
first batch with an odd record on, the worker hands over rows as in `plain`.

    bytes -> Reader -> rows of plain records -> pack -> blobs
          -> Spark: records counted
          -> the second worker passes the blobs on, and packs what is behind them
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.runtime.spark.kafka.handed_over import in_one_row
from tidegate.runtime.spark.kafka.plain import Read, Reader
from tidegate.runtime.spark.row_decoder import Counts, Pack


@dataclass(frozen=True)
class ReadAndPack:
    """The first worker of a map task.

    pack  packs rows with the columns `reader.wanted`
    """

    reader: Reader
    pack: Pack

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plain = _PlainBatches(self.reader, batches)
        counted = 0  # each record is in a slice that has blobs, even if a filter takes it out
        for task, blob in self.pack(iter(plain), Counts()):
            yield in_one_row(plain.schema, blob, plain.records - counted, task)
            counted = plain.records
        if plain.odd is not None:
            yield from self.reader.handed_over(plain.odd)
            yield from self.reader(batches)


class _PlainBatches:
    """The rows of batches up to the first one with an odd record.

    records  the number of these records
    schema   the schema of the batches
    odd      the first batch with an odd record
    """

    def __init__(self, reader: Reader, batches: Iterator[pa.RecordBatch]) -> None:
        self._reader, self._batches = reader, batches
        self.records = 0
        self.schema = pa.schema([])
        self.odd: Read | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if not batch.num_rows:
                continue
            read = self._reader.read(batch)
            if not read.plain.all():
                self.odd = read
                return
            self.schema = read.records.schema
            self.records += batch.num_rows
            yield read.rows
