"""The cost of decoding records of a schema registry in Python workers, and by Spark's own expressions.

`python -m benchmarks.registered`, with `PYTHONPATH=src:.` where tidegate is not installed. The records are in Parquet
files with the columns of Spark's Kafka source: no broker takes part. The registry is a small one on loopback. Spark's
`from_avro` knows one schema: it reads the topic with one schema, and not the topic in which every tenth record has an
older schema. JSON has one schema; Spark reads it by `from_json`, after the five bytes with the schema's number.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from tests.schemas.loopback import Registry

import tidegate as tg
from benchmarks.decoding import KEYS, PARTITIONS, TASKS, TURNS, Rows, seconds
from benchmarks.inputs import FIRST_MS
from benchmarks.options import arguments, save, say, session, size_of, versions
from benchmarks.peers.over_kafka import connector
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.kafka.source import decoded_stream
from tidegate.runtime.spark.row_decoder import Counts

ROWS = {"smoke": 10_000, "default": 3_000_000, "full": 10_000_000}
COLUMNS = ["user", "amount", "price", "country", "at", "partition", "offset"]
FIELDS: list[dict[str, Any]] = [
    {"name": "user", "type": "string"},
    {"name": "amount", "type": "long"},
    {"name": "price", "type": ["null", "double"]},
    {"name": "country", "type": "string", "default": "CH"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
NEWER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
OLDER = json.dumps({"type": "record", "name": "Order", "fields": [each for each in FIELDS if "default" not in each]})
OBJECT = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "amount": {"type": "integer"},
        "price": {"type": "number"},
        "country": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
    },
}
OBJECT_ON_SPARK = "user string, amount long, price double, country string, at timestamp"
OLD_ONES = 10
BATCH = 10_000
"""Records of one Arrow batch of Spark, to decode without Spark."""
OURS, SPARKS, BYTES = "workers, by the registry", "Spark's own expression", "as bytes"
Took = dict[str, float]
"""`seconds`, and `cpu_seconds` of all processes, which do not depend on other work of the machine."""


@dataclass(frozen=True)
class Topic:
    """Records that begin with the number of their schema.

    value    the bytes of a record
    subject  the subject of the reader's schema
    read     Spark's expression for the bytes after the number, None if Spark cannot read them
    """

    value: Column
    subject: str
    read: Callable[[Column], Column] | None


def topics(older: int, newer: int, object_: int) -> dict[str, Topic]:
    """The topics by name; `older`, `newer` and `object_` are the numbers of the schemas."""
    number = F.col("id")
    user = F.format_string("user-%07d", (F.rand(1) * KEYS).cast("int")).alias("user")
    amount = (1 + F.rand(2) * 9_999).cast("long").alias("amount")
    price = F.when(number % 8 != 0, F.rand(3)).alias("price")
    country = F.lit("DE").alias("country")
    at = F.timestamp_millis(F.lit(FIRST_MS) + number).alias("at")

    def behind(schema: int, body: Column) -> Column:
        return F.concat(F.unhex(F.lit(f"00{schema:08X}")), body)

    new = behind(newer, to_avro(F.struct(user, amount, price, country, at), NEWER))
    old = behind(older, to_avro(F.struct(user, amount, price, at), OLDER))
    mixed = F.when(number % OLD_ONES == 0, old).otherwise(new)
    said = F.to_json(F.struct(user, amount, price, country, at), {"timeZone": "UTC"}).cast("binary")
    return {
        "one schema": Topic(new, "orders-value", lambda body: from_avro(body, NEWER, {"mode": "PERMISSIVE"})),
        "two schemas": Topic(mixed, "orders-value", None),
        "JSON": Topic(
            behind(object_, said),
            "objects-value",
            lambda body: F.from_json(body.cast("string"), OBJECT_ON_SPARK, {"timeZone": "UTC"}),
        ),
    }


def written(spark: SparkSession, topic: Topic, rows: int, folder: Path) -> DataFrame:
    """The records in the columns of Spark's Kafka source."""
    number = F.col("id")
    spark.range(rows).select(
        F.lit(None).cast("binary").alias("key"),
        topic.value.alias("value"),
        F.lit("orders").alias("topic"),
        (number % PARTITIONS).cast("int").alias("partition"),
        number.alias("offset"),
        F.timestamp_millis(F.lit(FIRST_MS) + number).alias("timestamp"),
    ).repartition(TASKS).write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def ways(raw: DataFrame, topic: Topic, registry: Registry) -> dict[str, tuple[DataFrame, Rows]]:
    """The ways of decoding by name: a frame, and the function that makes rows of its batches in a worker."""
    value = tg.kafka.schema_registry(registry.url, subject=topic.subject)
    source = decoded_stream(raw, key="user", value=value, timestamp="at", name="orders")
    frame, row_decoder = source.node.undecoded.for_workers(arrow_schema(source.frame.select(*COLUMNS).schema))
    found: dict[str, tuple[DataFrame, Rows]] = {OURS: (frame, partial(row_decoder.rows, counts=Counts()))}
    if topic.read is not None:
        body = topic.read(F.substring("value", 6, 2**31 - 1)).alias("row")
        by_spark = raw.select(body, "partition", "offset").select("row.*", "partition", "offset")
        found |= {SPARKS: (by_spark, iter), BYTES: (raw.select("value", "partition", "offset"), iter)}
    return found


