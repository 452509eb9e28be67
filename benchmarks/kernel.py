"""The time of the kernel without Spark: seconds of one processor per batch, to pack and to step, one task.

`python -m benchmarks.kernel`, with `PYTHONPATH=src` where tidegate is not installed. Few records on many keys show the
cost of a batch for the state, many records on few keys the cost per record.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from benchmarks.inputs import Int64s, key_names
from tidegate.kernel.columns.factorize import numbered
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import Tuning
from tidegate.plan import operation
from tidegate.runtime.spark.worker.memory import keep

WINDOW = tg.TimeWindows.of_size_with_no_grace("1 minute")
BATCHES, TURNS = 3, 7
SPREAD = (1, 8, 64, 400)
"""Numbers of tasks to which a map task sends its blobs."""
SEGMENTS = 8
"""Number of batches that bring the keys of a window that closes."""


@dataclass(frozen=True)
class Sizes:
    held: tuple[tuple[int, int], ...] = ((300_000, 10_000), (20_000, 200_000))
    """(keys in the state, records of a batch)"""
    strings: tuple[int, int] = (2_000_000, 500_000)
    """(keys to draw from, rows) of a column whose distinct strings are numbered"""
    packed: tuple[int, int] = (100_000, 500_000)
    """(keys, rows) of a batch that is packed repeatedly"""
    closed: int = 4_000_000
    """Keys of a window that closes."""
    processes: int = 5
    """Number of processes of each kind that pack, and that close."""


SMOKE = Sizes(held=((300, 10),), strings=(20_000, 10_000), packed=(100, 500), closed=8_000, processes=1)


def windowed(stream: tg.KStream) -> tg.TimeWindowedKStream:
    return stream.group_by_key().windowed_by(WINDOW)


def limited(stream: tg.KStream, most: int) -> tg.KTable:
    limit = tg.Suppressed.until_time_limit("1 minute", tg.BufferConfig.max_records(most), clock="stream")
    return windowed(stream).agg(total=tg.sum("amount")).suppress(limit)


TOPOLOGIES: dict[str, Callable[[tg.KStream], tg.KTable]] = {
    "reduce": lambda s: windowed(s).reduce(lambda total, amount: total + amount, "amount", "total"),
    "aggregate": lambda s: windowed(s).aggregate(lambda: 0, lambda _k, row, total: total + row["amount"], type="long"),
    "aggregate, vectorized": lambda s: windowed(s).aggregate(
        lambda: 0, lambda _k, rows, totals: pc.add(totals, rows["amount"]), type="long", vectorized=True
    ),
    "agg(tg.sum), updates": lambda s: windowed(s).agg(total=tg.sum("amount")),
    "agg(tg.sum), every update": lambda s: windowed(s).agg(
        tg.Materialized.as_("totals").with_caching_disabled(), total=tg.sum("amount")
    ),
    "agg(tg.sum), no windows": lambda s: s.group_by_key().agg(total=tg.sum("amount")),
    "limit, a bound with room": lambda s: limited(s, 1_000_000),
    "limit, a bound that is full": lambda s: limited(s, 1_000),
    "agg(tg.sum), final": lambda s: (
        windowed(s).agg(total=tg.sum("amount")).suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    ),
    "sessions, final": lambda s: (
        s.group_by_key()
        .windowed_by(tg.SessionWindows.of_inactivity_gap_with_no_grace("1 minute"))
        .agg(total=tg.sum("amount"))
        .suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    ),
}


def batch(names: pa.Array, keys: Int64s, offset: int) -> pa.RecordBatch:
    rows = len(keys)
    return pa.record_batch(
        {
            "k:user": names.take(pa.array(keys)),
            "v:amount": pa.array(keys % 97),
            "ts": pa.array(np.full(rows, 5, np.int64)),
            "partition": pa.array(np.zeros(rows, np.int32)),
            "offset": pa.array(offset + np.arange(rows)),
        }
    )


def seconds(build: Callable[[tg.KStream], tg.KTable], held: int, rows: int) -> float:
    """Seconds of the fastest of BATCHES batches of `rows` records; their keys are random among `held` stored keys."""
    names, rng = pa.array(key_names(np.arange(held))), np.random.default_rng(2026)
    first = batch(names, np.arange(held), 0)
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    layout = Layout(operation(build(stream).node), first.schema, sorts=False)
    stage, store = Stage(layout), DictStore()

    def step(records: pa.RecordBatch) -> float:
        began = time.process_time()
        stage.step(store, [dict(pack(layout, [records], [0]))[0]])
        return time.process_time() - began

    step(first)
    given = (batch(names, rng.integers(0, held, rows), held + n * rows) for n in range(BATCHES))
    return min(step(records) for records in given)


def numbering(distinct: int, rows: int) -> dict[str, float]:
    """Fewest seconds to number strings by `kernel/columns/factorize.py` and by Arrow's dictionary, in turns."""
    keys = np.random.default_rng(2026).integers(0, distinct, rows)
    column = pa.chunked_array([pa.array(key_names(keys))])
    ways: dict[str, Callable[[pa.ChunkedArray], object]] = {
        "by words": numbered,
        "by a dictionary": pc.dictionary_encode,
    }
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(TURNS):
        for name, way in ways.items():
            began = time.process_time()
            way(column)
            found[name] = min(found[name], time.process_time() - began)
    return found


