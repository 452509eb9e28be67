"""The commands of the shell over a real checkpoint and a real endpoint."""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.cli.main import main

pytest.importorskip("pyspark")
pytest.importorskip("prometheus_client")

from pyspark.sql import SparkSession

from spark.replay import Replay, schema_of, with_offsets

pytestmark = pytest.mark.spark

SCHEMA = schema_of(k=pa.string(), x=pa.int64())
BATCHES = with_offsets(
    [
        [{"k": k, "ts": ts, "x": ts} for k, ts in (("a", 1), ("b", 4), ("a", 12))],
        [{"k": k, "ts": ts, "x": ts} for k, ts in (("b", 34), ("a", 2), ("c", 36))],
    ]
)
POLL_SECONDS, MOST_POLLS = 0.05, 400
DRAINING = """
table = write = None  # set by the test

def sums(spark):
    return table

def rows_of(rows):
    return write(rows)
"""


def sums(source: Any) -> tg.KTable:
    events = tg.stream(source, key="k", timestamp="ts", partition="partition", offset="offset", name="events")
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
    sums = events.group_by_key().windowed_by(windows).agg(tg.Materialized.as_("sums"), total=tg.sum("x"))
    return sums.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_a_checkpoint_is_looked_at_and_drained(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Replay(spark, tmp_path, SCHEMA, lambda events: sums(events).to_df(), name="events")
    with closing(tg.metrics.serve(spark, port=0)) as endpoint:
        query.run(BATCHES)
        url = f"http://{endpoint.host}:{endpoint.port}"
        for _ in range(MOST_POLLS):
            (running,) = json.loads(said(capsys, "pending", url, "--json")) or [{"stream_time": None}]
            if running["stream_time"] == 36:
                break
            time.sleep(POLL_SECONDS)
        (late,) = json.loads(said(capsys, "late", url, "--json"))
        (watched,) = json.loads(said(capsys, "watch", url, "--json"))
        with urllib.request.urlopen(endpoint.page) as page:
            assert "tidegate watch" in page.read().decode()
        with urllib.request.urlopen(f"{url}/history.json") as answer:
            (past,) = json.load(answer)["queries"]
    assert (late["operator"], late["records"], late["late"]) == ("events", 6, 1)
    assert late["graces"] == {
        "windows": "time",
        "unit": "pairs",
        "at_most": False,
        "today": 5,
        "total": 6,
        "enough": 50,
        "needed": [[28, 1]],
    }
    assert watched["windows"] == [10, 10, 5]
    assert [(name, reached) for name, reached, _ in watched["partitions"]] == [("0", 36)]
    assert past["operators"]["events"]["records"][-1] == 6
    assert past["batches"]["addBatch"][-1] > 0
    checkpoint = str(tmp_path / "checkpoint")

    (found,) = json.loads(said(capsys, "pending", checkpoint, "--json"))
    assert found["name"] == running["name"] == "events"
    assert found["waiting"] == [{"window": [30, 40], "leaves_at": 45, "missing_ms": 9}]
    assert running["waiting"] == [{"window": None, "leaves_at": 45, "missing_ms": 9}]
    assert "window 30 to 40 ms waits for stream time 45" in said(capsys, "pending", checkpoint)

    rows = json.loads(said(capsys, "state", checkpoint, "--json"))
    assert sorted((row["k"], row["total"], row["status"]) for row in rows) == [("b", 34, "open"), ("c", 36, "open")]
    text = said(capsys, "state", checkpoint, "--store", "sums", "--limit", "1").splitlines()
    assert text[0].split() == ["k", "window", "total", "timestamp", "status"]
    assert text[2] == "and more; --limit N shows more than 1."
    assert json.loads(said(capsys, "state", checkpoint, "--json", "--ended-to", "39")) == []
    assert main(["state", checkpoint, "--store", "nowhere"]) == 2

    assert said(capsys, "describe", checkpoint).startswith("aggregate sums\n   total = sum(x)\n   by k\n   emits each")
    assert "TimeWindows of 10 milliseconds" in said(capsys, "describe", checkpoint, "--format", "mermaid")
    (source, operator) = json.loads(said(capsys, "describe", checkpoint, "--json"))
    assert (source["title"], operator["windows"]["grace_ms"]) == ("events", 5)

    (tmp_path / "draining.py").write_text(DRAINING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import draining  # type: ignore[import-not-found]

    drained: list[Any] = []
    draining.table = sums(query._source())
    draining.write = lambda rows: rows.writeStream.outputMode("update").foreachBatch(
        lambda batch, _: drained.extend(batch.collect())
    )
    assert said(capsys, "drain", checkpoint, "draining:sums", "draining:rows_of").startswith("Drained: ")
    assert sorted((row["k"], row["total"]) for row in drained) == [("b", 34), ("c", 36)]
    again = json.loads(said(capsys, "drain", checkpoint, "draining:sums", "draining:rows_of", "--json"))
    assert again == {"checkpoint": checkpoint, "drained": True}
    assert len(drained) == 2
