"""The cost of missing offsets between map tasks and tasks: MB of all blobs of one `pack`, to 8 and to 32 tasks.

`python -m benchmarks.offset_bytes`; `--before FOLDER` also packs the same with the tidegate of another checkout.
300,000 records of one partition, 1,000 keys drawn at random, five minutes of time. "half" has random offsets, and times
up to 5 s out of order. Decision 0025 quotes the table.
"""

from __future__ import annotations

import argparse
import inspect
import json
from pathlib import Path
from typing import Any

from benchmarks import before

TASKS = (8, 32)
OFFSETS = ("every second", "half")
PLANS = ("count, final", "count and sum, final", "hopping, updates", "sessions, updates", "without windows")


def _table(stream: Any, plan: str) -> Any:
    import tidegate as tg

    grouped, grace = stream.group_by_key(), "10 seconds"
    minutes = tg.TimeWindows.of_size_and_grace("1 minute", grace)
    final = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    if plan == "count, final":
        return grouped.windowed_by(minutes).count().suppress(final)
    if plan == "count and sum, final":
        return grouped.windowed_by(minutes).agg(n=tg.count(), total=tg.sum("amount")).suppress(final)
    if plan == "hopping, updates":
        return grouped.windowed_by(minutes.advance_by("20 seconds")).count()
    if plan == "sessions, updates":
        return grouped.windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("30 seconds", grace)).count()
    return grouped.agg(total=tg.sum("amount"))


def measured(rows: int) -> dict[str, list[int]]:
    """Bytes to 8 and to 32 tasks, by "plan|offsets|way", with the tidegate that this process imports."""
    import numpy as np
    import pyarrow as pa

    import tidegate as tg
    from tidegate.kernel.exchange.packing import pack
    from tidegate.kernel.rows.layout import Layout
    from tidegate.plan import operation

    def records(offset: Any, disorder_ms: int) -> pa.RecordBatch:
        random = np.random.default_rng(5)
        ts = np.arange(rows) * 300_000 // rows - random.integers(0, disorder_ms + 1, rows)
        return pa.record_batch(
            {
                "k:user": pa.array([f"user-{n:06}" for n in random.integers(0, 1_000, rows)]),
                "v:amount": pa.array(random.integers(0, 100, rows)),
                "ts": pa.array(np.maximum(ts, 0)),
                "partition": pa.array(np.zeros(rows, np.int32)),
                "offset": pa.array(offset),
            }
        )

    def sizes(plan: str, batch: pa.RecordBatch, **how: bool) -> list[int]:
        stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
        op = operation(_table(stream, plan).node)
        if not op.input_columns(("amount",)):
            batch = batch.drop_columns("v:amount")
        layout = Layout(op, batch.schema, sorts=False)
        return [sum(len(blob) for _, blob in pack(layout, [batch], range(tasks), **how)) for tasks in TASKS]

    half = np.flatnonzero(np.random.default_rng(6).random(3 * rows) < 0.5)[:rows]
    knows_promise = "contiguous" in inspect.signature(pack).parameters
    found = {}
    for name, offset, disorder_ms in (("every second", np.arange(rows) * 2, 0), ("half", half, 5_000)):
        gaps, consecutive = records(offset, disorder_ms), records(np.arange(rows), disorder_ms)
        for plan in PLANS:
            found[f"{plan}|{name}|none"] = sizes(plan, gaps)
            found[f"{plan}|{name}|consecutive"] = sizes(plan, consecutive)
            if knows_promise:
                found[f"{plan}|{name}|promise"] = sizes(plan, gaps, contiguous=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of a version to compare with")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--measure", action="store_true", help="measure the tidegate that is imported, print JSON")
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(measured(chosen.rows)))
        return
    arguments = ["--measure", "--rows", str(chosen.rows)]
    found = {
        name: before.measured("benchmarks.offset_bytes", source, arguments)
        for name, source in before.sources(chosen.before).items()
    }
    columns = [("before", "none")] if chosen.before is not None else []
    columns += [("now", "none"), ("now", "promise"), ("now", "consecutive")]
    heads = ["without the promise" if way == "none" and version == "now" else way for version, way in columns]
    heads = ["before" if version == "before" else head for (version, _), head in zip(columns, heads, strict=True)]
    print("| plan | offsets | " + " | ".join(heads) + " |")
    print("|---|---|" + "---|" * len(heads))
    for plan in PLANS:
        for offsets in OFFSETS:
            sizes = [found[version][f"{plan}|{offsets}|{way}"] for version, way in columns]
            cells = [", ".join(f"{size / 1e6:.2f}" for size in both) for both in sizes]
            print(f"| {plan} | {offsets} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
