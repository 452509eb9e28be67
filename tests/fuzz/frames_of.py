"""Frames of every kind, as real pipelines write them: blobs, segments, the state of operators, descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.kernel import stage
from tidegate.kernel.state import frames
from tidegate.testing import TopologyTestDriver

UNBOUNDED = tg.BufferConfig.unbounded()
SCHEMA = pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.int64()})


@dataclass(frozen=True)
class Written:
    """A frame, its kind, and the place where it was found."""

    kind: int
    frame: bytes
    where: str


def topologies() -> dict[str, Any]:
    """One topology per way to keep state."""
    events = tg.stream("events", key="k", timestamp="ts").group_by_key()
    tumbling = events.windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms"))
    sessions = events.windowed_by(tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "5 ms"))
    final = tg.Suppressed.until_window_closes(UNBOUNDED)
    limit = tg.Suppressed.until_time_limit("20 ms", UNBOUNDED, clock="stream")
    bounded = tg.Suppressed.until_time_limit("20 ms", tg.BufferConfig.max_bytes(1_000), clock="stream")
    told: dict[str, Any] = {"key": "k", "timestamp": "ts", "schema": SCHEMA}
    stream = tg.stream("events", stream_time="max", **told)
    meets = tg.JoinWindows.of_time_difference_and_grace("6 ms", "3 ms")
    kept = tg.Materialized.as_("kept").with_retention("1 minute")
    return {
        "log": tumbling.agg(n=tg.count(), total=tg.sum("v"), names=tg.approx_count_distinct("k")).suppress(final),
        "table": tumbling.agg(first=tg.first("v"), all=tg.collect_list("v")),
        "kept": tumbling.count(materialized=kept),
        "sessions": sessions.count().suppress(final),
        "plain": events.agg(most=tg.max("v")),
        "time buckets": tg.table("users", key="k", timestamp="ts").suppress(limit),
        "buffer": events.count().suppress(bounded),
        "join": stream.join(stream, meets, "outer", suffixes=("_l", "_r")),
        "lookup": stream.left_join(tg.table("events", history="40 ms", **told), grace="5 ms", suffixes=("_l", "_r")),
        "tables": tg.table("events", **told).outer_join(tg.table("events", **told), suffixes=("_l", "_r")),
        "chain": tg.table("moves", key="k", timestamp="ts").group_by("v").count("users"),
    }


BATCHES = [[{"k": f"key {i % 7}", "ts": batch * 6 + i % 5, "v": i * batch} for i in range(20)] for batch in range(4)]


NEXT = [{**record, "ts": record["ts"] + 1_000} for record in BATCHES[-1]]
"""A batch that closes all windows of `BATCHES`."""


@cache
def piped() -> dict[str, tuple[TopologyTestDriver, list[dict[str, Any]]]]:
    """By topology: a driver that has taken the batches, and the rows of the next batch."""
    found = {}
    for name, table in topologies().items():
        driver = TopologyTestDriver(table)
        for batch in BATCHES:
            driver.pipe_batch(batch)
        after = TopologyTestDriver(table, state=driver.state())
        after.pipe_batch(NEXT)
        found[name] = driver, after.read_output()
    return found


@cache
def written() -> tuple[Written, ...]:
    """Frames of every topology: the entries of its stores, and the blobs of the next batch."""
    found: list[Written] = []
    for name, table in topologies().items():
        driver = piped()[name][0]
        state = driver.state()
        with _blobs() as blobs:
            TopologyTestDriver(table, state=state).pipe_batch(NEXT)
        found += [Written(frames.BLOB, blob, f"{name}: a blob") for blob in blobs]
        for store in state.stores:
            found += [Written(frame[5], frame, f"{name}: {what}") for what, frame in _stored(store)]
    return tuple(found)


def _stored(store: Any) -> Iterator[tuple[str, bytes]]:
    yield from store.values.items()
    for place, frame in store.log.items():
        # The index of time buckets is bytes of its own, not a frame.
        if frame[:4] == b"tdgt":
            yield str(place), frame


class _blobs:  # noqa: N801 - used as a function
    """Collects the blobs that stages take within the block."""

    def __enter__(self) -> list[bytes]:
        self._step = stage.Stage.step
        blobs: list[bytes] = []

        def step(this: Any, store: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
            given = list(given)
            blobs.extend(given)
            return self._step(this, store, given, *args, **kwargs)

        stage.Stage.step = step  # type: ignore[method-assign]
        return blobs

    def __exit__(self, *_: object) -> None:
        stage.Stage.step = self._step  # type: ignore[method-assign]
