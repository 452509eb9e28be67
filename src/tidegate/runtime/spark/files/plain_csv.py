"""CSV that the workers read: lines so plain that Arrow reads them exactly as Spark's `from_csv` does.

Plain lines match a pattern of the whole line, made of the schema: each value is written so that it surely fits its
type, with or without quotes around it. A line with too few values or too many, with an escape, a quote inside a value
or an odd number is not plain. Spark reads and judges it, as in `kafka.plain` for JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tidegate.runtime.spark.kafka.plain import DAY, INSTANT, LONGEST, Reader, instants, joined

MOST_FIELDS = 100
"""Most fields of a plain line: a pattern for more would need more memory than patterns may have."""

_SEPARATORS = ",;|\t~^"
"""Separators of plain lines: none is part of a number or a time."""

_DIGITS = "-?[0-9]{1,19}(?:[.][0-9]{1,25})?"

_DATE = f"(?:19|20|21)[0-9][0-9]-(?:{DAY})"

# By type of a field: the pattern of CSV values that surely fit it, and the type as which Arrow reads them. Decimals and
# strings are made in `_csv_value`.
_CSV_VALUES: dict[type[DataType], tuple[str, pa.DataType]] = {
    LongType: ("-?[0-9]{1,18}", pa.int64()),
    IntegerType: ("-?[0-9]{1,9}", pa.int32()),
    ShortType: ("-?[0-9]{1,4}", pa.int16()),
    ByteType: ("-?[0-9]{1,2}", pa.int8()),
    DoubleType: (f"{_DIGITS}(?:[eE][+-]?[0-9]{{1,2}})?", pa.float64()),
    FloatType: (f"{_DIGITS}(?:[eE][+-]?0?[0-9])?", pa.float32()),
    BooleanType: ("true|false|True|False|TRUE|FALSE", pa.bool_()),
    DateType: (_DATE, pa.date32()),
    TimestampType: (INSTANT, pa.timestamp("us", "UTC")),
}

_INSTANTS = (pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string())
"""Times are read as the first of these that all of them fit: each with a zone, each without, some with one."""


@dataclass(frozen=True)
class Dialect:
    """Separator, quote and escape of the values of a line, and the text of a null."""

    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""

    @property
    def readable(self) -> bool:
        """Whether lines can be plain. Spark reads other dialects."""
        return (
            len(self.separator) == 1
            and self.separator in _SEPARATORS
            and self.quote in ('"', "'")
            and self.escape in ("\\", self.quote)
            and re.fullmatch(r"\\?[A-Za-z0-9_.\-]{0,40}", self.null) is not None
        )

    def pattern(self, fields: StructType) -> str | None:
        """The pattern that plain lines of `fields` match; None if no line is plain."""
        values = [_csv_value(field.dataType) for field in fields.fields]
        unique = len(set(fields.names)) == len(values)
        if not self.readable or not unique or not 0 < len(values) <= MOST_FIELDS or None in values:
            return None
        made = rf"\A{_one(self.separator).join(self._value(value) for value in values if value is not None)}\z"
        try:
            pc.match_substring_regex(pa.array([""]), made)
        except pa.ArrowInvalid:
            return None
        return made

    def _value(self, written: tuple[str, pa.DataType]) -> str:
        """The pattern of a value or a null. Empty quotes are not plain: with `nullValue` they differ from a null."""
        pattern, kind = written
        quote, escape = _one(self.quote), _one(self.escape)
        if kind == pa.string():
            bare = rf"[^{_one(self.separator)}{quote}\x00-\x1f\x{{feff}}]*"
            return rf"(?:{bare}|{quote}[^{quote}{escape}\x00-\x1f]+{quote})"
        null = "".join(map(_one, self.null))
        return f"(?:|{null}|(?:{pattern})|{quote}(?:{pattern}){quote})"


@dataclass(frozen=True)
class CsvReader(Reader):
    """Reads the plain lines of CSV files.

    pattern  the pattern of plain lines
    dialect  the dialect of the lines
    """

    pattern: str
    dialect: Dialect

    def _plain(self, texts: pa.Array) -> pa.Array:
        return pc.and_(pc.less_equal(pc.binary_length(texts), LONGEST), pc.match_substring_regex(texts, self.pattern))

    def _alike(self, texts: pa.Array) -> None:
        return None  # lines of CSV are no objects

    def _fits(self, texts: pa.Array) -> pa.Array:
        return pc.is_valid(texts)  # the pattern has checked the values

    def _values(self, texts: pa.Array) -> Mapping[str, pa.ChunkedArray]:
        wanted = {name: self._kind(name) for name in self.columns.values()}
        if not wanted:
            return {}
        lines = joined(texts)
        times = [name for name in wanted if isinstance(self.fields[name].dataType, TimestampType)]
        for kind in _INSTANTS:
            try:
                table = self._table_of(lines, wanted | dict.fromkeys(times, kind))
                break
            except pa.ArrowInvalid:
                if not times or kind == _INSTANTS[-1]:
                    raise
        assert table.num_rows == len(texts)
        mixed = times if kind == pa.string() else ()
        return {name: instants(table[name]) if name in mixed else table[name] for name in wanted}

    def _table_of(self, lines: pa.Buffer, kinds: Mapping[str, pa.DataType]) -> pa.Table:
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

        return read_csv(
            pa.BufferReader(lines),
            ReadOptions(use_threads=False, block_size=lines.size + 1, column_names=self.fields.names),
            ParseOptions(delimiter=self.dialect.separator, quote_char=self.dialect.quote, ignore_empty_lines=False),
            ConvertOptions(
                check_utf8=False,
                column_types=dict(kinds),
                include_columns=list(kinds),
                null_values=["", self.dialect.null],
                strings_can_be_null=True,
                true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            ),
        )

    def _kind(self, name: str) -> pa.DataType:
        written = _csv_value(self.fields[name].dataType)
        assert written is not None
        return written[1]


def _one(character: str) -> str:
    """The pattern of one character, whatever the character means in patterns."""
    return rf"\x{{{ord(character):x}}}"


def _csv_value(kind: DataType) -> tuple[str, pa.DataType] | None:
    """The pattern of a type's values in a plain line, and their Arrow type; None if no line with them is plain."""
    if isinstance(kind, DecimalType):
        whole = kind.precision - kind.scale
        part = f"(?:[.][0-9]{{1,{kind.scale}}})?" if kind.scale else ""
        return (f"-?[0-9]{{1,{whole}}}{part}", pa.decimal128(kind.precision, kind.scale)) if whole > 0 else None
    if kind == StringType():
        return "", pa.string()
    return _CSV_VALUES.get(type(kind))
