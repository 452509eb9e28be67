"""Makes the rows of a stream of the files of a listing: columns by Arrow, lines by Spark's parsers and by Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType, TimestampType

from tidegate.kernel.columns.arrays import as_schema
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.runtime.spark.files import place
from tidegate.runtime.spark.files.columnar import Columns, OrderedFiles
from tidegate.runtime.spark.files.formats import FAILFAST, PERMISSIVE, LineFormat
from tidegate.runtime.spark.files.lines import FILE, VALUE, Lines, Skipped
from tidegate.runtime.spark.files.place import OFFSET, PARTITION
from tidegate.runtime.spark.files.stores import Root
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS, arrow_schema, spark_schema
from tidegate.runtime.spark.frames.names import col
from tidegate.runtime.spark.kafka.handed_over import AT, HANDED_OVER, PLAIN, FirstWorker, Joiner
from tidegate.runtime.spark.kafka.plain import INSTANTS, Reader
from tidegate.runtime.spark.kafka.read_and_pack import ReadAndPack
from tidegate.runtime.spark.row_decoder import Counts, Pack, RowDecoder, without_faults
from tidegate.spec.columns import OURS

_ROW, _FAULT = OURS + "row", OURS + "fault"


@dataclass(frozen=True)
class Source:
    """The files of a stream, and the columns of its rows.

    listing  the files in their order (`listed.LISTING`)
    fields   the fields in a file, under their names there
    folders  the fields in names of folders
    names    the column of each field
    ordered  whether partition and offset are made of the order of the files
    zone     zone of times without a zone in names of folders: of the option `timeZone` or the session, as in Spark, for
             files; UTC for Delta
    """

    root: Root
    listing: DataFrame
    fields: StructType
    folders: StructType
    names: dict[str, str]
    ordered: bool
    zone: str

    @property
    def own(self) -> dict[str, str]:
        """The field of each column that is in a file."""
        return {self.names[name]: name for name in self.fields.names}

    @property
    def in_folders(self) -> dict[str, str]:
        """The folder of each column that is in names of folders."""
        return {self.names[name]: name for name in self.folders.names}


@dataclass(frozen=True)
class ColumnReading:
    """Files of columns, which the workers read (`row_decoder.Undecoded`).

    columns  reads a file; gets its schema here; its `names` are by field
    """

    source: Source
    columns: Columns

    @property
    def contiguous(self) -> bool:
        """True if the files are the order: a task has files that follow one another."""
        return self.source.ordered

    def frame(self) -> DataFrame:
        """All columns, and the order."""
        source = self.source
        fields = [
            StructField(source.names[f.name], f.dataType) for f in (*source.fields.fields, *source.folders.fields)
        ]
        order = spark_schema(pa.schema(place.ORDER_FIELDS)).fields if source.ordered else []
        wanted = arrow_schema(StructType([*fields, *order]))
        return source.listing.mapInArrow(self._row_decoder(wanted), spark_schema(wanted))

    @property
    def observed(self) -> None:
        """None: nobody counts the records."""

    def for_workers(
        self, wanted: pa.Schema, observed: str | None = None, pack: Pack | None = None
    ) -> tuple[DataFrame, OrderedFiles]:
        return self.source.listing, self._row_decoder(wanted)

    def _row_decoder(self, wanted: pa.Schema) -> OrderedFiles:
        own, folders, in_file = self.source.own, self.source.in_folders, self.columns.names
        in_files = [field for field in wanted if field.name in own]
        if not in_files:  # without any column nobody would know how many rows there are
            name, of_file = next(iter(own.items()))
            in_files = [arrow_schema(StructType([self.source.fields[of_file]])).field(0).with_name(name)]
        columns = replace(
            self.columns, schema=pa.schema(in_files), names={name: in_file.get(of, of) for name, of in own.items()}
        )
        given = {name: folders[name] for name in wanted.names if name in folders}
        return OrderedFiles(self.source.root, wanted, columns, given, self.source.zone)


@dataclass(frozen=True)
class LineReading:
    """Files of lines (`row_decoder.Undecoded`): Arrow reads the plain lines, and Spark's parsers read the others.

    format   the format of a line; None if a line is a column itself, as in the format text
    mode     the treatment of malformed lines (`formats.MODES`)
    corrupt  the column in which Spark's reader puts a line that it could not read, in the mode PERMISSIVE; else null
    time     the column with the event time
    name     the name of the stream, whose malformed lines are counted
    """

    source: Source
    format: LineFormat | None
    mode: str
    corrupt: str
    time: str | None
    name: str

    @property
    def contiguous(self) -> bool:
        """True if the files are the order: a task has files that follow one another, and parsers keep rows in it."""
        return self.source.ordered

    def frame(self) -> DataFrame:
        """The records that can be read, with all columns and the order."""
        columns = self._columns()
        return self._fine(self._judged(self._lines(list(columns))), F.count(F.lit(1))).select(*columns.values())

    @property
    def observed(self) -> str:
        return f"{self.name} source"

    def for_workers(
        self, wanted: pa.Schema, observed: str | None = None, pack: Pack | None = None
    ) -> tuple[DataFrame, RowDecoder]:
        found = [self._columns()[name] for name in wanted.names]
        own = {column: field for column, field in self.source.own.items() if column in wanted.names}
        plain = self._plain_reader(wanted, own)
        if plain is None:
            rows = self._fine(self._judged(self._lines(wanted.names)), F.count(F.lit(1)), observed)
            return rows.select(*found), AsRead(wanted)
        lines = self._line_fields(wanted.names)
        fields = StructType([*lines.fields, *HANDED_OVER.fields])
        # Arrow casts the values of folders, for Spark's parsers too.
        kinds = {name: wanted.field(name).type for name in self.source.in_folders if name in wanted.names}
        reader = plain if pack is None else ReadAndPack(plain, pack)
        read = partial(_plain, replace(self._reader(lines), kinds=kinds), reader)
        judged = self._judged(self.source.listing.mapInArrow(read, fields))
        records = F.sum(F.when(F.col(PLAIN).isNull(), 1).otherwise(F.col(AT)))
        # No more than is needed: an observation makes a row of every record.
        rows = judged.select(_FAULT, *HANDED_OVER.names, *found)
        return self._fine(rows, F.coalesce(records, F.lit(0)), observed).drop(_FAULT), Joiner(wanted)

    def _plain_reader(self, wanted: pa.Schema, own: dict[str, str]) -> Reader | None:
        if self.format is None or self.mode == PERMISSIVE or self.corrupt in own.values():
            return None
        return self.format.plain(wanted, self._written, own)

    @property
    def _written(self) -> StructType:
        """The fields that lines have. As for Spark's reader the one for malformed lines is none of them."""
        return StructType([each for each in self.source.fields.fields if each.name != self.corrupt])

    def dead_letters(self) -> DataFrame:
        """The lines that cannot be read: file, line (the first is 1), offset, reason, value (its bytes)."""
        judged = self._judged(self._lines([], place=True)).where(F.col(_FAULT).isNotNull())
        reason = F.col(_FAULT).alias("reason")
        return judged.select(F.col(FILE).alias("file"), _line().alias("line"), OFFSET, reason, VALUE)

    def _lines(self, names: Iterable[str], *, place: bool = False) -> DataFrame:
        fields = self._line_fields(names, place=place)
        return self.source.listing.mapInArrow(self._reader(fields), fields)

    def _reader(self, fields: StructType) -> Lines:
        skipped = Skipped() if self.format is None else self.format.skipped(self._written)
        source = self.source
        return Lines(
            source.root, arrow_schema(fields), skipped, source.in_folders, kinds=self._in_another_zone, zone=source.zone
        )

    @property
    def _in_another_zone(self) -> dict[str, pa.DataType]:
        """The columns with times of folders, if these are in another zone than the session's, in which Spark casts."""
        source = self.source
        if source.zone == source.listing.sparkSession.conf.get("spark.sql.session.timeZone"):
            return {}
        of_folders = source.in_folders.items()
        return {name: INSTANTS for name, folder in of_folders if source.folders[folder].dataType == TimestampType()}

    def _line_fields(self, names: Iterable[str], *, place: bool = False) -> StructType:
        """The bytes of a line, and each of `names` that is no field of the line; with `place` file and offset."""
        known = {PARTITION: LongType(), OFFSET: LongType(), FILE: StringType()}
        known |= dict.fromkeys(self.source.in_folders, StringType())
        needed = {*names} - set(self.source.own)
        needed |= {FILE, OFFSET} if place or self.mode == FAILFAST else set()
        given = [StructField(name, kind) for name, kind in known.items() if name in needed]
        return StructType([StructField(VALUE, BinaryType()), *given])

    def _judged(self, lines: DataFrame) -> DataFrame:
        """Lines with the row that is read of them, and the reason if there is none (_ROW, _FAULT)."""
        line, fields = F.col(VALUE), self._written
        none = F.lit(None).cast("string")
        if self.format is None:
            return lines.select(
                "*", F.struct(line.cast("string").alias(self.source.fields.names[0])).alias(_ROW), none.alias(_FAULT)
            )
        if self.mode == PERMISSIVE:
            row = self.format.permissive(line, self.source.fields, self.corrupt)
            return lines.select("*", row.alias(_ROW), none.alias(_FAULT))
        rows = lines.select("*", self.format.decoded(line, fields).alias(_ROW))
        fault = self.format.fault(line, F.col(_ROW), fields)
        if self.mode == FAILFAST:
            fault = F.concat(F.col(FILE), F.lit(", line "), _line().cast("string"), F.lit(": "), fault)
        return rows.withColumn(_FAULT, fault)

    def _fine(self, judged: DataFrame, records: Column, observed: str | None = None) -> DataFrame:
        fault = F.col(_FAULT)
        fine: Column | None = None
        if self.mode == FAILFAST:
            said = F.concat(F.lit("tidegate: the mode is FAILFAST, and a line cannot be read. "), fault)
            fine = F.when(fault.isNull(), F.lit(True)).otherwise(F.raise_error(said).cast("boolean"))
        return without_faults(judged, fault, records, observed or self.observed, fine)

    def _columns(self) -> dict[str, Column]:
        """All columns of a row."""
        columns = {name: self._value(name, self.source.fields[field]) for name, field in self.source.own.items()}
        columns |= {
            name: col(name).cast(self.source.folders[folder].dataType)
            for name, folder in self.source.in_folders.items()
        }
        if self.source.ordered:
            columns |= {name: F.col(name) for name in (PARTITION, OFFSET)}
        return {name: column.alias(name) for name, column in columns.items()}

    def _value(self, name: str, field: StructField) -> Column:
        """The column of a field."""
        if self.format is not None and self.mode != PERMISSIVE and field.name == self.corrupt:
            return F.lit(None).cast(field.dataType)  # a malformed line makes no row
        return self._instant(name, F.col(_ROW).getField(field.name), field.dataType)

    def _instant(self, name: str, column: Column, kind: DataType) -> Column:
        """An event time in epoch milliseconds as a timestamp, null beyond its range; other columns as they are."""
        if name != self.time or not isinstance(kind, LongType):
            return column
        return F.when(column.between(-MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS), F.timestamp_millis(column))


@dataclass(frozen=True)
class AsRead(RowDecoder):
    """Takes rows that Spark has read as they are."""

    wanted: pa.Schema

    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            clock = [batch.schema.field(WALL_CLOCK)] if WALL_CLOCK in batch.schema.names else []
            yield as_schema(batch, pa.schema([*self.wanted, *clock]))


def _line() -> Column:
    """The number of a line in its file."""
    return F.col(OFFSET).bitwiseAND(F.lit((1 << place.ROW_BITS) - 1)) + 1


def _plain(lines: Lines, reader: FirstWorker, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from reader(lines(batches))
