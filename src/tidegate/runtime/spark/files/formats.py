"""Formats of a line of a file, read by Spark's own parsers of single values, and reasons why lines are unreadable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType, TimestampType

from tidegate.errors import DefinitionError
from tidegate.runtime.spark.files.lines import Skipped
from tidegate.runtime.spark.files.plain_csv import CsvReader, Dialect
from tidegate.runtime.spark.frames.names import quoted
from tidegate.runtime.spark.kafka import formats as values
from tidegate.runtime.spark.kafka.formats import MALFORMED
from tidegate.runtime.spark.kafka.plain import Reader, readable

LISTING_OPTIONS = ("maxFilesPerTrigger", "pathGlobFilter", "recursiveFileLookup")
"""Options of Spark's source of files that a source in order has too."""

_SPARKS_OWN = (
    *("latestFirst", "maxFileAge", "maxBytesPerTrigger", "maxCachedFiles", "cleanSource", "sourceArchiveDir"),
    *("fileNameOnly", "modifiedAfter", "modifiedBefore", "ignoreMissingFiles", "ignoreCorruptFiles", "basePath"),
    *("wholetext", "mergeSchema", "datetimeRebaseMode", "int96RebaseMode"),
)

_PLAIN_OPTIONS = (
    *("sep", "delimiter", "quote", "escape", "nullvalue", "header", "enforceschema", "comment"),
    *("inferschema", "samplingratio", "preferdate"),
)
"""Options of CSV under which workers can read lines (`plain_csv.Dialect`, `lines.Skipped`, inference of the schema)."""

ZONE = "timeZone"
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")

MODES = DROP, PERMISSIVE, FAILFAST = ("DROPMALFORMED", "PERMISSIVE", "FAILFAST")
"""Treatments of a malformed line: a dead letter, a row of the readable values, the end of the query."""


@dataclass(frozen=True)
class LineFormat(ABC):
    """The format of a line. `options` are the options of Spark's reader about lines.

    legacy_times  whether Spark reads times by the rules of Spark 2 (spark.sql.legacy.timeParserPolicy)
    """

    options: Mapping[str, str]
    legacy_times: bool = False

    @property
    def _plain_times(self) -> bool:
        """Whether Spark reads times as plain ones are read: without a zone in UTC, and fractions of seconds."""
        return self.options[ZONE] in _UTC and not self.legacy_times

    @abstractmethod
    def decoded(self, line: Column, fields: StructType) -> Column:
        """The line as a struct of `fields` and `MALFORMED`, the text that Spark could not read."""

    @abstractmethod
    def permissive(self, line: Column, fields: StructType, corrupt: str) -> Column:
        """The line as Spark's reader has it in the mode PERMISSIVE."""

    @abstractmethod
    def fault(self, line: Column, decoded: Column, fields: StructType) -> Column:
        """The reason why the line cannot be read, null if it can."""

    @abstractmethod
    def plain(self, wanted: pa.Schema, fields: StructType, columns: Mapping[str, str]) -> Reader | None:
        """The reader of plain lines with Arrow (`kafka.plain.Reader`); None if Spark reads all lines."""

    @abstractmethod
    def skipped(self, fields: StructType) -> Skipped:
        """The lines that are no records."""


class JsonLines(LineFormat):
    """A JSON object a line."""

    def decoded(self, line: Column, fields: StructType) -> Column:
        return values.Json(fields, self.options).decoded(line, fields)

    def permissive(self, line: Column, fields: StructType, corrupt: str) -> Column:
        said = line.cast("string")
        unread = [
            (said if at.name == corrupt else F.lit(None).cast(at.dataType)).alias(at.name) for at in fields.fields
        ]
        read = F.from_json(said, fields, _permissive(self.options, corrupt))
        return F.when(F.is_valid_utf8(said), read).otherwise(F.struct(*unread))

    def fault(self, line: Column, decoded: Column, fields: StructType) -> Column:
        # Bytes that are not UTF-8 stop Spark's reader of files, which reads bytes; from_json reads text.
        fault = values.Json(fields, self.options).fault(line, decoded, fields, "line")
        return F.when(~F.is_valid_utf8(line.cast("string")), F.lit("the line is not UTF-8")).otherwise(fault)

    def plain(self, wanted: pa.Schema, fields: StructType, columns: Mapping[str, str]) -> Reader | None:
        fine = self._plain_times and readable(fields) and list(self.options) == [ZONE]
        return Reader(wanted, fields, columns, None) if fine else None

    def skipped(self, fields: StructType) -> Skipped:
        return Skipped(blank=b" \t\r\n")


