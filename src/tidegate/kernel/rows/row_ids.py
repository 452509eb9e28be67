"""Ids of rows of a join (`ROW_ID`): the records of a row as text, the same in every run that reads the same source.

    record of a source      3@1017           partition 3, offset 1017
    two streams             (3@1017,0@55)    a pair; a side that is missing is empty
    stream with a table     3@1017           the record of the stream, which makes one row at most
    two tables              (,0@55)          the change that made the row, and its side
                            (,0@55-)         a deletion, where a record may be a deletion and an upsert (`Stream.moves`)
    final result            A,7[0,10000      the key, and the bounds of the window

Names of partitions are quoted, so no two lists of records have the same text. A record that is the row of another join
has the id of that row; if inputs were merged, behind the number of its input: `0:(3@1017,)`.
"""

from __future__ import annotations

from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import array

_NOBODY = pa.scalar("")


def of_records(partition: pa.ChunkedArray, offset: pa.ChunkedArray, deleted: pa.ChunkedArray | None = None) -> pa.Array:
    """The ids of records of a source. `deleted`: which are deletions, where a record may be two changes."""
    ids = pc.binary_join_element_wise(_quoted(partition), array(offset).cast(pa.string()), "@")
    if deleted is None:
        return ids
    return pc.binary_join_element_wise(ids, pc.if_else(pc.fill_null(array(deleted), False), "-", ""), "")


def of_results(keys: pa.Table, bounds: pa.Table) -> pa.Array:
    """The ids of final results, given their keys and the bounds of their windows (ms)."""
    key = pc.binary_join_element_wise(*(_quoted(column) for column in keys.columns), ",")
    window = pc.binary_join_element_wise(*(column.cast(pa.string()) for column in bounds.columns), ",")
    return pc.binary_join_element_wise(key, window, "[")


def _quoted(column: pa.ChunkedArray) -> pa.Array:
    """The values of a key column as text, in which the separators of ids are quoted."""
    encoded = array(column).dictionary_encode()
    values = encoded.dictionary
    if not pa.types.is_binary(values.type) and not pa.types.is_large_binary(values.type):
        values = values.cast(pa.string()).cast(pa.binary())  # Spark's texts may be no UTF-8
    return pa.array([quote(one, safe="") for one in values.to_pylist()], pa.string()).take(encoded.indices)


def of_input(number: int, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ids of rows of a join that is one of several merged inputs."""
    return pc.binary_join_element_wise(pa.scalar(str(number)), ids, ":")


def of_sides(left: pa.Array | pa.ChunkedArray | None, right: pa.Array | pa.ChunkedArray | None) -> pa.ChunkedArray:
    """The ids of rows made of two records, or of one; null where the id of a record is not known."""
    sides = [_NOBODY if one is None else one for one in (left, right)]
    joined = pc.binary_join_element_wise(*sides, ",")
    return pc.binary_join_element_wise("(", joined, ")", "")
