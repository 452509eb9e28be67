"""Metrics of running queries: `listen` keeps them, `serve` shows them to Prometheus, and two files read them there."""

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
"""Rules for Prometheus; each links to the heading of docs/operations.md that says what to do."""

__all__ = ["ALERTS", "DASHBOARD", "Collector", "Listener", "Server", "Watched", "listen", "serve"]
