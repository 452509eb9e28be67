"""Numbers of strings are the indices of Arrow's dictionary encoding."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns import factorize
from tidegate.kernel.columns.hash64 import hash64


def in_pieces(array: pa.Array, pieces: int = 3) -> pa.ChunkedArray:
    """`array` in `pieces` chunks of unlike length and an empty chunk."""
    cuts = [0, *(len(array) * (2**place - 1) // 2**pieces for place in range(1, pieces)), len(array)]
    chunks = [array[low:high] for low, high in zip(cuts, cuts[1:], strict=False)]
    return pa.chunked_array([*chunks[:1], array[:0], *chunks[1:]], array.type)


def same_as_arrow(array: pa.Array) -> None:
    found = factorize.numbered(in_pieces(array))
    assert found is not None
    encoded = array.dictionary_encode()
    np.testing.assert_array_equal(found[0], encoded.indices.to_numpy())
    assert found[1] == len(encoded.dictionary)


def many(values: list[bytes], distinct: int, rows: int = 30_000, seed: int = 1) -> list[bytes]:
    """Mostly distinct rows, with each of `values` among them several times."""
    rng = np.random.default_rng(seed)
    filler = [b"%x" % number for number in rng.integers(0, distinct, rows)]
    for place in rng.integers(0, rows, 20 * len(values)):
        filler[place] = values[place % len(values)]
    return filler


@given(
    st.lists(st.binary(max_size=factorize.LONGEST), min_size=1, max_size=40),
    st.integers(25_000, 10**9),
    st.integers(0, 2_000),
    st.integers(0, 99),
)
def test_any_short_values(values: list[bytes], distinct: int, skipped: int, seed: int) -> None:
    same_as_arrow(pa.array(many(values, distinct, seed=seed), pa.binary())[skipped:])


def test_zeros_at_the_end_count() -> None:
    same_as_arrow(pa.array(many([b"", b"\0", b"\0\0", b"a", b"a\0", b"a" * 8, b"a" * 8 + b"\0"], 10**6), pa.binary()))


def test_strings_of_one_length() -> None:
    same_as_arrow(pa.array([f"user{number:07d}" for number in np.random.default_rng(2).integers(0, 50_000, 90_000)]))


@given(st.integers(1, 40), st.integers(0, 9), st.booleans())
def test_a_hash_depends_on_the_value_alone(length: int, first: int, others: bool) -> None:
    """Values of one length lie evenly in their buffer, and are read without a lookup for each."""
    rng = np.random.default_rng(length)
    values = [bytes(rng.integers(0, 256, length, np.uint8)) for _ in range(50)]
    mixed = [part for value in values for part in (value, b"x" * (length // 2))] if others else values
    array = pa.array(mixed, pa.binary())[first:]
    one_by_one = [hash64(pa.array([value], pa.binary()))[0] for value in array.to_pylist()]
    assert hash64(array).tolist() == one_by_one


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a"] * 100),
        pa.array([str(number % 50) for number in range(20_000)]),
        pa.array([None, *map(str, range(20_000))]),
        pa.array(["x" * 33, *map(str, range(20_000))]),
        pa.array(range(20_000)),
        pa.array(map(str, range(20_000)), pa.large_string()),
    ],
)
def test_what_is_left_to_arrow(array: pa.Array) -> None:
    assert factorize.numbered(in_pieces(array)) is None


def test_hashes_that_meet_are_told_apart_or_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    array = pa.array([str(number % 9_000) for number in range(20_000)])
    whole = factorize.hashed_words

    def meeting(of: int) -> None:
        def hashed(values: pa.ChunkedArray, longest: int) -> object:
            found = whole(values, longest)
            assert found is not None
            return found[0] % np.uint64(of), found[1]

        monkeypatch.setattr(factorize, "hashed_words", hashed)

    meeting(4_096)
    same_as_arrow(array)
    meeting(2)
    assert factorize.numbered(in_pieces(array)) is None
