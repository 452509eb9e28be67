"""Copies of runs in files that the workers of a machine share, and that stay where the room in memory ends."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import FileIO
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from spark.test_store import Map
from tidegate.kernel.columns.row_bytes import extents
from tidegate.kernel.state import frames, sorted_runs
from tidegate.kernel.state.copies import Copies, Parked, Partition, Run
from tidegate.kernel.state.sorted_runs import SortedRuns
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import Tuning
from tidegate.runtime.spark import shared_files
from tidegate.runtime.spark.worker.state import SparkStore

ONE, OTHER = "00" * 16, "01" * 16


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> shared_files.Table:
    """The table of this process and of those that it forks."""
    made = shared_files.Table()
    monkeypatch.setattr(shared_files._Shared, "table", made)
    return made


def written(rows: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - a copy stays open
    file.write(rows)
    return file


def in_child(does: Any) -> int:
    """The status with which a forked process ends that does this."""
    child = os.fork()
    if child == 0:
        try:
            does()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def read(file: IO[bytes] | None) -> tuple[bytes, bytes]:
    """The first bytes of a shared file, and its description."""
    assert file is not None
    return os.pread(file.fileno(), 4, 0), shared_files.about(file)


def test_another_process_reads_a_file_that_has_no_name(table: shared_files.Table) -> None:
    file = written(b"rows")
    assert shared_files.share(file, ONE, [b"ab", np.arange(2, dtype=np.int32).data])
    about = b"ab" + bytes([0, 0, 0, 0, 1, 0, 0, 0])

    def looks() -> None:
        assert read(shared_files.shared(ONE)) == (b"rows", about)
        assert shared_files.shared(OTHER) is None
        file.close()
        # This process has noted its own descriptor, which outlives the first one.
        assert read(shared_files.shared(ONE)) == (b"rows", about)

    assert in_child(looks) == 0
    assert read(file) == (b"rows", about)


def test_a_file_of_a_process_that_has_ended_is_gone(table: shared_files.Table) -> None:
    assert in_child(lambda: shared_files.share(written(b"rows"), ONE, [])) == 0
    assert shared_files.shared(ONE) is None
    # The place of an ended process is free.
    place = shared_files._NOTE.unpack_from(table.notes, table._near(bytes.fromhex(ONE))[0])
    assert place[1] not in (0, os.getpid())
    file = written(b"more")
    shared_files.share(file, ONE, [])
    assert shared_files._NOTE.unpack_from(table.notes, table._near(bytes.fromhex(ONE))[0])[1] == os.getpid()
    assert read(shared_files.shared(ONE)) == (b"more", b"")


@pytest.mark.parametrize("other", ["a file", "a shared file", "a short file", "a pipe"])
def test_a_number_that_now_is_that_of_something_else(
    table: shared_files.Table, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note is out of date: its process has closed the file, and the descriptor is another one's.

    A pipe is not even opened: without a writer that would wait.
    """
    opened = []
    monkeypatch.setattr(shared_files, "io", SimpleNamespace(FileIO=lambda path: opened.append(path) or FileIO(path)))
    file = written(b"rows")
    shared_files.share(file, ONE, [])
    number = file.fileno()
    ends = os.pipe()
    instead = written(b"" if other == "a short file" else bytes(100))
    if other == "a shared file":
        shared_files.share(instead, OTHER, [])
    os.dup2(ends[0] if other == "a pipe" else instead.fileno(), number)
    assert shared_files.shared(ONE) is None
    assert bool(opened) == (other != "a pipe")
    for each in ends:
        os.close(each)


def test_places_that_are_taken_are_taken_over(table: shared_files.Table) -> None:
    """All digests here begin alike, so all notes are near each other."""
    digests = [f"{'00' * 8}{number:016x}" for number in range(shared_files.NEAR + 2)]
    files = [written(digest.encode()) for digest in digests]
    for file, digest in zip(files, digests, strict=True):
        shared_files.share(file, digest, [])
    found = [digest for digest in digests if shared_files.shared(digest) is not None]
    assert digests[-1] in found
    assert len(found) >= shared_files.NEAR - 2


