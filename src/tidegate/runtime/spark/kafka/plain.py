"""JSON that the workers read: objects so plain that Arrow reads them exactly as Spark's `from_json` does.

Spark makes a parser for every record, which costs more than all other work on a short record. So a worker gets the
records as bytes and reads the plain ones by the batch. It hands back the odd ones: with odd numbers or times, nested
deeply, or malformed. Spark reads and judges them, and a second worker puts both together again in their order, on their
way into the map step. The row of a record never depends on its reader (tests/spark/test_kafka_plain.py).

    bytes -> Reader -> odd records, as they came, and one row with all plain ones of a batch
          -> Spark: from_json of the odd ones, malformed ones counted and taken out
          -> Joiner -> rows

While all records are plain, the first worker packs them for the operator itself (`read_and_pack`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegate.kernel.columns.arrays import Flags, flags
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.runtime.spark.kafka.alike import Alike, Field
from tidegate.runtime.spark.kafka.handed_over import AT, arrow_stream, in_one_row, with_plain
from tidegate.runtime.spark.schemas.cursor import decoded
from tidegate.runtime.spark.worker.memory import keep

LONGEST = 50_000
"""Most bytes of a plain record: names and numbers that are too long for Spark do not fit into it."""

FEW = 64
"""So many records are handed back; of more, halves are read to find the record that Arrow cannot read."""

MOST_BYTES = 128 << 20
"""Most bytes that are read at once: Arrow could not count beyond 2 GiB, and a worker needs memory for other things."""

# The grammar of RFC 8259 without white space with line ends, names with escapes, halves of surrogate pairs, and numbers
# beyond a double.
_SPACE = r"[ \t]*"
_PAIR = r"[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = rf'\\["\\/bfnrt]|\\u(?:[0-9a-cefA-CEF][0-9a-fA-F]{{3}}|[dD][0-7][0-9a-fA-F]{{2}}|{_PAIR})'
_STRING = rf'"(?:[^"\\\x00-\x1f]|{_ESCAPE})*"'
_NAME = r'"[^"\\\x00-\x1f]*"'
# Not -0: Spark reads 0.0, and Arrow -0.0.
_NUMBER = r"(?:(?:-?[1-9][0-9]*|0)(?:\.[0-9]+)?|-0\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
_SCALAR = f"(?:null|true|false|{_STRING}|{_NUMBER})"
_MANY_DIGITS = "[0-9]{200}"
"""Spark takes numbers of up to 1,000 characters."""

DAY = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = "Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9]"
INSTANTS = pa.timestamp("us", "UTC")
_FIRST, _BEHIND = (pa.scalar(datetime(year, 1, 1, tzinfo=UTC), INSTANTS) for year in (1900, 2200))
_LENGTHS = pa.array([20, 22, 23, 24, 25, 26, 27], pa.int32())
INSTANT = f"(?:19|20|21)[0-9][0-9]-(?:{DAY})[T ]{_CLOCK}(?:{_ZONE})?"


def _object(value: str) -> str:
    member = f"{_NAME}{_SPACE}:{_SPACE}{value}{_SPACE}"
    return rf"\{{{_SPACE}(?:{member}(?:,{_SPACE}{member})*)?\}}"


def _array(value: str) -> str:
    return rf"\[{_SPACE}(?:{value}{_SPACE}(?:,{_SPACE}{value}{_SPACE})*)?\]"


def _whole(digits: int) -> str:
    return f"(?:0|-?[1-9][0-9]{{0,{digits - 1}}})"


_OBJECT = rf"\A{_object(f'(?:{_SCALAR}|{_object(_SCALAR)}|{_array(_SCALAR)})')}\z"

# By type of a field: the pattern of JSON values that surely fit it, and the type as which Arrow reads them.
_JSON_VALUES: dict[type[DataType], tuple[str, pa.DataType]] = {
    StringType: (_STRING, pa.string()),
    LongType: (_whole(18), pa.int64()),
    IntegerType: (_whole(9), pa.int32()),
    ShortType: (_whole(4), pa.int16()),
    ByteType: (_whole(2), pa.int8()),
    DoubleType: (_NUMBER, pa.float64()),
    BooleanType: ("true|false", pa.bool_()),
    TimestampType: (f'"{INSTANT}"', pa.string()),
}


def readable(fields: StructType) -> bool:
    """Whether objects with these fields can be plain."""
    return all(
        type(field.dataType) in _JSON_VALUES and field.name.isprintable() and not set(field.name) & set('"\\')
        for field in fields.fields
    )


def as_written(spark: SparkSession) -> bool:
    """Whether Spark reads times as they are written: its legacy parser takes .5 for five milliseconds."""
    return str(spark.conf.get("spark.sql.legacy.timeParserPolicy")).upper() != "LEGACY"


class Read(NamedTuple):
    """Records, a mask of the plain ones, and the rows of these: the wanted columns, and `WALL_CLOCK` if it is there."""

    records: pa.RecordBatch
    plain: Flags
    rows: pa.RecordBatch


@dataclass(frozen=True)
class Reader:
    """Reads the plain records of a topic.

    wanted   the columns of a row; those that are neither in `columns` nor `key` come with the record
    fields   the fields of a value
    columns  the field of each column, by name of the column
    key      the column of the record's key, wanted or not, if the key is text; None if the key is not read here
    """

    wanted: pa.Schema
    fields: StructType
    columns: Mapping[str, str]
    key: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep()
        for batch in batches:
            if batch.num_rows:
                yield from self.handed_over(self.read(batch))

    def read(self, batch: pa.RecordBatch) -> Read:
        """The records, of which the plain ones are read."""
        plain, values = self._rows(batch)
        of_plain = batch if plain.all() else batch.filter(pa.array(plain))
        clock = [batch.schema.field(WALL_CLOCK)] if WALL_CLOCK in batch.schema.names else []
        given = {name: self._given(of_plain, name) for name in self.wanted.names if name not in values}
        given |= {field.name: of_plain.column(field.name) for field in clock}
        columns, schema = values | _copied(given), pa.schema([*self.wanted, *clock])
        return Read(batch, plain, pa.record_batch([columns[name] for name in schema.names], schema))

    def handed_over(self, read: Read) -> Iterator[pa.RecordBatch]:
        """The odd records, and then the rows of the plain ones (`HANDED_OVER`)."""
        at = np.arange(read.records.num_rows)
        if not read.plain.all():
            odd = read.records.filter(pa.array(~read.plain))
            yield with_plain(odd, pa.nulls(odd.num_rows, pa.binary()), pa.array(at[~read.plain], pa.int32()))
        placed = pa.schema([*read.rows.schema, (AT, pa.int64())])
        data = arrow_stream(pa.record_batch([*read.rows.columns, pa.array(at[read.plain])], placed))
        yield in_one_row(read.records.schema, data, read.rows.num_rows)

    def _rows(self, batch: pa.RecordBatch) -> tuple[Flags, dict[str, pa.Array]]:
        """A mask of the plain records, and their columns."""
        return self._read(batch.column("value"), self._sound_keys(batch))

    def _sound_keys(self, batch: pa.RecordBatch) -> Flags:
        if self.key is None:
            return np.ones(batch.num_rows, bool)
        keys = batch.column("key")
        return flags(pc.or_(keys.is_null(), _texts(keys).is_valid()))

    def _given(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        return batch.column("key" if name == self.key else name).cast(self.wanted.field(name).type)

    def _read(self, values: pa.Array, may: Flags) -> tuple[Flags, dict[str, pa.Array]]:
        """A mask of the plain records among those of the mask `may`, and their columns."""
        texts = _texts(values)
        may = may & flags(texts.is_valid())
        texts = _those(texts, may)
        if (found := self._alike(texts)) is None:
            may[may], columns = self._parsed(texts)
            return may, columns
        alike, columns = found
        if alike.all():
            return may, columns
        fits, others = self._parsed(texts.filter(pa.array(~alike)))
        read = alike.copy()
        read[~alike] = fits
        may[may] = read
        order = pa.array(np.argsort(np.concatenate([np.flatnonzero(alike), np.flatnonzero(read & ~alike)])))
        return may, {name: pa.concat_arrays([columns[name], others[name]]).take(order) for name in self.columns}

    def _alike(self, texts: pa.Array) -> tuple[Flags, dict[str, pa.Array]] | None:
        """A mask of the texts that are written alike, and their columns; None if too few are (`alike`)."""
        found = Alike(self._fields_of_objects, f"true|false|{_NUMBER}", LONGEST)(texts)
        if found is None:
            return None
        mask, values = found
        try:
            return mask, self._typed_columns(values)
        except pa.ArrowInvalid:  # a time that is not plain
            times = [values[name] for name in values if self._is_time(name)]
            plain = np.logical_and.reduce([flags(pc.fill_null(_is_instant(each), True)) for each in times])
            mask[mask] = plain
            return mask, self._typed_columns({name: each.filter(pa.array(plain)) for name, each in values.items()})

    def _typed_columns(self, values: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.Array]:
        return self._as_columns({name: self._typed(name, column) for name, column in values.items()})

    def _parsed(self, texts: pa.Array) -> tuple[Flags, dict[str, pa.Array]]:
        """A mask of the plain texts, and their columns."""
        may = np.ones(len(texts), bool)
        texts = _narrow(may, texts, self._plain)
        # Arrow alone decides if all records fit: it reads all or nothing.
        columns = self._columns(texts)
        if columns is not None:
            return may, columns
        texts = _narrow(may, texts, self._fits)
        # The only records left that Arrow refuses have a field twice.
        fits, parts = self._by_halves(texts)
        may[may] = fits
        return may, {name: pa.concat_arrays([part[name] for part in parts]) for name in self.columns}

    def _by_halves(self, texts: pa.Array) -> tuple[Flags, list[dict[str, pa.Array]]]:
        columns = self._columns(texts)
        if columns is not None:
            return np.ones(len(texts), bool), [columns]
        if len(texts) <= FEW:
            columns = self._columns(texts.slice(0, 0))
            assert columns is not None
            return np.zeros(len(texts), bool), [columns]
        half = len(texts) // 2
        (fits, parts), (more_fits, more_parts) = (self._by_halves(texts.slice(*at)) for at in ((0, half), (half,)))
        return np.concatenate([fits, more_fits]), parts + more_parts

    def _plain(self, texts: pa.Array) -> pa.Array:
        """Whether each text is plain, as far as a pattern shows without reading the text."""
        return _plain(texts)

    def _values(self, texts: pa.Array) -> Mapping[str, pa.ChunkedArray]:
        """The values of plain texts by field, at least by wanted field; raises ArrowInvalid if one does not fit."""
        # All fields: a value that does not fit makes the record malformed, whether it is wanted or not.
        table = _objects(texts, pa.schema([(field.name, _json_value(field)[1]) for field in self.fields.fields]))
        return {name: self._typed(name, table[name]) for name in self.fields.names}

    def _typed(self, name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        return instants(values) if self._is_time(name) else values

    def _is_time(self, name: str) -> bool:
        return isinstance(self.fields[name].dataType, TimestampType)

    @property
    def _fields_of_objects(self) -> dict[str, Field]:
        """The fields with the types that Arrow reads."""
        written = {field.name: _json_value(field) for field in self.fields.fields}
        return {name: Field(pa.types.is_string(kind), pattern, kind) for name, (pattern, kind) in written.items()}

    def _fits(self, texts: pa.Array) -> pa.Array:
        """Whether each field of ours in plain objects is written as its type is."""
        names = {name: rf'"\Q{name}\E"{_SPACE}:' for name in self.fields.names}
        if not names:
            return pc.is_valid(texts)
        patterns = {name: _json_value(self.fields[name])[0] for name in names}
        kinds = (rf"{start}{_SPACE}(?:null|{patterns[name]}){_SPACE}[,}}]" for name, start in names.items())
        there = pc.count_substring_regex(texts, "|".join(names.values()))
        return pc.equal(there, pc.count_substring_regex(texts, "|".join(kinds)))

    def _columns(self, texts: pa.Array) -> dict[str, pa.Array] | None:
        if not len(texts):
            return {name: pa.array([], self.wanted.field(name).type) for name in self.columns}
        if texts.nbytes > MOST_BYTES:
            return None
        try:
            found = self._values(texts)
        except pa.ArrowInvalid:
            return None
        return self._as_columns(found)

    def _as_columns(self, found: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.Array]:
        return {
            name: as_wanted(found[field], self.wanted.field(name).type).combine_chunks()
            for name, field in self.columns.items()
        }


def _plain(texts: pa.Array) -> pa.Array:
    is_one = pc.and_(pc.less_equal(pc.binary_length(texts), LONGEST), pc.match_substring_regex(texts, _OBJECT))
    if pc.any(pc.greater(pc.binary_length(texts), 200)).as_py():
        is_one = pc.and_(is_one, pc.invert(pc.match_substring_regex(texts, _MANY_DIGITS)))
    return is_one


def _texts(data: pa.Array) -> pa.Array:
    """Bytes as text, null where they are not UTF-8."""
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else decoded(each) for each in data.to_pylist()], pa.string())


def _narrow(may: Flags, texts: pa.Array, which: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The texts for which `which` is true; `may`, the mask of their records, is narrowed to them in place."""
    so = flags(which(texts))
    may[may] = so
    return _those(texts, so)