class CsvLines(LineFormat):
    """A record of CSV a line: no value has a line end in it."""

    def decoded(self, line: Column, fields: StructType) -> Column:
        wanted = StructType([*fields.fields, StructField(MALFORMED, StringType())])
        return F.from_csv(line.cast("string"), _ddl(wanted), _permissive(self.options, MALFORMED))

    def permissive(self, line: Column, fields: StructType, corrupt: str) -> Column:
        return F.from_csv(line.cast("string"), _ddl(fields), _permissive(self.options, corrupt))

    def fault(self, line: Column, decoded: Column, fields: StructType) -> Column:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields.fields)
        reason = F.lit(f"the line is not CSV of the columns {columns}")
        unread = decoded.isNull() | decoded.getField(MALFORMED).isNotNull()
        return F.when(line.isNotNull() & unread, reason)

    def plain(self, wanted: pa.Schema, fields: StructType, columns: Mapping[str, str]) -> Reader | None:
        dialect = self._dialect
        pattern = dialect.pattern(fields) if self._plain_times and self._has_plain_options else None
        return None if pattern is None else CsvReader(wanted, fields, columns, None, pattern, dialect)

    @property
    def _has_plain_options(self) -> bool:
        """Whether a `Dialect` has all options about values."""
        return all(name == ZONE or name.lower() in _PLAIN_OPTIONS for name in self.options)

    @property
    def _dialect(self) -> Dialect:
        return Dialect(
            self._separator,
            option(self.options, "quote", '"'),
            option(self.options, "escape", "\\"),
            option(self.options, "nullValue", ""),
        )

    @property
    def _separator(self) -> str:
        given = option(self.options, "sep", option(self.options, "delimiter", ","))
        return "\t" if given == "\\t" else given

    def skipped(self, fields: StructType) -> Skipped:
        header = flag(self.options, "header")
        # Java's trim takes all control characters.
        return Skipped(
            blank=bytes(range(0x21)),
            comment=option(self.options, "comment", "").encode() or None,
            header=None if not header else () if flag(self.options, "enforceSchema") else tuple(fields.names),
            separator=self._separator,
            quote=option(self.options, "quote", '"'),
        )


def line_format(name: str, options: Mapping[str, str], zone: str, legacy_times: bool) -> LineFormat:
    """The format with Spark's options; `zone` is for times without a zone, `legacy_times` as in `LineFormat`."""
    own = {"mode", "columnnameofcorruptrecord", "multiline", "encoding", "charset", "linesep", ZONE.lower()}
    own |= {each.lower() for each in LISTING_OPTIONS}
    others = {key: value for key, value in options.items() if key.lower() not in own}
    parse = {ZONE: option(options, ZONE, zone), **others}
    return JsonLines(parse, legacy_times) if name == "json" else CsvLines(parse, legacy_times)


def check_lines(options: Mapping[str, str]) -> None:
    """Raise DefinitionError for options under which lines are no records."""
    if flag(options, "multiLine"):
        raise DefinitionError(
            "multiLine: tg.files reads line by line. Write a record a line, or use tg.stream over spark.readStream "
            "with that option, and partition and offset from the records."
        )
    for wanted, fine in (("encoding", "utf-8"), ("charset", "utf-8"), ("lineSep", "\n")):
        given = option(options, wanted, fine)
        if given.lower() not in (fine, fine.replace("-", "")):
            raise DefinitionError(
                f"{wanted} is {given!r}: tg.files reads UTF-8, and lines that end with a line feed, a carriage return "
                "or both. Write such files, or use tg.stream over spark.readStream."
            )


def check_options(options: Mapping[str, str]) -> None:
    """Raise DefinitionError for options of Spark's source that a source in order does not have."""
    known = {each.lower() for each in _SPARKS_OWN}
    for name in options:
        if name.lower() in known:
            raise DefinitionError(
                f"`options` has {name!r}, which a source of files in order does not have: it has "
                f"{', '.join(LISTING_OPTIONS)} and, for JSON and CSV, what says how a line is read. Use tg.stream over "
                "spark.readStream, which has all of them, with partition and offset from the records."
            )


def option(options: Mapping[str, str], name: str, default: str) -> str:
    """The value of an option, whatever the case of its name."""
    return next((str(value) for key, value in options.items() if key.lower() == name.lower()), default)


def flag(options: Mapping[str, str], name: str) -> bool:
    """The value of an option that is true or false, false by default. Raises DefinitionError for another value."""
    given = option(options, name, "false")
    if given.lower() not in ("true", "false"):
        raise DefinitionError(f"`{name}` is {given!r}. Use true or false.")
    return given.lower() == "true"


def mode_of(options: Mapping[str, str]) -> str:
    """The mode for malformed lines; DROPMALFORMED, a dead letter, by default."""
    given = option(options, "mode", DROP)
    if (mode := given.upper()) not in MODES:
        raise DefinitionError(f"`mode` is {given!r}. Use {', '.join(MODES)}.")
    return mode


def _permissive(options: Mapping[str, str], corrupt: str) -> dict[str, str]:
    return {**options, "mode": PERMISSIVE, "columnNameOfCorruptRecord": corrupt}


def _ddl(fields: StructType) -> str:
    return ", ".join(f"{quoted(each.name)} {_in_sql(each.dataType)}" for each in fields.fields)


def _in_sql(kind: DataType) -> str:
    """The name of a type in SQL, where "timestamp" is what `spark.sql.timestampType` says."""
    return "timestamp_ltz" if isinstance(kind, TimestampType) else kind.simpleString()
