"""Columns in one piece, and plain columns of a user's table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate.kernel.columns.arrays import array, plain_columns


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_column_in_one_piece(dictionary: bool) -> None:
    """A column of one chunk is not copied: most columns have one."""
    chunk = pa.array(["a", "b", "a"])
    whole = pa.chunked_array([chunk.dictionary_encode() if dictionary else chunk])
    found = array(whole)
    assert isinstance(found, pa.Array)
    assert found.buffers()[1].address == whole.chunk(0).buffers()[1].address
    for chunks in ([], [chunk[:1], chunk[1:]]):
        several = pa.chunked_array(chunks, pa.string())
        found = array(several.dictionary_encode() if dictionary else several)
        assert isinstance(found, pa.Array)
        assert found.to_pylist() == [text for part in chunks for text in part.to_pylist()]


VIEW, TEXT = pa.string_view(), pa.large_string()
ENUM = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.uint8()), pa.array(["a", "b"], VIEW), ordered=True)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["a", None, "b" * 20], VIEW), TEXT),
        (pa.array([b"a", None, b"b" * 20], pa.binary_view()), pa.large_binary()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array([7, None, 7]).dictionary_encode(), pa.int64()),
        (ENUM, TEXT),
        (pa.ListArray.from_arrays([0, 1, 1, 3], ENUM), pa.list_(TEXT)),
        (pa.LargeListArray.from_arrays([0, 1, 1, 3], ENUM), pa.large_list(TEXT)),
        (pa.FixedSizeListArray.from_arrays(ENUM, 1), pa.list_(TEXT, 1)),
        (pa.StructArray.from_arrays([ENUM, pa.array([1, 2, 3])], ["x", "y"]), pa.struct([("x", TEXT), ("y", "int64")])),
        (pa.MapArray.from_arrays([0, 1, 1, 2], pa.array(["k", "l"], VIEW), ENUM[:2]), pa.map_(TEXT, TEXT)),
    ],
    ids=["text", "bytes", "dictionary", "numbers", "enum", "list", "large list", "fixed list", "struct", "map"],
)
def test_columns_of_users_become_plain(column: pa.Array, kind: pa.DataType) -> None:
    rows = pa.table({"x": pa.chunked_array([column, column[1:]]), "n": range(5)})
    found = plain_columns(rows)
    assert found.schema.types == [kind, pa.int64()]
    assert found.to_pylist() == rows.to_pylist()
    assert plain_columns(found) is found
