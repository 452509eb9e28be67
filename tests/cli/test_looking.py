"""`tidegate pending`, `late`, `state`, `drain` and `describe`, without a running Spark."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from wsgiref.simple_server import make_server

import pytest

import tidegate as tg
from cli.fed import NOW, of_sessions, progress, served
from tidegate.cli.given import NO_BATCH
from tidegate.cli.main import main
from tidegate.runtime.spark.metrics.endpoint import _Quiet
from tidegate.runtime.spark.metrics.listener import Listener

PLAN = """
import tidegate as tg

events = tg.stream("events", key="k", timestamp="ts")
table = events.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("1 hour", "5 minutes")).count()

def outputs():
    return {"counts": table, "late": table.late_records()}

def number():
    return 1

def raises():
    raise LookupError("no table today")

def forgets(rows):
    rows.writeStream.format("console")

def starts(rows):
    return "a running query"
"""


@pytest.fixture
def endpoint() -> Iterator[tuple[str, Listener]]:
    """An endpoint without Spark; the test feeds its listener."""
    listener = Listener()
    with served(listener) as url:
        yield url, listener


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "looked_at.py").write_text(PLAN)
    (tmp_path / "broken.py").write_text("table = 1 / 0\n")
    (tmp_path / "misspelt.py").write_text("import tidegate as tg\ntable = tg.strem('events')\n")
    (tmp_path / "needy.py").write_text("import a_package_that_is_not_there\n")
    return "looked_at"


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_what_waits_in_running_queries(endpoint: tuple[str, Listener], capsys: pytest.CaptureFixture[str]) -> None:
    url, listener = endpoint
    assert said(capsys, "pending", url) == f"{NO_BATCH}\n"
    listener.onQueryProgress(progress("alerts", "events", next_close=9_000, open_windows=3))
    listener.onQueryProgress(progress("alerts", "events", slowest_partition=4, slowest_time=5_000, next_close=8_000))
    assert said(capsys, "pending", url) == (
        "events: stream time is 5000 (1970-01-01T00:00:05.000+00:00).\n"
        "  the next result waits for stream time 8000 (1970-01-01T00:00:08.000+00:00): 3 seconds to go\n"
        "  Partition 4 holds stream time back: it has come to 5000 (1970-01-01T00:00:05.000+00:00).\n"
    )
    (found,) = json.loads(said(capsys, "pending", f"{url}/metrics", "--json"))
    assert (found["query"], found["waiting"][0]["missing_ms"], found["held_by"]) == ("alerts", 3_000, [4, 5_000])
    listener.onQueryProgress(progress("counts", "events"))
    assert said(capsys, "pending", url).startswith("Query alerts\n")
    assert "3 seconds" not in said(capsys, "pending", url, "--query", "counts")
    assert "knows of 'alerts', 'counts'" in said(capsys, "pending", url, "--query", "count", code=2)


def test_late_and_skipped(endpoint: tuple[str, Listener], capsys: pytest.CaptureFixture[str]) -> None:
    url, listener = endpoint
    assert said(capsys, "late", url) == f"{NO_BATCH}\n"
    for _ in range(2):
        listener.onQueryProgress(progress("alerts", "events", record_lateness_avg=1500, record_lateness_max=4000))
    head, row = said(capsys, "late", url).splitlines()
    assert head.split()[:5] == ["query", "operator", "records", "late", "share"]
    assert row.split()[:6] == ["alerts", "events", "20", "2", "10.000%", "4"]
    assert row.endswith("1 second 500 milliseconds  4 seconds")
    (found,) = json.loads(said(capsys, "late", url, "--json"))
    assert found["skipped"] == {"null_key": 4}
    assert (found["late"], found["record_lateness_max"]) == (2, 4000)


def test_graces_of_sessions_are_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    listener = Listener(clock=lambda: NOW)
    listener.onQueryProgress(of_sessions())
    with served(listener) as url:
        shown = said(capsys, "late", url).splitlines()[3:]
        (found,) = json.loads(said(capsys, "late", url, "--json"))
    assert shown[0] == "What each grace would have cost visits, visits, in the last 24 hours:"
    assert [re.split(r"  +", line.strip()) for line in shown[1:]] == [
        ["grace", "late records", "share"],
        ["0 milliseconds", "at most 12", "at most 1.200%"],
        ["10 seconds", "at most 8", "at most 0.800%"],
        ["25 seconds", "3", "0.300%", "today"],
        ["1 minute", "at most 1", "at most 0.100%", "enough"],
        ["2 minutes", "0", "0.000%"],
    ]
    graces = found["graces"]
    assert (graces["windows"], graces["unit"], graces["at_most"]) == ("sessions", "records", True)
    assert (graces["today"], graces["total"], graces["enough"]) == (25_000, 1_000, 60_000)
    assert graces["needed"] == [[10_000, 4], [25_000, 5], [60_000, 2], [90_000, 1]]


def test_describe(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "describe", f"{plan}:table").startswith("WindowedAggregate")
    assert said(capsys, "describe", f"{plan}:outputs").startswith("Outputs of one operator")
    assert said(capsys, "describe", f"{plan}:outputs", "--format", "mermaid").startswith("flowchart TD\n")
    parts = json.loads(said(capsys, "describe", f"{plan}:table", "--json"))
    assert [part["kind"] for part in parts] == ["source", "operator"]
    assert parts[1]["windows"] == {
        "kind": "TimeWindows",
        "size_ms": 3_600_000,
        "advance_ms": 3_600_000,
        "grace_ms": 300_000,
    }
    picture = tmp_path / "topology.svg"
    assert str(picture) in said(capsys, "describe", f"{plan}:table", "--format", "svg", "--output", str(picture))
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["pending", "http://127.0.0.1:1"], "http://127.0.0.1:1/queries.json does not answer: "),
        (["watch", "http://127.0.0.1:port"], "http://127.0.0.1:port/queries.json does not answer: nonnumeric port"),
        (["late", "http://[::1"], "http://[::1 does not answer: Invalid IPv6 URL"),
        (
            ["late", "checkpoint"],
            "late takes the address of an endpoint, not 'checkpoint': a checkpoint does not count",
        ),
        (["state", "http://127.0.0.1:1"], "state takes a checkpoint, not an endpoint"),
        (["state", "c", "--ended-from", "noon"], "--ended-from is 'noon', no instant. Write ISO 8601"),
        (["state", "c", "--limit", "-1"], "--limit is -1"),
        (["describe", "http://127.0.0.1:1"], "describe takes a plan or a checkpoint, not an endpoint"),
        (["describe", "looked_at:none"], "the plan 'looked_at:none' cannot be found"),
        (["describe", "looked_at:number"], "the plan 'looked_at:number' is 1, not a table or outputs"),
        (["describe", "looked_at:raises"], "LookupError: no table today"),
        (["describe", "broken:table"], "ZeroDivisionError"),
        (["describe", "misspelt:table"], 'misspelt.py", line 2, in <module>'),
        (["describe", "needy:table"], 'needy.py", line 1, in <module>'),
        (["describe", "nowhere:table"], "the plan 'nowhere:table' cannot be found: No module named 'nowhere'"),
        (["check-upgrade", "c", "./looked_at:table"], "'./looked_at' is no name of a module. Run from its folder"),
        (["describe", "looked_at:table", "--output", "nowhere/t.svg"], "'nowhere/t.svg' cannot be written: "),
        (["drain", "http://127.0.0.1:1", "a:b", "c:d"], "drain takes a checkpoint, not an endpoint"),
        (["check-upgrade", "http://127.0.0.1:1", "a:b"], "check-upgrade takes a checkpoint, not an endpoint"),
        (["drain", "c", "looked_at:table", "looked_at:none"], "the writer 'looked_at:none' cannot be found"),
        (["drain", "c", "looked_at:table", "looked_at:table"], "the writer 'looked_at:table' is"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_is_refused(plan: str, arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error in said(capsys, *arguments, code=2)


@pytest.mark.parametrize(("writer", "given"), [("forgets", "None"), ("starts", "'a running query'")])
def test_a_drain_needs_a_writer(
    plan: str, writer: str, given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No batch is planned without one."""
    pytest.importorskip("pyspark")
    draining = "tidegate.runtime.spark.checkpoints.draining"
    rows = SimpleNamespace(isStreaming=True, sparkSession=None, writeStream=MagicMock())
    monkeypatch.setattr("tidegate.cli.drain.session", lambda *_: None)
    monkeypatch.setattr(f"{draining}.to_df", lambda *_, **__: rows)
    monkeypatch.setattr(f"{draining}._done", lambda *_: False)
    monkeypatch.setattr(f"{draining}._plan", pytest.fail)
    error = said(capsys, "drain", "checkpoint", f"{plan}:table", f"{plan}:{writer}", code=2)
    assert error.startswith(
        f"tidegate: `write` gives {given}, not the DataStreamWriter of the rows. Return rows.writeS"
    )


