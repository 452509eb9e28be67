"""The one encoding of everything that leaves a process: blobs on their way to a task, segments, state.

    magic "tdgt" | version u8 | kind u8 | tables u16 | checksum u32 | lengths u64: object, table, ... | object | tables
    object: JSON;  table: Arrow IPC stream;  each of them begins at a multiple of 64 bytes

Frames are data, never pickles. `decode` refuses other bytes by magic, version, kind, length and checksum.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tidegate.errors import MORE_MEMORY, CheckpointError
from tidegate.kernel.state.compact import is_compact, restored
from tidegate.kernel.state.delta import narrowed, widened
from tidegate.kernel.state.without_repeats import with_repeats, without_repeats

VERSION = 2
BLOB, SEGMENT, META = 1, 2, 3
_KINDS = {
    BLOB: "a blob on its way to a task",
    SEGMENT: "a segment of a window's log",
    META: "an operator's state",
}
# Errors of Arrow, JSON and `widened` for contents that tidegate did not write, although the checksum matches.
_UNREADABLE = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
# A task has one core, and each of Arrow's threads would keep memory that nobody else can use (decision 0022).
_READING = pa.ipc.IpcReadOptions(use_threads=False)
_HEAD = struct.Struct("<4sBBHI")
_MAGIC = b"tdgt"
_ALIGN = 64
"""Bytes. Arrow wants aligned buffers: each part of a frame begins at a multiple of this."""
_TINY = 512
"""A table up to so many bytes is written as it is: to narrow and compress it takes ten times as long, for nothing."""


@dataclass(frozen=True)
class Pieces:
    """A table that is read in pieces, one after another; `sizes`: the rows of each piece."""

    table: pa.Table
    sizes: list[int]


def encode(kind: int, meta: dict[str, Any], *tables: pa.Table | Pieces) -> bytes:
    """One frame with a JSON object and any number of tables."""
    return framed(kind, meta, [body(kind, table) for table in tables])


def framed(kind: int, meta: dict[str, Any], tables: list[memoryview]) -> bytes:
    """`encode` for tables that `body` encoded one by one, so that memory need not hold all of them at once."""
    bodies = [memoryview(json.dumps(meta, separators=(",", ":")).encode()), *tables]
    parts: list[Any] = [struct.pack(f"<{len(bodies)}Q", *map(len, bodies))]
    at = _HEAD.size + len(parts[0])
    for one in bodies:
        parts += [bytes(-at % _ALIGN), one]
        at += -at % _ALIGN + len(one)
    checksum = _checksum(kind, len(tables), parts)
    return b"".join([_HEAD.pack(_MAGIC, VERSION, kind, len(tables), checksum), *parts])


def _checksum(kind: int, tables: int, parts: Iterable[Any]) -> int:
    """CRC-32 of all other bytes, the header too: a wrong number of tables would shift the meaning of the lengths."""
    checksum = zlib.crc32(_HEAD.pack(_MAGIC, VERSION, kind, tables, 0))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def body(kind: int, one: pa.Table | Pieces) -> memoryview:
    """The bytes of one table in a frame of this kind."""
    table, sizes = (one.table, one.sizes) if isinstance(one, Pieces) else (one, [one.num_rows])
    # State is written and read through a socket and logged to the checkpoint: that costs more than compressing it.
    # Blobs are read once, by a shuffle that compresses by itself; compact tables are made to be compressed.
    tiny, compact = table.nbytes <= _TINY, is_compact(table)
    codec = pa.Codec("zstd", 1) if (kind == SEGMENT or compact) and not tiny else None
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    sink = pa.BufferOutputStream()
    if not (tiny or compact):
        table = narrowed(without_repeats(table) if kind == BLOB else table)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            writer.write_table(table.slice(end - size, size))
    return memoryview(sink.getvalue())


@dataclass(frozen=True)
class Encoded:
    """A table of a frame, not decoded yet; it keeps the memory of the frame."""

    kind: int
    body: memoryview

    def table(self) -> pa.Table:
        """The table; it may share the frame's memory. Raises CheckpointError if the bytes are no table."""
        try:
            return _widened(_table(self.body))
        except _UNREADABLE as error:
            raise _no_content(self.kind, error) from error

    def pieces(self, sizes: list[int]) -> Iterator[pa.Table]:
        """The pieces of a table (`Pieces`), with these sizes. Raises CheckpointError at a piece that is no table."""
        try:
            reader = pa.ipc.open_stream(pa.py_buffer(self.body), options=_READING)
            for size in sizes:
                batches, missing = [], size
                while missing > 0:
                    batches.append(reader.read_next_batch())
                    missing -= batches[-1].num_rows
                piece = pa.Table.from_batches(batches, reader.schema)
                piece.validate()
                yield _widened(piece)
        except (*_UNREADABLE, StopIteration) as error:
            raise _no_content(self.kind, error) from error


