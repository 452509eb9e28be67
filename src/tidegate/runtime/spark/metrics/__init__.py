"""Metrics of running queries: `listen` keeps them, `serve` shows them to Prometheus."""

from __future__ import annotations

from tidegate.runtime.spark.metrics.listener import Listener, Watched, listen
from tidegate.runtime.spark.metrics.prometheus import Collector, Server, serve

__all__ = ["Collector", "Listener", "Server", "Watched", "listen", "serve"]
