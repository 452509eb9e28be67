"""The metrics of a listener for Prometheus: the names of `spec.metrics` behind `tidegate_`, by query and operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tidegate.runtime.spark.metrics.listener import GROWS, Listener, Watched
from tidegate.spec.metrics import METRICS, PER_STORE, SKIPPED, Metric, store_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

PREFIX = "tidegate_"
STORE_PREFIX = f"{PREFIX}store_"
"""Prefix of the metrics of one of several suppressions, which have a label `store` too."""
LABELS = ("query", "operator")
_SKIPPED = "skipped_records_total"


class Collector:
    """Gives the metrics of a listener to a registry of Prometheus on each scrape.

    Args:
        listener: The listener.

    Examples:
        ```python
        registry.register(tg.metrics.Collector(tg.metrics.listen(spark)))
        ```
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def collect(self) -> Iterator[Family]:
        """The metrics now.

        Returns:
            One family for each metric.

        Examples:
            ```python
            families = list(tg.metrics.Collector(listener).collect())
            ```
        """
        watched = self._listener.watched()
        yield from (_of_operators(metric, watched) for metric in METRICS)
        yield from (_of_stores(metric, watched) for metric in PER_STORE)
        yield _active(watched)

    def describe(self) -> list[Family]:
        """No metrics, because they depend on the queries.

        Returns:
            An empty list.

        Examples:
            ```python
            tg.metrics.Collector(listener).describe()
            ```
        """
        return []


def exported() -> set[str]:
    """The names of all series."""
    stores = {STORE_PREFIX + metric.name for metric in PER_STORE}
    return {PREFIX + metric.name for metric in METRICS} | stores | {f"{PREFIX}query_active"}


def _family(metric: Metric, prefix: str = PREFIX, labels: tuple[str, ...] = LABELS) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    text = f"{metric.means} ({metric.unit})"
    if metric.kind != "total":
        return GaugeMetricFamily(prefix + metric.name, text, labels=labels)
    labels = (*labels, "reason") if metric.name == _SKIPPED else labels
    return CounterMetricFamily(prefix + metric.name.removesuffix("_total"), text, labels=labels)


def _of_operators(metric: Metric, watched: Iterable[Watched]) -> Family:
    family = _family(metric)
    for one in watched:
        if metric.name in one.metrics and (one.active or metric.name != GROWS):
            _add(family, metric, one)
    return family


def _of_stores(metric: Metric, watched: Iterable[Watched]) -> Family:
    family = _family(metric, STORE_PREFIX, (*LABELS, "store"))
    for one in watched:
        for name, value in one.metrics.items():
            base, store = store_of(name)
            if store is not None and base == metric.name:
                family.add_metric([one.query, one.operator, store], value)
    return family


def _active(watched: Iterable[Watched]) -> Family:
    from prometheus_client.core import GaugeMetricFamily

    active = GaugeMetricFamily(f"{PREFIX}query_active", "1 while the query runs, 0 when it has ended", labels=LABELS)
    for one in watched:
        active.add_metric([one.query, one.operator], float(one.active))
    return active


def _add(family: Any, metric: Metric, one: Watched) -> None:
    labels = [one.query, one.operator]
    if metric.name != _SKIPPED:
        family.add_metric(labels, one.metrics[metric.name])
        return
    for reason in SKIPPED:
        if reason in one.metrics:
            family.add_metric([*labels, reason], one.metrics[reason])