def to_pack(keys: int, rows: int) -> tuple[Layout, pa.RecordBatch]:
    """The layout and the records of a map task of W1."""
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    given = batch(pa.array(key_names(np.arange(keys))), np.random.default_rng(2026).integers(0, keys, rows), 0)
    return Layout(operation(TOPOLOGIES["agg(tg.sum), final"](stream).node), given.schema, sorts=False), given


def packing(keys: int, rows: int) -> float:
    """Median seconds to pack a batch of W1 in a worker that has already packed some."""
    layout, given = to_pack(keys, rows)

    def once() -> float:
        began = time.process_time()
        for _ in pack(layout, [given], [0, 1]):
            pass
        return time.process_time() - began

    return median([once() for _ in range(3 + TURNS)][3:])


def blob_bytes(tasks: int, keys: int, rows: int) -> int:
    """Bytes of all blobs that a map task sends to `tasks` tasks."""
    layout, given = to_pack(keys, rows)
    return sum(len(blob) for _, blob in pack(layout, [given], range(tasks)))


def close(rows_at_once: int, keys: int) -> tuple[float, float]:
    """Seconds of the step that closes a window of `keys` keys, and growth of the peak memory of the process (MiB)."""
    layout = replace(to_pack(1, 1)[0], tuning=Tuning(close_rows=rows_at_once))
    stage, store = Stage(layout), DictStore()
    size = keys // SEGMENTS
    for low in range(0, keys, size):
        given = batch(pa.array(key_names(np.arange(low, low + size))), np.arange(size), low)
        stage.step(store, [dict(pack(layout, [given], [0]))[0]])
    # The step may use memory that is already free: that is not counted.
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    left = sum(part.num_rows for part in stage.begin(store, [], end_of_input=True).parts)
    assert left == keys, left
    return time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def closes(keys: int, processes: int) -> dict[str, tuple[float, float]]:
    """Medians of `close` for a window merged whole and in parts, in turns."""
    ways = {"whole": keys, "in parts": Tuning().close_rows}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(processes):
        for name, rows in ways.items():
            with get_context("spawn").Pool(1, keep) as worker:
                found[name].append(worker.apply(close, (rows, keys)))
    return {name: (median(s for s, _ in each), median(mib for _, mib in each)) for name, each in found.items()}


def packings(keys: int, rows: int, processes: int) -> dict[str, float]:
    """Median seconds to pack a batch in workers that return freed memory to the system, and in workers that keep it."""
    ways = {"as malloc has it": None, "as a worker of tidegate": keep}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(processes):
        for name, begin in ways.items():
            with get_context("spawn").Pool(1, begin) as worker:
                found[name].append(worker.apply(packing, (keys, rows)))
    return {name: median(seconds) for name, seconds in found.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small enough for a test: are all the parts there?")
    sizes = SMOKE if parser.parse_args(argv).smoke else Sizes()
    print(f"{'':28}" + "".join(f"{f'{rows:,} on {held:,} keys':>28}" for held, rows in sizes.held))
    for name, build in TOPOLOGIES.items():
        print(f"{name:28}" + "".join(f"{seconds(build, held, rows):26.3f} s" for held, rows in sizes.held), flush=True)
    for name, (took, mib) in closes(sizes.closed, sizes.processes).items():
        print(
            f"{f'a window that closes {name}':32}{took:18.3f} s, {mib:.0f} MiB more  ({sizes.closed:,} keys)",
            flush=True,
        )
    keys, rows = sizes.packed
    for name, seconds_of in packings(keys, rows, sizes.processes).items():
        print(f"{f'packing {name}':32}{seconds_of:18.3f} s  ({rows:,} rows of {keys:,} keys)", flush=True)
    sent = ", ".join(f"{blob_bytes(tasks, keys, rows) / 1e6:.2f} to {tasks}" for tasks in SPREAD)
    print(f"MB that a map task sends to tasks: {sent}", flush=True)
    keys, rows = sizes.strings
    for name, best in numbering(keys, rows).items():
        print(f"{f'numbering {name}':24}{best:26.3f} s  ({rows:,} rows of {keys:,} keys)", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
