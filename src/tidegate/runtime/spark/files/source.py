"""A folder of files as a stream: in the order of the files, or as Spark lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tidegate import dsl
from tidegate.arguments import flag_of, is_one_of, location_of, options_of
from tidegate.dsl import KStream
from tidegate.dsl.checks import check_column, check_name
from tidegate.errors import DefinitionError, InputError, in_one_line
from tidegate.plan import RESULT_COLUMNS
from tidegate.runtime.spark.files import formats, listed
from tidegate.runtime.spark.files.columnar import Columns, Files
from tidegate.runtime.spark.files.folder import Folder
from tidegate.runtime.spark.files.glob import names_like
from tidegate.runtime.spark.files.lines import VALUE
from tidegate.runtime.spark.files.listed import PATH, Places
from tidegate.runtime.spark.files.place import OFFSET, PARTITION
from tidegate.runtime.spark.files.reading import ColumnReading, LineReading, Source
from tidegate.runtime.spark.files.stores import Root
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.frames.declared import fields_of
from tidegate.runtime.spark.frames.names import check_apart, free, is_case_sensitive
from tidegate.runtime.spark.kafka.plain import as_written
from tidegate.runtime.spark.row_decoder import Pack
from tidegate.runtime.spark.session.given import check_session

FORMATS = COLUMNAR, LINES = (("parquet", "orc"), ("json", "csv", "text"))
TAKEN = (*RESULT_COLUMNS, PARTITION, OFFSET)
"""Names that a field of a file cannot have if the files are the order; such a field gets `_in` behind its name."""

MOST_FILES = 1000
"""Most files of a micro-batch by default: an offset in the checkpoint names them all."""

# The columns that Spark's format insists on; only the path is read.
_BINARY = "path string, modificationTime timestamp_ltz, length long, content binary"
_NOT_PARQUET = "CANNOT_READ_FILE_FOOTER"
"""Spark's error for a file without a footer of Parquet."""


@dataclass(frozen=True, repr=False)
class FileStream(KStream):
    """A stream of the records of files.

    Attributes:
        frame: The records, with partition and offset if the files are the order.
        dead_letters: For JSON and CSV the lines that cannot be read: file, line, offset, reason, value as bytes; a
            query of its own. None for other formats.

    Examples:
        ```python
        events = tg.files.source(spark, "/data/clicks", key="user", timestamp="ts", format="json")
        broken = events.dead_letters.writeStream.format("parquet").option("path", "/data/broken")
        ```
    """

    frame: DataFrame = field(compare=False, repr=False)
    dead_letters: DataFrame | None = field(compare=False, repr=False, default=None)


def source(
    spark: SparkSession,
    path: str | Path,
    *,
    key: str | Sequence[str],
    timestamp: str,
    format: str = "parquet",
    partition: str | None = None,
    offset: str | None = None,
    ordered: bool | None = None,
    schema: str | StructType | None = None,
    name: str | None = None,
    streaming: bool = True,
    options: Mapping[str, str] | None = None,
    **more: Any,
) -> FileStream:
    """The records of the files under `path`, those that come later too, as a stream. The Python workers read the files.

    Each file is read by one task, so several files make a micro-batch parallel. Spark counts files, not rows
    (`numInputRows`); the records are in `observedMetrics`. A file that cannot be read, or lacks a column, ends the
    query with an InputError that names it; nothing of its batch is stored.

    Args:
        spark: The session.
        path: A folder; any store that both Spark and pyarrow.fs reach (local, HDFS, S3, Google, Azure).
        key: The key column or columns.
        timestamp: A column of a timestamp type; for JSON and CSV also one in epoch milliseconds.
        format: "parquet", "orc", "json" (an object a line) or "csv"; `tg.files.ordered` makes a DataFrame of "text".
        partition: A column of the files that orders records together with `offset`; left out, the files are the order.
        offset: A column with the place of a record in its partition.
        ordered: Whether the files are the order: by modification time and name, and in a file by row. True if left out,
            except for Parquet. A checkpoint goes on with the choice that it was begun with.
        schema: The schema of the files, as for Spark's reader; left out, that of the files that are there.
        name: The name of the stream.
        streaming: False for a static DataFrame of the records that are there now.
        options: maxFilesPerTrigger (1000 if left out), pathGlobFilter, recursiveFileLookup; for JSON and CSV also
            options of Spark's reader about lines: mode, sep, header, timestampFormat. For Parquet that is not `ordered`
            any option of Spark's source of files.
        **more: Other arguments of `tg.stream`, such as `stream_time="min_partition"`.

    Returns:
        The stream.

    Raises:
        DefinitionError: There is no schema and no file to take one from, an option is not known, or a column does not
            fit.
        DefinitionTypeError: `spark` is no session, or `path` no path.

    Examples:
        ```python
        events = tg.files.source(spark, "/data/clicks", key="user", timestamp="ts", format="json")
        ```
    """
    options, path = options_of(options), folder_of(spark, path, "path")
    _check_format(format)
    check_column(timestamp, "timestamp")
    name = check_name(name, "files")
    streaming = flag_of(streaming, "streaming")
    ordered = None if ordered is None else flag_of(ordered, "ordered")
    by_columns = partition is not None or offset is not None
    _check_order(ordered, format, by_columns=by_columns)
    if format == "parquet" and not ordered:
        return _as_spark_lists_them(
            spark,
            path,
            schema,
            options,
            streaming,
            name,
            {"key": key, "timestamp": timestamp, "partition": partition, "offset": offset, **more},
        )
    wanted = _Wanted(spark, path, format, schema, options, streaming, not by_columns)
    reading = wanted.reading(name, timestamp)
    order = (partition, offset) if by_columns else (PARTITION, OFFSET)
    return stream_of(reading, key=key, timestamp=timestamp, name=name, order=order, **more)