def test_without_a_table_nothing_is_shared_and_a_file_has_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files._Shared, "table", None)
    file = written(b"rows")
    assert shared_files.share(file, ONE, [b"about"])
    assert shared_files.shared(ONE) is None
    assert read(file) == (b"rows", b"about")


def test_workers_have_the_table_of_their_daemon(spark: SparkSession) -> None:
    def has(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"has": shared_files._Shared.table is not None}])

    assert [row["has"] for row in spark.range(1).mapInArrow(has, "has boolean").collect()] == [True]


# -- copies --------------------------------------------------------------------------------------------------------


class Filed(SparkStore):
    """A store as on Spark; it counts the runs that are read from it."""

    decoded = 0

    def __init__(self, tuning: Tuning) -> None:
        super().__init__(Map({}), tuning, "task")

    def read(self, window: int, segment: int) -> bytes:
        type(self).decoded += segment >= 0
        return super().read(window, segment)


def rows_of(*hashes: int) -> pa.Table:
    """Records with these hashes, as upper halves, a text and a number that may be null."""
    return pa.table(
        {
            "h": pa.array([each << 32 for each in hashes], pa.int64()),
            "k:user": [f"user {each}" for each in hashes],
            "v:n": pa.array([None if each % 3 == 0 else each for each in hashes], pa.int64()),
        }
    )


def stored(store: Filed, number: int, *runs: pa.Table) -> SortedRuns:
    """A partition of these runs, of each of which the present worker holds a copy."""
    table, parts = SortedRuns(store, ("h",)), []
    for segment, rows in enumerate(runs):
        frame, count, copy = table.merged([sorted_runs.InTable.of(rows, ("h",))])
        parts.append(table.write(number, [segment], [], frame, count, copy))
    table.say(number, sorted_runs.Contents(parts, []))
    return table


