"""The totals of an operator: the numbers of its micro-batches, added up to the metrics of `spec.metrics`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidegate.kernel.inspect.graces import GraceHistory
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.metrics import (
    BUFFER_SIZES,
    GRACE_NEEDED,
    METRICS,
    NOTHING,
    SKIPPED,
    Metric,
    change_of,
    of_store,
    store_of,
)

RATE_MS = 60_000
"""The time that a rate covers (ms): the last minute, or the time since the beginning if that is shorter."""

_COUNTED = ("records", "emitted", "late", "suppression_emit", "emit_final_records", *SKIPPED)
_LARGEST = ("record_lateness_max", "emit_final_latency_max")
_LARGEST_GAUGES = {
    "suppression_buffer_count_max": "suppression_buffer_count_current",
    "suppression_buffer_size_max": "suppression_buffer_size_current",
}
"""A bounded buffer reports the largest size within a batch; the largest size of another is one behind a batch."""
_SMALLEST = "intermediate_result_suppression_overtime_min"
_LATEST = ("open_windows", "open_left_records", "open_right_records", "stream_time", "suppression_buffer_fill")
_FILL, _WAITING = "suppression_buffer_fill", "suppression_buffer_count_current"
_WEIGHED = {
    "record_lateness_avg": "records",
    "intermediate_result_suppression_overtime_avg": "suppression_emit",
}
"""Averages, and the number that has each batch's count of averaged values."""
_LATENCY = "emit_final_latency_avg"


