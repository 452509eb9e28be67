"""Metrics on Spark: `observedMetrics` are the driver's totals, and listener and Prometheus show the same."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from seeds import first

pytest.importorskip("pyspark")
pytest.importorskip("prometheus_client")

from prometheus_client import parser
from pyspark.sql import SparkSession

from spark.replay import Replay, schema_of, with_offsets
from tidegate.runtime.spark.metrics.prometheus import exported
from tidegate.spec.metrics import METRICS
from tidegate.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

POLL_SECONDS, MOST_POLLS = 0.05, 1_200
SCHEMA = schema_of(k=pa.string())
BATCHES = with_offsets(
    [
        [{"k": "A", "ts": 1}, {"k": "B", "ts": 2}, {"k": None, "ts": 3}],
        [{"k": "A", "ts": 14}, {"k": "C", "ts": 4}, {"k": "B", "ts": 19}],
        [{"k": "A", "ts": 35}, {"k": "A", "ts": 31}],
    ]
)
ORDER = {"partition": "partition", "offset": "offset"}
MEASURED = ("emit_final_latency", "stream_time_lag", "_rate", "size", "spilled_bytes")
"""Metrics that depend on the machine's clock, and bytes: two tasks store a few more than one."""


def final(events: Any) -> tg.KTable:
    stream = tg.stream(events, key="k", timestamp="ts", name="events", **ORDER)
    windowed = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    return windowed.count().suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


def limited(events: Any) -> tg.KTable:
    held = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.max_records(50), clock="stream")
    return tg.stream(events, key="k", timestamp="ts", name="events", **ORDER).group_by_key().count().suppress(held)


def heard(listener: Any, records: int) -> Mapping[str, float]:
    """The metrics after the events of all batches; events come after their batches."""
    for _ in range(MOST_POLLS):
        time.sleep(POLL_SECONDS)
        found = {one.operator: one for one in listener.watched()}
        if "events" in found and found["events"].metrics["records"] == records and not found["events"].active:
            return listener.metrics("events")
    raise AssertionError(f"heard of {listener.watched()}")


def same(here: Mapping[str, float], there: Mapping[str, float]) -> None:
    assert here.keys() == there.keys()
    compared = {name for name in here if not any(part in name for part in MEASURED)}
    assert {name: here[name] for name in compared} == pytest.approx({name: there[name] for name in compared})


@pytest.mark.parametrize("topology", [final, limited])
def test_everybody_says_the_same(spark: SparkSession, tmp_path: Path, topology: Callable[[Any], tg.KTable]) -> None:
    driver = TopologyTestDriver(topology("events"))
    for batch in BATCHES:
        driver.pipe_batch(batch)
    server = tg.metrics.serve(spark, port=0)
    try:
        began = time.time() * 1000
        replayed = Replay(spark, tmp_path, SCHEMA, lambda f: topology(f).to_df(), name="events").run(BATCHES)
        metrics = heard(server.listener, records=7)
        same(metrics, driver.metrics())
        assert metrics["suppression_buffer_count_max"] > 0
        assert metrics["suppression_buffer_size_current"] > 0
        if topology is final:
            assert metrics["spilled_bytes"] > 0
            # The largest is in whole milliseconds, the average is not.
            assert 0 < metrics["emit_final_latency_avg"] < metrics["emit_final_latency_max"] + 1
            assert metrics["emit_final_latency_max"] < time.time() * 1000 - began
        else:
            # When 14 came A had just been updated, B (2) and C (4) 10 ms before they were due, like B (19) later.
            assert metrics["intermediate_result_suppression_overtime_min"] == 0
            assert metrics["intermediate_result_suppression_overtime_avg"] == 30 / 4
            # In the last batch stream time passed 31 on its way to A's one update, at 35: B, due at 29, had left.
            assert metrics["suppression_buffer_fill"] == 1 / 50
        batches = [
            batch["stream_time_lag"] + batch["stream_time"]
            for batch in replayed.metrics
            if batch["records"] is not None
        ]
        assert all(began - 1_000 < clock < time.time() * 1000 for clock in batches)
        scraped(server.url, metrics)
    finally:
        server.close()


