"""D1, D2 and D3: the query of W1 over JSON files, a Delta table and CSV files, in the order of the files.

Each file is a stretch of time, so no record is late in any order in which a contestant reads the files. The folder has
the files as Parquet and the log of a Delta table over them; the same records are below it as JSON and as CSV. Spark has
a Delta source only with a package of its version: so its own aggregation reads the table's files by its Parquet source,
as the Delta source does after its log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from benchmarks.contestant import FILES, ONE_BATCH, SPARKS_OWN, Contestant, sparks_own
from benchmarks.inputs import HALVES, Half, Shape, halves, key_names, table, write_halves
from benchmarks.race import Bar, Race
from benchmarks.workloads.tumbling import SIZES, final_totals, spark_native, window_totals

SCHEMA = "user string, ts timestamp, amount long"
JSON, CSV, LOG = "json", "csv", "_delta_log"


def write(shape: Shape, folder: Path) -> Path:
    """The folder of the files of `shape`, as Parquet with the log of a table, JSON and CSV; written once."""
    name = "doors-" + "-".join(f"{name}={value}" for name, value in asdict(shape).items())
    target = write_halves(folder / name, tables(shape))
    files = sorted(target.glob("*.parquet"))
    for kind, lines in ((JSON, _json), (CSV, _csv)):
        done = target / f"_{kind}"
        if not done.exists():
            (target / kind).mkdir(exist_ok=True)
            for path in files:
                _write_lines(path, target / kind / f"{path.stem}.{kind}", lines)
            done.touch()
    if not (target / LOG).exists():
        _write_log(target, files)
    return target


def tables(shape: Shape) -> Iterator[pa.Table]:
    """A table per file; the first file of a micro-batch has the first half of its time."""
    names = pa.array(key_names(np.arange(shape.keys)))
    both: list[Half] = []
    for half in halves(shape):
        both.append(half)
        if len(both) == HALVES:
            key, ts_ms, amount = (
                np.stack([getattr(each, of) for each in both], axis=1).ravel() for of in ("key", "ts_ms", "amount")
            )
            rows = len(key) // HALVES
            for part in range(HALVES):
                stretch = slice(part * rows, (part + 1) * rows)
                yield table(
                    names.take(pa.array(key[stretch])), ts_ms[stretch], amount[stretch], 0, half.batch * 2 * rows
                )
            both = []


def _write_lines(parquet: Path, path: Path, lines: Callable[..., list[Any]]) -> None:
    rows = pq.read_table(parquet, columns=["user", "ts", "amount"])
    times = pc.strftime(rows["ts"].cast(pa.timestamp("ms", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    parts = lines(rows["user"], times, rows["amount"].cast(pa.string()))
    path.write_text("\n".join(pc.binary_join_element_wise(*parts, "").to_pylist()) + "\n")
    os.utime(path, (parquet.stat().st_mtime,) * 2)


def _json(user: pa.Array, ts: pa.Array, amount: pa.Array) -> list[Any]:
    return ['{"user":"', user, '","ts":"', ts, '","amount":', amount, "}"]


def _csv(user: pa.Array, ts: pa.Array, amount: pa.Array) -> list[Any]:
    return [user, ",", ts, ",", amount]


def _write_log(target: Path, files: list[Path]) -> None:
    """Write a log with one version for the table, and one for each micro-batch."""
    kinds = {"user": "string", "ts": "timestamp", "amount": "long", "partition": "integer", "offset": "long"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    metadata = {
        "id": target.name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    adds = [
        {"add": {"path": each.name, "size": each.stat().st_size, "modificationTime": at, "dataChange": True}}
        for at, each in enumerate(files)
    ]
    table_: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    versions = [table_, *(adds[at : at + HALVES] for at in range(0, len(adds), HALVES))]
    (target / LOG).mkdir()
    for version, actions in enumerate(versions):
        (target / LOG / f"{version:020}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))


Frames = Callable[[SparkSession, Path], DataFrame]


def lines_by_us(format: str) -> Frames:
    def made(spark: SparkSession, folder: Path) -> DataFrame:
        path = str(folder / format)
        return final_totals(
            tg.files.source(spark, path, format=format, schema=SCHEMA, key="user", timestamp="ts", options=ONE_BATCH)
        )

    return made


def lines_frame(format: str) -> Frames:
    """The query over Spark's own reader, without partition and offset, as most people would write it."""
    return lambda spark, folder: final_totals(
        tg.stream(_sparks_lines(spark, folder, format), key="user", timestamp="ts")
    )


def lines_by_spark(format: str) -> Frames:
    return lambda spark, folder: window_totals(_sparks_lines(spark, folder, format))


def _sparks_lines(spark: SparkSession, folder: Path, format: str) -> DataFrame:
    return spark.readStream.schema(SCHEMA).options(**ONE_BATCH).format(format).load(str(folder / format))


def delta_by_us(spark: SparkSession, folder: Path) -> DataFrame:
    options = {**ONE_BATCH, "startingVersion": "0"}
    return final_totals(tg.delta.source(spark, str(folder), key="user", timestamp="ts", options=options))


def _race_of_lines(name: str, format: str) -> Race:
    said = format.upper()
    return Race(
        name,
        f"W1 over {said} files, in the order of the files",
        lambda size, folder: write(SIZES["W1"][size], folder),
        (
            Contestant(FILES, f"tidegate, tg.files.source of {said}", lines_by_us(format)),
            Contestant("tidegate_unordered", "tidegate over Spark's reader, unordered", lines_frame(format)),
            *sparks_own(lines_by_spark(format)),
        ),
        (Bar(1.8, SPARKS_OWN),),
        repeat=2,
    )


D1 = _race_of_lines("D1", JSON)
D2 = Race(
    "D2",
    "W1 over a Delta table, in the order of its log",
    lambda size, folder: write(SIZES["W1"][size], folder),
    (
        Contestant("tidegate_delta", "tidegate, tg.delta.source", delta_by_us),
        *sparks_own(spark_native),
    ),
    (Bar(1.8, SPARKS_OWN, ("tidegate_delta",)),),
    repeat=2,
)
D3 = _race_of_lines("D3", CSV)
