"""The cost of a batch over much state: milliseconds of one processor, bytes read and written.

`python -m benchmarks.open_records`. `--before FOLDER` also runs the same with the tidegate of another checkout, each
point in a process of its own. The inputs of J3 and J4 (`workloads.open_joins`) and J6 (`workloads.large_table`) go
through pack and step of one task without Spark. N is a number of `--open`. The open records come first; the table has
the median of the small batches after them, of 5,000 records a side, and the milliseconds of the slowest one.

J4        N records are open in one hour.
J4-hot    The same; one key has a tenth of the left records.
J3        N records are open; the window grows with N, the pairs of a batch do not.
J6        A table of N keys comes first; a small batch has 10,000 records and 1,000 changes.
J1-inner, J1-left, J1-inner-5, J1-left-5
          N keys have one pair a record, or five; with `--rows 1_000_000` these are the batches of J1, and with two
          million keys the batches of J2.
updates   N keys are in one window before small batches of 10,000 records. (`--rows 500_000 --open 100_000`: batches
          that have all keys.)
updates-function
          The same with a Python function instead of a sum.
table     N keys are in a table without windows before small batches of 10,000 records.
sessions, sliding
          N windows of N keys are open, each for an hour. Half of the 10,000 records of a small batch have these keys,
          the others new keys, and about as many windows close. (With `--rows` of all keys or more, all records have
          these keys.)

The megabytes are the largest memory of the process in a step, and the memory before the step; steps that load the open
records count too, but for "MB when loaded". The store is in files, and memory is reused as in a worker. Linux only.

`--workers N`: N workers run the steps, each step by one of them at random, as on Spark. All are in this process, but
each has copies of its own (`kernel.state.copies`), and shares their files. The table has the megabytes of the copies of
the worker with most. `--copy-megabytes N`: the most megabytes for the copies of a worker.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, cast

from benchmarks import before
from benchmarks.inputs import HALVES

OPEN = (100_000, 1_000_000, 10_000_000)
UPDATES = ("updates", "updates-function", "table")
BY_KEY = ("sessions", "sliding")
HOWS = {"J1-inner": ("inner", 1), "J1-inner-5": ("inner", 5), "J1-left": ("left", 1), "J1-left-5": ("left", 5)}
"""How the records of these join, and about the number of pairs of a record."""
WORKLOADS = (*HOWS, "J3", "J4", "J4-hot", "J6", *UPDATES, *BY_KEY)
ROWS = 5_000
LOAD_ROWS = 1_000_000
"""Records of a batch that loads state."""
BATCHES = 5
_PROCESS = Path("/proc/self")


def megabytes(name: str) -> float:
    """Megabytes of this process now (`VmRSS`), or at most since `VmHWM` was reset (`VmHWM`)."""
    found = (line.split() for line in (_PROCESS / "status").read_text().splitlines())
    return next(int(words[1]) / 1024 for words in found if words[0] == f"{name}:")


@dataclass(frozen=True)
class Prepared:
    """The operation to measure, and the records of each batch by side; the first `load` batches only load state."""

    op: Any
    load: int
    batches: Iterator[list[list[Any]]]


def two_streams(workload: str, entries: int, rows: int, small: int) -> Prepared:
    """J3 and J4: `entries` records are open before the small batches. J1: all batches are alike."""
    import tidegate as tg
    from benchmarks.two_sides import GRACE_MS, VALUES, Half, Shape, Stretch, halves, span_for
    from benchmarks.workloads.joins import WINDOW_MS
    from benchmarks.workloads.open_joins import HOW, Point, long_window, same_window
    from tidegate.plan import operation

    how, pairs = HOWS.get(workload, (HOW, 1))
    if workload in HOWS:
        stretch = Stretch(1 + small, rows, span_for(pairs, rows, entries, WINDOW_MS))
        point = Point(entries, Shape(entries, WINDOW_MS, (stretch,)), load=1)
    elif workload == "J3":
        point = long_window(entries // (2 * rows), rows, small)
    else:
        point = same_window(entries, rows, small)
    if workload == "J4-hot":
        point = replace(point, shape=replace(point.shape, hot_percent=(10, 0)))
    names = named(point.shape.keys)

    def records(half: Half, side: int) -> Any:
        return record_batch(names, half.key, VALUES[side], half.value, half.ts_ms, half.partition, half.first_offset)

    left, right = (tg.stream(side, **ORDER, stream_time="max") for side in ("left", "right"))
    windows = tg.JoinWindows.of_time_difference_and_grace(f"{point.shape.window_ms} ms", f"{GRACE_MS} ms")
    inputs = [halves(point.shape, side) for side in (0, 1)]
    batches = (
        [[records(next(inputs[side]), side) for _ in range(HALVES)] for side in (0, 1)] for _ in point.shape.batches
    )
    return Prepared(operation(left.join(right, windows, cast(Literal["inner", "left"], how)).node), point.load, batches)


def stream_and_table(entries: int, rows: int, small: int) -> Prepared:
    """J6: a table of `entries` keys is loaded before the small batches."""
    import numpy as np

    import tidegate as tg
    from benchmarks.two_sides import VALUES
    from benchmarks.workloads import large_table
    from tidegate.plan import operation

    shape = large_table.Shape(entries, 2 * rows, max(1, rows // 5), small)
    names = named(entries * 2)
    left, right = tg.stream("left", **ORDER, stream_time="max"), tg.table("right", **ORDER)

    def batches() -> Iterator[list[list[Any]]]:
        for number, batch in enumerate(large_table.batches(shape)):
            sides = []
            for value, (keys, values), ms in zip(
                VALUES, (batch.records, batch.changes), (batch.record_ms, batch.change_ms), strict=True
            ):
                at = np.full(len(keys), ms)
                sides.append([record_batch(names, keys, value, values, at, 0, number * large_table.LOAD_ROWS)])
            yield sides

    return Prepared(operation(left.left_join(right).node), shape.load, batches())


def window_of_updates(workload: str, entries: int, rows: int, small: int) -> Prepared:
    """Updates of one window, or of a table, which has `entries` keys before the small batches."""
    import numpy as np

    import tidegate as tg
    from tidegate.plan import operation

    names, rng, load = named(entries), np.random.default_rng([2026, entries]), max(1, -(-entries // LOAD_ROWS))
    window = tg.TimeWindows.of_size_with_no_grace("1 day")
    grouped = tg.stream("events", **ORDER).group_by_key()
    windowed: Any = grouped if workload == "table" else grouped.windowed_by(window)
    if workload != "updates-function":
        table = windowed.agg(total=tg.sum("amount"))
    else:
        table = windowed.reduce(lambda total, amount: total + amount, "amount", "total")

    def batches() -> Iterator[list[list[Any]]]:
        every, offset = np.array_split(rng.permutation(entries), load), 0
        for number in range(load + small):
            keys = every[number] if number < load else rng.integers(0, entries, 2 * rows)
            at = np.full(len(keys), 1_000 + number)
            yield [[record_batch(names, keys, "amount", keys % 97, at, 0, offset)]]
            offset += len(keys)

    return Prepared(operation(table.node), load, batches())


def windows_of_keys(workload: str, entries: int, rows: int, small: int) -> Prepared:
    """Final results of sessions or sliding windows, `entries` of which are open before the small batches."""
    import numpy as np

    import tidegate as tg
    from tidegate.plan import operation

    gap_ms, load, rng = 3_600_000, max(1, -(-entries // LOAD_ROWS)), np.random.default_rng([2026, entries])
    if workload == "sessions":
        windows: Any = tg.SessionWindows.of_inactivity_gap_with_no_grace(f"{gap_ms} ms")
    else:
        windows = tg.SlidingWindows.of_time_difference_and_grace("10 minutes", f"{gap_ms} ms")
    table = tg.stream("events", **ORDER).group_by_key().windowed_by(windows).agg(total=tg.sum("amount"))
    final = table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    # The first small batch may change the storage of windows; it counts as loading.
    small += 1
    names = named(entries + (rows * small if rows < entries else 0))

    def times(numbers: Any) -> Any:
        """Even timestamps (ms) from the second hour on: records of the first hour would share a sliding window."""
        return gap_ms + numbers * gap_ms // entries

    def batches() -> Iterator[list[list[Any]]]:
        for some in np.array_split(np.arange(entries), load):
            yield [[record_batch(names, some, "amount", some % 97, times(some), 0, int(some[0]))]]
        for number in range(small):
            fresh = entries + number * rows + np.arange(rows)
            keys, at = rng.integers(0, entries, 2 * rows), np.full(2 * rows, 2 * gap_ms + number)
            if rows < entries:
                # New keys, and old keys whose windows are still open.
                keys = np.concatenate((fresh, rng.integers((number + 1) * rows, entries, rows)))
                at = np.tile(times(fresh), 2)
            yield [[record_batch(names, keys, "amount", keys % 97, at, 0, entries + number * 2 * rows)]]

    return Prepared(operation(final.node), load + 1, batches())


ORDER: dict[str, Any] = {"key": "user", "timestamp": "ts", "partition": "partition", "offset": "offset"}


def named(keys: int) -> Any:
    """The names of the keys 0 to `keys` - 1."""
    import numpy as np
    import pyarrow as pa

    from benchmarks.inputs import key_names

    return pa.array(key_names(np.arange(keys)))


def record_batch(names: Any, keys: Any, value: str, values: Any, ms: Any, partition: int, offset: int) -> Any:
    """Records of one partition, in the columns of the map step's input."""
    import numpy as np
    import pyarrow as pa

    rows = len(keys)
    columns = {"k:user": names.take(pa.array(keys)), f"v:{value}": pa.array(values), "ts": pa.array(ms)}
    columns |= {"partition": pa.array(np.full(rows, partition, np.int32)), "offset": pa.array(offset + np.arange(rows))}
    return pa.record_batch(columns)


