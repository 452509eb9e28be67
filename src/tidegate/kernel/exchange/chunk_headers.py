"""The headers of a map task's chunks, as a blob carries them: JSON, a list for each field of a header.

Every task gets the headers of all map tasks, so they are short. What may be long travels in tables: of a dense chunk
one point is known, its end, but a scattered chunk has a running-max point wherever its time grew, up to one per record;
and the first task gets the steps of the lateness metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.kernel.columns.runs import run_starts
from tidegate.kernel.state.compact import compacted
from tidegate.kernel.time.stream_time import Chunk

_IN_TABLES = ("steps", "points", "sample")
_COUNTS = ("min_ts", "late_sum", "late_max")
_FIELDS = [field.name for field in fields(Chunk) if field.name not in _IN_TABLES]
"""In the order of the arguments of Chunk."""
_DEFAULTS: dict[str, Any] = vars(Chunk(None, 0, 0, 0, 0))
"""The value of a field that a blob leaves out."""


def described(chunks: Sequence[Chunk], counts: bool) -> dict[str, Any]:
    """The headers as JSON, without those of their fields that travel in tables.

    A list for each field, of one value if all headers have it; without the fields that have their default in all
    headers; `n`: the number of headers. `counts`: for the task that reports the lateness metric.
    """
    columns: dict[str, Any] = {"n": len(chunks)} if chunks else {}
    for name in _FIELDS if counts else (name for name in _FIELDS if name not in _COUNTS):
        values = [getattr(chunk, name) for chunk in chunks]
        if any(value != values[0] for value in values):
            columns[name] = values
        elif values and values[0] != _DEFAULTS[name]:
            columns[name] = values[:1]
    return columns


def points(chunks: Sequence[Chunk], counts: bool) -> pa.Table | None:
    """The running-max points of scattered chunks: columns chunk, offset, time (ms). None without such a chunk."""
    found = [(i, part) for i, chunk in enumerate(chunks) for part in _points(chunk, counts)]
    table = _table(found, ("offset", "time"))
    return None if table is None else compacted(table)


def _points(chunk: Chunk, counts: bool) -> list[Ints]:
    return [chunk.points, chunk.sample] if counts else [chunk.points]


def steps(chunks: Sequence[Chunk]) -> pa.Table | None:
    """The steps of the lateness metric: columns chunk, time (ms), records, short. None if no chunk has any."""
    return _table([(i, chunk.steps) for i, chunk in enumerate(chunks)], ("time", "records", "short"))


def _table(parts: Iterable[tuple[int, Ints]], names: Sequence[str]) -> pa.Table | None:
    found = [(i, part) for i, part in parts if len(part)]
    if not found:
        return None
    chunk = np.repeat([i for i, _ in found], [len(part) for _, part in found])
    columns = np.concatenate([part for _, part in found]).T
    return pa.table({"chunk": pa.array(chunk)} | {name: pa.array(of) for name, of in zip(names, columns, strict=True)})


def read(described: dict[str, Any], points: pa.Table | None, steps: pa.Table | None) -> list[Chunk]:
    """The chunks of a blob, with their points and steps."""
    number = described["n"]
    columns = [described.get(name, [_DEFAULTS[name]]) for name in _FIELDS]
    chunks = [Chunk(*of) for of in zip(*(_repeated(column, number) for column in columns), strict=True)]
    for i, part in _parts(points, ("offset", "time")):
        chunks[i].points = part
    for i, part in _parts(steps, ("time", "records", "short")):
        chunks[i].steps = part
    return chunks


def _repeated(column: list[Any], number: int) -> list[Any]:
    """A value for each of `number` headers; of one value, the value repeated."""
    return column if len(column) == number else column * number


def _parts(table: pa.Table | None, names: Sequence[str]) -> Iterable[tuple[int, Ints]]:
    """The rows of each chunk in a table that `_table` made."""
    if table is None:
        return
    number = ints(table["chunk"])
    rows = np.stack([ints(table[name]) for name in names], axis=1)
    starts = run_starts(number)
    for start, part in zip(starts, np.split(rows, starts[1:]), strict=True):
        yield int(number[start]), part
