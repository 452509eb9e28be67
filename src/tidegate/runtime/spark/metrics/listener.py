"""A listener that keeps the metrics of every query of a session over their lives."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from tidegate.kernel.inspect.graces import Graces
from tidegate.kernel.inspect.totals import Totals
from tidegate.runtime.spark.checkpoints.pending import observed, of_batch
from tidegate.runtime.spark.metrics.history import History
from tidegate.runtime.spark.session.given import streams_of
from tidegate.spec.metrics import GRACE_NEEDED, NOTHING, PARTITION_TIMES
from tidegate.spec.pending import Pending

ENDED = 100
"""Most ended queries that are remembered: the latest ones."""
GROWS = "stream_time_lag"
"""The metric that goes on growing when a query has ended, and means nothing then."""
PARTITIONS = 1_000
"""Most partitions of an operator that are remembered: those whose records came last. Names of files, or of days, are
ever new."""


@dataclass(frozen=True)
class Watched:
    """An operator of a query, its metrics, and its pending windows and rows after its last batch.

    Attributes:
        query: The name that the query was given, otherwise its id.
        operator: The name of the operator.
        active: Whether the query runs.
        metrics: The numbers by name.
        pending: The windows and rows that wait.
        graces: The cost of each grace in the last 24 hours; None for an operator without a grace.
        windows: Size, advance and grace (ms) of tumbling and hopping windows; None for others.
        partitions: By name of the partition, its time (ms), and the wall clock when its last records came (ms): of the
            1,000 partitions whose records came last.

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
    graces: Graces | None = None
    windows: tuple[int, int, int] | None = None
    partitions: Mapping[str, tuple[int, float]] = field(default_factory=dict)


_PHASES = ("latestOffset", "getBatch", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
"""The phases of a batch, by the names of Spark's durationMs."""
_OF_QUERY = ("triggerExecution", *_PHASES, "rows", "state_rows", "state_bytes")
_OF_OPERATOR = (
    "stream_time",
    "records",
    "late",
    "skipped",
    "emitted",
    "open_windows",
    "open_left_records",
    "open_right_records",
    "buffered",
    "buffered_bytes",
    "fill",
)


@dataclass
class _Operator:
    """The kept metrics and history of an operator."""

    totals: Totals
    pending: Pending
    history: History = field(default_factory=lambda: History(_OF_OPERATOR))
    partitions: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any], at_ms: float) -> None:
        """Add the metrics of a batch that ended at `at_ms`."""
        if row.keys() != self.totals.hows.keys():  # the query was started again with another plan
            self.totals.follow(row)
        self.totals.add(row, at_ms)
        if row["open_windows"] is not None:
            self.pending = of_batch(self.totals.name, row)
        for name, reached in json.loads(row.get(PARTITION_TIMES) or "[]"):
            before, _ = self.partitions.pop(str(name), (reached, at_ms))
            self.partitions[str(name)] = (max(reached, before), at_ms)
        for name in list(self.partitions)[:-PARTITIONS]:
            del self.partitions[name]
        values = self.totals.values(at_ms)
        self.history.add(at_ms, values | {own: values.get(name) for own, name in _RENAMED.items()})

    def watched(self, query: _Query, now_ms: float) -> Watched:
        """The operator as users see it."""
        totals = self.totals
        metrics = totals.values(now_ms)
        if not query.active and GROWS in metrics:
            metrics[GROWS] = NOTHING
        return Watched(
            query=query.name,
            operator=totals.name,
            active=query.active,
            metrics=metrics,
            pending=self.pending,
            graces=totals.graces.last_day(now_ms) if GRACE_NEEDED in totals.hows else None,
            windows=totals.graces.windows,
            partitions=dict(self.partitions),
        )


_RENAMED = {
    "skipped": "skipped_records_total",
    "buffered": "suppression_buffer_count_current",
    "buffered_bytes": "suppression_buffer_size_current",
    "fill": "suppression_buffer_fill",
}


@dataclass
class _Query:
    name: str
    began_ms: float
    run: str = ""
    active: bool = True
    restarted: bool = False
    """Whether no batch with operators has been heard of since the query was started."""
    operators: dict[str, _Operator] = field(default_factory=dict)
    batches: History = field(default_factory=lambda: History(_OF_QUERY))