KEYS = [f"key {n}" for n in range(12)]
SIDED = schema_of(side=pa.string(), k=pa.string(), n=pa.int64())
DISORDER = (0, 3, 9, 26, 60, 14)


def sided() -> list[list[dict[str, Any]]]:
    """Batches of one side of a join each, of keys of several tasks, in disorder."""
    at = iter(range(0, 10_000, 7))
    return with_offsets(
        [
            [
                {"side": side, "k": key, "n": n, "ts": max(0, now - DISORDER[n % 6] * (1 + now // 80))}
                for n, (key, now) in enumerate(zip(KEYS, at, strict=False))
            ]
            for side in ("left", "right", "left", "right", "right", "left")
        ]
    )


def disordered(kind: str, left: Any, right: Any) -> Any:
    of = {"key": "k", "timestamp": "ts", "stream_time": "max", **ORDER}
    known = {"schema": pa.schema([field for field in SIDED if field.name != "side"])} if isinstance(left, str) else {}
    one = tg.stream(left, name="left", **of, **known)
    if kind == "join":
        other = tg.stream(right, name="right", **of, **known)
        return one.join(other, tg.JoinWindows(20, 30, 5), suffixes=("_l", "_r"))
    windows: Any = tg.SessionWindows(40, 5) if kind == "sessions" else tg.SlidingWindows(40, 5)
    return one.group_by_key().windowed_by(windows).count()


@pytest.mark.parametrize("kind", first(1, ["join", "sessions", "sliding"]))
def test_each_task_tells_which_graces_its_records_needed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    batches = [batch for batch in sided() if kind == "join" or batch[0]["side"] == "left"]
    driver = TopologyTestDriver(disordered(kind, "left", "right"))
    for batch in batches:
        driver.pipe_batch([{name: row[name] for name in row if name != "side"} for row in batch], batch[0]["side"])
    wanted = driver._tallies[0].graces.last_day(0)

    def topology(frame: Any) -> Any:
        left, right = (frame.where(f"side = '{side}'").drop("side") for side in ("left", "right"))
        return disordered(kind, left, right).to_df()

    listener = tg.metrics.listen(spark)
    try:
        name = "left join right" if kind == "join" else "left"
        replayed = Replay(spark, tmp_path, SIDED, topology, name=name).run(batches)
        for _ in range(MOST_POLLS):
            time.sleep(POLL_SECONDS)
            (found,) = listener.watched() or [None]
            if found is not None and found.metrics["records"] == wanted.total and not found.active:
                break
        live = listener.graces(name)
    finally:
        spark.streams.removeListener(listener)
    assert live == wanted
    assert (live.windows, live.at_most) == (kind, kind == "sessions")
    assert max(len(batch["grace_needed"]) for batch in replayed.metrics) > 1
    late = sum(batch["late"] for batch in replayed.metrics)
    assert 0 < live.late(5) <= live.late(0) < live.total
    assert live.late(5) <= late if kind == "sliding" else live.late(5) == late
    assert listener.metrics(name)["grace_enough"] == live.enough() > 5


def scraped(url: str, metrics: Mapping[str, float]) -> None:
    """Prometheus gets the listener's metrics at `url`."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        families = list(parser.text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    assert {sample.name for sample in samples} <= exported()
    assert {sample.labels["operator"] for sample in samples} == {"events"}
    by_name = {sample.name: sample.value for sample in samples if "reason" not in sample.labels}
    shown = {f"tidegate_{metric.name}" for metric in METRICS if metric.name in metrics} - {"tidegate_stream_time_lag"}
    assert by_name.keys() == shown - {"tidegate_skipped_records_total"} | {"tidegate_query_active"}
    assert by_name["tidegate_query_active"] == 0
    assert by_name["tidegate_records_total"] == 7
    assert by_name["tidegate_late_record_drop_total"] == metrics["late_record_drop_total"]
    reasons = {s.labels["reason"]: s.value for s in samples if s.name == "tidegate_skipped_records_total"}
    assert reasons == {"null_key": 1, "null_value": 0, "bad_timestamp": 0}
