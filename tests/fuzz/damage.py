"""Kinds of damage to a frame: bytes lost, changed or moved, and headers with false claims."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from random import Random

HEAD = struct.Struct("<4sBBHI")
LENGTHS = (0, 1, 63, 64, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def sealed(frame: bytes) -> bytes:
    """The frame with the right checksum, so that only its contents are wrong."""
    if len(frame) < HEAD.size:
        return frame
    magic, version, kind, tables, _ = HEAD.unpack_from(frame)
    checksum = zlib.crc32(frame[HEAD.size :], zlib.crc32(HEAD.pack(magic, version, kind, tables, 0)))
    return HEAD.pack(magic, version, kind, tables, checksum) + frame[HEAD.size :]


def _flip(frame: bytes, random: Random) -> bytes:
    out = bytearray(frame)
    for _ in range(random.randint(1, 4)):
        out[random.randrange(len(out))] ^= random.randint(1, 255)
    return bytes(out)


def _cut(frame: bytes, random: Random) -> bytes:
    return frame[: random.randrange(len(frame))]


def _longer(frame: bytes, random: Random) -> bytes:
    return frame + random.randbytes(random.randint(1, 100))


def _zeros(frame: bytes, random: Random) -> bytes:
    low = random.randrange(len(frame))
    size = min(random.randint(1, 64), len(frame) - low)
    return frame[:low] + bytes(size) + frame[low + size :]


def _moved(frame: bytes, random: Random) -> bytes:
    low, high = sorted(random.sample(range(len(frame) + 1), 2))
    return frame[:low] + frame[high:] + frame[low:high]


def _claims(frame: bytes, random: Random) -> bytes:
    """A header with another version, kind, number of tables or length."""
    out = bytearray(frame)
    if len(out) < HEAD.size:
        return frame
    which = random.randrange(4)
    if which == 3 and len(out) >= HEAD.size + 8:
        count = HEAD.unpack_from(frame)[3] + 1
        at = HEAD.size + 8 * random.randrange(count)
        if at + 8 <= len(out):
            struct.pack_into("<Q", out, at, random.choice(LENGTHS))
    elif which == 2:
        struct.pack_into("<H", out, 6, random.randrange(1 << 16))
    else:
        out[4 + which] = random.randrange(256)
    return bytes(out)


KINDS: tuple[Callable[[bytes, Random], bytes], ...] = (_flip, _cut, _longer, _zeros, _moved, _claims)


def damaged(frame: bytes, random: Random) -> bytes:
    """The frame after one or two kinds of damage."""
    for _ in range(random.randint(1, 2)):
        if len(frame) > 1:
            frame = random.choice(KINDS)(frame, random)
    return frame
