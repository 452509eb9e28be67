"""Spark's side of a source of files (`listed`). Needs Spark 4.2, where a source in Python can bound its batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from tidegate.errors import InputError, in_one_line
from tidegate.runtime.spark.files.listed import Catalog, Check, Listed, Offset, rows, stretches
from tidegate.runtime.spark.worker.gc_freeze import spare_modules


@dataclass
class _Task(InputPartition):
    """The files that one task reads, one behind the other."""

    files: list[Listed]


class Listing(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's interface of a source: it gives offsets in a process of the driver, and paths of files in workers."""

    def __init__(self, catalog: Catalog, limit: int | None, tasks: int, check: Check | None = None) -> None:
        self._catalog, self._limit, self._tasks, self._check = catalog, limit, tasks, check

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._catalog.initial()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._check_kind(start)
        end = self._catalog.latest(start, limit.max_files if isinstance(limit, ReadMaxFiles) else None)
        if (check := self._check) is not None:
            # A batch that is planned needs each of its files for good, under its name.
            for each in self._catalog.between(start, end):
                check(each)
        return end

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._limit is None else ReadMaxFiles(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._catalog.stop_here()

    def partitions(self, start: Offset, end: Offset) -> Sequence[_Task]:
        self._check_kind(end)
        return [_Task(files) for files in stretches(self._catalog.between(start, end), self._tasks)]

    def _check_kind(self, offset: Offset) -> None:
        """Raises InputError for an offset of a source of another kind."""
        if not self._catalog.initial().keys() <= offset.keys():
            raise InputError(
                f"The checkpoint has the offset {in_one_line(offset)} of a source of another kind. A checkpoint goes "
                "on with the kind that it was begun with: files in order, Parquet as Spark lists it, a Delta table, or "
                "Spark's own reader. Make the stream as it was, or begin with a new checkpoint."
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)
        spare_modules()
        yield rows(partition.files)
