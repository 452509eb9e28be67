"""What Avro records of a schema registry cost until a Python worker has them as rows, and by Spark's `from_avro`.

`python -m benchmarks.registered`, with `PYTHONPATH=src:.` where tidegate is not installed. The records lie in Parquet
files with the columns of Spark's Kafka source: no broker takes part. `from_avro` knows one schema, and so half of the
measurement has records of one; in the other half every tenth record has an older schema, which only the registry's
way reads. The registry is a small one on loopback.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
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
from tidegate.runtime.spark.kafka.source import decoded_stream
from tidegate.runtime.spark.stateless import arrow_schema

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
OLD_ONES = 10
BATCH = 10_000
"""Records of a batch, as Spark hands them over."""
OURS, SPARKS = "workers, by the registry", "Spark's from_avro"
Took = dict[str, float]
"""`seconds`, and `cpu_seconds` of all processes: of work, whatever else the machine is doing."""


def topic(spark: SparkSession, rows: int, folder: Path, older: int, newer: int, mixed: bool) -> DataFrame:
    """Orders under the numbers of their schemas, as Spark's Kafka source gives them."""
    number = F.col("id")
    user = F.format_string("user-%07d", (F.rand(1) * KEYS).cast("int")).alias("user")
    amount = (1 + F.rand(2) * 9_999).cast("long").alias("amount")
    price = F.when(number % 8 != 0, F.rand(3)).alias("price")
    at = F.timestamp_millis(F.lit(FIRST_MS) + number).alias("at")

    def written(schema: int, text: str, *more: Column) -> Column:
        body = to_avro(F.struct(user, amount, price, *more, at), text)
        return F.concat(F.unhex(F.lit(f"00{schema:08X}")), body)

    value = written(newer, NEWER, F.lit("DE").alias("country"))
    if mixed:
        value = F.when(number % OLD_ONES == 0, written(older, OLDER)).otherwise(value)
    spark.range(rows).select(
        F.lit(None).cast("binary").alias("key"),
        value.alias("value"),
        F.lit("orders").alias("topic"),
        (number % PARTITIONS).cast("int").alias("partition"),
        number.alias("offset"),
        at.alias("timestamp"),
    ).repartition(TASKS).write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def ways(raw: DataFrame, registry: Registry, *, mixed: bool) -> dict[str, tuple[DataFrame, Rows]]:
    """How the workers get the rows: a frame, and who opens it there."""
    value = tg.kafka.schema_registry(registry.url, subject="orders-value")
    source = decoded_stream(raw, key="user", value=value, timestamp="at", name="orders")
    frame, opener = source.node.raw.handed_over(arrow_schema(source.frame.select(*COLUMNS).schema))
    found: dict[str, tuple[DataFrame, Rows]] = {OURS: (frame, opener.rows)}
    if not mixed:
        body = from_avro(F.substring("value", 6, 2**31 - 1), NEWER, {"mode": "PERMISSIVE"}).alias("row")
        found[SPARKS] = (
            raw.select(body, "partition", "offset").select("row.*", "partition", "offset"),
            iter,
        )
        found["as bytes"] = raw.select("value", "partition", "offset"), iter
    return found


def cpu_seconds() -> float:
    """What the JVM and the Python workers have worked so far, those that have ended too."""
    return sum(sum(each.cpu_times()[:4]) for each in psutil.Process().children(recursive=True))


def in_turns(ways_: Mapping[str, tuple[DataFrame, Rows]], turns: int) -> dict[str, Took]:
    """Medians of each way, one after the other in each turn, the first not counted."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways_}
    for _ in range(1 + turns):
        for name, (given, make) in ways_.items():
            worked = cpu_seconds()
            took = seconds(given, make)
            found[name].append((took, cpu_seconds() - worked))
    return {
        name: {"seconds": median(took for took, _ in each[1:]), "cpu_seconds": median(cpu for _, cpu in each[1:])}
        for name, each in found.items()
    }


def alone(values: pa.Array, registry: Registry) -> dict[str, float]:
    """Microseconds of work to decode a record, without Spark: in columns, and by fastavro where it is installed."""
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


def measure(spark: SparkSession, rows: int, folder: Path) -> tuple[dict[str, dict[str, Took]], dict[str, float]]:
    """For records of one schema and of two; and of decoding alone."""
    found, decoded = {}, {}
    with Registry() as registry:
        older, newer = (registry.register("orders-value", json.loads(text)) for text in (OLDER, NEWER))
        for name, mixed in (("one schema", False), ("two schemas", True)):
            raw = topic(spark, rows, folder / name, older, newer, mixed)
            found[name] = in_turns(ways(raw, registry, mixed=mixed), TURNS)
            if not mixed:
                values = raw.select("value").limit(BATCH).toArrow()["value"].combine_chunks()
                decoded = alone(values, registry)
    return found, decoded


def main(argv: list[str] | None = None) -> int:
    parser = arguments(argparse.ArgumentParser(description=__doc__), "registered.json")
    parser.add_argument("--full", action="store_true", help="more records")
    parser.add_argument("--rows", type=int, help="so many records")
    options = parser.parse_args(argv)
    rows = options.rows or ROWS[size_of(options)]
    with session(options, connector()) as spark, tempfile.TemporaryDirectory() as folder:
        found, decoded = measure(spark, rows, Path(folder))
        report: dict[str, Any] = {"rows": rows, "took": found, "decoded": decoded, "versions": versions(spark)}
    for schemas, each in found.items():
        for name, took in each.items():
            per_record = took["cpu_seconds"] / rows * 1e6
            say(f"{schemas:12} {name:26}{took['seconds']:8.3f} s  {per_record:6.2f} µs of a core per record")
    for name, each_took in decoded.items():
        say(f"decoding alone, {name:12}{each_took:8.3f} µs of work per record")
    ours, sparks = (found["one schema"][name] for name in (OURS, SPARKS))
    report["times"] = {clock: sparks[clock] / ours[clock] for clock in ours}
    work, time = report["times"]["cpu_seconds"], report["times"]["seconds"]
    say(f"from_avro takes {work:.2f} times the work, {time:.2f} times the time")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
