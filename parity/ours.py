"""The same topologies through tidegate's public interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import tidegate as tg
from parity.cases import Case, Json
from tidegate.testing import TopologyTestDriver


@dataclass(frozen=True)
class Outcome:
    """rows: what came out after each record (or batch); failed_at: the one at which a buffer was full, or None."""

    rows: list[list[Json]]
    dropped: int
    failed_at: int | None = None


def by_record(case: Case, *, suppressed: bool) -> Outcome:
    """The case record by record, with or without its suppress."""
    return _run(case, [[record] for record in case.records], suppressed, caching=True)


def by_batch(case: Case, *, caching: bool) -> Outcome:
    """The case in its own batches."""
    batches: dict[int, list[Json]] = {}
    for record in case.records:
        batches.setdefault(record["batch"], []).append(record)
    return _run(case, list(batches.values()), True, caching)


def _run(case: Case, batches: Sequence[Sequence[Json]], suppressed: bool, caching: bool) -> Outcome:
    driver = TopologyTestDriver(_build(case.topology, suppressed, caching))
    rows: list[list[Json]] = []
    for at, batch in enumerate(batches):
        try:
            driver.pipe_batch([_record(case, record) for record in batch])
        except tg.BufferFullError:
            return Outcome(rows, driver.dropped, at)
        rows.append([_row(row) for row in driver.read_output()])
    return Outcome(rows, driver.dropped)


def _record(case: Case, record: Json) -> Json:
    shown = {name: record[name] for name in ("key", "value", "ts")}
    return shown if case.topology["kind"] != "table" else {**shown, "deleted": record["value"] is None}


def _row(output: Json) -> Json:
    value = output["value"]
    if isinstance(value, list):
        value = "".join(f",{v}" for v in value)
    row = {"key": output["key"], "value": value, "timestamp_ms": output["timestamp"]}
    if "window" in output:
        row["window_start_ms"], row["window_end_ms"] = output["window"]
    if output.get("deleted"):
        assert value is None, f"a tombstone with a value: {output}"
    return row


def _ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def _build(spec: Json, suppressed: bool, caching: bool) -> Any:
    if spec["kind"] == "table":
        table: Any = tg.table("events", key="key", timestamp="ts", deleted="deleted")
    else:
        kept = tg.Materialized.as_("store")
        grouped: Any = tg.stream("events", key="key", timestamp="ts").group_by_key()
        if "windows" in spec:
            grouped = grouped.windowed_by(_windows(spec["windows"]))
        if spec["emit"] == "close":
            grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
        table = _aggregated(grouped, spec, kept if caching else kept.with_caching_disabled())
    return table.suppress(_suppressed(spec["suppress"])) if suppressed and spec["suppress"] else table


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


def _suppressed(spec: Json) -> Any:
    bounded = None if spec["max_records"] is None else tg.BufferConfig.max_records(spec["max_records"])
    if spec["kind"] == "until_window_closes":
        strict = bounded.shut_down_when_full() if bounded else tg.BufferConfig.unbounded()
        return tg.Suppressed.until_window_closes(strict)
    buffer: Any = tg.BufferConfig.unbounded()
    if bounded is not None:
        buffer = bounded.shut_down_when_full() if spec["strict"] else bounded
    return tg.Suppressed.until_time_limit(_ms(spec["limit_ms"]), buffer, clock="stream")