class Listener(StreamingQueryListener):
    """Keeps the metrics of every micro-batch.

    Totals begin with the first batch that the listener hears of. They go on when a query is started again in this
    process, as those of Kafka do; with another plan, those of the operators and metrics that the plan still has.
    Events come after their batches, on a thread of Spark's; nothing here waits.

    Args:
        clock: Gives the time in seconds; tests give another clock.

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
            query.name = event.name or str(event.id)
            query.run, query.active, query.restarted = str(event.runId), True, True
            # With a new checkpoint a query of the same name has another id; it takes over the series of the name.
            earlier = self._named(query.name, but=str(event.id))
            for found in [found for found in earlier if not self._queries[found].active]:
                del self._queries[found]

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        began = _ms(progress.timestamp)
        operators = {name: row for name, row in observed(progress) if "open_windows" in row and "stream_time" in row}
        with self._lock:
            query = self._query(str(progress.id), progress.name, began)
            done = began + (progress.batchDuration or 0)
            query.batches.add(done, _of_batch(progress))
            if query.restarted and operators:
                # With another plan the query may have other operators.
                query.operators = {name: one for name, one in query.operators.items() if name in operators}
                query.restarted = False
            for name, row in operators.items():
                if name not in query.operators:
                    totals = Totals(name, dict.fromkeys(row, ""), query.began_ms)
                    query.operators[name] = _Operator(totals, Pending(name, None, (), 0))
                query.operators[name].add(row, done)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is None or query.run not in ("", str(event.runId)):
                return  # it runs again already
            query.active = False
            if self._named(query.name, but=str(event.id)):
                del self._queries[str(event.id)]
                return
            # At the end of the dict, so that the first ended queries in it ended first.
            self._queries[str(event.id)] = self._queries.pop(str(event.id))
            ended = [name for name, one in self._queries.items() if not one.active]
            for name in ended[:-ENDED]:
                del self._queries[name]

    @property
    def now_ms(self) -> int:
        """The wall clock of the listener."""
        return round(self._clock() * 1000)

    def watched(self) -> list[Watched]:
        """Every operator of every query of which a batch was heard.

        Returns:
            The operators with their metrics.

        Examples:
            ```python
            running = [one.operator for one in listener.watched() if one.active]
            ```
        """
        now = self.now_ms
        with self._lock:
            return [one.watched(query, now) for query in self._queries.values() for one in query.operators.values()]

    def histories(self) -> list[dict[str, Any]]:
        """Every query over the last hours.

        Returns:
            For each `query`: whether it is `active`, its `batches` and, by name, its `operators`, as columns.

        Examples:
            ```python
            rows = listener.histories()[0]["batches"]["rows"]
            ```
        """
        with self._lock:
            return [
                {
                    "query": query.name,
                    "active": query.active,
                    "batches": query.batches.table(),
                    "operators": {name: one.history.table() for name, one in query.operators.items()},
                }
                for query in self._queries.values()
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
        return self._of(operator, query).metrics

    def graces(self, operator: str, query: str | None = None) -> Graces | None:
        """The cost that each grace would have had for an operator in the last 24 hours.

        Args:
            operator: The name of the operator.
            query: The name or the id of the query; left out, the last one that has such an operator.

        Returns:
            The costs, upper bounds for sessions; None if the operator has no windows with a grace.

        Raises:
            KeyError: No batch of the operator has been heard of.

        Examples:
            ```python
            share = listener.graces("events").share(60_000)
            ```
        """
        return self._of(operator, query).graces

    def _of(self, operator: str, query: str | None) -> Watched:
        with self._lock:
            ids = {one.name: found for found, one in self._queries.items()}
        for one in reversed(self.watched()):
            if one.operator == operator and (query is None or query in (one.query, ids.get(one.query))):
                return one
        raise KeyError(f"no batch of the operator {operator!r} has been heard of")

    def _named(self, name: str, but: str) -> list[str]:
        """The ids of the other queries of a name."""
        return [found for found, one in self._queries.items() if one.name == name and found != but]

    def _query(self, found: str, name: str | None, began_ms: float) -> _Query:
        return self._queries.setdefault(found, _Query(name or found, began_ms))


def listen(spark: SparkSession) -> Listener:
    """A listener, registered with the session; call it before queries start.

    Args:
        spark: The session.

    Returns:
        The listener.

    Raises:
        DefinitionTypeError: `spark` is no session.

    Examples:
        ```python
        metrics = tg.metrics.listen(spark)
        ```
    """
    listener = Listener()
    streams_of(spark).addListener(listener)
    return listener


def _of_batch(progress: Any) -> dict[str, float | None]:
    """Rows and times (ms) of a batch, and the rows and bytes of its operators' state."""
    durations: dict[str, float | None] = dict(getattr(progress, "durationMs", None) or {})
    states = getattr(progress, "stateOperators", None) or ()
    return durations | {
        "rows": getattr(progress, "numInputRows", None),
        "state_rows": sum(one.numRowsTotal for one in states) if states else None,
        "state_bytes": sum(one.memoryUsedBytes for one in states) if states else None,
    }


def _ms(timestamp: str) -> float:
    """Milliseconds since 1970 of an instant of an event, in ISO 8601."""
    found = datetime.fromisoformat(timestamp)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000
