"""Scenarios of Kafka's buffer class, on the buffer behind `until_time_limit`, one operation after the other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import tidegate as tg
from conformance.runner import Row, Scenario
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.suppress import bounded_time_limit, buffer_entries
from tidegate.kernel.suppress.time_buckets import BUFFER_TIME
from tidegate.plan import operation
from tidegate.spec.columns import TIMESTAMP

BOUND = tg.BufferConfig.max_bytes(10**9)


def check(scenario: Scenario) -> None:
    """Compare what the buffer holds after each operation."""
    puts = [entry for entry in scenario.data["input"] if entry["op"] == "put"]
    updates, rows = buffer_of(puts)
    came = iter(range(len(puts)))
    for entry, expected in zip(scenario.data["input"], scenario.data["expected_after_each"], strict=True):
        evicted = []
        if entry["op"] == "put":
            updates.put(next(came))
        else:
            while updates.waiting.records and holds(updates, *entry["while"]):
                key, _ = updates.waiting.oldest()
                row = rows[updates.waiting.pop(key).row]
                evicted.append([row["key"], row["value"]])
        assert seen(updates, rows, expected, evicted) == expected


def buffer_of(puts: list[Row]) -> tuple[bounded_time_limit.Updates, list[Row]]:
    """An empty buffer, and the rows that can be put into it."""
    how = tg.Suppressed.until_time_limit("1 day", BOUND, clock="stream")
    table = tg.table("events", key="key", timestamp="ts").suppress(how)
    layout = Layout(operation(table.node), pa.schema({"k:key": pa.string(), "v:value": pa.string(), "ts": pa.int64()}))
    rows = pa.table(
        {
            "key": [put["key"] for put in puts],
            "value": pa.array([put["value"] for put in puts], pa.string()),
            TIMESTAMP: [put["timestamp_ms"] for put in puts],
            BUFFER_TIME: [put["buffer_time_ms"] for put in puts],
            buffer_entries.PRIOR + "value": pa.array([put["old_value"] for put in puts], pa.string()),
            bounded_time_limit.SIZE: pa.nulls(len(puts), pa.int64()),
        }
    )
    return bounded_time_limit.Updates(layout, State(DictStore(), {}, 1), rows, 0), rows.to_pylist()


def holds(updates: bounded_time_limit.Updates, condition: str, n: int = 0) -> bool:
    oldest = updates.waiting.oldest()
    assert oldest is not None
    return {
        "always": True,
        "num_records_gt": updates.waiting.records > n,
        "min_timestamp_lt": oldest[1] < n,
    }[condition]


def seen(updates: bounded_time_limit.Updates, rows: list[Row], expected: Row, evicted: list[Any]) -> Row:
    """State of the buffer, limited to the fields that the scenario states."""
    oldest = updates.waiting.oldest()
    shown: Row = {
        "num_records": updates.waiting.records,
        "size_bytes": updates.waiting.size,
        "min_timestamp_ms": None if oldest is None else oldest[1],
        "evicted": evicted,
        "prior": {key: prior_of(updates, rows, key) for key in expected.get("prior", ())},
    }
    return {name: shown[name] for name in expected}


def prior_of(updates: bounded_time_limit.Updates, rows: list[Row], key: str) -> Any:
    entry = updates.waiting.get(next(i for i, row in enumerate(rows) if row["key"] == key))
    assert entry is not None
    return rows[entry.prior][buffer_entries.PRIOR + "value"]
