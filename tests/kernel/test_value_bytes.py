"""The bytes of values of any type, against a plain twin that goes through Python objects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.suppress.value_bytes import byte_sizes

ATOMS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-5, 5)),
    (pa.int64(), st.integers(-5, 5)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.large_binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.decimal128(10, 2), st.sampled_from([Decimal("1.50"), Decimal(0)])),
    (pa.decimal256(50, 2), st.sampled_from([Decimal("1.50"), Decimal(0)])),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.integers(0, 10**15)),
    (pa.null(), st.none()),
]
SHAPES = ("list", "large_list", "fixed", "struct", "map")


@st.composite
def typed(draw: Any, depth: int = 3) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type, and values of it; null among them."""
    if depth == 0 or draw(st.booleans()):
        kind, values = draw(st.sampled_from(ATOMS))
        return kind, st.none() | values
    shape = draw(st.sampled_from(SHAPES))
    if shape == "struct":
        fields = [draw(typed(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        kind = pa.struct([(f"f{i}", kind) for i, (kind, _) in enumerate(fields)])
        return kind, st.none() | st.fixed_dictionaries({f"f{i}": values for i, (_, values) in enumerate(fields)})
    inner, values = draw(typed(depth - 1))
    if shape == "map":
        return pa.map_(pa.int32(), inner), st.none() | st.lists(st.tuples(st.integers(0, 3), values), max_size=3)
    if shape == "fixed":
        return pa.list_(inner, 2), st.none() | st.lists(values, min_size=2, max_size=2)
    make = pa.list_ if shape == "list" else pa.large_list
    return make(inner), st.none() | st.lists(values, max_size=3)


def plainly(kind: pa.DataType, value: Any) -> int:
    if value is None:
        return 0
    if pa.types.is_struct(kind):
        return sum(plainly(field.type, value[field.name]) for field in kind)
    if pa.types.is_map(kind):
        return sum(plainly(kind.key_type, k) + plainly(kind.item_type, v) for k, v in value)
    if pa.types.is_nested(kind):
        return sum(plainly(kind.value_type, item) for item in value)
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    return max(1, kind.bit_width // 8)


@given(data=st.data())
def test_a_value_counts_the_sum_of_its_parts(data: Any) -> None:
    kind, values = data.draw(typed())
    given_ = data.draw(st.lists(values, max_size=6))
    column = pa.array(given_, kind)
    assert byte_sizes(column).tolist() == [plainly(kind, value) for value in given_]
    low = data.draw(st.integers(0, len(given_)))
    assert byte_sizes(column.slice(low)).tolist() == [plainly(kind, value) for value in given_[low:]]


@pytest.mark.parametrize(
    ("column", "sizes"),
    [
        (pa.array(["a", None, "üü"]).dictionary_encode(), [1, 0, 4]),
        (pa.array(["a", None], pa.string_view()), [1, 0]),
        (pa.array([b"abc", None], pa.binary_view()), [3, 0]),
        (pa.array([{}, None], pa.struct([])), [0, 0]),
        (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))), [16, 0]),
    ],
)
def test_other_encodings(column: pa.Array, sizes: list[int]) -> None:
    assert np.array_equal(byte_sizes(column), sizes)