def _check_order(ordered: bool | None, format: str, *, by_columns: bool) -> None:
    """Raise DefinitionError if the records cannot have the order that is asked for; text has no columns."""
    if ordered and by_columns:
        raise DefinitionError(
            "`ordered` is True, and `partition` and `offset` are given: the order is that of the files, or in columns. "
            "Leave out one of them."
        )
    if ordered is False and format != "parquet" and not by_columns:
        raise DefinitionError(
            f"`ordered` is False, which only Parquet can be, and `format` is {format!r}. Leave it out, or name columns "
            "as `partition` and `offset`."
        )
    if format == "text":
        raise DefinitionError(
            'A line of text has no columns for key and timestamp. Use tg.files.ordered(spark, path, format="text"), '
            'make them of the column "value", and give the DataFrame to tg.stream with partition="partition", '
            'offset="offset".'
        )


def stream_of(
    reading: ColumnReading | LineReading,
    *,
    key: str | Sequence[str],
    timestamp: str,
    name: str,
    order: tuple[str | None, str | None] = (PARTITION, OFFSET),
    **more: Any,
) -> FileStream:
    """The records of a reading as a stream; key, timestamp and order by their names in the files."""
    names = reading.source.names
    frame = reading.frame()
    partition, offset = order if reading.source.ordered else (_named(each, names) for each in order)
    stream = dsl.stream(
        frame,
        key=[_named(each, names) for each in key] if isinstance(key, list | tuple) else _named(key, names),
        timestamp=_named(timestamp, names),
        partition=partition,
        offset=offset,
        name=name,
        **more,
    )
    dead_letters = reading.dead_letters() if isinstance(reading, LineReading) else None
    return FileStream(replace(stream.node, undecoded=reading), frame, dead_letters)


def ordered(
    spark: SparkSession,
    path: str | Path,
    *,
    format: str,
    schema: str | StructType | None = None,
    streaming: bool = True,
    options: Mapping[str, str] | None = None,
    name: str = "files",
) -> DataFrame:
    """The records of the files under `path` as a DataFrame with the columns `partition` and `offset`.

    For records that need work before they become a stream: `tg.stream(df, partition="partition", offset="offset",
    ...)`. Malformed lines are left out, and counted in `observedMetrics` under "NAME source". A column of the files
    with the name of a result's column, or one of these two names, gets `_in` behind its name.

    Args:
        spark: As of `source`.
        path: As of `source`.
        format: As of `source`; "text" has the one column `value`.
        schema: As of `source`.
        streaming: As of `source`.
        options: As of `source`.
        name: The name in `observedMetrics`.

    Returns:
        The DataFrame.

    Raises:
        DefinitionError: There is no schema and no file to take one from, or an option is not known.
        DefinitionTypeError: As of `source`.

    Examples:
        ```python
        lines = tg.files.ordered(spark, "/data/logs", format="text")
        events = tg.stream(parsed(lines), key="user", timestamp="ts", partition="partition", offset="offset")
        ```
    """
    path = folder_of(spark, path, "path")
    _check_format(format)
    wanted = _Wanted(spark, path, format, schema, options_of(options), flag_of(streaming, "streaming"), True)
    return wanted.reading(check_name(name, "files"), None).frame()


