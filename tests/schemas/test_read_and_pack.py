"""Plain records that their reader packs: the results are those of rows that a second worker packs."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructField, StructType

import tidegate as tg
from seeds import first
from tidegate.kernel.exchange.decoding import read
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import DEFAULT
from tidegate.plan import operation
from tidegate.runtime.spark.kafka.handed_over import AT, HANDED_OVER, PLAIN, TASK, FirstWorker, Joiner
from tidegate.runtime.spark.kafka.plain import Reader
from tidegate.runtime.spark.kafka.read_and_pack import ReadAndPack
from tidegate.runtime.spark.map_step import Packer
from tidegate.runtime.spark.row_decoder import Counts
from tidegate.spec.columns import START

TASKS, SLICE = 2, 25
FIELDS = StructType([StructField("user", StringType()), StructField("at", LongType()), StructField("n", LongType())])
WANTED = pa.schema(
    [
        ("user", pa.string()),
        ("at", pa.timestamp("ms")),
        ("n", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
READER = Reader(WANTED, FIELDS, {"user": "user", "at": "at", "n": "n"}, None)
STREAM = tg.stream("events", key="user", timestamp="at", partition="partition", offset="offset")
UNORDERED = tg.stream("events", key="user", timestamp="at")
WINDOWS = tg.TimeWindows.of_size_and_grace("10 ms", "20 ms")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
MALFORMED, TWICE = "[1", '{"user": "a", "at": %d, "n": 1, "n": 7}'


def topology(least: int, stream: tg.KStream = STREAM) -> tg.KTable:
    records = stream.filter(pc.field("n") >= least)
    return records.group_by_key().windowed_by(WINDOWS).agg(n=tg.count(), total=tg.sum("n")).suppress(FINAL)


def packer(table: tg.KTable) -> tuple[Layout, Packer]:
    op = operation(table.node)
    schema = read(op, op.stream, WANTED.empty_table()).schema
    layout = Layout(op, schema, sorts=False, tuning=replace(DEFAULT, slice_rows=SLICE))
    return layout, Packer(layout, TASKS, branch=op.stream, contiguous=True)


def drawn(draw: random.Random, odd: float) -> list[pa.RecordBatch]:
    """Batches of records of one partition; a share `odd` of them is not plain."""
    batches, offset = [], 0
    for _ in range(draw.randint(0, 6)):
        values: list[bytes] = []
        for at in range(offset, offset + draw.randint(0, 40)):
            plain = {"user": draw.choice("abc"), "at": max(0, at + draw.randint(-30, 30)), "n": draw.randint(0, 9)}
            text = draw.choice([MALFORMED, TWICE % at]) if draw.random() < odd else json.dumps(plain)
            values.append(text.encode())
        offsets = range(offset, offset + len(values))
        offset += len(values)
        columns = [
            pa.array(values, pa.binary()),
            pa.array([0] * len(values), pa.int32()),
            pa.array(offsets, pa.int64()),
        ]
        batches.append(pa.record_batch(columns, ["value", "partition", "offset"]))
    return batches


def many() -> list[pa.RecordBatch]:
    """At least four batches with records, all of them plain."""
    tries = ([batch for batch in drawn(random.Random(seed), 0) if batch.num_rows] for seed in range(100))
    return next(batches for batches in tries if len(batches) > 3)


def parsed(value: bytes) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(value)
    except ValueError:
        return None
    return found


def by_spark(handed_over: Iterable[pa.RecordBatch], counts: Counts, rows_of_frame: int) -> Iterator[pa.RecordBatch]:
    """Reads the odd records and counts all, as Spark does; frames of some rows, as Spark hands them on."""
    schema = pa.schema([(PLAIN, pa.binary()), (AT, pa.int32()), (TASK, pa.int32()), *WANTED])
    rows = []
    for batch in handed_over:
        for row in batch.to_pylist():
            there = {name: row[name] for name in HANDED_OVER.names}
            if row[PLAIN] is not None:
                counts.records += row[AT]
                rows.append(there | dict.fromkeys(WANTED.names))
                continue
            counts.records += 1
            if (found := parsed(row["value"])) is None:
                counts.malformed += 1
            else:
                rows.append(there | found | {"partition": row["partition"], "offset": row["offset"]})
    yield from pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=rows_of_frame) if rows else ()


def through(
    table: tg.KTable, batches: list[pa.RecordBatch], early: bool, rows_of_frame: int
) -> tuple[Counter[tuple[Any, ...]], Counts, int]:
    """The results; the counts of records; and the number of blobs that the first worker made."""
    layout, pack = packer(table)
    first: FirstWorker = ReadAndPack(READER, pack) if early else READER
    handed_over, counts = list(first(iter(batches))), Counts()
    tasks = [each for batch in handed_over for each in batch[TASK].to_pylist()]
    blobs: dict[int, list[bytes]] = {task: [] for task in range(TASKS)}
    for task, blob in replace(pack, row_decoder=Joiner(WANTED))(by_spark(handed_over, counts, rows_of_frame), Counts()):
        blobs[task].append(blob)
    found: Counter[tuple[Any, ...]] = Counter()
    for task in range(TASKS):
        for part in Stage(layout, TASKS).begin(DictStore(), blobs[task], end_of_input=True).parts:
            found.update((row["user"], row[START], row["n"], row["total"]) for row in part.to_pylist())
    return found, counts, sum(task is not None for task in tasks)


@pytest.mark.parametrize("odd", first(2, [0, 0.01, 0.2]))
def test_results_are_those_of_rows_that_a_second_worker_packs(odd: float) -> None:
    early_blobs = later = 0
    for seed in range(50):
        draw = random.Random(seed)
        batches, least = drawn(draw, odd), draw.choice([0, 0, 5, 100])
        frame = draw.choice([1, 3, 1_000])
        found, counts, blobs = through(topology(least), batches, True, frame)
        expected, expected_counts, _ = through(topology(least), batches, False, frame)
        assert found == expected, seed
        assert counts == expected_counts, seed
        early_blobs += blobs
        later += blobs == 0
    assert early_blobs > 100 or odd
    assert later > 3


@pytest.mark.parametrize("stream", [STREAM, UNORDERED], ids=["ordered", "unordered"])
@pytest.mark.parametrize("least", [0, 5, 100])
def test_each_record_is_counted_once(stream: tg.KStream, least: int) -> None:
    batches = many()
    made = list(ReadAndPack(READER, packer(topology(least, stream))[1])(iter(batches)))
    assert sum(batch[AT][0].as_py() for batch in made) == sum(batch.num_rows for batch in batches)


def test_rows_do_not_keep_the_bytes_of_their_records() -> None:
    """Spark hands over all columns of a batch in one buffer."""
    batch = many()[0]
    batch = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    read = READER.read(batch).rows
    assert read["offset"].buffers()[1].address != batch["offset"].buffers()[1].address


def test_a_record_that_is_not_plain_ends_it() -> None:
    """The batches before leave as blobs; all others as rows, in their order."""
    batches = many()
    odd = batches[2].set_column(0, "value", pa.array([MALFORMED.encode()] * batches[2].num_rows, pa.binary()))
    made = list(ReadAndPack(READER, packer(topology(0))[1])(iter([*batches[:2], odd, *batches[3:]])))
    tasks = [batch[TASK].null_count == 0 for batch in made]
    assert tasks == sorted(tasks, reverse=True)
    assert 0 < sum(tasks) < len(tasks)
    packed = sum(batch[AT][0].as_py() for batch in made if batch[TASK].null_count == 0)
    assert packed == sum(batch.num_rows for batch in batches[:2])
    behind = [batch for batch in made if batch[TASK].null_count]
    assert behind[0]["value"].to_pylist() == odd["value"].to_pylist()
    assert [batch.schema for batch in made] == [made[0].schema] * len(made)


def test_a_task_without_records() -> None:
    first = ReadAndPack(READER, packer(topology(0))[1])
    assert list(first(iter([]))) == []
    assert list(first(iter([batch.slice(0, 0) for batch in many()]))) == []