def prepare(workload: str, entries: int, rows: int, small: int) -> Prepared:
    if workload in UPDATES:
        return window_of_updates(workload, entries, rows, small)
    if workload in BY_KEY:
        return windows_of_keys(workload, entries, rows, small)
    if workload == "J6":
        return stream_and_table(entries, rows, small)
    return two_streams(workload, entries, rows, small)


def layouts(op: Any, schemas: list[Any]) -> tuple[Any, list[Any]]:
    """The layout of an operation, and the layouts of the map steps of its inputs."""
    from tidegate.kernel.rows.layout import Layout

    if op.joined is None:
        layout = Layout(op, schemas[0], sorts=False)
        return layout, [layout]
    layout = Layout.of_join(op, schemas, sorts=False)
    return layout, [layout.of_side(side, schema) for side, schema in enumerate(schemas)]


def measured(
    workload: str, entries: int, rows: int, small: int = BATCHES, workers: int = 1, copy_megabytes: int = 64
) -> dict[str, float]:
    """The numbers of one point by column of the table, with the tidegate that this process imports."""
    from itertools import chain

    import numpy as np

    from tidegate.kernel.exchange.packing import pack
    from tidegate.kernel.stage import Stage
    from tidegate.kernel.state import sorted_runs
    from tidegate.kernel.state.copies import Copies
    from tidegate.runtime.spark.worker import memory

    prepared = prepare(workload, entries, rows, small)
    first = next(prepared.batches)
    layout, sides = layouts(prepared.op, [side[0].schema for side in first])
    copies, draw = [Copies() for _ in range(workers)], np.random.default_rng(2026)
    costs = []
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        store = counting(Path(folder), copy_megabytes)
        for given in chain([first], prepared.batches):
            blobs = [blob for side, records in zip(sides, given, strict=True) for _, blob in pack(side, records, [0])]
            given.clear()
            mine = copies[draw.integers(workers)]
            for module in (sorted_runs, memory):
                vars(module)["COPIES"] = mine
            memory.keep()
            costs.append(cost_of(Stage(layout), store, blobs))
    loading, later = costs[: prepared.load], costs[prepared.load :]
    found = {name: median(cost[name] for cost in later) for name in ("ms", "read", "written", "rows")}
    return found | {
        "worst": max(cost["ms"] for cost in later),
        "copies": max(sum(one.memory for one in worker.held.values()) for worker in copies) / 2**20,
        "load": sum(cost["ms"] for cost in loading) / 1e3,
        "later": max(cost["most"] for cost in later),
        "before": max(cost["before"] for cost in costs),
        "most": max(cost["most"] for cost in costs),
    }