def decode(kind: int, frame: bytes) -> tuple[dict[str, Any], list[pa.Table]]:
    """The object and the tables of a frame; tables share the frame's memory.

    Raises CheckpointError if `frame` is not a whole frame of this kind and version.
    """
    meta, tables = opened(kind, frame)
    return meta, [one.table() for one in tables]


def opened(kind: int, frame: bytes) -> tuple[dict[str, Any], list[Encoded]]:
    """`decode` with tables that are decoded one by one, so that memory need not hold all of them at once."""
    if len(frame) < _HEAD.size:
        raise _refused(kind, f"it has {len(frame)} bytes, fewer than a header")
    magic, version, found, count, checksum = _HEAD.unpack_from(frame)
    if magic != _MAGIC:
        raise _refused(kind, f"it begins with {magic!r}")
    if version != VERSION:
        raise _refused(kind, f"it has format version {version}, and this tidegate reads version {VERSION}")
    if found != kind:
        raise _refused(kind, f"it is {_KINDS.get(found, f'of the unknown kind {found}')}")
    if _checksum(kind, count, [memoryview(frame)[_HEAD.size :]]) != checksum:
        raise _refused(kind, "its checksum does not match: bytes were lost or changed")
    text, *bodies = _bodies(kind, frame, count + 1)
    try:
        meta = json.loads(bytes(text))
    except _UNREADABLE as error:
        raise _no_content(kind, error) from error
    if not isinstance(meta, dict):
        raise _refused(kind, f"its object is {str(meta)[:50]!r}")
    return meta, [Encoded(kind, one) for one in bodies]


def _widened(table: pa.Table) -> pa.Table:
    return restored(table) if is_compact(table) else with_repeats(widened(table))


def _table(encoded: memoryview) -> pa.Table:
    table = pa.ipc.open_stream(pa.py_buffer(encoded), options=_READING).read_all()
    # Buffers shorter than a column claims would be read beyond their ends.
    table.validate()
    return table


def _bodies(kind: int, frame: bytes, count: int) -> list[memoryview]:
    at = _HEAD.size + 8 * count
    if at > len(frame):
        raise _refused(kind, f"it claims {count} parts and ends before their lengths")
    bodies = []
    for length in struct.unpack_from(f"<{count}Q", frame, _HEAD.size):
        at += -at % _ALIGN
        if at + length > len(frame):
            raise _refused(kind, f"it claims a part of {length} bytes and has {max(len(frame) - at, 0)}")
        bodies.append(memoryview(frame)[at : at + length])
        at += length
    return bodies


def _no_content(kind: int, error: Exception) -> CheckpointError:
    if isinstance(error, MemoryError):
        return CheckpointError(
            f"There is too little memory to read {_KINDS[kind]}: {error}. Nothing was changed. {MORE_MEMORY}. If there "
            "is enough, its bytes are damaged: restart from an intact copy of the checkpoint."
        )
    return _refused(kind, f"its content is no JSON object and Arrow tables ({error})")


def _refused(kind: int, why: str) -> CheckpointError:
    return CheckpointError(
        f"What should be {_KINDS[kind]} cannot be read: {why}. Nothing was changed. "
        "Restart from an intact copy of the checkpoint, or with the version of tidegate that wrote it."
    )
