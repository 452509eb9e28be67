"""Equal strings get one number, and others another one."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns import factorize
from tidegate.kernel.columns.hash64 import LONGEST, hash64


def in_pieces(array: pa.Array, pieces: int = 3) -> pa.ChunkedArray:
    """`array` in `pieces` chunks of unlike length and an empty chunk."""
    cuts = [0, *(len(array) * (2**place - 1) // 2**pieces for place in range(1, pieces)), len(array)]
    chunks = [array[low:high] for low, high in zip(cuts, cuts[1:], strict=False)]
    return pa.chunked_array([*chunks[:1], array[:0], *chunks[1:]], array.type)


def numbers_tell_apart(array: pa.Array) -> None:
    found = factorize.numbered(in_pieces(array))
    assert found is not None
    numbers, many = found
    encoded = array.dictionary_encode()
    pairs = np.unique(np.stack([numbers, encoded.indices.to_numpy()]), axis=1)
    # As many pairs as numbers on either side: a number stands for one string, and a string has one number.
    assert pairs.shape[1] == len(np.unique(numbers)) == len(encoded.dictionary)
    assert 0 <= numbers.min() <= numbers.max() < many <= len(array)


def many(values: list[bytes], distinct: int, rows: int = 30_000, seed: int = 1) -> list[bytes]:
    """Mostly distinct rows, with each of `values` among them several times."""
    rng = np.random.default_rng(seed)
    filler = [b"%x" % number for number in rng.integers(0, distinct, rows)]
    for place in rng.integers(0, rows, 20 * len(values)):
        filler[place] = values[place % len(values)]
    return filler


@given(
    st.lists(st.binary(max_size=LONGEST), min_size=1, max_size=40),
    st.integers(25_000, 10**9),
    st.integers(0, 2_000),
    st.integers(0, 99),
)
def test_any_short_values(values: list[bytes], distinct: int, skipped: int, seed: int) -> None:
    numbers_tell_apart(pa.array(many(values, distinct, seed=seed), pa.binary())[skipped:])


@given(
    st.lists(st.binary(max_size=9) | st.sampled_from([b"user-0000001", b"user-0000002"]), min_size=12, max_size=40),
    st.sampled_from([0.0, 2.0]),
)
def test_few_values_with_a_small_sample(values: list[bytes], most_numbers: float) -> None:
    """Every word by itself, or all words through the table of hashes; a handful of values reaches both."""
    with patch.multiple(factorize, SAMPLE=2, _MANY=1, _REPEATED=1.0, _MOST_NUMBERS=most_numbers):
        if len(set(values)) > 1:
            numbers_tell_apart(pa.array(values, pa.binary()))


def test_zeros_at_the_end_count() -> None:
    numbers_tell_apart(
        pa.array(many([b"", b"\0", b"\0\0", b"a", b"a\0", b"a" * 8, b"a" * 8 + b"\0"], 10**6), pa.binary())
    )


@pytest.mark.parametrize("distinct", [50_000, 3_000_000])
def test_strings_of_one_length(distinct: int) -> None:
    ids = np.random.default_rng(2).integers(0, distinct, 90_000)
    numbers_tell_apart(pa.array([f"user{number:07d}" for number in ids]))


@pytest.mark.parametrize("form", ["{0:08x}{1:08x}", "{0:08d}-{1:016d}", "o/{0:010d}/{1}", "{0}"])
@pytest.mark.parametrize("distinct", [200, 20_000, 2**31])
def test_ids_of_parts(form: str, distinct: int) -> None:
    rng = np.random.default_rng(3)
    parts = zip(rng.integers(0, 2**31, 70_000), rng.integers(0, distinct, 70_000), strict=True)
    numbers_tell_apart(pa.array([form.format(*each) for each in parts]))


def test_no_column_is_lost_beyond_64_bits() -> None:
    """Three columns of 32 bits: the first one would be multiplied by 2^64."""
    parts = [np.array(part) for part in ([0, 1, 0, 1], [0, 0, 1, 1], [5, 5, 5, 5])]
    numbers, _ = factorize.together([(part, 2**32) for part in parts], 4)
    assert sorted(numbers.tolist()) == [0, 1, 2, 3]


def test_empty_chunks_are_not_asked_for_a_sample() -> None:
    same = pa.chunked_array([pa.array(["user-0000001"] * 10_000), *[pa.array([], pa.string())] * 5_000])
    assert factorize.numbered(same) is None


def test_words_with_few_values_are_numbered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(factorize, "_leaders", nobody)
    ids = np.random.default_rng(4).integers(0, 60_000, 90_000)
    numbers_tell_apart(pa.array([f"user-{number:07d}" for number in ids]))


@given(st.integers(1, 2**62), st.integers(1, 100_000), st.integers(-5, 5))
def test_dense_numbers_are_those_of_a_dictionary(distinct: int, rows: int, least: int) -> None:
    codes = np.random.default_rng(rows).integers(least, least + distinct, rows)
    encoded = pa.array(codes).dictionary_encode()
    numbers, many = factorize.dense(codes)
    np.testing.assert_array_equal(numbers, encoded.indices.to_numpy())
    assert many == len(encoded.dictionary)


def test_many_distinct_numbers_need_no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    whole = factorize._leaders
    monkeypatch.setattr(factorize, "_leaders", lambda *given: tried.append(1) or whole(*given))
    factorize.dense(np.random.default_rng(5).integers(0, 2**60, 70_000))
    assert tried
    factorize.dense(np.random.default_rng(5).integers(0, 2_000, 70_000))
    assert len(tried) == 1


@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)), min_size=1, max_size=4), st.integers(0, 99))
def test_columns_together(sizes: list[tuple[int, int]], seed: int) -> None:
    rng, rows = np.random.default_rng(seed), 300
    columns = [(rng.integers(0, used, rows) % many, many) for used, many in sizes]
    numbers, many = factorize.together(columns, rows)
    tuples = np.unique(np.stack([part for part, _ in columns]), axis=1)
    pairs = np.unique(np.stack([numbers, *(part for part, _ in columns)]), axis=1)
    assert pairs.shape[1] == tuples.shape[1] == len(np.unique(numbers))
    assert 0 <= numbers.min() <= numbers.max() < many <= 4 * rows + 4


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
    array = pa.array([f"{number % 9_000 * 7_919:x}{number % 9_000 * 104_729:x}" for number in range(20_000)])
    whole = factorize.hash_of_words
    monkeypatch.setattr(factorize, "repeats", lambda _: False)
    numbers_tell_apart(array)
    monkeypatch.setattr(factorize, "hash_of_words", lambda parts: whole(parts) % np.uint64(4_096))
    numbers_tell_apart(array)
    monkeypatch.setattr(factorize, "hash_of_words", lambda parts: whole(parts) % np.uint64(2))
    assert factorize.numbered(in_pieces(array)) is None