def worker(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """Another worker than the one before."""
    made = Copies()
    monkeypatch.setattr(sorted_runs, "COPIES", made)
    return made


def all_rows(store: Filed, number: int = 0) -> list[dict[str, Any]]:
    return [row for block in SortedRuns(store, ("h",)).read(number) for row in block.to_pylist()]


FILES = Tuning(file_bytes=0)


def test_a_worker_reads_the_copies_of_another_one(table: shared_files.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first, store = worker(monkeypatch), Filed(tuning=FILES)
    stored(store, 0, rows_of(1, 2, 3), rows_of(2, 5))
    wanted = all_rows(store)
    Filed.decoded = 0
    second = worker(monkeypatch)
    assert all_rows(store) == wanted == [*rows_of(1, 2, 3).to_pylist(), *rows_of(2, 5).to_pylist()]
    assert Filed.decoded == 0
    assert set(second.held) == set(first.held)
    runs = list(SortedRuns(store, ("h",)).every(0))
    assert all(isinstance(run, Run) for run in runs)
    found = [run.take(run.with_hashes(np.array([2 << 32]))).to_pylist() for run in runs]
    assert found == [rows_of(2).to_pylist()] * 2
    # The file is there as long as one of them has it.
    first.held.clear()
    third = worker(monkeypatch)
    assert all_rows(store) == wanted
    assert Filed.decoded == 0
    second.held.clear()
    third.held.clear()
    runs.clear()
    worker(monkeypatch)
    assert all_rows(store) == wanted
    assert Filed.decoded == 2


def test_a_copy_that_has_no_room_keeps_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without other workers, and the least recently used copy first."""
    monkeypatch.setattr(shared_files._Shared, "table", None)
    tuning = replace(FILES, copy_bytes=100)
    held, store = worker(monkeypatch), Filed(tuning=tuning)
    tables = [rows_of(*range(at, at + 10)) for at in (0, 10, 20, 30)]
    for number, rows in enumerate(tables):
        stored(store, number, rows)
    assert [isinstance(one, Parked) for one in held.held.values()].count(True) >= 2
    assert sum(one.memory for one in held.held.values()) <= tuning.copy_bytes
    Filed.decoded = 0
    for number in (3, 0, 1, 2, 2, 0, 3):
        assert all_rows(store, number) == tables[number].to_pylist()
        assert sum(one.memory for one in held.held.values()) <= tuning.copy_bytes
        (digest,) = held.by_partition[Partition(store.task, number)]
        assert isinstance(held.held[digest], Run), number
    assert Filed.decoded == 0
    held.keep_only(Partition(store.task, 0), set())
    assert len(held.held) == 3


def test_a_copy_in_order_by_time_keeps_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files._Shared, "table", None)
    tuning, store = replace(FILES, copy_bytes=300), Filed(tuning=FILES)
    many, rows = Copies(), rows_of(*range(10)).append_column("ts", pa.array(range(10), pa.int64()))

    def run(digest: str) -> Run:
        made = Run.of([rows], extents(rows), 10, store)
        assert made is not None
        made.share(digest, store)
        return made

    slow, quick = run(ONE), run(OTHER)
    assert slow.closing(0, 3, 0).tolist() == [1, 2, 3]
    many.put(Partition("task", 0), ONE, slow, tuning)
    many.put(Partition("task", 1), OTHER, quick, tuning)
    assert list(many.held.values()) == [slow, quick]
    assert many.room(tuning.copy_bytes - slow.memory, tuning)
    assert list(many.held.values()) == [slow, Parked(quick.copy)]
    assert not many.room(tuning.copy_bytes - slow.memory + 1, tuning)
    many.put(Partition("task", 2), OTHER, run(OTHER), replace(tuning, copy_bytes=slow.memory))
    assert [type(one) for one in many.held.values()] == [Run, Parked]
    assert [partition.number for partition in many.by_partition] == [0, 2]


def test_a_file_that_nobody_asks_for_leaves_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its query has ended, and the query that is left needs no room."""
    monkeypatch.setattr(shared_files._Shared, "table", None)
    now = [0.0]
    held, store = Copies(clock=lambda: now[0]), Filed(tuning=replace(FILES, copy_bytes=30))
    monkeypatch.setattr(sorted_runs, "COPIES", held)
    for number in range(3):
        stored(store, number, rows_of(number, number + 1))
    assert [isinstance(one, Parked) for one in held.held.values()] == [True, True, False]
    now[0] = 59.0
    all_rows(store, 1)
    now[0] = 61.0
    stored(store, 2, rows_of(7))
    assert sorted(partition.number for partition in held.by_partition) == [1, 2]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> tuple[SortedRuns, list[Any]]:
    """A table of a worker, and its two runs of ten rows, to be merged."""
    monkeypatch.setattr(shared_files._Shared, "table", None)
    worker(monkeypatch)
    table = stored(Filed(tuning=replace(FILES, block_rows=2)), 0, rows_of(*range(10)), rows_of(*range(10, 20)))
    return table, list(table.every(0))


def fails_at_the_fourth_call(of: Any, error: OSError) -> Callable[..., Any]:
    calls = iter(range(1_000))

    def call(*given: Any) -> Any:
        if next(calls) == 3:
            raise error
        return of(*given)

    return call


def test_a_copy_that_cannot_be_read_ends_a_merge(
    runs: tuple[SortedRuns, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new run gets a copy too: an error of an old copy was taken for a full disk, and rows were lost."""
    table, both = runs
    monkeypatch.setattr(os, "pread", fails_at_the_fourth_call(os.pread, OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        table.merged(both)


def test_a_run_without_room_for_its_copy_has_all_rows(
    runs: tuple[SortedRuns, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, both = runs
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(shared_files, "write", fails_at_the_fourth_call(shared_files.write, full))
    frame, count, copy = table.merged(both)
    assert (count, copy) == (20, None)
    assert sum(each.num_rows for each in frames.decode(frames.SEGMENT, frame)[1]) == count


def test_there_are_as_many_files_as_descriptors_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files._Shared, "table", None)
    held, store = worker(monkeypatch), Filed(tuning=replace(FILES, copy_files=3))
    for number in range(5):
        stored(store, number, rows_of(number))
    assert [partition.number for partition in held.by_partition] == [2, 3, 4]
    Filed.decoded = 0
    assert [all_rows(store, number) for number in range(5)] == [rows_of(number).to_pylist() for number in range(5)]
    assert Filed.decoded == 2


def test_the_digest_of_a_run_fits_into_a_note() -> None:
    part = SortedRuns(DictStore(), ("h",)).replace(0, [0], [], b"frame", 1)
    assert len(bytes.fromhex(part.digest)) == len(bytes.fromhex(ONE))
