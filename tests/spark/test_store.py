"""The store over Spark's map state: values come back unchanged, in the form that is cheapest to send."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.kernel.tuning import DEFAULT, Tuning

pytest.importorskip("pyspark")

from tidegate.errors import CheckpointError
from tidegate.runtime.spark import shared_files
from tidegate.runtime.spark.worker import beside, seven_bit, state
from tidegate.runtime.spark.worker.state import SparkStore

Entries = dict[tuple[int, int, int], tuple[int, bytes]]


class Map:
    """Spark's map state, over a dict."""

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
    packed = seven_bit.pack(value)
    assert max(packed) < 128
    assert len(packed) <= size * 8 / 7 + 65
    assert seven_bit.unpack(packed) == value


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


@pytest.mark.parametrize("most", [0, 100, 1 << 20])
def test_what_is_kept_beside_the_worker_is_read_in_parts(most: int) -> None:
    value = np.random.default_rng(most).bytes(1_000)
    copy = store({}, file_bytes=most).beside([value[:300], memoryview(value)[300:301], value[301:]])
    assert copy is not None
    assert copy.memory == (1_000 if most > 1_000 else 0)
    starts, lengths = np.array([0, 250, 990, 5]), np.array([3, 200, 10, 0])
    assert copy.read(starts, lengths) == value[:3] + value[250:450] + value[990:]
    assert copy.read(starts[:0], lengths[:0]) == b""


def test_a_copy_has_no_name_and_is_gone_with_its_last_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy = store({}).beside([bytes(DEFAULT.file_bytes + 1)])
    assert isinstance(copy, beside.InFile)
    assert list(tmp_path.iterdir()) == []
    descriptor = copy.file.fileno()
    assert os.fstat(descriptor).st_size == DEFAULT.file_bytes + 1
    del copy
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)


def test_where_there_is_no_room_there_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [bytes(DEFAULT.file_bytes), b"more"]

    def full(_file: Any, _part: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shared_files, "write", full)
        assert store({}).beside(large) is None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert store({}).beside(large) is None
    assert store({}).beside(large[1:]) is not None