def cpu_seconds() -> float:
    """CPU seconds of the JVM and the Python workers so far, including workers that have ended."""
    return sum(sum(each.cpu_times()[:4]) for each in psutil.Process().children(recursive=True))


def in_turns(ways_: dict[str, tuple[DataFrame, Rows]], turns: int) -> dict[str, list[Took]]:
    """Times of each way in each turn but the first; every other turn runs in reverse order."""
    found: dict[str, list[Took]] = {name: [] for name in ways_}
    for turn in range(1 + turns):
        for name, (given, make) in list(ways_.items())[:: -1 if turn % 2 else 1]:
            worked = cpu_seconds()
            took = seconds(given, make)
            found[name].append({"seconds": took, "cpu_seconds": cpu_seconds() - worked})
    return {name: each[1:] for name, each in found.items()}


def middle(turns: list[Took]) -> Took:
    """The medians of the turns."""
    return {clock: median(each[clock] for each in turns) for clock in turns[0]}


def times(mine: list[Took], others: list[Took]) -> Took:
    """Median over the turns of the times of `others` over the times of `mine`."""
    return {clock: median(b[clock] / a[clock] for a, b in zip(mine, others, strict=True)) for clock in mine[0]}


def alone(values: pa.Array, registry: Registry) -> dict[str, float]:
    """CPU microseconds to decode a record without Spark: in columns, and by fastavro if it is installed."""
    bound = tg.kafka.schema_registry(registry.url, subject="orders-value").bound(None, "value")
    ways_: dict[str, Callable[[], Any]] = {"in columns": lambda: bound.decoder(values)}
    if find_spec("fastavro"):
        import fastavro

        schema, data = fastavro.parse_schema(json.loads(NEWER)), values.to_pylist()

        def one_by_one() -> Any:
            read = [fastavro.schemaless_reader(BytesIO(each[5:]), schema) for each in data]
            return pa.Table.from_pylist(read)

        ways_["by fastavro"] = one_by_one
    found: dict[str, list[float]] = {name: [] for name in ways_}
    for _ in range(1 + TURNS):
        for name, decode in ways_.items():
            began = time.process_time()
            decode()
            found[name].append(time.process_time() - began)
    return {name: median(took[1:]) / len(values) * 1e6 for name, took in found.items()}


def measure(spark: SparkSession, rows: int, turns: int, folder: Path) -> dict[str, Any]:
    """JSON with `took` by topic and way, `times` by topic, and `decoded` for decoding alone."""
    report: dict[str, Any] = {"took": {}, "times": {}}
    with Registry() as registry:
        older, newer = (registry.register("orders-value", json.loads(text)) for text in (OLDER, NEWER))
        for name, topic in topics(older, newer, registry.register("objects-value", OBJECT, "JSON")).items():
            raw = written(spark, topic, rows, folder / name)
            found = in_turns(ways(raw, topic, registry), turns)
            report["took"][name] = {way: middle(each) for way, each in found.items()}
            if topic.read is not None:
                report["times"][name] = times(found[OURS], found[SPARKS])
            if name == "one schema":
                values = raw.select("value").limit(BATCH).toArrow()["value"].combine_chunks()
                report["decoded"] = alone(values, registry)
    return report


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "registered.json")
    parser.add_argument("--full", action="store_true", help="more records")
    parser.add_argument("--rows", type=int, help="so many records")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each way, and one more that is not counted")
    options = parser.parse_args(argv)
    rows = options.rows or ROWS[size_of(options)]
    with session(options, connector()) as spark, tempfile.TemporaryDirectory() as folder:
        report = measure(spark, rows, options.turns, Path(folder)) | {"rows": rows, "versions": versions(spark)}
    for topic, each in report["took"].items():
        for name, took in each.items():
            per_record = took["cpu_seconds"] / rows * 1e6
            say(f"{topic:12} {name:26}{took['seconds']:8.3f} s  {per_record:6.2f} µs of a core per record")
    for name, each_took in report["decoded"].items():
        say(f"decoding alone, {name:12}{each_took:8.3f} µs of work per record")
    for topic, found in report["times"].items():
        say(f"{topic}: Spark takes {found['cpu_seconds']:.2f} times the work, {found['seconds']:.2f} times the time")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
