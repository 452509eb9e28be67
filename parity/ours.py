"""The same topologies through tidegate's public interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import tidegate as tg
from parity.cases import Case, Json
from tidegate.kernel.suppress import strict_bound
from tidegate.testing import TopologyTestDriver

TOPIC_AND_OFFSET = len("events") + 8 + 4
"""Bytes that an entry of Kafka's buffer counts besides: topic, offset, partition (SEMANTICS 6.4)."""


@dataclass(frozen=True)
class Outcome:
    """rows: rows after each record (or batch); failed_at: number of the one at which a buffer was full, or None."""

    rows: list[list[Json]]
    dropped: int
    failed_at: int | None = None


def by_record(case: Case, *, suppressed: bool) -> Outcome:
    """The case record by record, with or without its suppress."""
    return _run(case, [[record] for record in case.records], suppressed, caching=True)


def side_by_side(case: Case) -> tuple[Outcome, Outcome]:
    """The case record by record, with updates and suppressed rows as two outputs of one operator."""
    table = _table(case.topology, caching=False)
    tables = {"raw": table, "held": _held_back(table, case.topology["suppress"])}
    both = _piped(case, [[record] for record in case.records], TopologyTestDriver(tables))
    parts = {
        name: [[_without_output(row) for row in rows if row["output"] == name] for rows in both.rows] for name in tables
    }
    return tuple(Outcome(rows, both.dropped, both.failed_at) for rows in parts.values())  # type: ignore[return-value]


def _without_output(row: Json) -> Json:
    return {name: value for name, value in row.items() if name != "output"}


def by_batch(case: Case, *, caching: bool) -> Outcome:
    """The case in its own batches."""
    batches: dict[int, list[Json]] = {}
    for record in case.records:
        batches.setdefault(record["batch"], []).append(record)
    return _run(case, list(batches.values()), True, caching)


def _run(case: Case, batches: Sequence[Sequence[Json]], suppressed: bool, caching: bool) -> Outcome:
    return _piped(case, batches, TopologyTestDriver(_build(case.topology, suppressed, caching)))


def _piped(case: Case, batches: Sequence[Sequence[Json]], driver: TopologyTestDriver) -> Outcome:
    rows: list[list[Json]] = []
    with _counting_as_kafka():
        for at, batch in enumerate(batches):
            try:
                driver.pipe_batch([_record(case, record) for record in batch])
            except tg.BufferFullError:
                return Outcome(rows, driver.dropped, at)
            rows.append([_row(row) for row in driver.read_output()])
    return Outcome(rows, driver.dropped)


@contextmanager
def _counting_as_kafka() -> Iterator[None]:
    """An entry counts partition, offset and topic too, as Kafka's do: then its bounds in bytes mean the same (14.9)."""
    before = strict_bound.TIMES
    strict_bound.TIMES = before + TOPIC_AND_OFFSET
    try:
        yield
    finally:
        strict_bound.TIMES = before


def _record(case: Case, record: Json) -> Json:
    shown = {name: record[name] for name in ("key", "value", "ts")}
    return shown if case.topology["kind"] != "table" else {**shown, "deleted": record["value"] is None}


def _row(output: Json) -> Json:
    value = output["value"]
    if isinstance(value, list):
        value = "".join(f",{v}" for v in value)
    row = {
        "key": output["group"] if "group" in output else output["key"],
        "value": value,
        "timestamp_ms": output["timestamp"],
    }
    if "window" in output:
        row["window_start_ms"], row["window_end_ms"] = output["window"]
    if "output" in output:
        row["output"] = output["output"]
    if output.get("deleted"):
        assert value is None, f"a tombstone with a value: {output}"
    return row


def _ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def _build(spec: Json, suppressed: bool, caching: bool) -> Any:
    table = _table(spec, caching)
    return _held_back(table, spec["suppress"]) if suppressed and spec["suppress"] else table


def _table(spec: Json, caching: bool) -> Any:
    kept = tg.Materialized.as_("store")
    kept = kept if caching else kept.with_caching_disabled()
    if spec["kind"] == "table":
        table: Any = tg.table("events", key="key", timestamp="ts", deleted="deleted")
    else:
        stream = tg.stream("events", key="key", timestamp="ts")
        for step in spec.get("before", ()):
            stream = _step(stream, step)
        grouped: Any = stream.group_by_key()
        if "windows" in spec:
            grouped = grouped.windowed_by(_windows(spec["windows"]))
        if spec["emit"] == "close":
            grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
        table = _aggregated(grouped, spec, kept)
    if "steps" in spec and spec.get("aggregation") == "count":
        table = table.map_values({"value": lambda row: str(row["value"])}, types={"value": "string"})
    for step in spec.get("steps", ()):
        table = _step(table, step)
    return _regrouped(table, spec["regroup"], kept) if "regroup" in spec else table


