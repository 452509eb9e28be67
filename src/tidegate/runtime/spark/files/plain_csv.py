"""CSV that the workers read: lines so plain that Arrow reads them exactly as Spark's `from_csv` does.

As of JSON (`kafka.plain`), the other lines are handed back one by one, and Spark reads and judges them: those with
quotes, backslashes or control characters, with spaces beside a separator, and whatever is not written as its type is.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StringType, StructType, TimestampType

from tidegate.runtime.spark.kafka.plain import _INSTANT, _WRITTEN, LONGEST, Reader, joined

OPTIONS = {"timezone", "header", "enforceschema", "inferschema", "sep", "delimiter"}
"""The options of Spark's reader under which lines can be plain."""

_SEPARATORS = {",": ",", ";": ";", "\t": r"\t", "|": r"\|"}
"""Separators that nothing else is written with, as a pattern has them."""


@dataclass(frozen=True)
class CsvReader(Reader):
    """Reads the plain lines of CSV, with `separator` between values."""

    separator: str = ","

    def _plain(self, texts: pa.Array) -> pa.Array:
        pattern = _SEPARATORS[self.separator].join(f"(?:{self._value(each.dataType)})?" for each in self.fields.fields)
        fits = pc.match_substring_regex(texts, rf"\A{pattern}\z")
        return pc.and_(fits, pc.less_equal(pc.binary_length(texts), LONGEST))

    def _value(self, kind: DataType) -> str:
        if isinstance(kind, StringType):
            inner = rf'[^"\\\x00-\x1f\x7f{_SEPARATORS[self.separator]}'
            return f"{inner} ](?:{inner}]*{inner} ])?"
        return _INSTANT if isinstance(kind, TimestampType) else _WRITTEN[type(kind)][0]

    def _fits(self, texts: pa.Array) -> pa.Array:
        return pc.is_valid(texts)

    def _table(self, texts: pa.Array, asked: pa.Schema) -> pa.Table:
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

        lines = joined(texts)
        return read_csv(
            pa.BufferReader(lines),
            ReadOptions(use_threads=False, block_size=lines.size + 1, column_names=asked.names),
            ParseOptions(delimiter=self.separator, quote_char=False, ignore_empty_lines=False),
            ConvertOptions(
                column_types=asked,
                null_values=[""],
                strings_can_be_null=True,
                true_values=["true"],
                false_values=["false"],
                timestamp_parsers=[],
            ),
        )


def separator_of(fields: StructType, separator: str) -> str | None:
    """The separator, if lines of these fields can be plain with it."""
    plain = all(type(each.dataType) in _WRITTEN for each in fields.fields)
    # Of one field, an empty line is no record.
    return separator if plain and len(fields.fields) > 1 and separator in _SEPARATORS else None
