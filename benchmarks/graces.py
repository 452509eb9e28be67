"""The cost of the histogram of graces: seconds of one processor to pack and to step, with the histogram and without.

`python -m benchmarks.graces`, with `PYTHONPATH=src` where tidegate is not installed. Both ways take turns on each
batch. The table has medians over the batches, and the median of the differences on the same batch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.inputs import key_names
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.plan import Operation, operation

SCHEMA = pa.schema(
    {"k:user": pa.string(), "v:amount": pa.int64(), "ts": pa.int64(), "partition": pa.int32(), "offset": pa.int64()}
)
SPAN_MS, FIRST_MS, PARTITIONS = 600_000, 10**12, 2


@dataclass(frozen=True)
class Shape:
    """An input and its windows; half of the records are up to `disorder_ms` out of order."""

    name: str
    windows: Any
    rows: int
    keys: int
    disorder_ms: int


def shapes(rows: int) -> list[Shape]:
    of = tg.TimeWindows.of_size_and_grace
    return [
        Shape("1 hour, 5 s late", of("1 hour", "1 minute"), rows, 10_000, 5_000),
        Shape("1 minute, 30 s late", of("1 minute", "30 s"), rows, 10_000, 30_000),
        Shape("10 s, 30 s late", of("10 s", "30 s"), rows, 10_000, 30_000),
        Shape("1 minute, 100 k keys", of("1 minute", "30 s"), rows, 100_000, 30_000),
        Shape("1 hour every 5 minutes", of("1 hour", "1 minute").advance_by("5 minutes"), rows, 10_000, 60_000),
        Shape("1 minute, a small batch", of("1 minute", "30 s"), rows // 50, 1_000, 30_000),
        Shape("sessions, gap 1 minute", tg.SessionWindows(60_000, 30_000), rows, 10_000, 60_000),
        Shape("sliding, 1 s", tg.SlidingWindows(1_000, 60_000), rows, 100_000, 30_000),
        Shape("join, 1 s", tg.JoinWindows(1_000, 1_000, 30_000), rows, 100_000, 30_000),
    ]


def batches(shape: Shape, count: int) -> Iterator[pa.RecordBatch]:
    """Batches of two partitions, each in the order of its offsets."""
    rng, names = np.random.default_rng(2026), pa.array(key_names(np.arange(shape.keys)))
    half = shape.rows // PARTITIONS
    for number in range(count):
        ts = np.concatenate([np.sort(rng.integers(0, SPAN_MS, half)) for _ in range(PARTITIONS)])
        late = rng.integers(0, shape.disorder_ms, len(ts)) * (rng.random(len(ts)) < 0.5)
        columns = [
            names.take(pa.array(rng.integers(0, shape.keys, len(ts)))),
            rng.integers(0, 97, len(ts)),
            FIRST_MS + number * SPAN_MS + ts - late,
            np.repeat(np.arange(PARTITIONS), half).astype(np.int32),
            np.tile(np.arange(half) + number * half, PARTITIONS),
        ]
        yield pa.record_batch(list(map(pa.array, columns)), schema=SCHEMA)


@contextmanager
def without() -> Iterator[None]:
    """Operations keep no histogram of graces."""
    with mock.patch.object(Operation, "reports_graces", property(lambda _: False)):
        yield


def laid_out(windows: Any) -> tuple[Layout, list[Layout]]:
    """The layout of final sums in these windows, or of a join, and the layouts of its inputs."""
    columns = pa.schema([one.with_name(one.name.removeprefix("k:").removeprefix("v:")) for one in SCHEMA])
    order = {"partition": "partition", "offset": "offset", "schema": columns}
    stream, other = (
        tg.stream(name, key="user", timestamp="ts", stream_time="max", **order) for name in ("events", "others")
    )
    if isinstance(windows, tg.JoinWindows):
        op = operation(stream.join(other, windows, suffixes=("_l", "_r")).node)
        layout = Layout.of_join(op, [SCHEMA, SCHEMA], sorts=False)
        return layout, [layout.of_side(side, SCHEMA) for side in (0, 1)]
    final = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    plan = stream.group_by_key().windowed_by(windows).agg(total=tg.sum("amount")).suppress(final)
    layout = Layout(operation(plan.node), SCHEMA, sorts=False)
    return layout, [layout]


def measured(shape: Shape, turns: int) -> tuple[list[float], list[float]]:
    """Median seconds to pack and to step without the histogram, and the median extra seconds with it."""
    layout, inputs = laid_out(shape.windows)
    stage, stores = Stage(layout), (DictStore(), DictStore())

    def once(given: pa.RecordBatch, store: DictStore) -> tuple[float, float]:
        parts = [given] if len(inputs) == 1 else [given.slice(0, shape.rows // 2), given.slice(shape.rows // 2)]
        began = time.process_time()
        blobs = [
            blob for one, part in zip(inputs, parts, strict=True) for _, blob in pack(one, [part], [0], contiguous=True)
        ]
        packed = time.process_time()
        stage.step(store, blobs)
        return packed - began, time.process_time() - packed

    plain, more = [], []
    for number, given in enumerate(batches(shape, turns + 2)):
        found = {}
        for with_it in (number % 2 == 0, number % 2 != 0):
            if with_it:
                found[True] = once(given, stores[0])
            else:
                with without():
                    found[False] = once(given, stores[1])
        if number >= 2:
            plain.append(found[False])
            more.append([one - other for one, other in zip(found[True], found[False], strict=True)])
    return [median(one) for one in zip(*plain, strict=True)], [median(one) for one in zip(*more, strict=True)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="records of a batch (500000)")
    parser.add_argument("--turns", type=int, default=9, help="batches that are measured (9)")
    parsed = parser.parse_args(argv)
    print(f"{'':26}{'rows':>10}{'pack':>10}{'with it':>10}{'step':>12}{'with it':>10}")
    for shape in shapes(parsed.rows):
        plain, more = measured(shape, parsed.turns)
        said = [f"{s * 1000:7.1f} ms{extra / s:+9.1%}" for s, extra in zip(plain, more, strict=True)]
        print(f"{shape.name:26}{shape.rows:10,} {'  '.join(said)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
