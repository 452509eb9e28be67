"""Any argument of a call that takes a session may be anything, as `tests.dsl.test_arguments` has it of the others."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from anything import bare_errors

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

RECORDS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp_ltz"
FIELDS = "k string, ts timestamp, v double"
Call = tuple[Callable[..., Any], dict[str, Any]]


@pytest.fixture
def calls(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Call]:
    """Calls by name, each with arguments that it takes."""
    records = spark.createDataFrame([], RECORDS)
    module = import_module("tidegate.runtime.spark.kafka.subscription")
    monkeypatch.setattr(module, "_loaded", lambda *_: records)
    (tmp_path / "a.json").write_text('{"k": "A", "ts": "2026-01-01T00:00:00Z", "v": 1}\n')
    counts = tg.stream(records.withColumnRenamed("timestamp", "ts"), key="topic", timestamp="ts").group_by_key().count()
    files = {"spark": spark, "path": str(tmp_path), "format": "json", "schema": FIELDS, "options": {}, "name": "n"}
    files |= {"streaming": False}
    topic = {"spark": spark, "servers": "h:1", "topic": "t", "value": FIELDS, "timestamp": "ts", "name": "n"}
    topic |= {"consumer": "spark", "options": {}, "streaming": False}
    checkpoint = {"spark": spark, "checkpoint": str(tmp_path / "checkpoint")}
    return {
        "files": (
            tg.files.source,
            files | {"key": "k", "timestamp": "ts", "partition": None, "offset": None, "ordered": None},
        ),
        "files in order": (tg.files.ordered, files),
        "a topic": (tg.kafka.source, topic | {"key": "k", "headers": False}),
        "a table of a topic": (tg.kafka.table, topic | {"key": "id", "history": None}),
        "json": (tg.kafka.json, {"schema": FIELDS, "options": {}}),
        "records": (tg.kafka.records, {"table": counts, "key": "topic", "value": None, "headers": [], "name": "n"}),
        "debezium": (
            tg.debezium.table,
            {"source": records, "key": "k", "row": FIELDS, "timestamp": "ts_ms", "tombstones": None, "name": "n"}
            | {"partition": "partition", "offset": "offset", "history": None},
        ),
        "read_state": (refused(tg.read_state), checkpoint | {"store": None, "ended_from": None}),
        "check_upgrade": (refused(tg.check_upgrade), checkpoint | {"table": counts}),
        "drain": (refused(tg.drain), {"table": counts, "checkpoint": "/x", "write": lambda rows: rows.writeStream}),
        "configure": (tg.configure, {"spark_or_builder": spark}),
        "sinks": (refused(tg.sinks.batches), {"table": counts, "sinks": tg.sinks.Delta(tmp_path / "delta", mode="x")}),
        "listen": (refused(tg.metrics.listen), {"spark": None}),
        "serve": (refused(tg.metrics.serve), {"spark": None, "port": 0, "host": "127.0.0.1"}),
    }


def refused(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that refuses arguments of the right kind too: there is no such checkpoint, for example."""

    def made(**given: Any) -> None:
        with pytest.raises(tg.TidegateError):
            call(**given)

    return made


def test_anything_may_be_given(spark: SparkSession, calls: dict[str, Call]) -> None:
    values = {"a number": 5, "a list": [["x"]], "numbers": {1: 2}, "a column": F.col("x"), "columns": [F.col("x")]}
    found = {name: errors for name, call in calls.items() if (errors := bare_errors(*call, values))}
    assert found == {}


def test_brokers_are_one_text(spark: SparkSession) -> None:
    """Of a list Spark made a text with brackets, and the query failed in Kafka's client."""
    with pytest.raises(tg.DefinitionTypeError, match=r"^`servers` is \['a:1', 'b:1'\]\. Use the brokers as one text"):
        tg.kafka.source(spark, ["a:1", "b:1"], "t", key="k", value=FIELDS)  # type: ignore[arg-type]
    with pytest.raises(tg.DefinitionError, match=r"'kafka://b:1/t'\. .*: write 'b:1', and the topic as `topic`\."):
        tg.kafka.source(spark, "SSL://a:1, kafka://b:1/t", "t", key="k", value=FIELDS)


def test_a_port_is_a_whole_number(spark: SparkSession) -> None:
    for port in (-1, 65_536, 9464.0, "9464"):
        with pytest.raises(
            tg.DefinitionError, match=r"^`port` is .*\. Use a whole number from 0, a free port, to 65535"
        ):
            tg.metrics.serve(spark, port=port)  # type: ignore[arg-type]


def test_a_checkpoint_may_be_a_path(spark: SparkSession, tmp_path: Path) -> None:
    query: Any = SimpleNamespace(recentProgress=[])
    assert tg.explain_pending(query, tmp_path) == []
    for call in (lambda: tg.read_state(spark, ""), lambda: tg.explain_pending(query, "")):
        with pytest.raises(tg.DefinitionTypeError, match=r"^`checkpoint` is '', not a path\."):
            call()