def _those(values: pa.Array, mask: Flags) -> pa.Array:
    return values if mask.all() else values.filter(pa.array(mask))


def joined(texts: pa.Array) -> pa.Buffer:
    """Texts as the lines of a file."""
    lines: pa.Buffer = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")[
        0
    ].as_buffer()
    return lines


def _objects(texts: pa.Array, asked: pa.Schema) -> pa.Table:
    """A row of the asked fields for each object; raises ArrowInvalid if one has a field twice, or of another type."""
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    lines = joined(texts)
    table = read_json(
        pa.BufferReader(lines),
        ReadOptions(use_threads=False, block_size=lines.size + 1),
        ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
    )
    assert table.num_rows == len(texts)
    return table


def instants(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as timestamps; those without a zone are UTC. Raises ArrowInvalid for a time that is not written plainly."""
    if _in_utc(texts):
        found = texts.cast(INSTANTS)
        first, last = pc.min_max(found).values()
        if first.is_valid and (first.value < _FIRST.value or last.value >= _BEHIND.value):
            raise pa.ArrowInvalid("a time that is not plain")
        return found
    if pc.any(pc.invert(_is_instant(texts))).as_py():
        raise pa.ArrowInvalid("a time that is not plain")
    zoned = pc.match_substring_regex(texts, rf"(?:{_ZONE})\z")
    return pc.binary_join_element_wise(texts, pc.if_else(zoned, "", "Z"), "").cast(INSTANTS)


def _is_instant(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.match_substring_regex(texts, rf"\A{INSTANT}\z")


def _in_utc(texts: pa.ChunkedArray) -> bool:
    """Whether all are as long as 2026-01-31T23:59:59Z, or as such a time with a fraction, and end with Z.

    Arrow reads no other text of these lengths that ends so, except years beyond those of INSTANT. It takes a third of
    the time, most of which the patterns take.
    """
    length = pc.binary_length(texts)
    alike = pc.and_(pc.is_in(length, _LENGTHS), pc.ends_with(texts, "Z"))
    return bool(pc.all(alike, min_count=0).as_py())


def as_wanted(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A time in epoch milliseconds as the timestamp that it is, anything else as it is."""
    if pa.types.is_timestamp(kind) and pa.types.is_integer(values.type):
        there_is = pc.and_(pc.greater_equal(values, -MAX_TIMESTAMP_MS), pc.less_equal(values, MAX_TIMESTAMP_MS))
        values = pc.if_else(there_is, values.cast(pa.int64()), None).cast(pa.timestamp("ms", kind.tz))
    # For Arrow types of lists and maps are equal whatever the names of the fields in them.
    return values if values.type == kind and not pa.types.is_nested(kind) else values.cast(kind)


def _json_value(field: StructField) -> tuple[str, pa.DataType]:
    return _JSON_VALUES[type(field.dataType)]


def _copied(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Copies of the columns. A batch of Spark is one buffer, which a single column of it would keep in memory."""
    if not columns:
        return {}
    batch = pa.record_batch(dict(columns))
    copy = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    return dict(zip(columns, copy.columns, strict=True))
