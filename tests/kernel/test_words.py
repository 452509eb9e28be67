"""Strings come back from words, and words that repeat take one or two bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns.factorize import SAMPLE
from tidegate.kernel.columns.fixed_length import one_length
from tidegate.kernel.columns.hash64 import LONGEST, words_of
from tidegate.kernel.columns.words import from_words, in_words

ROWS = 2 * SAMPLE
RANDOM = np.random.default_rng(80)
PARTS = st.text("abé0", max_size=9) | st.sampled_from(["user-000", "", "\0", "\0\0", "x" * 8, "ü" * 8])


def comes_back(column: pa.Array) -> pa.StructArray:
    words = in_words(column)
    assert words is not None
    found = from_words(words, one_length(column), column.type)
    found.validate(full=True)
    assert found.equals(column)
    assert words.nbytes < column.nbytes
    return words


@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(PARTS, min_size=1, max_size=4), st.booleans())
def test_strings_come_back(begins: list[str], ends: list[str], in_bytes: bool) -> None:
    """Of one length or of several, with bytes of zero at their ends, and with characters of several bytes."""
    some = [begin + end for begin in begins for end in ends if len((begin + end).encode()) <= LONGEST]
    if any(some):
        column = pa.array([some[at % len(some)] for at in range(ROWS)])
        comes_back(column.cast(pa.binary()) if in_bytes else column)


@pytest.mark.parametrize("length", range(1, 25))
def test_ids_of_every_length(length: int) -> None:
    comes_back(pa.array([f"{at % 9:0{length}}" for at in range(ROWS)]))


def test_a_part_of_a_column() -> None:
    column = pa.array([f"user-{at % 5_000:07}" for at in range(3 * ROWS)])
    comes_back(column.slice(7, ROWS + 1))


def test_words_that_repeat_take_one_or_two_bytes() -> None:
    """And a word that hardly repeats is stored itself, in as few bytes as it needs."""
    begins, middles = RANDOM.integers(0, 256, ROWS), RANDOM.integers(0, 5_000, ROWS)
    ends = RANDOM.integers(0, 10**8, ROWS)
    column = pa.array([f"{a:08}{b:08}{c:08}{'z' * 3}" for a, b, c in zip(begins, middles, ends, strict=True)])
    first, second, third, fourth = comes_back(column).flatten()
    assert [one.type.index_type for one in (first, second, fourth)] == [pa.uint8(), pa.uint16(), pa.uint8()]
    assert third.type == pa.uint64()
    few_bytes = [bytes(8) + at.to_bytes(3) for at in range(80_000)]
    assert [one.type for one in comes_back(pa.array(few_bytes)).flatten()][1:] == [pa.uint32()]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([f"{at % 9}" for at in range(ROWS - 1)]),
        pa.array(["x" * LONGEST + "y"] * ROWS),
        pa.array([""] * ROWS),
        pa.array([RANDOM.bytes(32) for _ in range(ROWS)]),
        pa.array(RANDOM.integers(0, 30_000, ROWS).astype(str).tolist()),
    ],
    ids=["few", "long", "empty", "random", "short"],
)
def test_what_stays(column: pa.Array) -> None:
    assert in_words(column) is None


@pytest.mark.parametrize(
    ("distinct", "place"), [(256, pa.uint8()), (257, pa.uint16()), (65_536, pa.uint16()), (65_537, None)]
)
def test_a_place_has_one_or_two_bytes(distinct: int, place: pa.DataType | None) -> None:
    """And a longer list is none, though most strings are one of a few."""
    numbers = np.concatenate([np.arange(distinct), np.zeros(200_000, np.int64)])
    column = pa.array([f"user-000{number:08}" for number in RANDOM.permutation(numbers)])
    second = comes_back(column).field(1).type
    assert second == (pa.uint64() if place is None else pa.dictionary(place, pa.uint64()))


@pytest.mark.parametrize("lengths", [(8, 8), (13, 13), (8, 9), (12, 7), (16, 3)])
def test_words_of_several_chunks(lengths: tuple[int, int]) -> None:
    """Each chunk has strings of one length, which may be another one."""
    chunks = [pa.array(["before", *(f"{at:0{length}}" for at in range(9))])[1:] for length in lengths]
    found = words_of(pa.chunked_array(chunks))
    assert found is not None
    many = -(-max(lengths) // 8)
    texts = [text.encode() for chunk in chunks for text in chunk.to_pylist()]
    assert len(found) == many + (lengths[0] != lengths[1])
    bytes_ = [words.tobytes() for words in np.stack(found[:many], axis=1)]
    assert bytes_ == [text.ljust(8 * many, b"\0") for text in texts]
    if len(found) > many:
        assert found[many].tolist() == list(map(len, texts))


def test_no_strings() -> None:
    words = in_words(pa.array(["user-000-of-many"] * ROWS))
    assert words is not None
    assert from_words(words.slice(0, 0), 16, pa.string()).equals(pa.array([], pa.string()))


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ([pa.array([5], pa.uint64()), pa.array([9], pa.uint64())], 0),
        ([pa.array([5], pa.uint64()), pa.array([2**63], pa.uint64())], 0),
        ([pa.array([5], pa.uint64())], -1),
        ([pa.array([5], pa.uint64())], 2**40),
        ([pa.DictionaryArray.from_arrays(pa.array([3], pa.uint8()), pa.array([1], pa.uint64()), safe=False)], 8),
    ],
    ids=["longer", "far longer", "negative", "huge", "no such word"],
)
def test_words_that_are_no_strings(fields: list[pa.Array], length: int) -> None:
    words = pa.StructArray.from_arrays(fields, names=list(map(str, range(len(fields)))))
    with pytest.raises((ValueError, LookupError, MemoryError)):
        from_words(words, length, pa.string())
