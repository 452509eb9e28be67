"""The cost of one record over many open windows: milliseconds of one processor, and bytes written to the store.

`python -m benchmarks.open_windows`. `--before FOLDER` also runs the same with the tidegate of another checkout, in a
process of its own. Each line has a plan and a number of open windows, one per key and minute. One batch opens them all;
the table has the median of later batches, of one record each.

The last line is one record with windows of a day that start every second, as updates: it is in 86,400 windows.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import before

WINDOWS = (1_000, 20_000, 100_000)
PLANS = ("tumbling, final", "tumbling, updates", "sessions, final", "sliding, updates")
HOPPING = "1 day by 1 second, updates"
RECORDS = 5
MINUTE = 60_000

Found = dict[str, dict[str, float]]


def plans(stream: Any) -> dict[str, Any]:
    """The table of each plan, with a grace so long that every window stays open."""
    import tidegate as tg

    final = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    grouped, grace = stream.group_by_key(), "3650 days"
    tumbling = grouped.windowed_by(tg.TimeWindows.of_size_and_grace("1 minute", grace))
    sessions = grouped.windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("1 minute", grace))
    sliding = grouped.windowed_by(tg.SlidingWindows.of_time_difference_and_grace("1 minute", grace))
    hopping = tg.TimeWindows.of_size_and_grace("1 day", grace).advance_by("1 second")
    tables = (tumbling.count().suppress(final), tumbling.count(), sessions.count().suppress(final), sliding.count())
    return dict(zip(PLANS, tables, strict=True)) | {HOPPING: grouped.windowed_by(hopping).count()}


def measured(windows: list[int], plan: str) -> Found:
    """Milliseconds and bytes of one record by line of the table, with the tidegate that this process imports."""
    import numpy as np
    import pyarrow as pa

    import tidegate as tg
    from tidegate.kernel.exchange.packing import pack
    from tidegate.kernel.rows.layout import Layout
    from tidegate.kernel.stage import Stage
    from tidegate.kernel.state.store import DictStore
    from tidegate.plan import operation

    class Counting(DictStore):
        written = 0

        def put(self, name: str, value: bytes) -> None:
            self.written += len(value)
            super().put(name, value)

        def write(self, window: int, segment: int, value: bytes) -> None:
            self.written += len(value)
            super().write(window, segment, value)

    def records(numbers: Any, offset: int) -> pa.RecordBatch:
        columns = {"k:user": pa.array([f"user {n}" for n in numbers]), "ts": pa.array(numbers * MINUTE)}
        columns |= {"partition": pa.array(np.zeros(len(numbers), np.int32))}
        return pa.record_batch(columns | {"offset": pa.array(offset + np.arange(len(numbers)))})

    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    warnings.simplefilter("ignore")
    layout = Layout(operation(plans(stream)[plan].node), records(np.arange(1), 0).schema, sorts=False)

    def step(store: Counting, numbers: Any, offset: int) -> dict[str, float]:
        blobs = [blob for _, blob in pack(layout, [records(numbers, offset)], [0])]
        store.written, began = 0, time.process_time()
        Stage(layout).step(store, blobs)
        took = time.process_time() - began
        return {"ms": took * 1e3, "bytes": store.written}

    if plan == HOPPING:
        found = step(Counting(), np.array([10_000]), 0)
        return {plan: found | {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}}
    found_of = {}
    for count in windows:
        store = Counting()
        step(store, np.arange(count), 0)
        one = np.array([count // 2])
        step(store, one, count)
        costs = [step(store, one, count + 1 + n) for n in range(RECORDS)]
        found_of[f"{plan}, {count:,}"] = {name: median(cost[name] for cost in costs) for name in ("ms", "bytes")}
    return found_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of a version to compare with")
    parser.add_argument("--windows", type=int, nargs="+", default=list(WINDOWS))
    parser.add_argument("--plans", nargs="+", choices=[*PLANS, HOPPING], default=[*PLANS, HOPPING])
    parser.add_argument(
        "--measure", choices=[*PLANS, HOPPING], help="measure the tidegate that is imported, print JSON"
    )
    chosen = parser.parse_args()
    if chosen.measure is not None:
        print(json.dumps(measured(chosen.windows, chosen.measure)))
        return
    sources = before.sources(chosen.before)
    print(f"{'plan, open windows':<32}" + "".join(f"{name + ', ms':>14}{'bytes':>12}" for name in sources))
    for plan in chosen.plans:
        arguments = ["--measure", plan, "--windows", *map(str, chosen.windows)]
        found = {
            name: before.measured("benchmarks.open_windows", source, arguments) for name, source in sources.items()
        }
        for line in found["now"]:
            costs = [found[name][line] for name in sources]
            print(f"{line:<32}" + "".join(f"{cost['ms']:>14.1f}{cost['bytes']:>12,.0f}" for cost in costs))
            if "MB" in found["now"][line]:
                print(f"{'  megabytes of the process':<32}" + "".join(f"{cost['MB']:>14.0f}{'':>12}" for cost in costs))


if __name__ == "__main__":
    main()
