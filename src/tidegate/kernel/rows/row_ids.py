"""Of which records a row of a join was made, as text (`ROW_ID`): the same in every run that reads the same source.

    record of a source      3@1017           partition 3, offset 1017
    two streams             (3@1017,0@55)    a pair; a side that is missing is empty
    stream with a table     3@1017           the record of the stream, which makes one row at most
    two tables              (,0@55)          the change that made the row, and its side

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
    encoded = array(partition).dictionary_encode()
    names = pa.array([quote(str(name), safe="") for name in encoded.dictionary.to_pylist()], pa.string())
    return pc.binary_join_element_wise(names.take(encoded.indices), array(offset).cast(pa.string()), "@")


def of_input(number: int, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ids of rows of a join that are one of several inputs that were merged."""
    return pc.binary_join_element_wise(pa.scalar(str(number)), ids, ":")


def of_sides(left: pa.Array | pa.ChunkedArray | None, right: pa.Array | pa.ChunkedArray | None) -> pa.ChunkedArray:
    """The ids of rows of two records, or of one of them; null where the id of a record is not known."""
    sides = [_NOBODY if one is None else one for one in (left, right)]
    joined = pc.binary_join_element_wise(*sides, ",")
    return pc.binary_join_element_wise("(", joined, ")", "")
