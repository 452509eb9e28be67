"""`tidegate watch` in the terminal, and its page as far as no browser is needed."""

from __future__ import annotations

import json
import math
import re
import socket
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from prometheus_client import CollectorRegistry

from cli.fed import HOSTILE, NOW, heard, progress, served
from tidegate.cli.main import main
from tidegate.kernel.inspect.graces import Graces
from tidegate.runtime.spark.metrics.endpoint import PAGE, Server, _Quiet, serve
from tidegate.runtime.spark.metrics.history import HOURS_MS, History
from tidegate.runtime.spark.metrics.listener import Listener
from tidegate.runtime.spark.metrics.prometheus import Collector


@pytest.fixture
def url() -> Iterator[str]:
    with served(heard(100)) as url:
        yield url


def fetched(url: str, **headers: str) -> tuple[str, Any]:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return answer.read().decode(), answer.headers


def test_it_prints_what_the_page_shows(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", url, "--once", "--query", "alerts"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Query alerts, operator events\nevents: stream time is 1780000495000 (")
    assert "  2,245,000 records in, 300 rows out; 295 late (0.013%); skipped: 200 null_key\n" in said
    assert "  12,099 rows wait; the buffer is 50% full.\n" in said
    assert re.search(r"^  5 .* 4 minutes 45 seconds +4 minutes 10 seconds$", said, re.MULTILINE)
    assert re.search(r"^    1 minute +595 +0\.015% +today$", said, re.MULTILINE)
    assert main(["watch", url, "--json"]) == 0
    assert {one["query"] for one in json.loads(capsys.readouterr().out)} == {"alerts", HOSTILE}


def test_a_join_has_open_records(capsys: pytest.CaptureFixture[str]) -> None:
    listener = Listener()
    listener.onQueryProgress(progress("joins", "a join b", open_left_records=1_200, open_right_records=7))
    with served(listener) as url:
        assert main(["watch", url, "--once"]) == 0
        (query,) = json.loads(fetched(f"{url}/history.json")[0])["queries"]
    assert "  1,200 left and 7 right records are open.\n" in capsys.readouterr().out
    assert query["operators"]["a join b"]["open_right_records"] == [7]


@pytest.mark.parametrize("late", [False, True])
def test_a_query_with_a_new_checkpoint_replaces_the_ended_one_of_its_name(late: bool) -> None:
    """Prometheus takes one sample for each set of labels. The end of a query may be heard after the next start."""
    listener, ends = Listener(), []
    for number, records in (("id-1", 10), ("id-2", 1_000)):
        run = SimpleNamespace(id=number, runId=f"run of {number}", name="alerts", timestamp="2026-01-01T00:00:00.000Z")
        for end in [] if late else ends:
            listener.onQueryTerminated(end)
        listener.onQueryStarted(run)
        event = progress("alerts", "events", records=records)
        event.progress.id = number
        listener.onQueryProgress(event)
        ends.append(run)
    if late:
        listener.onQueryTerminated(ends[0])
    (one,) = listener.watched()
    assert (one.query, one.active, one.metrics["records_total"]) == ("alerts", True, 1_000)
    assert len(listener.histories()) == 1
    listener.onQueryTerminated(ends[1])
    (one,) = listener.watched()
    assert (one.active, one.metrics["records_total"]) == (False, 1_000)


