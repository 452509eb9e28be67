"""The pending windows and rows of a streaming query: from the metrics of its last batch, or from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from tidegate.runtime.spark.checkpoints.reading import nothing
from tidegate.runtime.spark.checkpoints.reading import pending as of_state
from tidegate.spec.joined import SIDES
from tidegate.spec.metrics import of_store, store_of
from tidegate.spec.pending import Buffered, Lookups, Pending, Waiting


def pending(query: Any, checkpoint: str | None = None) -> list[Pending]:
    """One `Pending` per operator of ours, from the newest progress that has its metrics.

    Given the checkpoint of the query, from the state in it: with every window. Raises CheckpointError if it has no
    state, and the query has run a batch.
    """
    if checkpoint is not None:
        stored = of_state(SparkSession.active(), checkpoint)
        if not stored and pending(query):
            raise nothing(checkpoint)
        return stored
    found: dict[str, Pending] = {}
    for progress in query.recentProgress:
        for name, metrics in observed(progress):
            if metrics.get("open_windows") is not None and "stream_time" in metrics:
                found[name] = of_batch(name, metrics)
    return list(found.values())


def observed(progress: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every observation of a batch: its name and its metrics by name."""
    for name, row in (progress.observedMetrics or {}).items():
        yield name, _values(row)


def _values(row: Any) -> Mapping[str, Any]:
    """The metrics of a batch by name. They come as a Row, and on Connect as a Row of values and their schema."""
    if not hasattr(row, "asDict"):
        return {}
    values: dict[str, Any] = row.asDict()
    if set(values) == {"values", "schema"}:
        return dict(zip(_names(values["schema"]), values["values"], strict=False))
    return values


def _names(schema: Any) -> list[str]:
    return [field["name"] for field in schema["fields"]] if isinstance(schema, Mapping) else list(schema.names)


def of_batch(name: str, metrics: Mapping[str, Any]) -> Pending:
    """The `Pending` of an operator, from its `observedMetrics` of a micro-batch."""
    now, close = metrics["stream_time"], metrics.get("next_close")
    stands = now is not None and now >= 0
    waiting = (Waiting(None, close, close - now),) if close is not None and stands else ()
    partition, time = metrics.get("slowest_partition"), metrics.get("slowest_time")
    if (side := metrics.get("slowest_side")) is not None and side >= 0:
        partition = f"{SIDES[int(side)]} side"
    held_by = None if time is None else (partition, time)
    return Pending(
        name=name,
        stream_time=now if stands else None,
        waiting=waiting,
        open_windows=metrics["open_windows"],
        held_by=held_by,
        limits=tuple(_buffered(metrics)),
        lookups=_lookups(metrics),
        follows="" if metrics.get("follows_join") else None,
    )


def _lookups(metrics: Mapping[str, Any]) -> Lookups | None:
    at, clock = metrics.get("next_lookup"), metrics.get("lookup_clock")
    return None if at is None or clock is None else Lookups(at, clock)


def _buffered(metrics: Mapping[str, Any]) -> Iterator[Buffered]:
    for name, at in metrics.items():
        due, store = store_of(name)
        if due not in ("next_due_stream", "next_due_wall"):
            continue
        shown = metrics.get("limit_clock" if store is None else of_store("limit_clock", store))
        if at is not None and shown is not None:
            yield Buffered(due.removeprefix("next_due_"), at, at - shown, store=store)
