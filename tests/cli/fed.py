"""An endpoint without Spark: a listener that hears made-up progress of two queries, and a server in front of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from wsgiref.simple_server import make_server

from tidegate.runtime.spark.metrics.endpoint import _Quiet, _Threads, application
from tidegate.runtime.spark.metrics.listener import Listener
from tidegate.spec.metrics import OF_SESSIONS, OF_TIME

HOSTILE = "<img src=x onerror=alert(1)>"
NOW = 1_790_000_000
STREAM_TIME = 1_780_000_000_000


class Row:
    """A row of observed metrics."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def asDict(self) -> dict[str, Any]:
        return dict(self.values)


def progress(query: str, operator: str, at: float = NOW, **numbers: Any) -> Any:
    """The event of a batch that ended at `at` (seconds)."""
    told = {"records": 10, "late": 1, "null_key": 2, "emitted": 3, "open_windows": 1, "stream_time": 5_000, **numbers}
    one = SimpleNamespace(
        id=query,
        name=query,
        timestamp=datetime.fromtimestamp(at, UTC).isoformat(),
        batchDuration=0,
        numInputRows=told["records"],
        durationMs={"triggerExecution": 900, "addBatch": 700, "queryPlanning": 60, "walCommit": 30},
        stateOperators=[SimpleNamespace(numRowsTotal=1_000, memoryUsedBytes=5_000_000)],
        observedMetrics={operator: Row(**told)},
    )
    return SimpleNamespace(progress=one)


def batches(count: int) -> Iterator[Any]:
    """Batches of two queries, one with a hostile name: windows of ten minutes, six partitions, one of them idle."""
    for i in range(count):
        reached = STREAM_TIME + i * 5_000
        times = [[str(p), reached - p * 7_000] for p in range(6) if p < 5 or i < count // 2]
        for query in ("alerts", HOSTILE):
            yield progress(
                query,
                "events",
                NOW + 5 * i,
                records=20_000 + 100 * (i % 50),
                late=i % 7,
                open_windows=3,
                stream_time=reached,
                next_close=(reached // 300_000 + 1) * 300_000 + 60_000,
                suppression_buffer_count_current=12_000 + i,
                suppression_buffer_size_current=900_000,
                suppression_buffer_fill=0.5,
                grace_needed=[
                    [OF_TIME, 600_000, 300_000, 60_000, 40_000, 1_000, 90, 60_000, 10, 120_000, i % 7, 900_000, 3]
                ],
                partition_times=json.dumps(times),
            )


def of_sessions() -> Any:
    """A batch of sessions in two tasks, with a grace of 25 seconds: three records were late."""
    told = [
        [OF_SESSIONS, 0, 0, 25_000, 700, 10_000, 3, 25_000, 5, 60_000, 2],
        [OF_SESSIONS, 0, 0, 25_000, 300, 10_000, 1, 90_000, 1],
    ]
    return progress("visits", "visits", records=1_000, late=3, grace_needed=told)


@contextmanager
def served(listener: Listener) -> Iterator[str]:
    """The address of an endpoint in front of `listener`."""

    def nothing(environ: Any, start: Any) -> list[bytes]:
        start("404 Not Found", [])
        return []

    server = make_server("127.0.0.1", 0, application(listener, nothing), _Threads, _Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def heard(count: int = 200) -> Listener:
    """A listener that has heard `count` batches per query; by its clock, the last batch ended just now."""
    listener = Listener(clock=lambda: NOW + 5 * count)
    for event in batches(count):
        listener.onQueryProgress(event)
    return listener
