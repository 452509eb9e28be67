"""The time of Python functions now, as a multiple of their time in another checkout: the kernel's part of W11.

`python -m benchmarks.type_rule --before FOLDER`, where FOLDER is a checkout of the version to compare with. Each turn
runs both versions, each in a process of its own and in alternating order: 200,000 records on 20,000 keys, packed and
stepped as one task, three batches one after another. The table has the medians over the turns of times and of ratios.

After every call of a function its result becomes a value of the declared type (decision 0023): this is its cost.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import before

BATCHES = 3

AGGREGATES: dict[str, tuple[str, Callable[[], Any], Callable[..., Any], str]] = {
    "long": ("long", lambda: 0, lambda _key, row, total: total + row["amount"], "amount"),
    "double": ("double", lambda: 0.0, lambda _key, row, total: total + row["price"], "price"),
    "text": ("string", lambda: "", lambda _key, row, newest: max(newest, row["name"]), "name"),
}
REDUCES: dict[str, Callable[[Any, Any], Any]] = {
    "amount": lambda total, amount: total + amount,
    "price": lambda total, price: total + price,
    "name": max,
}


def measured(records: int, keys: int) -> dict[str, float]:
    """Seconds per batch of each function, with the tidegate that this process imports."""
    import numpy as np
    import pyarrow as pa

    import tidegate as tg
    from tidegate.kernel.exchange.packing import pack
    from tidegate.kernel.rows.layout import Layout
    from tidegate.kernel.stage import Stage
    from tidegate.kernel.state.store import DictStore
    from tidegate.plan import operation

    random = np.random.default_rng(7)
    key = random.integers(0, keys, records)
    price = random.random(records)
    columns = {
        "amount": pa.array(random.integers(0, 1_000, records)),
        "price": pa.array(price),
        "name": pa.array([f"name {p:.4f}" for p in price]),
    }
    grouped = tg.stream("events", key="user", timestamp="ts").group_by_key()
    windowed = grouped.windowed_by(tg.TimeWindows.of_size_with_no_grace("1 day"))
    tables = {
        f"aggregate, {name}": (windowed.aggregate(first, add, type=kind), column)
        for name, (kind, first, add, column) in AGGREGATES.items()
    } | {f"reduce, {name}": (windowed.reduce(REDUCES[a[3]], a[3]), a[3]) for name, a in AGGREGATES.items()}
    found = {}
    for name, (table, column) in tables.items():
        op = operation(table.node)
        batch = pa.RecordBatch.from_pydict(
            {"k:user": pa.array([f"user {k}" for k in key]), f"v:{column}": columns[column]}
            | {"ts": pa.array(np.arange(records))}
        )
        layout, store, seconds = Layout(op, batch.schema, typed=True), DictStore(), []
        for _ in range(BATCHES):
            began = time.process_time()
            blobs = [blob for _, blob in pack(layout, [batch], [0])]
            Stage(layout).step(store, blobs)
            seconds.append(time.process_time() - began)
        found[name] = median(seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--measure", action="store_true", help="measure the tidegate that is imported, print JSON")
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(measured(chosen.records, chosen.keys)))
        return
    if chosen.before is None:
        parser.error("--before is missing: git worktree add FOLDER COMMIT, then --before FOLDER")
    sources = before.sources(chosen.before)
    arguments = ["--measure", "--records", str(chosen.records), "--keys", str(chosen.keys)]
    turns: list[dict[str, dict[str, float]]] = []
    for turn in range(chosen.turns):
        order = list(sources) if turn % 2 == 0 else list(reversed(sources))
        turns.append({name: before.measured("benchmarks.type_rule", sources[name], arguments) for name in order})
        print(f"turn {turn + 1} of {chosen.turns}", file=sys.stderr)
    print(f"{'function':<20}{'before':>12}{'now':>12}{'now / before':>16}")
    for function in turns[0]["now"]:
        was, now = (median(turn[name][function] for turn in turns) for name in sources)
        ratio = median(turn["now"][function] / turn["before"][function] for turn in turns)
        print(f"{function:<20}{was * 1e3:>9.1f} ms{now * 1e3:>9.1f} ms{ratio:>15.2f}x")


if __name__ == "__main__":
    main()
