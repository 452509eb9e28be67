"""Recordings drawn at random: disorder, partitions apart, fast clocks, hot keys, holes, null keys and times."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

import tidegate as tg
from advice.slowly import Recording
from tidegate.advice.advice import Advice
from tidegate.testing import TopologyTestDriver

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("p", pa.int32()), ("o", pa.int64()), ("at", pa.int64())])


def drawn(seed: int, *, least: int = 0, most: int = 60, bad: bool = True) -> Recording:
    """A recording, the same for the same seed; its records are in no order."""
    random = Random(seed)
    partitions = random.choice([1, 1, 2, 3, 7])
    offsets = dict.fromkeys(range(partitions), 0)
    behind = {p: random.choice([0, 0, 15]) for p in offsets}
    now, records = 0, []
    for _ in range(random.randrange(least, most)):
        now += random.choice([0, 0, 1, 3, 40])
        p = random.randrange(partitions)
        ts: Any = max(0, now - behind[p] - random.choice([0, 0, 1, 5, 30]) + random.choice([0] * 9 + [50]))
        key = random.choice(["hot", "hot", "hot", "a", "b"])
        if bad and random.random() < 0.1:
            key, ts = random.choice([(None, ts), (key, None), (key, -5), (None, None)])
        at = max(0, now + random.choice([0, 0, 0, -2]))
        records.append({"k": key, "ts": ts, "p": p, "o": offsets[p], "at": at})
        offsets[p] += random.choice([1, 1, 4])
    random.shuffle(records)
    size, advance = random.choice([(10, 10), (10, 5), (6, 4), (1, 1), (30, 7)])
    return Recording(records, size, advance, trigger=random.choice([None, None, 10, 100]))


def asked(recording: Recording, graces: list[int], *, today: int = 0, **more: Any) -> Advice:
    """Result of `tg.advise` for a recording and the windows of the recording."""
    return advised(recording, tg.TimeWindows(recording.size, recording.advance, today), graces, **more)


def advised(recording: Recording, windows: Any, graces: list[int], **more: Any) -> Advice:
    """Result of `tg.advise` for a recording and these windows."""
    return tg.advise(
        pa.Table.from_pylist(recording.records, SCHEMA),
        key="k",
        timestamp="ts",
        partition="p",
        offset="o",
        arrival="at",
        trigger=None if recording.trigger is None else f"{recording.trigger} ms",
        windows=windows,
        graces=[f"{grace} ms" for grace in graces],
        **more,
    )


def final_results(recording: Recording, windows: Any, stream_time: str = "max") -> TopologyTestDriver:
    """A driver that has taken the batches of a recording, for the final counts of windows."""
    columns = ("k", "ts", "p", "o")
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    stream = tg.stream(
        "events", key="k", timestamp="ts", partition="p", offset="o", stream_time=stream_time, schema=schema
    )
    windowed = stream.group_by_key().windowed_by(windows).emit_strategy(tg.EmitStrategy.on_window_close())
    driver = TopologyTestDriver(windowed.count())
    for batch in recording.batches():
        driver.pipe_batch([{name: r[name] for name in columns} for r in batch])
    return driver
