"""Checks that the contestants answer the same question: their rows against a plain numpy computation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.contestant import Contestant
from benchmarks.inputs import GRACE_MS, SIZE_MS, Half, Int64s, Shape, halves, key_names, write
from benchmarks.measure import finished

Rows = dict[tuple[str, int], tuple[int, int]]
"""(key, window start in ms) -> (count, total)"""


def expected(shape: Shape, *, ordered: bool) -> Rows:
    """The final rows by tidegate's rule, from the generated columns."""
    return closed_and_open(shape, ordered=ordered)[0]


def closed_and_open(shape: Shape, *, ordered: bool) -> tuple[Rows, Rows]:
    """The final rows, and the rows of windows that are still open at the end of the input.

    The stream time of a record is the larger of two times: the stream time at the end of the batch before, and the
    largest timestamp so far in its own source partition (`ordered`) or its own timestamp. The record counts unless its
    window is closed by then.
    """
    kept_keys, kept_starts, kept_amounts = [], [], []
    stream_time = -1
    for batch in _batches(shape):
        for half in batch:
            own = np.maximum.accumulate(half.ts_ms) if ordered else half.ts_ms
            seen = np.maximum(own, stream_time)
            start = half.ts_ms - half.ts_ms % SIZE_MS
            kept = start + SIZE_MS + GRACE_MS > seen
            kept_keys.append(half.key[kept])
            kept_starts.append(start[kept])
            kept_amounts.append(half.amount[kept])
        stream_time = max(stream_time, *(int(half.ts_ms.max()) for half in batch))
    starts = np.concatenate(kept_starts)
    keys, amounts = np.concatenate(kept_keys), np.concatenate(kept_amounts)
    closed = starts + SIZE_MS + GRACE_MS <= stream_time
    final, still_open = (_totals(keys[side], starts[side], amounts[side]) for side in (closed, ~closed))
    return final, still_open


def _batches(shape: Shape) -> Iterator[list[Half]]:
    batch: list[Half] = []
    for half in halves(shape):
        if batch and batch[0].batch != half.batch:
            yield batch
            batch = []
        batch.append(half)
    yield batch


def _totals(key: Int64s, start: Int64s, amount: Int64s) -> Rows:
    groups, group, counts = np.unique(np.stack([key, start], axis=1), axis=0, return_inverse=True, return_counts=True)
    totals = np.zeros(len(groups), dtype=np.int64)
    np.add.at(totals, group.ravel(), amount)
    names = key_names(groups[:, 0])
    return {
        (name, at): (count, total)
        for name, at, count, total in zip(names, groups[:, 1].tolist(), counts.tolist(), totals.tolist(), strict=True)
    }


def streamed(spark: SparkSession, contestant: Contestant, folder: Path) -> Rows:
    """The rows that the query of `contestant` emits; AssertionError if it emits a window twice."""
    name = f"agreement_{contestant.name}"
    with finished(spark, contestant, folder, format="memory", name=name):
        columns = "user", "unix_millis(window.start) AS start", "count", "total"
        rows = spark.table(name).selectExpr(*columns).collect()
        spark.catalog.dropTempView(name)
    found = {(row["user"], row["start"]): (row["count"], row["total"]) for row in rows}
    if len(found) != len(rows):
        raise AssertionError(f"{contestant.label}: {len(rows)} rows for {len(found)} windows, final was not final")
    return found


SMALL = Shape(keys=500, rows=4_000, batches=3, batch_span_ms=SIZE_MS)


def check(contestants: list[Contestant], spark: SparkSession, folder: Path) -> dict[str, str]:
    """Compare all contestants with the direct computation; returns a sentence per contestant, by its name.

    Without late records all must emit its rows, and tidegate also with late records; else AssertionError. Spark tests a
    record against the watermark of the batches before: its differing rows over late records are counted, not judged.
    """
    clean, late = SMALL, replace(SMALL, late_share=0.02)
    clean_folder, late_folder = write(clean, folder), write(late, folder)
    all_in_time = expected(clean, ordered=True)
    found = {}
    for contestant in contestants:
        if not contestant.answers:
            continue
        _require_equal(streamed(spark, contestant, clean_folder), all_in_time, contestant)
        rows = streamed(spark, contestant, late_folder)
        right = expected(late, ordered=contestant.name != "tidegate_unordered")
        if contestant.name.startswith("tidegate"):
            _require_equal(rows, right, contestant)
            found[contestant.name] = f"{len(all_in_time)} rows equal; with 2 % late records {len(rows)} equal"
        else:
            found[contestant.name] = (
                f"{len(all_in_time)} rows equal; with 2 % late records {differing(rows, right)} of {len(right)} "
                "differ (its rule for late records is another)"
            )
    return found


def _require_equal(rows: Rows, right: Rows, contestant: Contestant) -> None:
    if rows != right:
        raise AssertionError(
            f"{contestant.label}: {differing(rows, right)} of {len(right)} rows differ from the direct computation"
        )


def differing(rows: Rows, right: Rows) -> int:
    return sum(rows.get(place) != right.get(place) for place in rows.keys() | right.keys())
