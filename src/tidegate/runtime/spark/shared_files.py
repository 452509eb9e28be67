"""Temporary files without a name that the workers of one machine share.

A worker that has such a file notes its descriptor in a table, in memory that all workers have from the process that
forks them (`runtime.spark.daemon`). Another worker opens the file through /proc, and has a descriptor of its own. The
system removes the file with the last process that has it open, so nobody has to.

A note may be out of date: its worker may have closed the file, or ended. So each shared file ends with the digest that
it was noted under, and a file that does not is not read. Workers write notes without a lock: a note that two of them
write at once is such a wrong note at worst.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

SLOTS = 1 << 16
"""Places for notes."""
NEAR = 8
"""Places where the note of a digest can be."""

_NOTE = struct.Struct("<16sii")
"""A note: digest, process and descriptor. A process 0 is none."""
_END = struct.Struct("<8sQ16s")
"""The end of a shared file: a mark, the number of bytes in front of this end that describe the file, and its digest."""
_MARK = b"tidegate"


@dataclass(frozen=True)
class Table:
    """The notes of all workers, in memory that processes share which are forked from now on."""

    notes: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, SLOTS * _NOTE.size))

    def note(self, digest: bytes, descriptor: int, instead: bool) -> None:
        """Note that this process has the file of `digest` open: in a free place, or in that of an ended process.

        instead  whether to do so instead of another note, if there is no such place
        """
        near = self._near(digest)
        free = (at for at in near if not _runs(_NOTE.unpack_from(self.notes, at)[1]))
        at = next(free, near[digest[-1] % NEAR] if instead else None)
        if at is not None:
            _NOTE.pack_into(self.notes, at, digest, os.getpid(), descriptor)

    def open(self, digest: bytes) -> IO[bytes] | None:
        """The file of `digest`, opened anew; None if no process has it open."""
        for at in self._near(digest):
            noted, process, descriptor = _NOTE.unpack_from(self.notes, at)
            if noted == digest and process:
                with suppress(OSError):
                    if (found := _opened(Path(f"/proc/{process}/fd/{descriptor}"), digest)) is not None:
                        return found
        return None

    def _near(self, digest: bytes) -> list[int]:
        first = int.from_bytes(digest[:8], "little")
        return [(first + more) % SLOTS * _NOTE.size for more in range(NEAR)]


class _Shared:
    """The table of this process; None if the process that forked it made none."""

    table: Table | None = None


def begin() -> None:
    """Make the table of the processes that this one forks."""
    _Shared.table = Table()


def share(file: IO[bytes], digest: str, about: Sequence[Any]) -> bool:
    """Describe a file with these bytes, to its end, and let other workers find it. Whether there was room for them."""
    raw = bytes.fromhex(digest)
    try:
        size = sum(write(file, part) for part in about)
        write(file, _END.pack(_MARK, size, raw))
    except OSError:
        return False
    if _Shared.table is not None:
        _Shared.table.note(raw, file.fileno(), instead=True)
    return True


def shared(digest: str) -> IO[bytes] | None:
    """The file that a worker shares under this digest, opened anew.

    This process shares it too from now on, because it may have the file open for longer.
    """
    table, raw = _Shared.table, bytes.fromhex(digest)
    found = None if table is None else table.open(raw)
    if table is not None and found is not None:
        table.note(raw, found.fileno(), instead=False)
    return found


def about(file: IO[bytes]) -> bytes:
    """The bytes that describe a file."""
    end = os.fstat(file.fileno()).st_size - _END.size
    _, size, _ = _END.unpack(os.pread(file.fileno(), _END.size, end))
    return _read(file.fileno(), end - size, size)


def write(file: IO[bytes], part: Any) -> int:
    """Write all bytes of `part`; returns their number."""
    rest = memoryview(part).cast("B")
    size = len(rest)
    while len(rest):
        rest = rest[file.write(rest) :]
    return size


def _opened(path: Path, digest: bytes) -> IO[bytes] | None:
    """The file at `path`; None if it is not the one of `digest`. Raises OSError if it is gone."""
    if not path.is_file():
        return None  # the number may now be that of a pipe, whose opening could wait
    file = io.FileIO(path)
    end = os.pread(file.fileno(), _END.size, max(0, os.fstat(file.fileno()).st_size - _END.size))
    if len(end) == _END.size:
        mark, _, found = _END.unpack(end)
        if mark == _MARK and found == digest:
            return file
    file.close()
    return None


def _read(descriptor: int, at: int, size: int) -> bytes:
    """`size` bytes from a place on; a call reads 2 GiB at most."""
    parts = []
    while size and (part := os.pread(descriptor, size, at)):
        parts.append(part)
        at, size = at + len(part), size - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _runs(process: int) -> bool:
    return process > 0 and Path(f"/proc/{process}").exists()
