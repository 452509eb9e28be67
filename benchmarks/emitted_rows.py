"""The cost of an emitted row on its way from Python through `observe()`: sent one by one, and in lists.

`python -m benchmarks.emitted_rows`, with `PYTHONPATH=src` where tidegate is not installed. Rows of a windowed count and
sum with the metrics of final results, from `mapInArrow` into a sink that drops them, all ways in turns. Lists whose
rows have no null travel in a column of their own, so lists are sent with and without some nulls.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.options import arguments, save, say, session, versions
from tidegate.kernel.tuning import Tuning
from tidegate.runtime.spark.flow import observing
from tidegate.runtime.spark.frames.arrow import spark_schema
from tidegate.runtime.spark.worker.wire import ROWS, WHOLE_ROWS, outgoing, rows_of, wire_schema
from tidegate.spec.metrics import numbers

TASKS = 2
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("total", pa.float64()),
    ]
)
METRICS = numbers(("final", "suppression", "unbound"))


@cache
def _part(rows: int, nulls: bool) -> pa.Table:
    """A part of `rows` rows, some with a null if `nulls`. Cached in a worker: making it is not measured."""
    at = np.arange(rows)
    start, end = (pa.array(np.full(rows, us)).cast(SCHEMA.field("window_start").type) for us in (0, 120_000_000))
    keys = pa.array([f"key-{number:08d}" for number in range(rows)])
    counts = pa.array(at % 7, mask=(at % 7_000 == 0) & nulls)  # no null changes a sum
    return pa.table([keys, start, end, counts, pa.array(at * 0.5)], schema=SCHEMA)


@dataclass
class _Rows:
    """A result with `rows` rows in one part."""

    rows: int
    nulls: bool = False
    metrics: dict[str, float] = field(default_factory=lambda: {"records": 1.0, "late": 0.0})
    wake_at: int | None = None

    @property
    def parts(self) -> Iterator[pa.Table]:
        yield _part(self.rows, self.nulls)


def in_lists(source: DataFrame, rows: int, nulls: bool = False) -> DataFrame:
    """`rows` rows in lists, as tidegate sends them; some have a null if `nulls`."""

    def send(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(tasks)  # or else Spark takes another worker the next time
        for table in outgoing(SCHEMA, METRICS, _Rows(rows, nulls)):
            yield from table.to_batches()

    wire = spark_schema(wire_schema(SCHEMA, METRICS))
    return rows_of(observing(source.mapInArrow(send, wire), METRICS, "metrics"), SCHEMA)


def one_by_one(source: DataFrame, rows: int) -> DataFrame:
    """The same rows one by one; metrics have columns of their own, in a row of their own that is filtered out."""
    wire = wire_schema(SCHEMA, METRICS)
    lists = (ROWS, WHOLE_ROWS)
    schema = pa.schema([*wire.field(ROWS).type.value_type, *(each for each in wire if each.name not in lists)])

    def send(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(tasks)
        out = _Rows(rows)
        for part in (*out.parts, pa.table({name: [value] for name, value in out.metrics.items()})):
            columns = [
                part[each.name].cast(each.type) if each.name in part.column_names else pa.nulls(len(part), each.type)
                for each in schema
            ]
            yield from pa.table(columns, schema=schema).to_batches(max_chunksize=Tuning().frame_rows)

    out = observing(source.mapInArrow(send, spark_schema(schema)), METRICS, "metrics").where("key IS NOT NULL")
    start, end = (f"timestamp_micros({name}) AS {name}" for name in ("window_start", "window_end"))
    return out.selectExpr("key", start, end, "n", "total")


FORMS: dict[str, Callable[[DataFrame, int], DataFrame]] = {
    "one by one": one_by_one,
    "in lists, some with nulls": partial(in_lists, nulls=True),
    "in lists without nulls": in_lists,
}


def measure(spark: SparkSession, rows: int, turns: int) -> dict[str, list[float]]:
    """Microseconds of a core per row in each turn, by form."""
    tasks = spark.range(0, TASKS, 1, TASKS)
    answers = {
        form: made(tasks, rows).selectExpr("count(1)", "sum(n)", "sum(total)").collect() for form, made in FORMS.items()
    }
    if len({str(answer) for answer in answers.values()}) > 1:
        raise AssertionError(f"not the same rows: {answers}")
    found: dict[str, list[float]] = {form: [] for form in FORMS}
    for turn in range(turns + 1):
        for form, made in FORMS.items():
            began = time.perf_counter()
            made(tasks, rows).write.format("noop").mode("overwrite").save()
            if turn:  # the first warms up
                found[form].append((time.perf_counter() - began) / rows * 1e6)
    return found


def main(argv: list[str] | None = None) -> int:
    options = arguments(argparse.ArgumentParser(description=__doc__), "emitted_rows.json").parse_args(argv)
    rows, turns = (10_000, 1) if options.smoke else (1_000_000, 7)
    with session(options) as spark:
        found = measure(spark, rows, turns)
        report: dict[str, Any] = {"rows": rows, "us_per_row": found, "versions": versions(spark)}
    for form, took in found.items():
        say(f"{form}: {median(took):.2f} microseconds of a core per row ({min(took):.2f} to {max(took):.2f})")
    save(report, options.json)
    return 0


if __name__ == "__main__":
    # As workers import it: the cache must belong to the module, not to a copy in every task.
    from benchmarks import emitted_rows  # noqa: PLW0406

    raise SystemExit(emitted_rows.main())
