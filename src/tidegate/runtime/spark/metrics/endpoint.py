"""The endpoint of running queries, read-only: metrics for Prometheus, pending rows and history as JSON, and a page."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pyspark.sql import SparkSession

from tidegate.arguments import whole_number
from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateError, in_one_line
from tidegate.kernel.inspect.graces import Graces
from tidegate.runtime.spark.metrics.listener import Listener
from tidegate.runtime.spark.metrics.prometheus import Collector
from tidegate.runtime.spark.session.given import streams_of

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

PORT = 9464
QUERIES, HISTORY = "/queries.json", "/history.json"
PAGE = Path(__file__).parent / "page"
"""The folder of the page that shows both, with all that it loads: nothing comes from another host."""
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/watch.css": ("watch.css", "text/css; charset=utf-8"),
    "/watch.js": ("watch.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css; charset=utf-8"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript; charset=utf-8"),
}
_SAFE = [
    (
        "Content-Security-Policy",
        (
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
FORMAT = 1
"""Version of the JSON at QUERIES and HISTORY; raised when a reader of an earlier one would misread it."""
Application = Callable[[Mapping[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True)
class Server:
    """A running endpoint: `http://host:port/metrics` for Prometheus, `http://host:port/` for people.

    Attributes:
        listener: The listener whose metrics it shows.
        host: The address.
        port: The port.

    Examples:
        ```python
        server = tg.metrics.serve(spark)
        print(server.page)
        ```
    """

    listener: Listener
    host: str
    port: int
    _spark: SparkSession
    _server: Any
    _unregister: Callable[[], None]

    @property
    def url(self) -> str:
        """The address for Prometheus."""
        return f"{self.page}metrics"

    @property
    def page(self) -> str:
        """The page that shows the queries, for a browser."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def close(self) -> None:
        """Stop the endpoint and its listener. An endpoint that is closed stays closed.

        Examples:
            ```python
            server.close()
            ```
        """
        self._unregister()
        self._server.shutdown()
        self._server.server_close()
        self._spark.streams.removeListener(self.listener)  # last: it fails if Spark's process is gone


def serve(
    spark: SparkSession, port: int = PORT, host: str = "127.0.0.1", registry: CollectorRegistry | None = None
) -> Server:
    """Show the queries of `spark` to Prometheus, and to people as a page; call it before queries start.

    Args:
        spark: The session.
        port: The port; 0 takes a free one.
        host: The address to listen on: this machine alone unless given; "0.0.0.0" for all. There is no authentication.
        registry: A registry of Prometheus whose other metrics the endpoint shows too.

    Returns:
        The running endpoint.

    Raises:
        TidegateError: prometheus-client is not installed.
        DefinitionError: `port` is no port.
        DefinitionTypeError: `spark` is no session, or `host` no text.
        OSError: The port is taken.

    Examples:
        ```python
        server = tg.metrics.serve(spark, port=9464)
        ```
    """
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError as error:
        raise TidegateError(
            "tg.metrics.serve needs prometheus-client, which is not installed. Run: pip install 'tidegate[metrics]'"
        ) from error
    number = whole_number(port)
    if number is None or not 0 <= number < 2**16:
        raise DefinitionError(f"`port` is {in_one_line(port)}. Use a whole number from 0, a free port, to 65535.")
    if not isinstance(host, str):
        raise DefinitionTypeError(f'`host` is {in_one_line(host)}. Use an address as text, for example "127.0.0.1".')
    listener = Listener()
    registry = CollectorRegistry() if registry is None else registry
    kind = _IPv6 if ":" in host else _Threads
    answers = application(listener, make_wsgi_app(registry), local=host in _LOOPBACK)
    streams = streams_of(spark)  # first: it fails if the session has stopped
    server = make_server(host, number, answers, kind, _Quiet)
    collector = Collector(listener)
    registry.register(collector)
    Thread(target=server.serve_forever, name="tidegate metrics", daemon=True).start()
    streams.addListener(listener)
    return Server(listener, host, server.server_port, spark, server, partial(_unregister, registry, collector))


def _unregister(registry: CollectorRegistry, collector: Collector) -> None:
    with suppress(KeyError):  # it is not there any more
        registry.unregister(collector)


def application(listener: Listener, prometheus: Any, *, local: bool = True) -> Application:
    """The WSGI application: by the path of a request the page, its data, or otherwise the metrics for Prometheus.

    local  whether only this machine may ask; requests under another host name are refused then (DNS rebinding)
    """

    def answer(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO") or "/"
        if local and not _names_this_machine(environ.get("HTTP_HOST", "")):
            name = b"This endpoint is for this machine alone: ask for 127.0.0.1 or localhost.\n"
            return _send(start, "403 Forbidden", "text/plain", name)
        if path not in (QUERIES, HISTORY, *_FILES):
            return prometheus(environ, start)
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _send(start, "405 Method Not Allowed", "text/plain", b"This endpoint is read-only: use GET.\n")
        if path in _FILES:
            file, kind = _FILES[path]
            return _send(start, "200 OK", kind, (PAGE / file).read_bytes())
        body = queries(listener) if path == QUERIES else history(listener)
        return _send(start, "200 OK", "application/json", json.dumps(body).encode())

    return answer


def _names_this_machine(host: str) -> bool:
    """Whether the host of a request, with or without a port, is a name of the loopback, or no name."""
    try:
        return (urlsplit(f"//{host}").hostname or "") in ("", *_LOOPBACK)
    except ValueError:  # an address that is none
        return False


def _send(start: Callable[..., Any], status: str, kind: str, body: bytes) -> Iterable[bytes]:
    start(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *_SAFE])
    return [body]


def history(listener: Listener) -> dict[str, Any]:
    """The JSON at HISTORY: numbers of every query over the last hours."""
    return {"format": FORMAT, "time_ms": listener.now_ms, "queries": listener.histories()}


def queries(listener: Listener) -> dict[str, Any]:
    """The JSON at QUERIES: each operator of each query; a metric without a sample is null."""
    operators = [
        {
            "query": one.query,
            "operator": one.operator,
            "active": one.active,
            "metrics": {name: value if math.isfinite(value) else None for name, value in one.metrics.items()},
            "pending": one.pending.to_dict(),
            "text": str(one.pending),
            "windows": one.windows,
            "partitions": [[name, *times] for name, times in one.partitions.items()],
            "graces": None if one.graces is None else _graces(one.graces),
        }
        for one in listener.watched()
    ]
    return {"format": FORMAT, "time_ms": listener.now_ms, "operators": operators}


def _graces(graces: Graces) -> dict[str, Any]:
    """The histogram as JSON: numbers of pairs or records by the grace that they needed (ms)."""
    return {
        "windows": graces.windows,
        "unit": graces.unit,
        "at_most": graces.at_most,
        "today": graces.today,
        "total": graces.total,
        "enough": graces.enough(),
        "needed": sorted(graces.needed.items()),
    }


class _Threads(ThreadingMixIn, WSGIServer):
    """A server with a thread for each request, so that a client that stalls blocks no other."""

    daemon_threads = True


class _IPv6(_Threads):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = 60
    """Seconds until a client that stalls is left: each one has a thread and a socket."""

    def handle(self) -> None:
        with suppress(TimeoutError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: nobody needs a line for each request."""
