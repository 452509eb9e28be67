"""Keys of result rows: as numbers, as hashes, and as the serialized bytes that say who leaves first."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import grouping, results
from tidegate.kernel.hashing import hash64
from tidegate.kernel.layout import Layout
from tidegate.kernel.panes import Ints
from tidegate.spec.windows import SessionWindows

_BLOCK = 1024


def columns(layout: Layout) -> list[str]:
    """The columns that are the key of a row, in the order of the serialized key (a session's end before its start)."""
    if layout.op.windows is None:
        return list(layout.op.key)
    return [*layout.op.key, *(["__end"] if isinstance(layout.op.windows, SessionWindows) else []), "__start"]


def codes(layout: Layout, rows: pa.Table) -> Ints:
    """One number per row, the same for rows of one key (and window)."""
    return grouping.codes([rows[name] for name in columns(layout)])


def hashes(layout: Layout, rows: pa.Table) -> Any:
    """A hash of each row's key (and window), the same in every process."""
    hashed = np.zeros(rows.num_rows, np.uint64)
    for name in columns(layout):
        hashed = hashed * np.uint64(31) + hash64(rows[name])
    return hashed


def in_order(layout: Layout, rows: pa.Table, step: Ints, since: Ints) -> pa.Array:
    """Indices that sort rows as they leave: by step, then by (buffer time, key)."""
    by: dict[str, Any] = {"s": step, "t": since} | {f"k:{n}": results.serial(rows[n]) for n in columns(layout)}
    return pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])


def _serialized(layout: Layout, rows: pa.Table) -> Iterator[bytes]:
    """Keys as bytes that sort as Kafka's do: key columns, then the window's start; of a session its end and start."""
    columns = [[_bytes(value) for value in rows[name].to_pylist()] for name in layout.op.key]
    if layout.op.windows is not None:
        bounds = ["__end", "__start"] if isinstance(layout.op.windows, SessionWindows) else ["__start"]
        columns += [[struct.pack(">Q", value) for value in rows[name].to_pylist()] for name in bounds]
    # Between columns a zero byte: a shorter key comes before the ones that it begins.
    return (b"\0".join(parts) for parts in zip(*columns, strict=True))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return (value % 2**64).to_bytes(8, "big")
    if isinstance(value, float):
        return struct.pack(">d", value)
    return value if isinstance(value, bytes) else str(value).encode()


class Names:
    """The serialized keys of rows, made a block at a time where they are asked for."""

    def __init__(self, layout: Layout, rows: pa.Table) -> None:
        self._layout, self._rows = layout, rows.select(columns(layout))
        self._blocks: dict[int, list[bytes]] = {}

    def of(self, row: int) -> bytes:
        """The key of a row."""
        block = row // _BLOCK
        if block not in self._blocks:
            self._blocks[block] = list(_serialized(self._layout, self._rows.slice(block * _BLOCK, _BLOCK)))
        return self._blocks[block][row % _BLOCK]
