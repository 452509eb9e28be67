"""Times of rows as text, as JSON shows them (`kafka.formats.as_json`).

Spark formats the times of each row anew, which costs more than the rest of the row's JSON. Most rows of a batch share
their times with others, so a worker formats each time once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tidegate.kernel.tuning import DEFAULT
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS
from tidegate.spec.columns import END, START, TIMESTAMP

TIMES = (START, END, TIMESTAMP)
"""Columns of rows, in ms."""

_YEAR_10000 = 253_402_300_800_000


def with_text(schema: pa.Schema) -> pa.Schema:
    """The schema of rows whose times are text."""
    return pa.schema([field.with_type(pa.string()) if field.name in TIMES else field for field in schema])


def as_text(parts: Iterable[pa.Table], most: int = DEFAULT.frame_rows) -> Iterator[pa.Table]:
    """The rows with their times as text, at most `most` at once: numpy's text takes a hundred bytes for each time.

    Null for an end beyond the largest timestamp, as without this module.
    """
    for part in parts:
        for first in range(0, max(part.num_rows, 1), most):
            rows = part.slice(first, most)
            for place, name in enumerate(rows.schema.names):
                if name in TIMES:
                    rows = rows.set_column(place, pa.field(name, pa.string()), texts(rows[name]))
            yield rows


def texts(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Instants of at least 0 (ms) as text: 2026-01-31T23:59:59.123000Z."""
    encoded = times.combine_chunks().dictionary_encode()
    found = encoded.dictionary.to_numpy()
    beyond = found > MAX_TIMESTAMP_MS
    micros = (np.where(beyond, 0, found) * 1000).astype("datetime64[us]")
    # Java writes years of more than four digits with a sign.
    signs = np.where(found >= _YEAR_10000, "+", "")
    written = np.char.add(np.char.add(signs, np.datetime_as_string(micros, unit="us")), "Z")
    return pa.chunked_array([pa.array(written.tolist(), pa.string(), mask=beyond).take(encoded.indices)])
