"""Of which records a row of a join was made, as text (`ROW_ID`): the same in every run that reads the same source.

    record of a source      3@1017           partition 3, offset 1017
    two streams             (3@1017,0@55)    a pair; a side that is missing is empty
    stream with a table     3@1017           the record of the stream, which makes one row at most
    two tables              (,0@55)          the change that made the row, and its side
    final result            A,7[0,10000      the key, and the bounds of the window

Names of partitions are quoted, so no two lists of records have the same text. The id of a record that is the row of
another join is the text of that row; of several inputs that were merged, behind the number of the input: `0:(3@1017,)`.
"""

from __future__ import annotations

from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import array

_NOBODY = pa.scalar("")


def of_records(partition: pa.ChunkedArray, offset: pa.ChunkedArray) -> pa.Array:
    """The ids of records of a source."""
    return pc.binary_join_element_wise(_quoted(partition), array(offset).cast(pa.string()), "@")


def of_results(keys: pa.Table, bounds: pa.Table) -> pa.Array:
    """The ids of final results: of each a key and a window, whose bounds are in ms."""
    key = pc.binary_join_element_wise(*(_quoted(column) for column in keys.columns), ",")
    window = pc.binary_join_element_wise(*(column.cast(pa.string()) for column in bounds.columns), ",")
    return pc.binary_join_element_wise(key, window, "[")


def _quoted(column: pa.ChunkedArray) -> pa.Array:
    """The values of a key as text without the marks of an id."""
    encoded = array(column).dictionary_encode()
    values = encoded.dictionary
    if not pa.types.is_binary(values.type) and not pa.types.is_large_binary(values.type):
        values = values.cast(pa.string())
    return pa.array([quote(one, safe="") for one in values.to_pylist()], pa.string()).take(encoded.indices)


def of_input(number: int, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ids of rows of a join that are one of several inputs that were merged."""
    return pc.binary_join_element_wise(pa.scalar(str(number)), ids, ":")


def of_sides(left: pa.Array | pa.ChunkedArray | None, right: pa.Array | pa.ChunkedArray | None) -> pa.ChunkedArray:
    """The ids of rows of two records, or of one of them; null where the id of a record is not known."""
    sides = [_NOBODY if one is None else one for one in (left, right)]
    joined = pc.binary_join_element_wise(*sides, ",")
    return pc.binary_join_element_wise("(", joined, ")", "")
