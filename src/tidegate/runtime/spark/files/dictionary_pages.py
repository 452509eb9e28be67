"""Strings of Parquet files whose pages hold numbers of values instead of values: they are read faster as numbers.

Arrow looks up the value of each row one by one, unless it is asked for the numbers and the dictionary. To look the
values up afterwards, for all rows at once, takes a third of that time. But each value of a dictionary costs as much as
some rows, so a column with nearly as many values as rows is read as Arrow does it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import log2
from typing import Any

import pyarrow as pa

from tidegate.kernel.columns.arrays import plain

ROWS_A_VALUE = 4
"""Rows of a row group for each value of its dictionary, at least (decision 0075)."""
DICTIONARY_BYTES = 1_100_000
"""Bytes of a dictionary: by default writers stop at a megabyte, and write the values of all further rows."""
LENGTH = 8
"""Assumed bytes of a value in a file without statistics."""

# A writer of version 2 may encode values that are not in its dictionary in ways that Arrow does not read as numbers.
_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}

_AROUND = 200
"""Bytes of the headers of pages."""


def opened(source: Any, **more: Any) -> Any:
    """The `pyarrow.parquet.ParquetFile` of `source`, with `more` options of it.

    Timestamps of 96 bits, which Spark writes by default, are microseconds, as Spark reads them: nanoseconds of 64 bits
    reach from 1677 to 2262, and Arrow does not notice a time beyond.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **more)


def batches(
    file: Any, source: Any, columns: Sequence[str], rows: int, kept: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The record batches of these columns, each of up to `rows` rows, with the types of the file.

    file    the `pyarrow.parquet.ParquetFile` of `source`
    kept    columns that stay dictionary-encoded, if they are read so
    """
    names = of_numbers(file.metadata, file.schema_arrow, columns)
    if not names:
        yield from file.iter_batches(rows, columns=list(columns), use_threads=False)
        return
    with opened(source, metadata=file.metadata, read_dictionary=sorted(names)) as again:
        for batch in again.iter_batches(rows, columns=list(columns), use_threads=False):
            found = zip(batch.schema.names, batch.columns, strict=True)
            read = [column if name in kept else plain(column) for name, column in found]
            yield pa.record_batch(read, batch.schema.names)


def of_numbers(metadata: Any, schema: pa.Schema, columns: Collection[str]) -> set[str]:
    """The names in `columns` of strings or bytes whose pages hold numbers of few values nearly everywhere."""
    # A name with a dot may also be a field of a struct.
    wanted = {
        field.name
        for field in schema
        if field.name in columns
        and "." not in field.name
        and (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
    }
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    # Every row group has the columns in the same order.
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)] if groups else []
    return {
        path
        for at, path in enumerate(paths)
        if path in wanted and all(_has_numbers(group.column(at)) for group in groups)
    }


def _has_numbers(column: Any) -> bool:
    """Whether the pages of a column in a row group hold numbers of few values nearly everywhere.

    A file says neither how many values a dictionary has, nor where its writer has stopped to use the dictionary. With
    more values, or with values in more than a few pages, the column is larger than numbers and such a dictionary.
    """
    rows = column.num_values
    if not (rows and column.has_dictionary_page and set(column.encodings) <= _ENCODINGS):
        return False
    values = max(1.0, rows / ROWS_A_VALUE)
    numbers = rows * max(1.0, log2(values)) / 8
    dictionary = min(DICTIONARY_BYTES, values * (4 + _length(column)))
    return bool(column.total_uncompressed_size <= dictionary + numbers + _AROUND)


def _length(column: Any) -> float:
    """About the bytes of a value: the mean of the smallest and the largest one."""
    found = column.statistics
    if found is None or not found.has_min_max:
        return LENGTH
    return (len(found.min_raw) + len(found.max_raw)) / 2
