"""Strings of Parquet files whose pages hold numbers of values instead of values: they are read faster as numbers.

Arrow looks up the value of each row one by one, unless it is asked for the numbers and the dictionary. To look the
values up afterwards, for all rows at once, takes a third of that time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

MOST_BYTES_A_ROW = 2.5
"""Bytes of a number in a page: a dictionary of a megabyte has at most some 200,000 short values."""
DICTIONARY_BYTES = 1_100_000
"""Bytes of a dictionary: by default writers stop at a megabyte, and write the values of all further rows."""

# Beyond its dictionary a writer of version 2 may put values together in ways that Arrow does not read as numbers.
_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}


def batches(
    file: Any, source: Any, columns: Sequence[str], rows: int, kept: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The record batches of these columns, each of up to `rows` rows, with the types of the file.

    file    the `pyarrow.parquet.ParquetFile` of `source`
    kept    columns that stay dictionary-encoded, if they are read so
    """
    import pyarrow.parquet as pq

    names = set(columns).intersection(of_numbers(file.metadata, file.schema_arrow))
    if not names:
        yield from file.iter_batches(rows, columns=list(columns), use_threads=False)
        return
    with pq.ParquetFile(source, metadata=file.metadata, read_dictionary=sorted(names)) as again:
        for batch in again.iter_batches(rows, columns=list(columns), use_threads=False):
            yield pa.record_batch(
                [
                    column.cast(file.schema_arrow.field(name).type) if name in names and name not in kept else column
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                ],
                batch.schema.names,
            )


def of_numbers(metadata: Any, schema: pa.Schema) -> list[str]:
    """The columns of strings or bytes whose pages hold numbers nearly everywhere, as far as their sizes tell.

    A file does not say where a writer has stopped to use the dictionary. With the values of more than a few rows in
    its pages, a column is larger than numbers and a dictionary can be.
    """
    # A name with a dot may also be a field of a struct.
    kinds = {
        field.name
        for field in schema
        if "." not in field.name and (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
    }
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    # Every row group has the columns in the same order.
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)] if groups else []
    return [
        path
        for at, path in enumerate(paths)
        if path in kinds and all(_has_numbers(group.column(at)) for group in groups)
    ]


def _has_numbers(column: Any) -> bool:
    """Whether the pages of a column in a row group hold numbers nearly everywhere."""
    most = DICTIONARY_BYTES + MOST_BYTES_A_ROW * column.num_values
    return column.has_dictionary_page and set(column.encodings) <= _ENCODINGS and column.total_uncompressed_size <= most
