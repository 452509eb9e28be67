"""Frames: a written frame is read back, and a changed one is refused."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fresh import printed
from tidegate.errors import CheckpointError
from tidegate.kernel.state import frames

HEAD = struct.Struct("<4sBBHI")
META = {"tasks": 2, "stream_time": 5}
ROWS = pa.table({"k:user": ["A", "B"], "ts": pa.array([1, 2], pa.int64())})
FRAME = frames.encode(frames.SEGMENT, META, ROWS, ROWS.slice(1))

# Format version 2. If these bytes change, every checkpoint is lost: raise frames.VERSION and state the cost.
GOLDEN_META = bytes.fromhex(
    "7464677402030000"  # magic, version 2, kind 3, no tables
    "b03b3ad7"  # checksum
    "0b00000000000000"  # eleven bytes of JSON
    + "00" * 44  # up to a multiple of 64
    + "7b227461736b73223a327d"
)
GOLDEN_SEGMENT = zlib.decompress(
    base64.b85decode(
        "c-kvTNiShyVq|dSl$piE009;-1`(jTmVqMh9|%4GX#p^gi-C`Uje(Vc1IPjbMi#g@50GSmihF?BKxrTbiE{u+kQ@h)EdiC|1i4MAq*%#H!4Tv`"
        "J|Hg1Oi4{oEJ@W%N-Rz-W?*1KGV21+9Y7PAK=#Q%#Xtb0rlc6eVgs7b0wfv0_6RVD0BJS`cCZTspzdU3Mb{5fpKVoIoLU4DV}Xl<{QUq(i$M82"
        "K$k;&&I2})ftdwtP5@F^@i52%?O}ndX#ipssGm`z4CGdJu-#xs;R%0PD6Igcg<)v`O`QdrJS=R`lL|VY2TE&f)&Hx&lL&PYLLn2fJd+>;gQF96"
        "aj+&xxPfQ@x-Tvj"
    )
)


def sealed(frame: bytes) -> bytes:
    """The frame with the right checksum, so that only its contents are wrong."""
    magic, version, kind, tables, _ = HEAD.unpack_from(frame)
    checksum = zlib.crc32(frame[HEAD.size :], zlib.crc32(HEAD.pack(magic, version, kind, tables, 0)))
    return HEAD.pack(magic, version, kind, tables, checksum) + frame[HEAD.size :]


def lying(count: int, *lengths: int, body: bytes = b"{}") -> bytes:
    """A META frame that claims `count` tables and these lengths."""
    head = HEAD.pack(b"tdgt", frames.VERSION, frames.META, count, 0) + struct.pack(f"<{len(lengths)}Q", *lengths)
    return sealed(head + bytes(-len(head) % 64) + body)


def refused(kind: int, frame: bytes) -> str:
    with pytest.raises(CheckpointError) as caught:
        frames.decode(kind, frame)
    return str(caught.value)


def test_what_is_written_is_read() -> None:
    meta, (whole, part) = frames.decode(frames.SEGMENT, FRAME)
    assert meta == META
    assert whole.equals(ROWS)
    assert part.equals(ROWS.slice(1))


def test_parts_are_aligned() -> None:
    lengths = struct.unpack_from("<3Q", FRAME, HEAD.size)
    at = HEAD.size + 24
    for length, first in zip(lengths, (b"{", b"\xff", b"\xff"), strict=True):
        at += -at % 64
        assert FRAME[at : at + 1] == first
        at += length
    assert at == len(FRAME)


def test_golden_bytes() -> None:
    assert frames.VERSION == 2
    assert frames.encode(frames.META, {"tasks": 2}) == GOLDEN_META
    assert frames.decode(frames.META, GOLDEN_META) == ({"tasks": 2}, [])
    # Arrow may change the bytes that it writes; we promise that it still reads these.
    meta, (rows,) = frames.decode(frames.SEGMENT, GOLDEN_SEGMENT)
    assert (meta, rows.to_pydict()) == ({}, ROWS.to_pydict())


def test_every_prefix_is_refused() -> None:
    for size in range(len(FRAME)):
        refused(frames.SEGMENT, FRAME[:size])
    assert "it has 11 bytes, fewer than a header" in refused(frames.SEGMENT, FRAME[:11])
    assert "its checksum does not match: bytes were lost or changed" in refused(frames.SEGMENT, FRAME[:-1])


def test_every_changed_byte_is_noticed() -> None:
    for at in range(len(FRAME)):
        changed = bytearray(FRAME)
        changed[at] ^= 0x41
        refused(frames.SEGMENT, bytes(changed))


def test_the_message_says_what_to_do() -> None:
    assert refused(frames.META, b"") == (
        "What should be an operator's state cannot be read: it has 0 bytes, fewer than a header. Nothing was changed. "
        "Restart from an intact copy of the checkpoint, or with the version of tidegate that wrote it."
    )


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"PAR1" + FRAME[4:], "it begins with b'PAR1'"),
        (FRAME[:4] + b"\x01" + FRAME[5:], "it has format version 1, and this tidegate reads version 2"),
        (FRAME[:5] + b"\x01" + FRAME[6:], "it is a blob on its way to a task"),
        (FRAME[:5] + b"\x03" + FRAME[6:], "it is an operator's state"),
        (FRAME[:5] + b"\x09" + FRAME[6:], "it is of the unknown kind 9"),
    ],
)
def test_what_is_something_else(frame: bytes, why: str) -> None:
    assert f"What should be a segment of a window's log cannot be read: {why}." in refused(frames.SEGMENT, frame)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (lying(0, 3), "it claims a part of 3 bytes and has 2"),
        (lying(0, 2**64 - 1), f"it claims a part of {2**64 - 1} bytes and has 2"),
        (lying(1, 2, 2**63), f"it claims a part of {2**63} bytes and has 0"),
        (lying(60_000, 2), "it claims 60001 parts and ends before their lengths"),
        (lying(0, 1), "its content is no JSON object and Arrow tables ("),
        (lying(0, 2, body=b"\xff\xfe"), "its content is no JSON object and Arrow tables ("),
        (lying(1, 2, 3, body=b"{}" + bytes(62) + b"abc"), "its content is no JSON object and Arrow tables ("),
    ],
    ids=["long", "longest", "longest table", "many", "half JSON", "no JSON", "no table"],
)
def test_lying_lengths_and_contents(frame: bytes, why: str) -> None:
    assert why in refused(frames.META, frame)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(noise: bytes) -> None:
    for kind in (frames.BLOB, frames.SEGMENT, frames.META):
        refused(kind, noise)


@given(st.integers(0, 2**16 - 1), st.lists(st.integers(0, 200) | st.integers(0, 2**64 - 1), max_size=5), st.binary())
def test_a_right_checksum_does_not_open_a_wrong_frame(count: int, lengths: list[int], body: bytes) -> None:
    try:
        meta, tables = frames.decode(frames.META, lying(count, *lengths, body=body))
    except CheckpointError:
        return
    assert len(tables) == count
    assert json.dumps(meta)


@given(st.dictionaries(st.text(), st.integers() | st.text()), st.lists(st.binary(max_size=3)))
def test_any_object_and_table_come_back(meta: dict[str, Any], values: list[bytes]) -> None:
    table = pa.table({"v": pa.array(values, pa.binary())})
    assert frames.decode(frames.BLOB, frames.encode(frames.BLOB, meta, table)) == (meta, [table])


@given(st.lists(st.integers(0, 4), min_size=1), st.booleans())
def test_pieces_of_a_table_come_back_one_by_one(sizes: list[int], large: bool) -> None:
    """Each of them widened, also if the table is so large that it was narrowed."""
    each = 100 if large else 1
    counts = [size * each for size in sizes]
    table = pa.table({"n": 10**12 + np.arange(sum(counts)), "t": [f"k{n}" for n in range(sum(counts))]})
    frame = frames.encode(frames.BLOB, {}, frames.Pieces(table, counts), table.slice(0, 1))
    _, (first, second) = frames.opened(frames.BLOB, frame)
    found = list(first.pieces(counts))
    assert [piece.num_rows for piece in found] == counts
    assert pa.concat_tables(found) == table
    assert first.table() == table
    assert second.table() == table.slice(0, 1)


def test_missing_pieces_are_refused() -> None:
    table = pa.table({"n": [1, 2, 3]})
    _, (one,) = frames.opened(frames.BLOB, frames.encode(frames.BLOB, {}, frames.Pieces(table, [1, 2])))
    pieces = one.pieces([1, 3])
    assert next(pieces).num_rows == 1
    with pytest.raises(CheckpointError, match="blob on its way to a task cannot be read: its content is no JSON"):
        next(pieces)


def test_too_little_memory_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 400 failed")

    monkeypatch.setattr(pa.ipc, "open_stream", full)
    said = refused(frames.SEGMENT, FRAME)
    assert said.startswith("There is too little memory to read a segment of a window's log: malloc of size 400 failed.")
    assert "Give the Python workers more" in said


COUNTING = """
import os
import numpy as np, pyarrow as pa
from tidegate.kernel.state import frames

rows = pa.table({name: np.random.default_rng(7).integers(0, 2**60, 50_000) for name in "abcd"})
before = len(os.listdir("/proc/self/task"))
frames.decode(frames.SEGMENT, frames.encode(frames.SEGMENT, {}, rows))
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no list of threads here")
def test_no_thread_is_started_for_a_frame() -> None:
    assert printed(COUNTING) == ["0"]