def _step(of: Any, step: str) -> Any:
    if step == "filter":
        return of.filter(lambda row: passes(row["value"]))
    return of.map_values({"value": lambda row: mapped(row["value"])}, types={"value": "string"})


def taken(topology: Json, record: Json) -> bool:
    """Whether the filters in front of the aggregation let a record through."""
    value = record["value"]
    for step in topology.get("before", ()):
        if step == "filter" and not passes(value):
            return False
        value = value if step == "filter" else mapped(value)
    return True


def mapped(value: Any) -> str:
    """Result of the mapping steps for a value."""
    return f"{_shown(value)}'"


def passes(value: Any) -> bool:
    """Whether the filtering steps keep a value."""
    return ord(str(_shown(value))[-1]) % 3 != 0


def group(value: Any) -> str | None:
    """The group of a row of a table, None for none."""
    found = ord(str(value)[-1]) % 4
    return None if found == 3 else f"g{found}"


def _regrouped(table: Any, aggregation: str, kept: Any) -> Any:
    columns = {"group": lambda row: group(row["value"]), "value": lambda row: str(row["value"])}
    groups = table.map_values(columns, types={"group": "string", "value": "string"}).group_by("group")
    if aggregation == "count":
        return groups.count("value", materialized=kept)
    if aggregation == "reduce":
        return groups.reduce(lambda a, v: f"{a}+{v}", lambda a, v: f"{a}-{v}", "value", materialized=kept)
    return groups.aggregate(
        lambda: "0",
        lambda _, row, a: f"{a}+{row['value']}",
        lambda _, row, a: f"{a}-{row['value']}",
        type="string",
        name="value",
        materialized=kept,
    )


def _windows(spec: Json) -> Any:
    if spec["type"] == "unlimited":
        return tg.UnlimitedWindows.start_on(spec["start_ms"])
    grace = _ms(spec["grace_ms"])
    if spec["type"] == "time":
        return tg.TimeWindows.of_size_and_grace(_ms(spec["size_ms"]), grace).advance_by(_ms(spec["advance_ms"]))
    if spec["type"] == "sliding":
        return tg.SlidingWindows.of_time_difference_and_grace(_ms(spec["time_difference_ms"]), grace)
    return tg.SessionWindows.of_inactivity_gap_and_grace(_ms(spec["gap_ms"]), grace)


def _aggregated(grouped: Any, spec: Json, kept: Any) -> Any:
    if spec["aggregation"] == "count":
        return grouped.count("value", materialized=kept)
    if spec["aggregation"] == "collect":
        return grouped.agg(value=tg.collect_list("value"), materialized=kept)
    add = _adding(spec["deletes"])
    if spec["aggregation"] == "reduce":
        return grouped.reduce(add, "value", materialized=kept)
    sessions = "windows" in spec and spec["windows"]["type"] == "session"
    merger: Any = {"merger": lambda _, a, b: f"{_shown(a)}&{_shown(b)}"} if sessions else {}
    return grouped.aggregate(
        lambda: "0",
        lambda _, row, aggregate: add(aggregate, row["value"]),
        type="string",
        name="value",
        **merger,
        materialized=kept,
    )


def _adding(deletes: bool) -> Callable[[Any, Any], Any]:
    return lambda aggregate, value: None if deletes and value == "x" else f"{_shown(aggregate)}+{_shown(value)}"


def _shown(value: Any) -> Any:
    return "~" if value is None else value


def _held_back(table: Any, spec: Json) -> Any:
    """The table behind its suppression and the time limits behind that."""
    for held in (spec, *spec.get("behind", ())):
        table = table.suppress(_suppressed(held))
    return table


def _suppressed(spec: Json) -> Any:
    bounded: Any = None
    if "max_bytes" in spec:
        bounded = tg.BufferConfig.max_bytes(spec["max_bytes"])
    elif spec["max_records"] is not None:
        bounded = tg.BufferConfig.max_records(spec["max_records"])
    if spec["kind"] == "until_window_closes":
        strict = bounded.shut_down_when_full() if bounded else tg.BufferConfig.unbounded()
        return tg.Suppressed.until_window_closes(strict)
    buffer: Any = tg.BufferConfig.unbounded()
    if bounded is not None:
        buffer = bounded.shut_down_when_full() if spec["strict"] else bounded
    return tg.Suppressed.until_time_limit(_ms(spec["limit_ms"]), buffer, clock="stream")