def test_the_writer_of_a_drain_is_a_function() -> None:
    pytest.importorskip("pyspark")
    counts = tg.stream("s", key="k", timestamp="t").group_by_key().count()
    with pytest.raises(tg.DefinitionTypeError, match=r"^`write` is 'noop', not a function of the rows\. Give for exam"):
        tg.drain(counts, "checkpoint", "noop")  # type: ignore[arg-type]


def test_a_drain_that_is_interrupted_leaves_no_query_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C in a notebook: the query wrote on, and the drain that is called again met it."""
    pytest.importorskip("pyspark")
    draining = "tidegate.runtime.spark.checkpoints.draining"
    writer, rows = MagicMock(), SimpleNamespace(isStreaming=True, sparkSession=None)
    writer.option.return_value.trigger.return_value.start.return_value = query = MagicMock()
    query.awaitTermination.side_effect = KeyboardInterrupt
    monkeypatch.setattr(f"{draining}.to_df", lambda *_, **__: rows)
    monkeypatch.setattr(f"{draining}._done", lambda *_: False)
    monkeypatch.setattr(f"{draining}._plan", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        tg.drain(tg.stream("s", key="k", timestamp="t").group_by_key().count(), "checkpoint", lambda _: writer)
    query.stop.assert_called_once_with()


def test_something_else_answers(capsys: pytest.CaptureFixture[str]) -> None:
    def page(environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/html")])
        return answers

    answers = [b"<html>"]
    server = make_server("127.0.0.1", 0, page, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    assert "answers with something else than queries of tidegate" in said(capsys, "pending", url, code=2)
    answers[0] = b'{"format": 99}'
    assert "is of another version of tidegate (format 1 is read here)" in said(capsys, "pending", url, code=2)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_port_without_http(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"\x00\x01 no HTTP\r\n"))
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert f"{address}/queries.json does not answer: " in said(capsys, "pending", address, code=2)
        thread.join()


def test_files_that_cannot_be_written(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "nowhere" / "picture.svg", tmp_path):
        error = said(capsys, "describe", f"{plan}:table", "--format", "svg", "--output", str(path), code=2)
        assert f"tidegate: {str(path)!r} cannot be written: " in error


def test_a_reader_that_has_ended(plan: str) -> None:
    command = [sys.executable, "-m", "tidegate", "describe", f"{plan}:table"]
    reads, writes = os.pipe()
    os.close(reads)
    shown = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (shown.stderr, shown.returncode) == ("", 141)


@pytest.mark.parametrize(("encoding", "branch"), [("utf-8", "└─ GroupBy k"), ("ascii", r"\u2514\u2500 GroupBy k")])
def test_an_output_that_lacks_characters(plan: str, encoding: str, branch: str) -> None:
    command = [sys.executable, "-m", "tidegate", "describe", f"{plan}:table"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    shown = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (shown.stderr, shown.returncode) == (b"", 0)
    assert branch in shown.stdout.decode(encoding)


def test_an_output_that_is_closed(plan: str) -> None:
    """As `>&-` in a shell leaves it: nothing is printed, and the command has done its work."""
    for command, code in ((f"{plan}:table", 0), (f"{plan}:number", 2)):
        shell = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "tidegate", "describe", command]
        shown = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
        assert shown.returncode == code
        assert "Traceback" not in shown.stderr


def test_json_has_no_numbers_that_json_has_not(endpoint: tuple[str, Listener]) -> None:
    import urllib.request

    url, listener = endpoint
    listener.onQueryProgress(progress("alerts", "events", emit_final_records=0, stream_time=-1))
    with urllib.request.urlopen(f"{url}/queries.json") as answer:
        text = answer.read().decode()
    assert "NaN" not in text
    assert json.loads(text)["operators"][0]["metrics"]["stream_time_lag"] is None


def test_tables_are_text_in_columns() -> None:
    from tidegate.cli.state import shown

    assert shown(["a", "bb"], [["ccc", "d"]]) == "a    bb\nccc  d"
    assert tg.Pending("events", 5, (), 0).to_dict()["stream_time"] == 5
