"""A checkpoint on a full disk, damaged, or removed: a clear error, nothing half written, and going on."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from crash.feed import Feed
from crash.kills import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DISK = 4 << 20
PATIENCE_S = 600


class Case:
    """A pipeline in a folder, and its input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.feed = Feed(folder, random.Random(9))
        self.pipeline = Pipeline(folder)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def fails(self, *says: str) -> None:
        """The pipeline ends with an error that says one of `says`; the sink has at most one uncommitted batch."""
        (self.folder / "log").unlink(missing_ok=True)
        assert self.pipeline.to_the_end() == 1, self.pipeline.log()
        error = self.pipeline.log(1 << 30).rpartition("Traceback (most recent call last)")[2]
        assert any(each in error for each in says), error
        # The sink is one batch ahead if the commit did not fit: that batch runs again, and the sink skips it.
        assert self.pipeline.committed() <= len(self.sunk()) <= self.pipeline.committed() + 1

    def goes_on(self) -> None:
        """With one more file that closes windows, everything is there once."""
        self.feed.write(1, closing=True)
        assert self.pipeline.to_the_end() == 0, self.pipeline.log()
        compared = self.feed.compared(self.folder / "result.parquet")
        assert compared.right, compared

    def runs(self) -> None:
        assert self.pipeline.to_the_end() == 0, self.pipeline.log()

    def sunk(self) -> set[str]:
        """Names of the entries in the sink's log: one per batch."""
        log = self.folder / "out" / "_spark_metadata"
        return {path.name for path in log.glob("[0-9]*")} if log.is_dir() else set()


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    case = Case(tmp_path)
    yield case
    case.pipeline.end()


@contextlib.contextmanager
def disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of `size` bytes at `folder`; skips the test if this machine cannot mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here, which takes root on Linux")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, but: int) -> Path:
    """A file that leaves `but` bytes of the disk."""
    ballast = folder / "ballast"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    ballast.write_bytes(bytes(max(0, free - but)))
    return ballast


def test_a_full_disk_ends_the_query_and_with_room_it_goes_on(case: Case) -> None:
    with disk(case.checkpoint, DISK):
        case.feed.write(2)
        case.runs()
        case.feed.write(2)
        # No byte fits, or the offsets of a batch and a part of its state.
        for but in (0, 24 << 10):
            ballast = fill(case.checkpoint, but)
            case.fails("No space left on device")
            ballast.unlink()
        case.goes_on()
        case.pipeline.end()


@pytest.mark.parametrize("checksums", [True, False], ids=["with-checksums", "without"])
def test_a_flipped_byte_in_the_state_ends_the_query_and_put_right_it_goes_on(case: Case, checksums: bool) -> None:
    case.feed.write(2)
    case.runs()
    case.feed.write(1)
    files = sorted((case.checkpoint / "state" / "0").glob("[0-9]*/2.changelog"))
    assert files, [str(path) for path in case.checkpoint.rglob("*")]
    victim = max(files, key=lambda path: path.stat().st_size)
    good = victim.read_bytes()
    # Spark's own checksum beside it, and Hadoop's, which a local file system has besides.
    hidden = [path for path in victim.parent.glob(".*") if path.name.startswith(f".{victim.name}")]
    if not checksums:
        for path in hidden:
            path.unlink()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 0x10
    victim.write_bytes(bad)
    case.fails("checksum", "Checksum", "CHECKSUM", "damaged", "corrupt", "Corrupt", "CANNOT_LOAD_STATE_STORE")
    victim.write_bytes(good)
    case.goes_on()


def test_a_checkpoint_removed_under_a_running_query_ends_it_and_a_copy_goes_on(case: Case) -> None:
    case.feed.write(2)
    case.runs()
    copy = shutil.copytree(case.checkpoint, case.folder / "copy")
    case.feed.write(1)
    case.pipeline.start()
    wait(lambda: case.pipeline.committed() == 3, case)
    shutil.rmtree(case.checkpoint)
    case.feed.write(1)
    wait(lambda: not case.pipeline.runs, case)
    assert case.pipeline.process is not None
    assert case.pipeline.process.returncode == 1
    assert f"{case.checkpoint}/" in case.pipeline.log(1 << 30)
    assert "does not exist" in case.pipeline.log(1 << 30)
    shutil.rmtree(case.checkpoint, ignore_errors=True)
    # The copy is a batch behind the sink, which takes no batch twice.
    copy.rename(case.checkpoint)
    case.goes_on()


def wait(done: Callable[[], bool], case: Case) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, case.pipeline.log()
        time.sleep(0.2)
