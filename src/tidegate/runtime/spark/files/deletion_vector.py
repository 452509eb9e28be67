"""Rows that a Delta table has deleted without writing their file anew: a bitmap in its log, or beside its files.

By the protocol of Delta it is a portable Roaring bitmap of 64 bits: for each 2^32 rows a bitmap of 32 bits, which has
for each 2^16 rows a list, a map of bits, or runs.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.errors import InputError
from tidegate.kernel.columns.runs import expanded
from tidegate.runtime.spark.files.stores import Root, located, too_large
from tidegate.spec.columns import OURS

DELETED = OURS + "deleted"
"""The name under which a vector goes with the values of a file's folders, as JSON text."""

Rows = npt.NDArray[np.int64]

_MAGIC = 1681511377
_RUNS, _NO_RUNS = 12347, 12346
_FEW, _LIST, _BITS = 4, 4096, 8192
"""Fewest parts that have offsets even with runs; most rows of a list; bytes of a map of bits."""
_UUID = 20
"""Letters of a UUID."""
# Delta writes Z85, which differs from Python's base 85 in its letters alone.
_LETTERS = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)


def as_text(vector: Mapping[str, Any]) -> str:
    """A vector of the log as text, for `deleted`."""
    return json.dumps({each: vector.get(each) for each in ("storageType", "pathOrInlineDv", "offset", "sizeInBytes")})


def deleted(text: str, root: Root, file: str) -> Rows:
    """The numbers of the rows of `file` that a vector deletes, in order. Raises InputError if it cannot be read."""
    vector = json.loads(text)
    try:
        return rows(_data(vector, root))
    except MemoryError as error:  # Arrow's too
        raise too_large(file, error) from error
    except (OSError, ValueError, IndexError, struct.error, pa.ArrowException) as error:
        raise InputError(
            f"The rows of {file} that are deleted cannot be read: {error}. The deletion vector is {text}. Put the file "
            "that it names in its place, and start the query again: it goes on with this batch."
        ) from error


def _data(vector: Mapping[str, Any], root: Root) -> bytes:
    kind, where = vector["storageType"], vector["pathOrInlineDv"]
    if kind == "i":
        return _decoded(where)
    if kind == "u":
        prefix, name = where[:-_UUID], UUID(bytes=_decoded(where[-_UUID:]))
        with root.opened(f"{prefix}/deletion_vector_{name}.bin".lstrip("/")) as file:
            return _of_file(file, vector)
    if kind == "p":
        store, inside = located(where)
        with store.open_input_file(inside) as file:
            return _of_file(file, vector)
    raise ValueError(f"{kind!r} is no way to store it")


def _of_file(file: Any, vector: Mapping[str, Any]) -> bytes:
    file.seek(vector.get("offset") or 0)
    (size,) = struct.unpack(">i", file.read(4))
    data: bytes = file.read(size)
    (said,) = struct.unpack(">I", file.read(4))
    if size != vector["sizeInBytes"] or len(data) != size or zlib.crc32(data) != said:
        raise ValueError("its size or its checksum is another one")
    return data


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_LETTERS))


def rows(data: bytes) -> Rows:
    """The numbers in a bitmap. Raises ValueError, IndexError or struct.error for bytes that are no bitmap."""
    magic, count = struct.unpack_from("<iq", data)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic}, which is another format")
    at, found = 12, [np.zeros(0, np.int64)]
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        part, at = _of_32_bits(data, at + 4)
        found.append(part + (high << 32))
    return np.concatenate(found)


def _of_32_bits(data: bytes, at: int) -> tuple[Rows, int]:
    """The numbers in a bitmap that begins at `at`, and the place of its end."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = np.zeros(0, bool)
    if cookie & 0xFFFF == _RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, (count + 7) // 8, at)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
        at += len(flags)
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError(f"a part of it begins with {cookie}, which is another format")
    parts = np.frombuffer(data, "<u2", 2 * count, at).reshape(count, 2).astype(np.int64)
    at += 4 * count
    if not len(runs) or count >= _FEW:
        at += 4 * count  # skip the offsets of parts: parts lie one behind the other
    found = [np.zeros(0, np.int64)]
    for number, (key, most) in enumerate(parts.tolist()):
        low, at = _container(data, at, most + 1, of_runs=bool(len(runs) and runs[number]))
        found.append(low + (key << 16))
    return np.concatenate(found), at


def _container(data: bytes, at: int, count: int, *, of_runs: bool) -> tuple[Rows, int]:
    if of_runs:
        (several,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * several, at + 2).reshape(several, 2).astype(np.int64)
        return expanded(pairs[:, 0], pairs[:, 1] + 1, 1), at + 2 + 4 * several
    if count <= _LIST:
        return np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITS, at), bitorder="little")
    return np.flatnonzero(bits), at + _BITS


def kept(deleted: Rows, first: int, count: int) -> npt.NDArray[np.bool_]:
    """A mask of `count` rows from `first` on: true for rows that are not deleted."""
    low, high = np.searchsorted(deleted, [first, first + count])
    found = np.ones(count, bool)
    found[deleted[low:high] - first] = False
    return found
