"""The store over Spark's map state: what goes in comes out, in the form that costs least on its way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidegate.kernel.tuning import Tuning

pytest.importorskip("pyspark")

from tidegate.errors import CheckpointError
from tidegate.runtime.spark import septets, state
from tidegate.runtime.spark.state import SparkStore

Entries = dict[tuple[int, int, int], tuple[int, bytes]]


class Map:
    """What Spark hands out for a map state, over a dict."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    def getValue(self, key: tuple[int, int, int]) -> tuple[int, bytes] | None:
        return self.entries.get(key)

    def updateValue(self, key: tuple[int, int, int], value: tuple[int, bytes]) -> None:
        self.entries[key] = value

    def containsKey(self, key: tuple[int, int, int]) -> bool:
        return key in self.entries

    def removeKey(self, key: tuple[int, int, int]) -> None:
        self.entries.pop(key, None)


def store(entries: Entries, **tuning: int) -> SparkStore:
    given: Any = Map(entries)
    return SparkStore(given, Tuning(**tuning))


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 55, 56, 57, 4_099, 100_000])
def test_seven_bits_say_what_eight_did(size: int) -> None:
    value = np.random.default_rng(size).bytes(size)
    packed = septets.pack(value)
    assert max(packed) < 128
    assert len(packed) <= size * 8 / 7 + 65
    assert septets.unpack(packed) == value


def test_a_value_of_several_parts_and_a_shorter_one_in_its_place() -> None:
    entries: Entries = {}
    long, short = bytes(range(250)), b"short"
    store(entries, part_bytes=100).write(5, 0, long)
    assert len(entries) == 3
    assert store(entries).read(5, 0) == long
    store(entries).write(5, 0, short)
    assert len(entries) == 1
    assert store(entries).read(5, 0) == short
    store(entries).remove(5, 0)
    assert not entries


def test_what_versions_before_wrote_as_it_was_is_read() -> None:
    entries: Entries = {(5, 0, 0): (2, b"\xff\x00ab"), (5, 0, 1): (2, b"\xfe"), (state.NAMED, 0, 0): (1, b"")}
    assert store(entries).read(5, 0) == b"\xff\x00ab\xfe"
    assert store(entries).get("meta") == b""


def test_a_part_that_is_gone_is_named() -> None:
    entries: Entries = {}
    store(entries, part_bytes=2).write(5, 1, b"abc")
    del entries[5, 1, 1]
    with pytest.raises(CheckpointError, match="no segment 1 of the window at 5 ms"):
        store(entries).read(5, 1)
