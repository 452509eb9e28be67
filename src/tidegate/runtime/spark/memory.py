"""What a worker has freed and still holds, handed back to the machine."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Let the memory go that malloc and Arrow hold free; where malloc cannot (it is not glibc's), only Arrow's.

    A buffer that spills keeps an index between batches, for which each batch needs room several times over for a
    moment. Left alone, glibc keeps that room in pieces between what stays: 110 MiB of 415 with 20 million keys.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pa.default_memory_pool().release_unused()