def test_a_query_that_goes_on_with_another_plan_has_the_metrics_of_that_plan() -> None:
    listener = Listener()
    full: dict[str, Any] = {
        "suppression_buffer_count_current": 7,
        "suppression_emit": 2,
        "suppression_buffer_fill": 0.9,
    }
    limits = {f"suppression_buffer_count_current[{name}]": 1 for name in ("calm", "slow")}
    listener.onQueryProgress(progress("alerts", "events"))
    listener.onQueryProgress(progress("alerts", "events", future=3, **full, **limits))
    with_a_limit = listener.metrics("events")
    assert (with_a_limit["future"], with_a_limit["skipped_records_total"], with_a_limit["dropped"]) == (3, 7, 9)
    assert (with_a_limit["suppression_buffer_count_current"], with_a_limit["suppression_buffer_fill"]) == (7, 0.9)
    assert with_a_limit["suppression_buffer_count_current[slow]"] == 1
    listener.onQueryProgress(progress("alerts", "events", future=0))
    metrics = listener.metrics("events")
    assert not [name for name in metrics if name.startswith("suppression")]
    assert (metrics["future"], metrics["records_total"], metrics["late"]) == (3, 30, 3)
    registry = CollectorRegistry()
    registry.register(Collector(listener))
    skipped = {"query": "alerts", "operator": "events", "reason": "future"}
    assert registry.get_sample_value("tidegate_skipped_records_total", skipped) == 3
    listener.onQueryProgress(
        progress("alerts", "events", future=0, **full | {"suppression_buffer_count_current": None})
    )
    assert listener.metrics("events")["suppression_buffer_count_current"] == 0


def test_a_query_that_has_ended_does_not_lag(capsys: pytest.CaptureFixture[str]) -> None:
    listener = heard(2)
    run = SimpleNamespace(id="alerts", runId="", name="alerts", timestamp="2026-01-01T00:00:00.000Z")
    assert listener.metrics("events", "alerts")["stream_time_lag"] > 0
    listener.onQueryTerminated(run)
    assert math.isnan(listener.metrics("events", "alerts")["stream_time_lag"])
    with served(listener) as url:
        assert main(["watch", url, "--once", "--query", "alerts"]) == 0
        assert "behind the wall clock" not in capsys.readouterr().out
        (one, _) = sorted(json.loads(fetched(f"{url}/queries.json")[0])["operators"], key=lambda one: one["active"])
    assert (one["query"], one["metrics"]["stream_time_lag"]) == ("alerts", None)


def started(listener: Listener, name: str | None, run: str) -> None:
    listener.onQueryStarted(SimpleNamespace(id="id", runId=run, name=name, timestamp="2026-01-01T00:00:00.000Z"))


def batch(listener: Listener, operator: str, **numbers: Any) -> None:
    event = progress("alerts", operator, **numbers)
    event.progress.id = "id"
    listener.onQueryProgress(event)


def test_a_query_that_starts_again_with_another_plan_has_the_metrics_of_that_plan() -> None:
    listener = Listener()
    started(listener, "alerts", "first")
    batch(listener, "events", records=10)
    batch(listener, "visits", records=10)
    bounded = {"suppression_buffer_count_current": 5, "suppression_buffer_fill": 0.5, "tasks": 1, "tasks_heard": 1}
    started(listener, "alerts", "second")
    batch(listener, "events", records=7, **bounded)
    (one,) = listener.watched()
    assert (one.operator, one.metrics["records_total"]) == ("events", 17)
    assert (one.metrics["suppression_buffer_count_current"], one.metrics["suppression_buffer_fill"]) == (5, 0.5)
    # Each of two limits has metrics of its own.
    limits = {f"suppression_emit[{store}]": number for store, number in (("first", 3), ("second", 4))}
    started(listener, "alerts", "third")
    batch(listener, "events", records=1, suppression_emit=7, **limits)
    batch(listener, "events", records=1, suppression_emit=7, **limits)
    (one,) = listener.watched()
    emitted = {name: value for name, value in one.metrics.items() if name.startswith("suppression_emit_total")}
    assert emitted == {
        "suppression_emit_total": 14,
        "suppression_emit_total[first]": 6,
        "suppression_emit_total[second]": 8,
    }
    assert "suppression_buffer_fill" not in one.metrics
    started(listener, "alerts", "fourth")
    batch(listener, "events", records=1, late=2)
    (one,) = listener.watched()
    assert not [name for name in one.metrics if name.startswith("suppression")]
    assert one.metrics["records_total"] == 20


