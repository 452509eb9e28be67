"""Metrics of running queries: `listen` keeps them, `serve` shows them to Prometheus, DASHBOARD and ALERTS use them."""

from __future__ import annotations

from pathlib import Path

import tidegate
from tidegate.runtime.spark.metrics.endpoint import Server, serve
from tidegate.runtime.spark.metrics.listener import Listener, Watched, listen
from tidegate.runtime.spark.metrics.prometheus import Collector

_OPS = Path(tidegate.__file__).parent / "ops"

DASHBOARD = _OPS / "grafana.json"
"""A dashboard to import into Grafana."""

ALERTS = _OPS / "alerts.yml"
"""Rules for Prometheus; each links to a heading of docs/operations.md with the steps to take."""

__all__ = ["ALERTS", "DASHBOARD", "Collector", "Listener", "Server", "Watched", "listen", "serve"]
