"""Parquet files as a stream whose rows never pass through the JVM.

Spark decides which files a micro-batch has and remembers them in the checkpoint, as for any file stream; what it hands
to a Python worker is their paths, and the worker reads the columns it needs with Arrow. A DataFrame that reads the same
files hands over every row, which costs more than all that tidegate does with it (benchmarks/final_results.py has both).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegate import dsl
from tidegate.dsl import KStream
from tidegate.errors import DefinitionError, InputError
from tidegate.kernel.rows.map_filter import WALL_CLOCK

PATH = "path"
# What Spark's format insists on; of these only the path is read.
_BINARY = "path string, modificationTime timestamp, length long, content binary"
_BATCH_ROWS = 1 << 17
_NOT_PARQUET = "CANNOT_READ_FILE_FOOTER"
"""What Spark says where it finds no footer of Parquet."""
# Hadoop's names of stores that Arrow knows under another one.
_STORES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}


def source(
    spark: SparkSession,
    path: str,
    *,
    key: str | Sequence[str],
    timestamp: str,
    partition: str | None = None,
    offset: str | None = None,
    schema: str | StructType | None = None,
    name: str | None = None,
    streaming: bool = True,
    options: Mapping[str, str] | None = None,
    **more: Any,
) -> KStream:
    """The records of the Parquet files under `path`, those that come later too, as a stream.

    The same as `tg.stream(spark.readStream.parquet(path), ...)`, faster: the Python workers read the files. Each file
    is read by one task, a row group at a time, so several files make a micro-batch parallel.

    path       a folder; any store that both Spark and pyarrow.fs reach (local, HDFS, S3, Google, Azure)
    schema     of the files, as for Spark's reader; that of the files that are there if left out
    streaming  False for a static DataFrame of what is there now
    options    what else Spark's file source knows: maxFilesPerTrigger, latestFirst, cleanSource, pathGlobFilter
    more       what else `tg.stream` takes, such as stream_time="min_partition"

    Spark counts files, not rows (`numInputRows`); the records are in `observedMetrics`. Raises DefinitionError without
    a schema or a file to take one from, and for columns as `tg.stream` does. A file that is not Parquet, or lacks a
    column, ends the query with an InputError that names it; nothing of its batch is stored.
    """
    fields = _schema(spark, path, schema, options or {})
    reader = (spark.readStream if streaming else spark.read).options(**(options or {}))
    frame = reader.schema(fields).parquet(path)
    stream = dsl.stream(
        frame, key=key, timestamp=timestamp, partition=partition, offset=offset, name=name or "files", **more
    )
    # This format reads no byte of a file of which only the path is asked for.
    paths = reader.schema(_BINARY).format("binaryFile").load(path).select(PATH)
    return KStream(replace(stream.node, raw=Paths(paths)))


def _schema(spark: SparkSession, path: str, given: str | StructType | None, options: Mapping[str, str]) -> StructType:
    if isinstance(given, StructType):
        return given
    if given is not None:
        return spark.createDataFrame([], given).schema
    filters = {name: value for name, value in options.items() if name in ("pathGlobFilter", "recursiveFileLookup")}
    try:
        return spark.read.options(**filters).parquet(path).schema
    except AnalysisException as error:
        raise DefinitionError(
            f"There is no Parquet file at {path!r} to take the columns from. Give them: "
            f'schema="user string, at timestamp". Spark says: {str(error).splitlines()[0]}'
        ) from error
    except Exception as error:  # a bare error of Py4J, or of Spark Connect
        if _NOT_PARQUET not in str(error):
            raise
        raise DefinitionError(
            f"What is at {path!r} is not Parquet, and tg.files.source reads Parquet alone. Read other formats with "
            "Spark: tg.stream(spark.readStream.schema(...).json(path), ...), or choose the Parquet files with "
            f'options={{"pathGlobFilter": "*.parquet"}}. Spark says: {_line_with(_NOT_PARQUET, str(error))}'
        ) from error


def _line_with(words: str, text: str) -> str:
    return next(line.strip() for line in text.splitlines() if words in line)


@dataclass(frozen=True)
class Paths:
    """The files of a stream, by their paths (`raw.Raw`)."""

    frame: DataFrame

    @property
    def contiguous(self) -> bool:
        """No: two files may hold offsets of one partition in turns."""
        return False

    def handed_over(self, wanted: pa.Schema) -> tuple[DataFrame, Files]:
        return self.frame, Files(wanted)


@dataclass(frozen=True)
class Files:
    """Opens the files whose paths come in; rows go out with the columns of `schema`."""

    schema: pa.Schema

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of all files, and in each the wall clock that came with its path, if one did."""
        for batch in batches:
            clocks = batch.column(WALL_CLOCK) if WALL_CLOCK in batch.schema.names else None
            for at, path in enumerate(batch.column(PATH).to_pylist()):
                for rows in self._of_file(path):
                    if clocks is not None:
                        rows = rows.append_column(WALL_CLOCK, pa.repeat(clocks[at], rows.num_rows))
                    yield rows

    def _of_file(self, path: str) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(_opened(path)) as file:
                self._check_columns(path, file.schema_arrow)
                for rows in file.iter_batches(_BATCH_ROWS, columns=self.schema.names, use_threads=False):
                    if rows.num_rows:
                        yield self._typed(path, rows.select(self.schema.names))
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"The file {path} cannot be read as Parquet: {error}. Put a good one in its place, under the same "
                "name, and start the query again: it goes on with this batch."
            ) from error

    def _check_columns(self, path: str, found: pa.Schema) -> None:
        for name in self.schema.names:
            if name not in found.names:
                raise InputError(
                    f"The file {path} has no column {name!r}, only {', '.join(found.names)}. Write it with that one; "
                    "tg.stream(spark.readStream.parquet(...)) would take nulls for it, or the values in names of "
                    "folders such as day=2026-01-01."
                )

    def _typed(self, path: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.schema.equals(self.schema):
            return rows
        columns = []
        for field, column in zip(self.schema, rows.columns, strict=True):
            try:
                # Spark's timestamps are microseconds; what is finer is cut off.
                columns.append(column.cast(field.type, safe=not pa.types.is_timestamp(field.type)))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    f"The file {path} has a column {field.name!r} that is {column.type}, and the stream's is "
                    f"{field.type}: {error}. Write it with that type, or give `schema` with one that all files fit."
                ) from error
        return pa.record_batch(columns, schema=self.schema)


def _opened(path: str) -> Any:
    """What ParquetFile takes: a local path, or a file of the store that the path's scheme names."""
    scheme, _, rest = path.partition(":")
    if scheme == "file":
        return re.sub("^/*", "/", rest)
    from pyarrow import fs

    try:
        store, inside = fs.FileSystem.from_uri(f"{_STORES.get(scheme, scheme)}:{rest}")
    except pa.ArrowInvalid as error:
        raise InputError(
            f"Arrow knows no store for {path}: {error}. Use tg.stream(spark.readStream.parquet(...)), which reads "
            "through Spark."
        ) from error
    return store.open_input_file(inside)
