"""Copies of state beside the workers: temporary files without a name, which the system removes with the processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.state.store import Copy, InMemory
from tidegate.runtime.spark import shared_files


@dataclass
class InFile:
    """A copy in a file. Reads leave nothing in the memory of the process; a memory mapping would."""

    file: IO[bytes]
    described: bool = False
    memory: int = 0

    def about(self) -> bytes:
        return shared_files.about(self.file)

    def read(self, starts: Ints, lengths: Ints) -> bytes:
        descriptor, read = self.file.fileno(), os.pread
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        return b"".join([read(descriptor, length, at) for at, length in spans])


def beside(parts: Iterable[Any], in_memory: int) -> Copy | None:
    """A copy of these bytes: up to `in_memory` bytes in memory, more in a temporary file; None if they do not fit.

    A file takes a descriptor, so small copies have none.
    """
    held: list[Any] = []
    size, file = 0, None
    for part in parts:
        held.append(part)
        size += len(part)
        if size > in_memory:
            # Only errors of the file are caught here, and none that making a part raises.
            try:
                file = file or tempfile.TemporaryFile(prefix="tidegate-", buffering=0)  # noqa: SIM115 (it stays open)
                for one in held:
                    shared_files.write(file, one)
            except OSError:
                # No room, or too many open files: state without a copy is read from the store.
                if file is not None:
                    file.close()
                return None
            held.clear()
    return InMemory(b"".join(held)) if file is None else InFile(file)


def share(digest: str, copy: Copy, about: Sequence[Any]) -> None:
    """Put a description behind a copy in a file, and let the other workers of this machine find it by this digest."""
    if isinstance(copy, InFile):
        copy.described = shared_files.share(copy.file, digest, about)


def shared(digest: str) -> Copy | None:
    """A copy that a worker of this machine shares; None if there is none."""
    file = shared_files.shared(digest)
    return None if file is None else InFile(file, described=True)
