"""A listener that keeps the metrics of every query of a session over their lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from tidegate.kernel.inspect.totals import Totals
from tidegate.runtime.spark.pending import observed, of_batch
from tidegate.spec.pending import Pending

ENDED = 100
"""Queries that have ended are remembered up to this number, the latest."""


@dataclass(frozen=True)
class Watched:
    """An operator of a query, its metrics, and what it held back after its last batch.

    Attributes:
        query: The name that the query was given, otherwise its id.
        operator: The name of the operator.
        active: Whether the query runs.
        metrics: The numbers by name.
        pending: What it held back.

    Examples:
        ```python
        late = {one.query: one.metrics["late"] for one in listener.watched()}
        ```
    """

    query: str
    operator: str
    active: bool
    metrics: Mapping[str, float]
    pending: Pending


@dataclass
class _Query:
    name: str
    began_ms: float
    run: str = ""
    active: bool = True
    tallies: dict[str, Totals] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)


class Listener(StreamingQueryListener):
    """Keeps what every micro-batch tells.

    Totals begin with the first batch it hears of and go on when a query is started again in this process, as those of
    Kafka do. Events come after their batches, on a thread of Spark's; nothing here waits.

    Args:
        clock: Gives the time in seconds; of tests another one.

    Examples:
        ```python
        spark.streams.addListener(tg.metrics.Listener())
        ```
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = Lock()
        self._queries: dict[str, _Query] = {}

    def onQueryStarted(self, event: Any) -> None:
        with self._lock:
            query = self._query(str(event.id), event.name, _ms(event.timestamp))
            query.run, query.active = str(event.runId), True

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        began = _ms(progress.timestamp)
        told = {name: row for name, row in observed(progress) if "open_windows" in row and "stream_time" in row}
        with self._lock:
            query = self._query(str(progress.id), progress.name, began)
            for name, row in told.items():
                tally = query.tallies.setdefault(name, Totals(name, dict.fromkeys(row, ""), query.began_ms))
                tally.add(row, began + (progress.batchDuration or 0))
                if row["open_windows"] is not None:
                    query.pending[name] = of_batch(name, row)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is None or query.run not in ("", str(event.runId)):
                return  # it runs again already
            query.active = False
            # At the end, so that the first ones are those that ended first.
            self._queries[str(event.id)] = self._queries.pop(str(event.id))
            ended = [name for name, one in self._queries.items() if not one.active]
            for name in ended[:-ENDED]:
                del self._queries[name]

    def watched(self) -> list[Watched]:
        """Every operator of every query that has been heard of.

        Returns:
            The operators with their metrics.

        Examples:
            ```python
            running = [one.operator for one in listener.watched() if one.active]
            ```
        """
        now = self._clock() * 1000
        with self._lock:
            return [
                Watched(query.name, name, query.active, tally.values(now), query.pending.get(name, _nothing(name)))
                for query in self._queries.values()
                for name, tally in query.tallies.items()
            ]

    def metrics(self, operator: str, query: str | None = None) -> Mapping[str, float]:
        """The metrics of an operator as the test driver's `metrics()` gives them.

        Args:
            operator: The name of the operator.
            query: The name or the id of the query; left out, the last one that has such an operator.

        Returns:
            The numbers by name.

        Raises:
            KeyError: No batch of the operator has been heard of.

        Examples:
            ```python
            late = listener.metrics("events")["late"]
            ```
        """
        with self._lock:
            ids = {one.name: found for found, one in self._queries.items()}
        for one in reversed(self.watched()):
            if one.operator == operator and (query is None or query in (one.query, ids.get(one.query))):
                return one.metrics
        raise KeyError(f"no batch of the operator {operator!r} has been heard of")

    def _query(self, found: str, name: str | None, began_ms: float) -> _Query:
        return self._queries.setdefault(found, _Query(name or found, began_ms))


def listen(spark: SparkSession) -> Listener:
    """A listener, registered; call it before queries start.

    Args:
        spark: The session.

    Returns:
        The listener.

    Examples:
        ```python
        metrics = tg.metrics.listen(spark)
        ```
    """
    listener = Listener()
    spark.streams.addListener(listener)
    return listener


def _nothing(name: str) -> Pending:
    return Pending(name, None, (), 0)


def _ms(timestamp: str) -> float:
    """Milliseconds since 1970 of an instant as events have it, in ISO 8601."""
    found = datetime.fromisoformat(timestamp)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000
