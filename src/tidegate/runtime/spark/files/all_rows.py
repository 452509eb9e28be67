"""Checks that a file was read to its end.

Arrow 26 gives no rows of some columns of lists or maps, where a row group has a single row and its writer made tiny
pages, and ends without an error. Spark reads such files. The metadata of a file has the number of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidegate.errors import InputError


def all_rows(batches: Iterator[pa.RecordBatch], rows: int, path: str) -> Iterator[pa.RecordBatch]:
    """The batches of the file `path`, which has so many `rows`; raises InputError behind the last one if some lack."""
    found = 0
    for batch in batches:
        found += batch.num_rows
        yield batch
    if found != rows:
        raise InputError(
            f"The file {path} has {rows} rows, and Arrow reads {found} of them. It does so with some columns of lists "
            "or maps in tiny pages. Read the files with Spark, by tg.stream over spark.readStream, which needs a new "
            "checkpoint; or write this one anew with the same rows and the default size of pages, under the same "
            "name, and start the query again: it goes on with this batch."
        )
