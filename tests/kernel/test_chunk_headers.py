"""Headers of chunks come out of a blob as they went in, and say nothing twice."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.kernel.exchange import chunk_headers
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.time.stream_time import ALL_STEPS, NEVER, Chunk
from tidegate.plan import operation

LONGS = st.integers(NEVER, 2**53)
COUNTS = st.integers(0, 2**31)


def rows(width: int) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(*[LONGS] * width), max_size=4).map(lambda of: np.array(of, np.int64).reshape(-1, width))


CHUNKS = st.builds(
    Chunk,
    partition=st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["0:1", "events", ""])),
    first=LONGS,
    last=LONGS,
    max_ts=LONGS,
    rows=COUNTS,
    scattered=st.booleans(),
    min_ts=LONGS,
    late_sum=st.floats(0, 1e15),
    late_max=LONGS,
    first_record=st.one_of(st.just([]), st.lists(LONGS, min_size=2, max_size=2)),
    contiguous=st.booleans(),
    forwarded=st.booleans(),
    reported=st.one_of(st.none(), LONGS),
    steps=rows(3),
    points=rows(2),
    sample=rows(2),
)


def sent(chunks: list[Chunk], counts: bool) -> list[Chunk]:
    """The headers as they come out of a blob."""
    tables = {"points": chunk_headers.points(chunks, counts)}
    tables["steps"] = chunk_headers.steps(chunks) if counts else None
    there = {name: table for name, table in tables.items() if table is not None}
    blob = frames.encode(frames.BLOB, chunk_headers.described(chunks, counts), *there.values())
    meta, sections = frames.opened(frames.BLOB, blob)
    found = dict(zip(there, (one.table() for one in sections), strict=True))
    return chunk_headers.read(meta, found.get("points"), found.get("steps"))


@given(st.lists(CHUNKS, min_size=1, max_size=6), st.booleans())
def test_headers_come_out_as_they_went_in(chunks: list[Chunk], counts: bool) -> None:
    read = sent(chunks, counts)
    assert len(read) == len(chunks)
    for one, other in zip(read, chunks, strict=True):
        if not counts:
            other.min_ts, other.late_sum, other.late_max = 0, 0.0, 0
        assert one == other
        points = [other.points, other.sample] if counts else [other.points]
        assert one.points.tolist() == np.concatenate(points).tolist()
        assert one.steps.tolist() == (other.steps.tolist() if counts else [])


def test_no_headers_are_nothing() -> None:
    """`drain.marks` sends blobs without chunks."""
    assert not chunk_headers.described([], counts=True)


@pytest.mark.parametrize("number", [1, 3])
def test_a_value_that_all_headers_have_is_there_once(number: int) -> None:
    chunks = [Chunk(7, 0, 9, 50, 10, first_record=[0, 5], contiguous=True) for _ in range(number)]
    assert chunk_headers.described(chunks, counts=False) == {
        "n": number,
        "partition": [7],
        "last": [9],
        "max_ts": [50],
        "rows": [10],
        "first_record": [[0, 5]],
        "contiguous": [True],
    }


def test_a_header_of_many_takes_few_bytes() -> None:
    chunks = [
        Chunk(n, 2_500, 4_999, 1_764_000_000_000 + n, 2_500, first_record=[2_500, 1_763_999_000_000], contiguous=True)
        for n in range(1_000)
    ]
    assert len(json.dumps(chunk_headers.described(chunks, counts=False), separators=(",", ":"))) < 25 * len(chunks)


def test_points_lie_in_the_order_of_their_chunks() -> None:
    chunks = [Chunk(n, 0, 9, 50, 10, True, points=np.full((n % 3, 2), n)) for n in range(9)]
    table = chunk_headers.points(chunks, counts=False)
    assert isinstance(table, pa.Table)
    assert [len(chunk.points) for chunk in sent(chunks, counts=False)] == [n % 3 for n in range(9)]


def test_a_map_task_with_many_chunks_sends_few_steps_of_each() -> None:
    """Each of 50 partitions has 200 records, whose time grows at every one."""
    partition, offset = np.repeat(np.arange(50), 200), np.tile(np.arange(200), 50)
    keys = pa.array(["a"] * len(offset))
    rows = pa.record_batch(
        {"k:k": keys, "ts": offset * 1_000, "partition": partition.astype(np.int32), "offset": offset}
    )
    stream = tg.stream("events", key="k", timestamp="ts", partition="partition", offset="offset")
    layout = Layout(operation(stream.group_by_key().count().node), rows.schema, sorts=False)
    first, other = (frames.opened(frames.BLOB, blob) for _, blob in pack(layout, [rows], [0, 1], contiguous=True))
    assert "steps" not in other[0]
    sent = first[1][-1].table()
    assert sent.schema.names == ["chunk", "time", "records", "short"]
    assert sum(sent["records"].to_pylist()) == len(offset)
    assert len(offset) > ALL_STEPS >= sent.num_rows
