"""What a batch of a join costs over many open records: milliseconds of one processor, bytes read and written.

`python -m benchmarks.open_records`. `--before FOLDER` runs the same with the tidegate of another checkout besides, each
point in a process of its own. The inputs are those of J3 and J4 (`workloads.open_joins`), through pack and step of one
task without Spark. The open records come first; the table has the median of the small batches behind them, of 5,000
records a side. In J4 an hour is open, and few or many records lie in it; in J3 the window grows with what is open, and
the pairs of a batch stay as many. The megabytes of the process have the store in them, which is in memory here.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from statistics import median
from typing import Any, Literal, cast

from benchmarks import before

OPEN = (100_000, 1_000_000, 10_000_000)
WORKLOADS = ("J3", "J4")
ROWS = 5_000
BATCHES = 5


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
    from tidegate.kernel.state.store import DictStore
    from tidegate.plan import operation

    class Counting(DictStore):
        read_bytes = written = 0

        def beside(self, parts: Any) -> Any:
            from tidegate.runtime.spark.state import SparkStore  # as on Spark; earlier versions have none

            return SparkStore(None).beside(parts)

        def put(self, name: str, value: bytes) -> None:
            self.written += len(value)
            super().put(name, value)

        def read(self, window: int, segment: int) -> bytes:
            found = super().read(window, segment)
            self.read_bytes += len(found)
            return found

        def write(self, window: int, segment: int, value: bytes) -> None:
            self.written += len(value)
            super().write(window, segment, value)

    point = long_window(entries // (2 * rows), rows, BATCHES)
    if workload == "J4":
        point = same_window(entries, rows, BATCHES)
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
    sides, store, costs = [layout.of_side(side, schemas[side]) for side in (0, 1)], Counting(), []
    for _ in point.shape.batches:
        given = [[records(next(inputs[side]), side) for _ in range(HALVES)] for side in (0, 1)]
        blobs = [blob for side in (0, 1) for _, blob in pack(sides[side], given[side], [0])]
        store.read_bytes = store.written = 0
        began = time.process_time()
        step = Stage(layout).step(store, blobs)
        took = time.process_time() - began
        made = step.rows.num_rows
        costs.append({"ms": took * 1e3, "read": store.read_bytes, "written": store.written, "rows": made})
    found = {name: median(cost[name] for cost in costs[point.load :]) for name in costs[0]}
    return found | {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


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
    columns = {"ms": "ms", "read": "bytes read", "written": "written", "rows": "rows", "MB": "MB of process"}
    print(f"{'open records':<24}{'':>8}" + "".join(f"{title:>15}" for title in columns.values()))
    for workload in chosen.workloads:
        for count in chosen.open:
            arguments = ["--measure", workload, "--open", str(count), "--rows", str(chosen.rows)]
            for name, source in before.sources(chosen.before).items():
                cost: dict[str, Any] = before.measured("benchmarks.open_records", source, arguments)
                numbers = "".join(f"{cost[column]:>15,.{1 if column == 'ms' else 0}f}" for column in columns)
                print(f"{f'{workload}, {count:,}':<24}{name:>8}{numbers}", flush=True)


if __name__ == "__main__":
    main()
