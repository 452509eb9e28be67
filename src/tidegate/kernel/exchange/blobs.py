"""A blob: what a map task sends to one task of the operator about a slice of its input.

Its tables are, in this order: the rows of dense chunks, if they lie in ranges of hashes (`exchange.hash_ranges`); the
other sections (`Batch.take`), without those that have no rows, because a table takes a kilobyte to say which columns it
has; and the tables of `_MORE` that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.kernel.exchange import chunk_headers
from tidegate.kernel.state import frames
from tidegate.kernel.time.stream_time import Chunk

NO_ROWS = pa.table({})

_MORE = ("counted", "steps", "points")
"""Counts for the histogram of graces, steps of the lateness metric, running-max points: few blobs have them."""


def encode(
    meta: Mapping[str, Any], sections: Sequence[pa.Table | frames.Pieces], more: Mapping[str, pa.Table | None]
) -> bytes:
    """The blob with this metadata, the sections of one task, and the tables of `_MORE`."""
    divided = [one for one in sections if isinstance(one, frames.Pieces)]
    rows = [one for one in sections if not isinstance(one, frames.Pieces)]
    others = {name: table for name in _MORE if (table := more[name]) is not None}
    about: dict[str, Any] = {**meta, **dict.fromkeys(others, True)}
    about["empty"] = [at for at, one in enumerate(rows) if not one.num_rows]
    if divided:
        about["ranges"] = divided[0].sizes
    return frames.encode(frames.BLOB, about, *divided, *(one for one in rows if one.num_rows), *others.values())


@dataclass(frozen=True)
class Blob:
    """A blob, as the operator reads it.

    side      the side of a join; None in another operator
    chunks    the headers of all chunks of the slice
    sections  the rows of the task, section by section; without those in ranges of hashes
    ranges    the rows in ranges of hashes, range by range, with these `sizes`; there may be none
    counted   in one task, the counts for the histogram of needed graces (`kernel.time.window_graces`)
    """

    side: int | None
    chunks: list[Chunk]
    sections: list[pa.Table]
    ranges: Iterator[pa.Table]
    sizes: list[int]
    counted: pa.Table | None

    @classmethod
    def of(cls, meta: Mapping[str, Any], tables: list[frames.Encoded]) -> Blob:
        """The blob with this metadata and these tables (`frames.opened`)."""
        sizes: list[int] = meta.get("ranges", [])
        ranges = tables.pop(0).pieces(sizes) if sizes else iter(())
        rows = [one.table() for one in tables]
        others = {name: rows.pop() if meta.get(name) else None for name in reversed(_MORE)}
        for at in meta["empty"]:
            rows.insert(at, NO_ROWS)
        chunks = chunk_headers.read(meta["chunks"], others["points"], others["steps"])
        return cls(meta.get("side"), chunks, rows, ranges, sizes, others["counted"])