@dataclass(frozen=True)
class _Wanted:
    """The files to read; the fields are arguments of `source`, and `ordered`: whether the files are the order."""

    spark: SparkSession
    path: str
    format: str
    schema: str | StructType | None
    options: Mapping[str, str]
    streaming: bool
    ordered: bool

    def reading(self, name: str, timestamp: str | None) -> ColumnReading | LineReading:
        """The reading that makes rows of the files."""
        formats.check_options(self.options)
        root = Root(qualified(self.spark, self.path))
        if (pattern := formats.option(self.options, "pathGlobFilter", "") or None) is not None:
            names_like(pattern)  # raises now for a broken one
        folder = Folder(root, pattern, formats.flag(self.options, "recursiveFileLookup"))
        folders = self._folders(folder)
        fields = self._fields()
        own = StructType([each for each in fields.fields if self._cased(each.name) not in folders])
        if self.format in LINES:
            # Spark's parsers of lines refuse such names with an error that names neither column.
            check_apart(own.names, self.spark, "The schema of the files has")
        in_folders = StructType([each for each in fields.fields if self._cased(each.name) in folders])
        names = names_of(own.names, in_folders.names, TAKEN if self.ordered else RESULT_COLUMNS)
        zone = formats.option(self.options, formats.ZONE, self._zone)
        cased = is_case_sensitive(self.spark)
        kinds = {each.name: each.type for each in arrow_schema(in_folders)}
        places = Places(root, kinds, zone, frozenset(own.names), cased, self.format in LINES)
        found = Source(root, self._listing(folder, places), own, in_folders, names, self.ordered, zone)
        if self.format in LINES:
            return self._of_lines(found, name, timestamp)
        if not own.names:
            raise DefinitionError(
                f"All columns of `schema`, {', '.join(in_folders.names)}, are in names of folders, and the number of "
                "rows is that of a column in the files. Add one of these to `schema`."
            )
        return ColumnReading(found, Columns(pa.schema([]), self.format, zone=self._zone_of_times()))

    def _of_lines(self, found: Source, name: str, timestamp: str | None) -> LineReading:
        formats.check_lines(self.options)
        legacy = not as_written(self.spark)
        line = None if self.format == "text" else formats.line_format(self.format, self.options, self._zone, legacy)
        mode = formats.mode_of(self.options)
        corrupt = _corrupt(self.spark, self.options)
        time = None if timestamp is None else found.names.get(timestamp)
        return LineReading(found, line, mode, corrupt, time, name)

    def _fields(self) -> StructType:
        if self.format == "text":
            return StructType([StructField(VALUE, StringType())])
        return _schema(self.spark, self.path, self.schema, self.options, self.format)

    def _folders(self, folder: Folder) -> set[str]:
        """The names of folders with a value, as `_cased` gives them."""
        try:
            found = folder.files()
        except InputError as error:
            raise DefinitionError(str(error)) from error
        return {self._cased(name) for each in found for name in folder.values(each.path)}

    def _cased(self, name: str) -> str:
        """The name as Spark compares it with others."""
        return name if is_case_sensitive(self.spark) else name.lower()

    def _listing(self, folder: Folder, places: Places) -> DataFrame:
        if not self.streaming:
            return listed.static(self.spark, folder)
        return listed.streaming(self.spark, folder, most_files(self.options), places)

    def _zone_of_times(self) -> str | None:
        """The zone in which Spark's reader of ORC takes times of a wall clock: the JVM's. None for other formats."""
        if self.format != "orc":
            return None
        try:
            return str(self.spark._jvm.java.util.TimeZone.getDefault().getID())  # type: ignore[union-attr]  # noqa: SLF001
        except (AttributeError, Py4JError, PySparkException):
            return self._zone

    @property
    def _zone(self) -> str:
        return str(self.spark.conf.get("spark.sql.session.timeZone"))


def _as_spark_lists_them(
    spark: SparkSession,
    path: str,
    schema: str | StructType | None,
    options: Mapping[str, str],
    streaming: bool,
    name: str,
    given: Mapping[str, Any],
) -> FileStream:
    """Parquet files by Spark's own source of files, with its batches and its checkpoint."""
    fields = _schema(spark, path, schema, options, "parquet")
    reader = (spark.readStream if streaming else spark.read).options(**options)
    frame = reader.schema(fields).parquet(path)
    stream = dsl.stream(frame, name=name, **given)
    # This format reads no byte of a file if only the path is selected.
    paths = reader.schema(_BINARY).format("binaryFile").load(path).select(PATH)
    return FileStream(replace(stream.node, undecoded=Paths(paths)), frame)


