"""`tidegate advise` over a topic of a real broker, between two offsets."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.cli.main import main

pytest.importorskip("pyspark")

from kafka.broker import Broker
from kafka.client import Client

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]

MINUTE = 60_000
MINUTES = [1, 2, 9, 3, 11, 4, 25, 12]


def test_a_topic_between_two_offsets(broker: Broker, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    topic = client.topic()
    values = [json.dumps({"user": "a", "ts": minute * MINUTE}).encode() for minute in MINUTES]
    client.send(topic, [(0, None, value, None) for value in (*values[:4], b"no JSON", *values[4:])])
    asked = ["--key", "user", "--timestamp", "ts", "--window", "5 minutes", "--value", "user string, ts long", "--json"]
    ending = json.dumps({topic: {"0": 8}})
    assert main(["advise", f"kafka://{broker.servers}/{topic}", *asked, "--ending", ending]) == 0
    out, err = capsys.readouterr()
    assert err == f"tidegate: 1 records of '{topic}' cannot be read and are left out.\n"
    table = pa.table(
        {
            "user": ["a"] * 7,
            "ts": [minute * MINUTE for minute in MINUTES[:7]],
            "partition": [0] * 7,
            "offset": [0, 1, 2, 3, 5, 6, 7],
        }
    )
    windows = tg.TimeWindows.of_size_with_no_grace("5 minutes")
    here = tg.advise(table, key="user", timestamp="ts", windows=windows, partition="partition", offset="offset")
    assert json.loads(out)["costs"] == json.loads(here.json())["costs"]


def test_fields_that_have_the_names_of_other_columns(
    broker: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = []
    for key, time in (("user", "ts"), ("topic", "timestamp")):
        values = [json.dumps({key: "a", time: minute * MINUTE}).encode() for minute in MINUTES]
        topic = client.topic()
        client.send(topic, [(0, None, value, None) for value in values])
        asked = ["--key", key, "--timestamp", time, "--window", "5 minutes", "--value", f"{key} string, {time} long"]
        assert main(["advise", f"kafka://{broker.servers}/{topic}", *asked, "--json"]) == 0
        costs.append(json.loads(capsys.readouterr().out)["costs"])
    assert costs[0] == costs[1]


def test_a_record_of_a_topic_lacks_a_value_though_it_has_a_place(
    broker: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = client.topic()
    values = [json.dumps({"user": "a", "ts": minute * MINUTE, "v": minute % 2 or None}).encode() for minute in MINUTES]
    client.send(topic, [(0, None, value, None) for value in values])
    asked = ["--key", "user", "--timestamp", "ts", "--time-difference", "5 minutes", "--json"]
    value = ["--value", "user string, ts long, v long"]
    assert main(["advise", f"kafka://{broker.servers}/{topic}", *asked, *value]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"]["null_value"] == 3
