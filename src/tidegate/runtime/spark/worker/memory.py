"""Freed memory of a worker: reused, or returned to the machine."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.kernel.state.copies import COPIES
from tidegate.kernel.suppress import key_index
from tidegate.kernel.tuning import DEFAULT

# Parameters of mallopt, from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 128 << 20
"""Most free memory that a worker keeps."""
APART_BYTES = 32 << 20
"""A larger allocation comes from the machine, and goes back when it is freed."""
COPIED_BYTES, APART_BESIDE_COPIES_BYTES = 16 << 20, 3 << 20
"""A process whose copies of state have more memory takes smaller allocations from the machine too: it has less room."""
MOST_BYTES = 320 << 20
"""A process with more resident memory returns memory, if its unused memory grew by MORE_BYTES since the last return."""
MOST_JOIN_BYTES = 176 << 20
"""The same for a join of two streams. It works on a part of a batch at a time, so it needs little memory again."""
MORE_BYTES = 32 << 20

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = mmap.PAGESIZE


@dataclass
class _After:
    """Unused bytes of this process after the last `give_back`, which could not be returned: code, above all."""

    unused: int = 0


_after = _After()


def keep(most: int = MOST_BYTES) -> None:
    """Let this process reuse freed memory, unless it has more than `most` bytes. Called before large allocations.

    A batch takes and frees columns of some megabytes, and glibc returns each to the machine: to touch as many new
    pages, one fault for every 4 KiB, was a third of packing (decision 0013). Arrow has an allocator of its own, whose
    free memory numpy could not use; here both use malloc. Fragments of free memory grow over batches of different
    sizes, so from `most` on all free memory goes back if it is worth it (decision 0015). Copies of state that no step
    of the last minute used become free memory first: their query may have ended (decision 0076). Beside many copies
    columns of a large batch are not reused (decision 0078).
    """
    _use_again()
    _take_apart(APART_BESIDE_COPIES_BYTES if COPIES.memory > COPIED_BYTES else APART_BYTES)
    if _resident() > most:
        COPIES.drop_unused(DEFAULT.copy_seconds)
        key_index.drop_unused(DEFAULT.copy_seconds)
        if _unused() > _after.unused + MORE_BYTES:
            give_back()


@cache
def _use_again() -> None:
    adjust = _of_malloc("mallopt")
    if adjust is not None:
        adjust(M_TRIM_THRESHOLD, KEPT_BYTES)
        pa.set_memory_pool(pa.system_memory_pool())


def _take_apart(least: int) -> None:
    """Let allocations of so many bytes and more come from the machine."""
    adjust = _of_malloc("mallopt")
    if adjust is not None:
        adjust(M_MMAP_THRESHOLD, least)


def _resident() -> int:
    """Resident bytes of this process; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class _Info(ctypes.Structure):
    """The result of mallinfo2, in bytes."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split(" ")]


def _unused() -> int:
    """Resident bytes that malloc has not handed out; all resident bytes where malloc does not say."""
    info = _of_malloc("mallinfo2")
    if info is None:
        return _resident()
    info.restype = _Info
    used = info()
    return max(0, _resident() - used.uordblks - used.hblkhd)


def give_back() -> None:
    """Return the free memory of malloc and Arrow to the machine; only Arrow's if malloc is not glibc's.

    A buffer that spills keeps an index between batches, and each batch needs several times its room for a moment. Left
    alone, glibc keeps that room in fragments between live memory: 110 MiB of 415 with 20 million keys.
    """
    trim = _of_malloc("malloc_trim")
    if trim is not None:
        trim(0)
    pa.default_memory_pool().release_unused()
    _after.unused = _unused()


def _of_malloc(name: str) -> Any:
    """A function that only glibc's malloc has; None where it is missing."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
