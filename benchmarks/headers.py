"""A large cluster without Spark: seconds of one task, and bytes that travel, with many source partitions and tasks.

`make bench-headers`. Each map task sends the headers of its chunks to every stateful task, and each stateful task folds
all of them into one stream time. Here the map tasks run one after another, then the first stateful task, which reports
the metrics of all records, and another one. Keys are random, so a task has fewer rows if there are more tasks, and as
many headers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.inputs import key_names
from benchmarks.options import keep, say
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.plan import operation

KEYS, BATCHES = 100_000, 2
Clock = Literal["max", "min_partition"]
CLOCKS: tuple[Clock, ...] = ("max", "min_partition")
WHOLE = 5
"""Number of map tasks that pack for all stateful tasks; the others pack for the two that are measured."""


@dataclass(frozen=True)
class Cluster:
    """Source partitions, the map tasks that read them, the stateful tasks, and the records of a micro-batch.

    repartitioned  whether records are dealt to the map tasks in turns, so that each has some of every partition
    """

    partitions: int
    maps: int
    tasks: int
    records: int
    repartitioned: bool = False


LARGE = tuple(Cluster(partitions, 400, 400, 1_000_000) for partitions in (400, 2_000, 10_000))
MANY_TASKS = tuple(Cluster(tasks, tasks, tasks, 1_000_000) for tasks in (100, 1_000))
DEALT = (Cluster(100, 40, 40, 1_000_000, True), Cluster(1_000, 40, 40, 1_000_000, True))
SMOKE = (Cluster(8, 4, 4, 800), Cluster(8, 4, 4, 800, True))


def map_tasks(of: Cluster, batch: int) -> Iterator[pa.RecordBatch]:
    """The records of each map task in a micro-batch; a partition has one record a second."""
    rng = np.random.default_rng(2026 + batch)
    each = of.records // of.partitions
    names = pa.array(key_names(np.arange(KEYS)))
    offset = np.arange(batch * each, (batch + 1) * each)
    partition = np.repeat(np.arange(of.partitions), each)
    offsets = np.tile(offset, of.partitions)
    map_task = np.arange(len(partition)) % of.maps if of.repartitioned else partition * of.maps // of.partitions
    for number in range(of.maps):
        mine = np.flatnonzero(map_task == number)
        keys = rng.integers(0, KEYS, len(mine))
        yield pa.record_batch(
            {
                "k:user": names.take(pa.array(keys)),
                "v:amount": pa.array(keys % 97),
                "ts": pa.array(offsets[mine] * 1000 + rng.integers(0, 1000, len(mine))),
                "partition": pa.array(partition[mine].astype(np.int32)),
                "offset": pa.array(offsets[mine]),
            }
        )


def layout_of(of: Cluster, clock: Clock) -> Layout:
    windows = tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds")
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset", stream_time=clock)
    totals = stream.group_by_key().windowed_by(windows).agg(total=tg.sum("amount"))
    final = totals.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    return Layout(operation(final.node), next(map_tasks(of, 0)).schema, sorts=False)


def measure(of: Cluster, clock: Clock) -> dict[str, Any]:
    """The last batch: processor seconds of a map task and of two stateful tasks, and MB that all map tasks send."""
    layout = layout_of(of, clock)
    stages = [(Stage(layout, of.tasks), DictStore()) for _ in range(2)]
    found: dict[str, Any] = {}
    for batch in range(BATCHES):
        blobs: list[list[bytes]] = [[], []]
        packing, sent = [], []
        for number, records in enumerate(map_tasks(of, batch)):
            began = time.process_time()
            packed = pack(layout, [records], range(of.tasks), not of.repartitioned)
            for mine, (_, blob) in zip(blobs, packed, strict=False):
                mine.append(blob)
            if number < WHOLE:
                sent.append(sum(len(mine[-1]) for mine in blobs) + sum(len(blob) for _, blob in packed))
                packing.append(time.process_time() - began)
        took = []
        for (stage, store), mine in zip(stages, blobs, strict=True):
            began = time.process_time()
            stage.step(store, mine)
            took.append(time.process_time() - began)
        found = {"map": median(packing), "first": took[0], "other": took[1], "mb": of.maps * median(sent) / 1e6}
    return found | {"clock": clock, **asdict(of)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small enough for a test: are all the parts there?")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/headers.json"))
    options = parser.parse_args(argv)
    shapes = SMOKE if options.smoke else (*LARGE, *MANY_TASKS, *DEALT)
    report = []
    titles = ("partitions", "map tasks", "tasks"), ("a map", "first", "other", "MB")
    numbers, measured = ("".join(f"{title:>11}" for title in some) for some in titles)
    say(f"{numbers}  {'stream time':15}{measured}")
    for of in shapes:
        for clock in CLOCKS:
            one = measure(of, clock)
            report.append(one)
            dealt = "  dealt in turns" if of.repartitioned else ""
            say(
                f"{of.partitions:>11,}{of.maps:>11,}{of.tasks:>11,}  {clock:15}"
                f"{one['map']:>11.3f}{one['first']:>11.3f}{one['other']:>11.3f}{one['mb']:>11.1f}{dealt}"
            )
    keep({"seconds": report}, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