class Totals:
    """The totals over the batches of one operator.

    hows      the numbers that the operator reports for a batch (`spec.metrics.numbers`)
    began_ms  the wall clock when the operator began to be watched
    """

    def __init__(self, name: str, hows: Mapping[str, str], began_ms: float) -> None:
        self.name = name
        self.hows = dict(hows)
        self._began = began_ms
        self._sums: Counter[str] = Counter()
        self._gauges: dict[str, float] = dict.fromkeys(BUFFER_SIZES, 0)
        self._extremes: dict[str, float] = {}
        self._latest: dict[str, float] = {"open_windows": 0, "stream_time": NEVER, "suppression_buffer_fill": 0}
        self._complete = False
        """Whether all tasks have reported since the beginning: only then the changes of some tasks make a total."""
        self._batches = 1
        """The number of samples of waiting rows: an empty one at first, then one after each batch (SEMANTICS 10)."""
        self._samples: deque[tuple[float, Counter[str]]] = deque()
        self.graces = GraceHistory()
        self._stores = {store: Totals(name, mine, began_ms) for store, mine in _by_store(self.hows).items()}
        """The totals of each of several suppressions, by store."""

    def follow(self, names: Iterable[str]) -> None:
        """From the next batch on the operator reports the numbers `names`: others than before, if its plan changed."""
        self.hows = {name: self.hows.get(name, "") for name in names}
        self._gauges |= dict.fromkeys((size for size in BUFFER_SIZES if size not in self.hows), 0)
        stores = _by_store(self.hows)
        self._stores = {
            store: self._stores.get(store) or Totals(self.name, mine, self._began) for store, mine in stores.items()
        }
        for store, mine in stores.items():
            self._stores[store].follow(mine)

    def add(self, batch: Mapping[str, Any], at_ms: float) -> None:
        """Add the `observedMetrics` of a micro-batch that ended at `at_ms` of the wall clock."""
        metrics = {name: value for name, value in batch.items() if value is not None}
        for graces in metrics.pop(GRACE_NEEDED, ()):
            self.graces.add(graces, at_ms)
        for store, mine in _by_store(batch).items():
            if store not in self._stores:
                self._stores[store] = Totals(self.name, dict.fromkeys(mine, ""), self._began)
            reported = {name: batch[name] for name in ("tasks", "tasks_heard") if name in batch}
            self._stores[store].add(reported | mine, at_ms)
        self._set_back(at_ms)
        self._sums.update({name: metrics[name] for name in _COUNTED if name in metrics})
        for name, weight in _WEIGHED.items():
            self._sums[name] += metrics.get(name, 0) * metrics.get(weight, 0)
        if _LATENCY in metrics:
            self._sums[_LATENCY] += metrics[_LATENCY]
            self._sums["closes"] += 1
        # A batch without input has the tasks alone whose timers are due, perhaps none.
        everybody = metrics.get("tasks_heard") == metrics.get("tasks") and ("tasks" in metrics or "tasks" not in batch)
        self._update_gauges(metrics, everybody=everybody)
        self._update_latest(metrics, everybody=everybody)
        self._update_extremes(metrics)
        if self._samples and self._samples[-1][0] == at_ms:
            self._samples.pop()
        self._samples.append((at_ms, self._sums.copy()))
        while len(self._samples) > 1 and self._samples[1][0] <= at_ms - RATE_MS:
            self._samples.popleft()

    def _set_back(self, at_ms: float) -> None:
        """If the clock was set back to `at_ms`, the earlier times go back with it: no sample is ahead of the clock."""
        ahead = (self._samples[-1][0] if self._samples else self._began) - at_ms
        if ahead > 0:
            self._began -= ahead
            self._samples = deque((at - ahead, sums) for at, sums in self._samples)

    def _update_extremes(self, metrics: Mapping[str, float]) -> None:
        """Update the largest and the smallest number of any batch."""
        largest = {name: metrics[name] for name in _LARGEST if name in metrics}
        if self._complete:
            largest |= {name: metrics.get(name, self._gauges[size]) for name, size in _LARGEST_GAUGES.items()}
        for name, number in largest.items():
            self._extremes[name] = max(self._extremes.get(name, number), number)
        if _SMALLEST in metrics:
            self._extremes[_SMALLEST] = min(self._extremes.get(_SMALLEST, metrics[_SMALLEST]), metrics[_SMALLEST])

    def _update_latest(self, metrics: Mapping[str, float], *, everybody: bool) -> None:
        """Update the numbers of the last batch. Some tasks alone (not `everybody`) say nothing about the others."""
        for name in _LATEST:
            # These tasks have all the waiting rows if their rows are as many as those of all tasks.
            all_rows = name == _FILL and name in metrics and metrics.get(_WAITING) == self._gauges[_WAITING]
            if everybody or all_rows or name == "stream_time":
                self._latest[name] = metrics.get(name, self._latest.get(name, 0))
            elif not self._complete:
                self._latest[name] = NOTHING

    def _update_gauges(self, metrics: Mapping[str, float], *, everybody: bool) -> None:
        """Update the sums over all tasks: by their numbers if all tasks reported, else by the changes of some tasks."""
        for name in BUFFER_SIZES:
            if everybody:
                self._gauges[name] = metrics.get(name, self._gauges[name])
            elif self._complete:
                self._gauges[name] += metrics.get(change_of(name), 0)
            else:
                self._gauges[name] = NOTHING
        self._complete |= everybody
        if self._complete:
            self._sums.update({f"{name} sampled": self._gauges[name] for name in BUFFER_SIZES})
            self._batches += 1

    def values(self, now_ms: float) -> dict[str, float]:
        """Every metric that the operator has, by name; NaN where there is no sample yet.

        Also the counts by reason, `records`, `emitted` and `dropped`, under these names.
        """
        found = {metric.name: value for metric, value in self.of_plan(now_ms)}
        reasons = {name: self._sums[name] for name in ("late", *SKIPPED) if name in self.hows}
        counts = {"records": self._sums["records"], "emitted": self._sums["emitted"], **reasons}
        mine = {
            of_store(metric.name, store): value
            for store, totals in self._stores.items()
            for metric, value in totals.of_plan(now_ms)
        }
        return {**counts, "dropped": sum(reasons.values()), **found, **mine}

    def of_plan(self, now_ms: float) -> Iterator[tuple[Metric, float]]:
        """The metrics whose numbers the operator reports."""
        return ((metric, self._value(metric, now_ms)) for metric in METRICS if metric.needs in self.hows)

    def _value(self, metric: Metric, now_ms: float) -> float:
        name = metric.name
        if metric.kind == "total":
            return _total(self._sums, name.removesuffix("_total"))
        if metric.kind == "rate":
            return self._rate(name.removesuffix("_rate"), now_ms)
        if name in ("grace", "grace_enough"):
            day = self.graces.last_day(now_ms)
            return NOTHING if not day.total else day.today if name == "grace" else day.enough()
        if name in _WEIGHED:
            weight = self._sums[_WEIGHED[name]]
            return self._sums[name] / weight if weight else 0.0 if name == "record_lateness_avg" else NOTHING
        if name == _LATENCY:
            return self._sums[name] / self._sums["closes"] if self._sums["closes"] else NOTHING
        if name == "stream_time_lag":
            return now_ms - self._latest["stream_time"] if self._latest["stream_time"] != NEVER else NOTHING
        return self._gauge(name)

    def _gauge(self, name: str) -> float:
        if name in self._gauges:
            return self._gauges[name]
        if name.startswith("suppression_buffer") and name.endswith("_avg"):
            return self._sums[f"{name.removesuffix('_avg')}_current sampled"] / self._batches
        if name in self._latest:
            return self._latest[name]
        return self._extremes.get(name, NOTHING if name in (_SMALLEST, "emit_final_latency_max") else 0)

    def _rate(self, name: str, now_ms: float) -> float:
        since = now_ms - RATE_MS
        before = next((sums for at, sums in reversed(self._samples) if at <= since), Counter())
        seconds = min(now_ms - self._began, RATE_MS) / 1000
        return (_total(self._sums, name) - _total(before, name)) / seconds if seconds > 0 else 0.0


def _by_store(numbers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The numbers of each store, by their names without the store."""
    found: dict[str, dict[str, Any]] = {}
    for name, number in numbers.items():
        base, store = store_of(name)
        if store is not None:
            found.setdefault(store, {})[base] = number
    return found


def _total(sums: Mapping[str, float], name: str) -> float:
    if name == "skipped_records":
        return sum(sums.get(reason, 0) for reason in SKIPPED)
    if name == "expired_window_record_drop":
        return 0
    return sums.get("late" if name == "late_record_drop" else name, 0)
