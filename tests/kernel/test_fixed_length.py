"""Strings of one length as bytes, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidegate.kernel.columns.fixed_length import as_fixed, as_strings, one_length

KINDS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]


@pytest.mark.parametrize("kind", KINDS)
def test_back_without_a_copy(kind: pa.DataType) -> None:
    """Also for a part of a column."""
    column = pa.array(["ab", "cd", "ef", "gh"]).cast(kind)[1:]
    fixed = as_fixed(column, one_length(column))
    assert fixed.to_pylist() == [b"cd", b"ef", b"gh"]
    assert fixed.buffers()[1].address == column.buffers()[2].address + 2
    back = as_strings(fixed[1:], kind)
    back.validate(full=True)
    assert back.equals(column[1:])


@pytest.mark.parametrize("column", [["a", "bc"], ["", ""], [], ["a", None], [1, 2]])
def test_no_strings_of_one_length(column: list[object]) -> None:
    assert one_length(pa.array(column, pa.int64() if column == [1, 2] else pa.string())) == 0


def test_bytes_that_are_no_strings() -> None:
    with pytest.raises(ValueError, match="2 strings of 1 bytes, of which 1 are null"):
        as_strings(pa.array([b"a", None], pa.binary(1)), pa.string())
    untouched = np.empty(2**31, np.uint8)  # the system gives no memory before a byte is written
    huge = pa.Array.from_buffers(pa.binary(2**30), 2, [None, pa.py_buffer(untouched)])
    with pytest.raises(ValueError, match="2 strings of 1073741824 bytes"):
        as_strings(huge, pa.string())
