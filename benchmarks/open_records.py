"""What a batch of a join costs over many open records: milliseconds of one processor, bytes read and written.

`python -m benchmarks.open_records`. `--before FOLDER` runs the same with the tidegate of another checkout besides, each
point in a process of its own. The inputs are those of J3 and J4 (`workloads.open_joins`), through pack and step of one
task without Spark. The open records come first; the table has the median of the small batches behind them, of 5,000
records a side. In J4 an hour is open, and few or many records lie in it; in J4-hot one key has a tenth of the left
ones; in J3 the window grows with what is open, and the pairs of a batch stay as many.

The megabytes are the most that the process has in a step, and those that were there before it; steps that load the open
records are among them. The store is in files, and memory is used again as in a worker. Linux alone says them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, cast

from benchmarks import before

OPEN = (100_000, 1_000_000, 10_000_000)
WORKLOADS = ("J3", "J4", "J4-hot")
ROWS = 5_000
BATCHES = 5
_PROCESS = Path("/proc/self")


def megabytes(name: str) -> float:
    """What the system says of this process: VmRSS is what it has now, VmHWM the most since `VmHWM` was reset."""
    found = (line.split() for line in (_PROCESS / "status").read_text().splitlines())
    return next(int(words[1]) / 1024 for words in found if words[0] == f"{name}:")


def measured(workload: str, entries: int, rows: int) -> dict[str, float]:
    """The medians of one point, in this process and with the tidegate it imports."""
    import numpy as np
    import pyarrow as pa

    import tidegate as tg
    from benchmarks.inputs import HALVES, key_names
    from benchmarks.two_sides import GRACE_MS, VALUES, Half, halves
    from benchmarks.workloads.open_joins import HOW, long_window, same_window
    from tidegate.kernel.exchange.packing import pack
    from tidegate.kernel.rows.layout import Layout
    from tidegate.kernel.stage import Stage
    from tidegate.plan import operation
    from tidegate.runtime.spark import memory

    folder = tempfile.TemporaryDirectory(prefix="tidegate-bench-")
    wide = workload == "J3"
    point = long_window(entries // (2 * rows), rows, BATCHES) if wide else same_window(entries, rows, BATCHES)
    if workload == "J4-hot":
        point = replace(point, shape=replace(point.shape, hot_percent=(10, 0)))
    names = pa.array(key_names(np.arange(point.shape.keys)))

    def records(half: Half, side: int) -> pa.RecordBatch:
        rows = len(half.key)
        columns = {"k:user": names.take(pa.array(half.key)), f"v:{VALUES[side]}": pa.array(half.value)}
        columns |= {"ts": pa.array(half.ts_ms), "partition": pa.array(np.full(rows, half.partition, np.int32))}
        return pa.record_batch(columns | {"offset": pa.array(half.first_offset + np.arange(rows))})

    left, right = (
        tg.stream(side, key="user", timestamp="ts", partition="partition", offset="offset", stream_time="max")
        for side in ("left", "right")
    )
    windows = tg.JoinWindows.of_time_difference_and_grace(f"{point.shape.window_ms} ms", f"{GRACE_MS} ms")
    how = cast(Literal["left"], HOW)
    op = operation(left.join(right, windows, how).node)
    inputs = [halves(point.shape, side) for side in (0, 1)]
    schemas = [records(next(halves(point.shape, side)), side).schema for side in (0, 1)]
    layout = Layout.of_join(op, schemas, sorts=False)
    sides, store, costs = [layout.of_side(side, schemas[side]) for side in (0, 1)], counting(Path(folder.name)), []
    memories: list[tuple[float, float]] = []
    for _ in point.shape.batches:
        given = [[records(next(inputs[side]), side) for _ in range(HALVES)] for side in (0, 1)]
        blobs = [blob for side in (0, 1) for _, blob in pack(sides[side], given[side], [0])]
        del given
        store.read_bytes = store.written = 0
        memory.keep()
        had = megabytes("VmRSS")
        (_PROCESS / "clear_refs").write_text("5")  # resets VmHWM
        began = time.process_time()
        step = Stage(layout).begin(store, [blobs.pop() for _ in range(len(blobs))])
        made = sum(part.num_rows for part in step.parts)
        took = time.process_time() - began
        memories.append((had, megabytes("VmHWM")))
        costs.append({"ms": took * 1e3, "read": store.read_bytes, "written": store.written, "rows": made})
    found = {name: median(cost[name] for cost in costs[point.load :]) for name in costs[0]}
    folder.cleanup()
    loading = sum(cost["ms"] for cost in costs[: point.load]) / 1e3
    return found | {"load": loading} | dict(zip(("before", "most"), map(max, zip(*memories, strict=True)), strict=True))


def counting(folder: Path) -> Any:
    """A store in files, but for the named values, that counts the bytes it reads and writes."""
    from tidegate.kernel.state.store import DictStore

    class Counting(DictStore):
        read_bytes = written = 0

        def file(self, window: int, segment: int) -> Path:
            return folder / f"{window}.{segment}"

        def beside(self, parts: Any) -> Any:
            from tidegate.runtime.spark.state import SparkStore  # as on Spark; earlier versions have none

            return SparkStore(None).beside(parts)

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

    return Counting()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of a version to compare with")
    parser.add_argument("--open", type=int, nargs="+", default=list(OPEN), help="open records of both sides")
    parser.add_argument("--rows", type=int, default=ROWS, help="the records of a side in a small batch")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--measure", help="measure one point with the tidegate that is imported, print JSON")
    chosen = parser.parse_args()
    if chosen.measure is not None:
        print(json.dumps(measured(chosen.measure, chosen.open[0], chosen.rows)))
        return
    columns = {"ms": "ms", "read": "bytes read", "written": "written", "rows": "rows"}
    columns |= {"load": "s of loading", "before": "MB before", "most": "MB in a step"}
    print(f"{'open records':<24}{'':>8}" + "".join(f"{title:>15}" for title in columns.values()))
    for workload in chosen.workloads:
        for count in chosen.open:
            arguments = ["--measure", workload, "--open", str(count), "--rows", str(chosen.rows)]
            for name, source in before.sources(chosen.before).items():
                cost: dict[str, Any] = before.measured("benchmarks.open_records", source, arguments)
                numbers = "".join(f"{cost[column]:>15,.{1 if column in ('ms', 'load') else 0}f}" for column in columns)
                print(f"{f'{workload}, {count:,}':<24}{name:>8}{numbers}", flush=True)


if __name__ == "__main__":
    main()
