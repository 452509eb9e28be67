"""The headers of a map task's chunks, as a blob carries them: JSON, and the running-max points as a compact table.

A dense chunk has one point, its end, which is in the JSON. A scattered chunk has a point wherever its time grew, up to
one per record, and every task gets all points: so they travel as columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import ints
from tidegate.kernel.state.compact import compacted
from tidegate.kernel.time.stream_time import Chunk


def described(chunks: Iterable[Chunk], counts: bool) -> list[dict[str, Any]]:
    """The headers as JSON, without their points. `counts`: for the task that reports the lateness metric."""
    return [
        {name: value for name, value in vars(chunk).items() if name not in ("points", "sample")}
        | ({} if counts else {"steps": []})
        for chunk in chunks
    ]


def points(chunks: list[Chunk], counts: bool) -> pa.Table | None:
    """The running-max points of scattered chunks: columns chunk, offset, time (ms). None without such a chunk."""
    found = [(i, part) for i, chunk in enumerate(chunks) for part in _points(chunk, counts) if len(part)]
    if not found:
        return None
    chunk = np.repeat([i for i, _ in found], [len(part) for _, part in found])
    both = np.concatenate([part for _, part in found])
    columns = {"chunk": pa.array(chunk), "offset": pa.array(both[:, 0]), "time": pa.array(both[:, 1])}
    return compacted(pa.table(columns), along="offset")


def _points(chunk: Chunk, counts: bool) -> list[Any]:
    return [chunk.points, chunk.sample] if counts else [chunk.points]


def read(described: list[dict[str, Any]], table: pa.Table | None) -> list[Chunk]:
    """The chunks of a blob, with their points."""
    chunks = [Chunk(**one) for one in described]
    if table is None:
        return chunks
    number, both = ints(table["chunk"]), np.stack([ints(table["offset"]), ints(table["time"])], axis=1)
    for i in np.unique(number):
        chunks[i].points = both[number == i]
    return chunks