def test_a_query_that_starts_again_under_another_name_has_that_name() -> None:
    listener = Listener(clock=lambda: NOW)
    started(listener, None, "first")
    batch(listener, "events", records=10)
    started(listener, "alerts", "second")
    batch(listener, "events", records=7)
    (one,) = listener.watched()
    assert (one.query, one.metrics["records_total"]) == ("alerts", 17)
    assert listener.metrics("events", "alerts") == listener.metrics("events", "id")


def test_of_partitions_with_ever_new_names_the_last_thousand_are_remembered() -> None:
    """The name of a file may be a partition: the process and the page would have each file for ever."""
    listener = Listener(clock=lambda: NOW)
    for n in range(1_500):
        times = [["slow", n], [f"file-{n}", 10 * n]]
        listener.onQueryProgress(progress("alerts", "events", NOW + n, partition_times=json.dumps(times)))
    (one,) = listener.watched()
    assert set(one.partitions) == {"slow", *(f"file-{n}" for n in range(501, 1_500))}
    assert one.partitions["slow"] == (1_499, 1_000 * (NOW + 1_499))


def test_a_client_that_stalls_is_left(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Each one has a thread and a socket, and a peer that was switched off never says that it is gone."""
    monkeypatch.setattr(_Quiet, "timeout", 0.2)
    with served(Listener()) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        clients = [socket.create_connection(address, timeout=30) for _ in range(3)]
        for client in clients:
            client.sendall(b"GET /queries.json HTTP/1.1")
        assert [client.recv(1) for client in clients] == [b""] * 3
        assert fetched(f"{url}/queries.json")[0]
        for client in clients:
            client.close()
    assert capfd.readouterr().err == ""


def test_an_endpoint_that_closes_leaves_nothing_in_the_registry() -> None:
    streams = SimpleNamespace(addListener=lambda one: None, removeListener=lambda one: None)
    spark, registry = SimpleNamespace(streams=streams), CollectorRegistry()
    for _ in range(2):
        server = serve(spark, 0, registry=registry)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="in use"):
            serve(spark, server.port, registry=registry)  # type: ignore[arg-type]
        page = fetched(server.url)[0]
        assert page.count("# HELP tidegate_query_active ") == 1
        server.close()
        server.close()
    assert not list(registry.collect())


def test_the_port_is_free_again_though_spark_has_ended() -> None:
    """As behind `spark.stop()` or a process of Java that was killed: the next session serves under the same port."""

    class Ended:
        """A session that ends behind so many questions."""

        def __init__(self, questions: int) -> None:
            self.questions = questions

        @property
        def streams(self) -> Any:
            self.questions -= 1
            if self.questions < 0:
                raise ConnectionRefusedError("Spark has ended")
            return SimpleNamespace(addListener=lambda one: None, removeListener=lambda one: None)

    ended: Any = Ended(1)
    goes_on: Any = Ended(2)
    server = serve(ended, 0)
    with pytest.raises(ConnectionRefusedError, match="Spark has ended"):
        server.close()
    with pytest.raises(ConnectionRefusedError, match="Spark has ended"):
        serve(ended, server.port)
    serve(goes_on, server.port).close()


def test_an_address_of_ipv6_has_brackets() -> None:
    server = Server(Listener(), "::1", 9464, None, None, lambda: None)  # type: ignore[arg-type]
    assert (server.page, server.url) == ("http://[::1]:9464/", "http://[::1]:9464/metrics")


def test_it_opens_the_page(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda page: not opened.append(page))  # type: ignore[func-returns-value]
    assert main(["watch", f"{url}/metrics"]) == 0
    assert opened == [f"{url}/"]
    assert capsys.readouterr().out == f"Watch: {url}/\n"
    monkeypatch.setattr(webbrowser, "open", lambda _page: False)
    assert main(["watch", url]) == 0
    assert f"Open {url}/" in capsys.readouterr().out


def test_before_the_first_batch_and_without_an_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    with served(Listener()) as url:
        assert main(["watch", url, "--once"]) == 0
    assert capsys.readouterr().out == (
        "No micro-batch has finished yet. Run the command again after the first one. An endpoint shows only queries "
        "that started after tg.metrics.serve(spark).\n"
    )
    assert main(["watch", "checkpoint"]) == 2
    assert "watch takes the address of an endpoint, not 'checkpoint'" in capsys.readouterr().err


def test_the_page_loads_what_is_beside_it_alone(url: str) -> None:
    page, headers = fetched(f"{url}/")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert named == ["data:,", "uPlot.min.css", "watch.css", "uPlot.iife.min.js", "watch.js"]
    for name in named[1:]:
        text, _ = fetched(f"{url}/{name}")
        assert text == (PAGE / name).read_text(encoding="utf-8")
        # A namespace of XML is a name; nobody fetches it.
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg|github\.com/leeoniya/uPlot )", text), name
    assert "Leon Sorokin" in (PAGE / "uPlot.LICENSE").read_text(encoding="utf-8")


def test_history(url: str) -> None:
    history = json.loads(fetched(f"{url}/history.json")[0])
    assert history["format"] == 1
    (alerts,) = [one for one in history["queries"] if one["query"] == "alerts"]
    assert alerts["active"]
    assert len(alerts["batches"]["at"]) == len(alerts["operators"]["events"]["at"]) == 100
    assert alerts["batches"]["addBatch"] == [700] * 100
    assert alerts["batches"]["getBatch"] == [None] * 100
    late = alerts["operators"]["events"]["late"]
    assert late == [sum(i % 7 for i in range(n + 1)) for n in range(100)]


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("localhost", True), ("127.0.0.1:9464", True), ("[::1]:9464", True), ("evil.example", False), ("[::1", False)],
)
def test_another_name_for_this_machine_is_refused(url: str, host: str, allowed: bool) -> None:
    for path in ("/", "/queries.json", "/history.json"):
        if allowed:
            fetched(url + path, Host=host)
            continue
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            fetched(url + path, Host=host)
        refused.value.close()
    with pytest.raises(urllib.error.HTTPError, match="404" if allowed else "403") as answer:  # Prometheus has no page
        fetched(f"{url}/metrics", Host=host)
    answer.value.close()


def test_it_is_read_only(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="405") as refused:
        urllib.request.urlopen(urllib.request.Request(f"{url}/queries.json", data=b"{}"))
    refused.value.close()


def test_history_stays_small_and_keeps_its_ends() -> None:
    history = History(("x",), most=100)
    for i in range(10_000):
        history.add(i * 1_000, {"x": i})
    table = history.table()
    assert len(table["at"]) <= 100
    assert table["at"][-1] == 9_999_000
    assert table["at"] == sorted(table["at"])
    assert [at / 1_000 for at in table["at"]] == table["x"]
    history.add(10_000_000 + HOURS_MS, {})
    assert history.table() == {"at": [10_000_000 + HOURS_MS], "x": [None]}
    assert History(("x",)).table() == {"at": [], "x": []}


def test_points_of_a_history_stay_in_order_if_the_clock_is_set_back() -> None:
    history = History(("x",), most=100)
    for number, at in enumerate((50_000_000, 50_001_000, 3_000, 4_000)):
        history.add(at, {"x": number})
    assert history.table() == {"at": [2_000, 3_000, 3_000, 4_000], "x": [0, 1, 2, 3]}


def test_a_listener_knows_graces_and_partitions() -> None:
    listener = heard(10)
    graces = listener.graces("events", "alerts")
    assert isinstance(graces, Graces)
    assert (graces.today, graces.total) == (60_000, 400_000)
    watched = next(one for one in listener.watched() if one.query == "alerts")
    assert watched.windows == (600_000, 300_000, 60_000)
    assert watched.partitions["5"][0] == watched.partitions["4"][0] - 7_000 - 25_000
    listener.onQueryProgress(progress("plain", "others"))
    assert listener.graces("others") is None
