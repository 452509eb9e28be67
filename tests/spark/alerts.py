"""A query that has run over three records, as the examples of the reference have it: final counts of `events`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQueryManager

import tidegate as tg

COLUMNS = (
    "user string, ts timestamp, price double, airport string, ordered_at timestamp, shop string, partition int, "
    "offset long"
)
"""The columns of records that the pages read."""
POLL_SECONDS, MOST_POLLS = 0.05, 1_200


@dataclass
class Alerts:
    """Its folder (with `events` and `checkpoints/alerts`), its stream, and its listener."""

    folder: Path
    events: tg.KStream
    listener: Any


def counted(events: tg.KStream) -> tg.KTable:
    windows = tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds")
    return events.group_by_key().windowed_by(windows).count()


def build(events: tg.KStream) -> tg.KTable:
    return counted(events).suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))


@contextmanager
def running(spark: SparkSession, folder: Path) -> Iterator[Alerts]:
    """Run the query once; the listener stays until the end of the block."""
    times = [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in (0, 0, 2)]
    rows = [("A", ts, 1.0, "ZRH", ts, "tea", 0, offset) for offset, ts in enumerate(times)]
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.parquet(str(folder / "events"))
    df = spark.readStream.schema(COLUMNS).parquet(str(folder / "events"))
    events = tg.stream(df, key="user", timestamp="ts", partition="partition", offset="offset", name="events")
    listener = tg.metrics.listen(spark)
    writer = build(events).to_df().writeStream.format("noop").outputMode("append")
    writer = writer.option("checkpointLocation", str(folder / "checkpoints" / "alerts"))
    writer.trigger(availableNow=True).start().awaitTermination()
    # Listeners hear of a batch after its end.
    for _ in range(MOST_POLLS):
        if listener.watched():
            break
        time.sleep(POLL_SECONDS)
    try:
        yield Alerts(folder, events, listener)
    finally:
        spark.streams.removeListener(listener)


@contextmanager
def as_it_was(spark: SparkSession) -> Iterator[SparkSession]:
    """The session; at the end its queries and listeners stop, and its settings are restored.

    A listener that stays hears of every later query, which takes up to half of its time (decision 0057).
    """
    before = dict(spark.conf.getAll)
    added: list[Any] = []
    add = StreamingQueryManager.addListener

    def noted(manager: StreamingQueryManager, listener: Any) -> None:
        add(manager, listener)
        added.append(listener)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamingQueryManager, "addListener", noted)
            yield spark
    finally:
        for listener in added:
            spark.streams.removeListener(listener)
        for query in spark.streams.active:
            query.stop()
        for name, value in spark.conf.getAll.items():
            if before.get(name) != value and spark.conf.isModifiable(name):
                spark.conf.set(name, before[name]) if name in before else spark.conf.unset(name)