def cost_of(stage: Any, store: Any, blobs: list[bytes]) -> dict[str, float]:
    """The time, bytes, rows and memory of a step; it takes the blobs."""
    store.read_bytes = store.written = 0
    before = megabytes("VmRSS")
    (_PROCESS / "clear_refs").write_text("5")  # resets VmHWM
    began = time.process_time()
    step = stage.begin(store, [blobs.pop() for _ in range(len(blobs))])
    rows = sum(part.num_rows for part in step.parts)
    took = time.process_time() - began
    costs = {"ms": took * 1e3, "read": store.read_bytes, "written": store.written, "rows": rows}
    return costs | {"before": before, "most": megabytes("VmHWM")}


def counting(folder: Path, copy_megabytes: int) -> Any:
    """A store that counts the bytes it reads and writes; only its named values are in memory, all others in files."""
    from tidegate.kernel.state.store import DictStore
    from tidegate.kernel.tuning import DEFAULT
    from tidegate.runtime.spark.worker.state import SparkStore

    # As on Spark; earlier versions have less.
    on_spark: Any = SparkStore(None)
    if hasattr(on_spark, "shared"):
        from tidegate.runtime.spark import shared_files

        shared_files.begin()

    class Counting(DictStore):
        read_bytes = written = 0

        def file(self, window: int, segment: int) -> Path:
            return folder / f"{window}.{segment}"

        def beside(self, parts: Any) -> Any:
            return on_spark.beside(parts)

        def share(self, digest: str, copy: Any, about: Any) -> None:
            on_spark.share(digest, copy, about)

        def shared(self, digest: str) -> Any:
            return on_spark.shared(digest)

        def put(self, name: str, value: bytes) -> None:
            self.written += len(value)
            super().put(name, value)

        def read(self, window: int, segment: int) -> bytes:
            found = self.file(window, segment).read_bytes()
            self.read_bytes += len(found)
            return found

        def write(self, window: int, segment: int, value: bytes) -> None:
            self.written += len(value)
            self.file(window, segment).write_bytes(value)

        def remove(self, window: int, segment: int) -> None:
            self.file(window, segment).unlink()

    return Counting(tuning=replace(DEFAULT, copy_bytes=copy_megabytes << 20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of a version to compare with")
    parser.add_argument("--open", type=int, nargs="+", default=list(OPEN), help="open records of both sides, or keys")
    parser.add_argument("--rows", type=int, default=ROWS, help="the records of a side in a small batch")
    parser.add_argument("--batches", type=int, default=BATCHES, help="small batches")
    parser.add_argument("--workers", type=int, default=1, help="workers that run the steps, each with its own copies")
    parser.add_argument("--copy-megabytes", type=int, default=64, help="for the copies of a worker")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--measure", help="measure one point with the tidegate that is imported, print JSON")
    chosen = parser.parse_args()
    if chosen.measure is not None:
        sizes = (chosen.rows, chosen.batches, chosen.workers, chosen.copy_megabytes)
        print(json.dumps(measured(chosen.measure, chosen.open[0], *sizes)))
        return
    columns = {"ms": "ms", "worst": "ms at most", "read": "bytes read", "written": "written", "rows": "rows"}
    columns |= {"load": "s of loading", "before": "MB before", "most": "MB in a step", "later": "MB when loaded"}
    columns |= {"copies": "MB of copies"}
    with_decimal = ("ms", "worst", "load", "copies")
    print(f"{'open records':<24}{'':>8}" + "".join(f"{title:>15}" for title in columns.values()))
    for workload in chosen.workloads:
        for count in chosen.open:
            arguments = ["--measure", workload, "--open", str(count)]
            for option in ("rows", "batches", "workers", "copy_megabytes"):
                arguments += [f"--{option.replace('_', '-')}", str(vars(chosen)[option])]
            for name, source in before.sources(chosen.before).items():
                cost: dict[str, Any] = before.measured("benchmarks.open_records", source, arguments)
                numbers = "".join(f"{cost[column]:>15,.{1 if column in with_decimal else 0}f}" for column in columns)
                print(f"{f'{workload}, {count:,}':<24}{name:>8}{numbers}", flush=True)


if __name__ == "__main__":
    main()
