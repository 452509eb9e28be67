"""The endpoint of running queries, read-only: their metrics for Prometheus, and what they hold back as JSON."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pyspark.sql import SparkSession

from tidegate.errors import TidegateError
from tidegate.runtime.spark.metrics.listener import Listener, Watched
from tidegate.runtime.spark.metrics.prometheus import Collector

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

PORT = 9464
QUERIES = "/queries.json"
FORMAT = 1
"""Of the JSON at QUERIES; raised when a reader of an earlier one would misread it."""
Application = Callable[[Mapping[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True)
class Server:
    """A running endpoint: `http://host:port/metrics` for Prometheus, and `/queries.json` for `tidegate pending`."""

    listener: Listener
    host: str
    port: int
    _spark: SparkSession
    _server: Any

    @property
    def url(self) -> str:
        """Where Prometheus finds it."""
        return f"http://{self.host}:{self.port}/metrics"

    def close(self) -> None:
        """End it, and listen to the session no longer."""
        self._spark.streams.removeListener(self.listener)
        self._server.shutdown()
        self._server.server_close()


def serve(
    spark: SparkSession, port: int = PORT, host: str = "127.0.0.1", registry: CollectorRegistry | None = None
) -> Server:
    """Show the metrics of the queries of `spark` to Prometheus: `tg.metrics.serve(spark)`, before queries start.

    port  0 takes a free one
    host  this machine alone, unless another address is given ("0.0.0.0": every one); nobody is asked who they are
    registry  one to be shown besides, whose metrics of other things are then told here too

    Raises TidegateError if prometheus-client is not installed, OSError if the port is taken.
    """
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError as error:
        raise TidegateError(
            "tg.metrics.serve needs prometheus-client, which is not installed. Run: pip install 'tidegate[metrics]'"
        ) from error
    listener = Listener()
    registry = CollectorRegistry() if registry is None else registry
    registry.register(Collector(listener))
    kind = _IPv6 if ":" in host else _Threads
    server = make_server(host, port, application(listener, make_wsgi_app(registry)), kind, _Quiet)
    Thread(target=server.serve_forever, name="tidegate metrics", daemon=True).start()
    spark.streams.addListener(listener)
    return Server(listener, host, server.server_port, spark, server)


def application(listener: Listener, prometheus: Any) -> Application:
    """What answers a request: by its path, otherwise with what Prometheus reads."""

    def answer(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != QUERIES:
            return prometheus(environ, start)
        body = json.dumps(queries(listener.watched())).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return answer


def queries(watched: Iterable[Watched]) -> dict[str, Any]:
    """What the endpoint tells of each operator of each query, as JSON has it; a metric without a sample is null."""
    operators = [
        {
            "query": one.query,
            "operator": one.operator,
            "active": one.active,
            "metrics": {name: value if math.isfinite(value) else None for name, value in one.metrics.items()},
            "pending": one.pending.to_dict(),
        }
        for one in watched
    ]
    return {"format": FORMAT, "time_ms": round(time.time() * 1000), "operators": operators}


class _Threads(ThreadingMixIn, WSGIServer):
    """A thread for each request, so that a reader that stalls holds nobody up."""

    daemon_threads = True


class _IPv6(_Threads):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for each request is for nobody."""
