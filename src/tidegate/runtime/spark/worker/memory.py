"""What a worker does with memory that it has freed: use it again, or hand it back to the machine."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

# Of malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 128 << 20
"""What a worker holds free at most."""
APART_BYTES = 32 << 20
"""What is larger than this comes from the machine and goes back at once."""
MOST_BYTES = 320 << 20
"""A process below this hands nothing back; beyond, where it has MORE_BYTES that nobody uses."""
MORE_BYTES = 32 << 20

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = mmap.PAGESIZE


@dataclass
class _After:
    """What this process still had besides what was in use when it last handed back what it could: code, above all."""

    unused: int = 0


_after = _After()


def keep() -> None:
    """Before something large: let this process use again what it has freed, unless it has become too large with it.

    A batch takes and frees columns of some megabytes, and glibc hands each back: to touch as many new pages, one fault
    for every 4 KiB, was a third of packing (decision 0013). Arrow has an allocator of its own, whose free memory
    numpy could not use; here both have malloc's. What is free in pieces grows over many batches of other sizes, so
    that from MOST_BYTES on, all goes back that is worth it (decision 0015).
    """
    _use_again()
    if _resident() > MOST_BYTES and _unused() > _after.unused + MORE_BYTES:
        give_back()


@cache
def _use_again() -> None:
    adjust = _of_malloc("mallopt")
    if adjust is not None:
        adjust(M_TRIM_THRESHOLD, KEPT_BYTES)
        adjust(M_MMAP_THRESHOLD, APART_BYTES)
        pa.set_memory_pool(pa.system_memory_pool())


def _resident() -> int:
    """The bytes that this process has in memory; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class _Info(ctypes.Structure):
    """What mallinfo2 tells, in bytes."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split(" ")]


def _unused() -> int:
    """The bytes in memory that malloc has not handed out; all of them where it does not say."""
    info = _of_malloc("mallinfo2")
    if info is None:
        return _resident()
    info.restype = _Info
    told = info()
    return max(0, _resident() - told.uordblks - told.hblkhd)


def give_back() -> None:
    """Let the memory go that malloc and Arrow hold free; where malloc cannot (it is not glibc's), only Arrow's.

    A buffer that spills keeps an index between batches, for which each batch needs room several times over for a
    moment. Left alone, glibc keeps that room in pieces between what stays: 110 MiB of 415 with 20 million keys.
    """
    trim = _of_malloc("malloc_trim")
    if trim is not None:
        trim(0)
    pa.default_memory_pool().release_unused()
    _after.unused = _unused()


def _of_malloc(name: str) -> Any:
    """A function that glibc's malloc has besides the usual ones, or None."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
