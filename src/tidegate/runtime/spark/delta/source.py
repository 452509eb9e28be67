"""A Delta table as a stream whose rows never pass through the JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidegate.arguments import flag_of, options_of
from tidegate.dsl.checks import check_name
from tidegate.errors import DefinitionError, InputError
from tidegate.runtime.spark.delta.log import Log, check_protocol
from tidegate.runtime.spark.delta.table import Columns, Table
from tidegate.runtime.spark.files import columnar, listed
from tidegate.runtime.spark.files.formats import flag, option
from tidegate.runtime.spark.files.reading import ColumnReading, Source
from tidegate.runtime.spark.files.source import (
    TAKEN,
    FileStream,
    folder_of,
    most_files,
    names_of,
    qualified,
    stream_of,
)
from tidegate.runtime.spark.files.stores import Root

OPTIONS = ("maxFilesPerTrigger", "startingVersion", "ignoreDeletes", "skipChangeCommits")


def source(
    spark: SparkSession,
    table: str | Path,
    *,
    key: str | Sequence[str],
    timestamp: str,
    name: str | None = None,
    streaming: bool = True,
    options: Mapping[str, str] | None = None,
    **more: Any,
) -> FileStream:
    """The rows of a Delta table, those that are appended later too, as a stream.

    The order is that of the table: first its files as they are now, by the time at which they were written and by name,
    then version by version, each in the order of its log, and in a file by row. The Python workers read the files.

    Columns that are added later are null in older files; the stream has the columns that the table has now. A commit
    that deletes or changes rows ends the query with an InputError, unless an option passes over it. So does a column
    that is dropped, renamed or of another type while the query runs. Rows that deletion vectors have deleted before are
    not in the stream.

    Args:
        spark: The session.
        table: The folder of the table, in any store that both Spark and pyarrow.fs reach.
        key: The key column or columns.
        timestamp: The column with the event time.
        name: The name of the stream.
        streaming: False for a static DataFrame of the table as it is now.
        options: startingVersion, a number or "latest": the rows of this version's commit and later ones alone;
            maxFilesPerTrigger (1000 if left out); ignoreDeletes and skipChangeCommits, as in Delta's own source.
        **more: Other arguments of `tg.stream`, such as `stream_time="min_partition"`.

    Returns:
        The stream.

    Raises:
        DefinitionError: The folder is no table, or an option is not known.
        DefinitionTypeError: `spark` is no session, or `table` no path.

    Examples:
        ```python
        orders = tg.delta.source(spark, "/data/orders", key="user", timestamp="ts", options={"startingVersion": "0"})
        ```
    """
    options, streaming = options_of(options), flag_of(streaming, "streaming")
    table = folder_of(spark, table, "table")
    unknown = [each for each in options if each.lower() not in {known.lower() for known in OPTIONS}]
    if unknown:
        raise DefinitionError(
            f"`options` has {', '.join(map(repr, unknown))}, which tg.delta.source does not have: it has "
            f"{', '.join(OPTIONS)}. Use tg.stream over spark.readStream, which has all of Delta's."
        )
    catalog, columns = _catalog(Log(Root(qualified(spark, table))), options)
    most = most_files(options)
    listing = listed.streaming(spark, catalog, most) if streaming else listed.static(spark, catalog)
    partitions = StructType([each for each in columns.fields.fields if each.name in columns.partitions])
    in_files = StructType([each for each in columns.fields.fields if each.name not in columns.partitions])
    names = names_of(in_files.names, partitions.names, TAKEN)
    found = Source(catalog.log.root, listing, in_files, partitions, names, ordered=True, zone="UTC")
    reading = ColumnReading(
        found, columnar.Columns(pa.schema([]), "parquet", columns.physical, sparse=True, ids=columns.ids)
    )
    return stream_of(reading, key=key, timestamp=timestamp, name=check_name(name, "delta"), **more)


def _catalog(log: Log, options: Mapping[str, str]) -> tuple[Table, Columns]:
    try:
        now = log.snapshot()
        check_protocol(now.protocol, log.root)
        columns = Columns.of(now.metadata, log)
    except InputError as error:
        raise DefinitionError(str(error)) from error
    nested = [each.name for each in columns.fields.fields if _has_struct(each.dataType)]
    if nested and (columns.ids or any(name != physical for name, physical in columns.physical.items())):
        raise DefinitionError(
            f"{log.root.uri} has columns by other names or by numbers in its files (delta.columnMapping.mode), and "
            f"{', '.join(nested)} with fields of their own, which tidegate does not map. Use tg.stream over "
            "spark.readStream."
        )
    starting = option(options, "startingVersion", "")
    if starting and starting != "latest" and not starting.isdecimal():
        raise DefinitionError(f'`startingVersion` is {starting!r}. Use the number of a version, or "latest".')
    first = now.version + 1 if starting == "latest" else int(starting) if starting else None
    if first is not None and first > now.version + 1:
        raise DefinitionError(f"`startingVersion` is {starting}, and {log.root.uri} has version {now.version}.")
    deletes, changes = flag(options, "ignoreDeletes"), flag(options, "skipChangeCommits")
    return Table(log, now.metadata["id"], columns, now.version, first, deletes, changes), columns


def _has_struct(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_struct(kind.elementType)
    if isinstance(kind, MapType):
        return _has_struct(kind.keyType) or _has_struct(kind.valueType)
    return isinstance(kind, StructType)