def _named(field: Any, names: Mapping[str, str]) -> Any:
    """The column of a field; another value is returned as it is, and refused later."""
    return names.get(field, field) if isinstance(field, str) else field


def most_files(options: Mapping[str, str]) -> int:
    """Most files of a micro-batch. Raises DefinitionError for an option that is no number from 1 on."""
    given = formats.option(options, "maxFilesPerTrigger", str(MOST_FILES))
    if not given.isdecimal() or int(given) == 0:
        raise DefinitionError(f"`maxFilesPerTrigger` is {given!r}. Use a whole number of files from 1 on.")
    return int(given)


def folder_of(spark: Any, path: Any, argument: str) -> str:
    """The text of `path`, which `argument` gives.

    Raises DefinitionTypeError unless `spark` is a session, and `path` may name a folder.
    """
    check_session(spark)
    return location_of(path, argument)


def _check_format(format: str) -> None:
    if not is_one_of(format, (*COLUMNAR, *LINES)):
        raise DefinitionError(f"`format` is {in_one_line(format)}. Use {', '.join((*COLUMNAR, *LINES))}.")


def names_of(fields: Iterable[str], folders: Iterable[str], taken: tuple[str, ...]) -> dict[str, str]:
    """The column of each field: its name, with `_in` behind it if that is taken."""
    names: dict[str, str] = {}
    for given, also in ((fields, ()), (folders, (VALUE,))):
        for name in given:
            names[name] = free(name, {*taken, *also, *names.values()})
    return names


def _schema(
    spark: SparkSession, path: str, given: str | StructType | None, options: Mapping[str, str], format: str
) -> StructType:
    if given is not None:
        # As for Spark's reader: files may have nulls whatever a schema says of them.
        return fields_of(spark, given).toNullable()
    filters = {n: value for n, value in options.items() if n.lower() in ("pathglobfilter", "recursivefilelookup")}
    if format in LINES:
        filters = {name: value for name, value in options.items() if name.lower() != "maxfilespertrigger"}
    try:
        found = spark.read.options(**filters).format(format).load(path).schema
    except AnalysisException as error:
        raise DefinitionError(
            f"There is no {_called(format)} file at {path!r} to take the columns from. Give them: "
            f'schema="user string, at timestamp". Spark says: {str(error).splitlines()[0]}'
        ) from error
    except Exception as error:  # a bare error of Py4J, or of Spark Connect
        said = next((line.strip() for line in str(error).splitlines() if _NOT_PARQUET in line), None)
        if said is None:
            raise
        raise DefinitionError(
            f"What is at {path!r} is not Parquet. Say what it is: "
            f'tg.files.source(..., format="json"), or choose the Parquet files with '
            f'options={{"pathGlobFilter": "*.parquet"}}. Write a file elsewhere, and move it into the folder when it '
            f"is complete. Spark says: {said}"
        ) from error
    if formats.mode_of(options) != formats.PERMISSIVE:
        # Without the column in which Spark's reader puts malformed lines: here they are dead letters.
        corrupt = _corrupt(spark, options)
        found = StructType([each for each in found.fields if each.name != corrupt or format not in LINES])
    return found


def _corrupt(spark: SparkSession, options: Mapping[str, str]) -> str:
    """The name of the column in which Spark's reader puts malformed lines."""
    of_session = str(spark.conf.get("spark.sql.columnNameOfCorruptRecord", "_corrupt_record"))
    return formats.option(options, "columnNameOfCorruptRecord", of_session)


def _called(format: str) -> str:
    return "Parquet" if format == "parquet" else format.upper()


def qualified(spark: SparkSession, path: str) -> str:
    """`path` with its scheme, as Spark shows it."""
    try:
        session: Any = spark
        jvm = session._jvm  # noqa: SLF001 - Spark has no public way
        made = jvm.org.apache.hadoop.fs.Path(path)
        return str(made.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).makeQualified(made))  # noqa: SLF001
    except (AttributeError, TypeError, Py4JError, PySparkException):
        return path if ":" in path.partition("/")[0] else f"file:{path}"  # Spark Connect


@dataclass(frozen=True)
class Paths:
    """The files of a stream, by their paths (`row_decoder.Undecoded`)."""

    frame: DataFrame

    @property
    def contiguous(self) -> bool:
        """False: two files may have offsets of one partition in turns."""
        return False

    @property
    def observed(self) -> None:
        """None: nobody counts the records."""

    def for_workers(
        self, wanted: pa.Schema, observed: str | None = None, pack: Pack | None = None
    ) -> tuple[DataFrame, Files]:
        return self.frame, Files(wanted)
