"""Rows that a Delta table has deleted by vectors: bitmaps of every form, in the log and in files."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")

from pyspark.sql import SparkSession

import tidegate as tg
from seeds import first
from spark.test_delta import TIME, Writer, batches, record
from tidegate.errors import InputError
from tidegate.runtime.spark.files import deletion_vector
from tidegate.runtime.spark.files.stores import Root

PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
NAME = UUID("5f2a1d0e-6c33-4b1f-9a77-0123456789ab")
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
PYTHONS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def z85(data: bytes) -> str:
    return base64.b85encode(data).decode().translate(str.maketrans(PYTHONS, Z85))


def bitmap(rows: list[int], *, runs: bool = False) -> bytes:
    """Portable Roaring of 64 bits, as its specification says; with `runs`, every second part has runs."""
    highs = sorted({row >> 32 for row in rows})
    out = struct.pack("<iq", 1681511377, len(highs))
    for high in highs:
        out += struct.pack("<I", high) + _of_32([row & 0xFFFFFFFF for row in rows if row >> 32 == high], runs)
    return out


def _of_32(rows: list[int], runs: bool) -> bytes:
    keys = sorted({row >> 16 for row in rows})
    parts = [sorted({row & 0xFFFF for row in rows if row >> 16 == key}) for key in keys]
    in_runs = [runs and at % 2 == 0 for at in range(len(keys))]
    bodies = [_part(low, of_runs) for low, of_runs in zip(parts, in_runs, strict=True)]
    if runs:
        flags = sum(1 << at for at, of_runs in enumerate(in_runs) if of_runs)
        head = struct.pack("<I", 12347 | (len(keys) - 1) << 16) + flags.to_bytes((len(keys) + 7) // 8, "little")
    else:
        head = struct.pack("<II", 12346, len(keys))
    head += b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in zip(keys, parts, strict=True))
    if not runs or len(keys) >= 4:
        place = len(head) + 4 * len(keys)
        for body in bodies:
            head += struct.pack("<I", place)
            place += len(body)
    return head + b"".join(bodies)


def _part(low: list[int], of_runs: bool) -> bytes:
    if of_runs:
        breaks = [0, *(at for at in range(1, len(low)) if low[at] != low[at - 1] + 1), len(low)]
        pairs = [(low[a], b - a - 1) for a, b in zip(breaks, breaks[1:], strict=False)]
        return struct.pack("<H", len(pairs)) + b"".join(struct.pack("<HH", *pair) for pair in pairs)
    if len(low) <= 4096:
        return struct.pack(f"<{len(low)}H", *low)
    bits = np.zeros(1 << 16, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def in_file(path: Path, data: bytes, *, prefix: str = "") -> dict[str, Any]:
    """The vector in a file of the table, behind another one."""
    folder = path / prefix
    folder.mkdir(exist_ok=True)
    other = struct.pack(">i", 3) + b"abc" + struct.pack(">I", zlib.crc32(b"abc"))
    body = struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{NAME}.bin").write_bytes(b"\1" + other + body)
    return {
        "storageType": "u",
        "pathOrInlineDv": prefix + z85(NAME.bytes),
        "offset": 1 + len(other),
        "sizeInBytes": len(data),
    }


def inline(data: bytes) -> dict[str, Any]:
    padded = data + b"\0" * (-len(data) % 4)
    return {"storageType": "i", "pathOrInlineDv": z85(padded), "sizeInBytes": len(data)}


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_bitmaps_of_every_form(seed: int, runs: bool) -> None:
    r = random.Random(seed)
    rows: set[int] = set()
    for _ in range(r.choice([1, 3, 9])):
        start = r.choice([0, 65_530, 1 << 20, (1 << 32) - 5, (3 << 32) + 7])
        count = r.choice([1, 10, 4_096, 4_097, 70_000])
        rows |= set(range(start, start + count, r.choice([1, 1, 2])))
    wanted = sorted(rows)
    assert deletion_vector.rows(bitmap(wanted, runs=runs)).tolist() == wanted


def test_no_row_at_all() -> None:
    assert deletion_vector.rows(bitmap([])).tolist() == []


def test_rows_that_are_kept() -> None:
    gone = np.array([0, 5, 9])
    assert deletion_vector.kept(gone, 4, 5).tolist() == [True, False, True, True, True]


@pytest.mark.parametrize(("stored", "runs"), first(2, [("u", True), ("i", False), ("u", False), ("prefix", False)]))
def test_a_table_without_its_deleted_rows(spark: SparkSession, tmp_path: Path, stored: str, runs: bool) -> None:
    """The rows that deltalake reads; offsets have no gap, and files without a vector are whole."""
    deltalake = pytest.importorskip("deltalake")
    writer = Writer(tmp_path / "t", protocol=PROTOCOL)
    count, gone = 140_000, [0, 3, *range(100, 5_000), 131_072, 139_999]
    data = bitmap(gone, runs=runs)
    vector = inline(data) if stored == "i" else in_file(writer.path, data, prefix="ab" if stored == "prefix" else "")
    vector["cardinality"] = len(gone)
    stats = json.dumps({"numRecords": count})  # deltalake needs it
    writer.commit(
        writer.add("a.parquet", [record(n % 60, n) for n in range(count)], deletionVector=vector, stats=stats),
        writer.add("b.parquet", [record(0, -1)], at=1),
    )
    frame = tg.delta.source(spark, str(writer.path), **TIME, streaming=False).frame
    rows = frame.orderBy("offset").select("n").toArrow()["n"].to_pylist()
    wanted = sorted(set(range(count)) - set(gone))
    assert rows == [*wanted, -1]
    found = pa.table(deltalake.DeltaTable(str(writer.path)).deletion_vectors().read_all()).to_pylist()
    [mask] = [each["selection_vector"] for each in found if each["filepath"].endswith("a.parquet")]
    assert [n for n, kept in enumerate([*mask, *[True] * (count - len(mask))]) if kept] == wanted


def test_a_vector_that_cannot_be_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t", protocol=PROTOCOL)
    root = Root(f"file:{writer.path}")
    vector = in_file(writer.path, bitmap([1, 2]))
    assert deletion_vector.deleted(deletion_vector.as_text(vector), root, "a.parquet").tolist() == [1, 2]
    for wrong in (
        {**vector, "sizeInBytes": 5},
        {**vector, "offset": 2},
        {**vector, "storageType": "x"},
        inline(b"something else"),
        {**vector, "pathOrInlineDv": z85(UUID(int=1).bytes)},
    ):
        with pytest.raises(InputError, match=r"The rows of a\.parquet that are deleted cannot be read"):
            deletion_vector.deleted(deletion_vector.as_text(wrong), root, "a.parquet")


def test_a_vector_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(deletion_vector, "rows", full)
    text = deletion_vector.as_text(inline(bitmap([1])))
    with pytest.raises(InputError, match=r"too little memory to read the file a\.parquet"):
        deletion_vector.deleted(text, Root(f"file:{tmp_path}"), "a.parquet")


def test_a_deletion_while_the_query_runs_is_still_one(tmp_path: Path) -> None:
    """The log removes the file and adds it with a vector: it adds no new row."""
    writer = Writer(tmp_path / "t", protocol=PROTOCOL)
    add = writer.add("a.parquet", [record(0), record(1)])
    writer.commit(add)
    table = writer.catalog()
    _, end = batches(table, table.initial(), None)
    with_vector = {"add": {**add["add"], "deletionVector": {**inline(bitmap([0])), "cardinality": 1}}}
    writer.commit(writer.remove("a.parquet"), with_vector, operation="DELETE")
    with pytest.raises(InputError, match=r"\(DELETE\) removes 1 files and adds 1"):
        batches(writer.catalog(), end, None)
    assert batches(writer.catalog(skip_changes=True), end, None)[0] == []
