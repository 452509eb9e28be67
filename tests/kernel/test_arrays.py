"""Columns in one piece."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate.kernel.columns.arrays import array


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
