"""Reading back the topics of the contestants of W7, W9 and W12, from records as Spark's connector gives them."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks.inputs import FIRST_MS, SIZE_MS, Shape
from benchmarks.peers import kafka_streams, ours, quix
from benchmarks.peers.topics import last_ms, result, result_in_columns
from benchmarks.sliding_rows import Windows
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SHAPE = Shape(keys=50, rows=400, batches=3)
COLUMNS = "key binary, value binary, partition int, offset long, timestamp timestamp"
ARRIVED = datetime(2026, 7, 1, tzinfo=UTC)
START = FIRST_MS + SIZE_MS

Record = tuple[bytes, str]


def topic(spark: SparkSession, *records: Record, partitions: tuple[int, ...] = (0, 0, 0, 0)) -> DataFrame:
    rows = [
        (bytearray(key), bytearray(value.encode()), partition, number, ARRIVED + timedelta(milliseconds=number))
        for number, ((key, value), partition) in enumerate(zip(records, partitions, strict=False))
    ]
    return spark.createDataFrame(rows, COLUMNS)


def of_streams(user: str, start: int, count: int, total: int) -> Record:
    return user.encode() + struct.pack(">q", start), json.dumps({"count": count, "total": total})


def of_quix(user: str, start: int, count: int, total: int) -> Record:
    value = {"start": start, "end": start + SIZE_MS, "count": count, "total": total}
    return user.encode(), json.dumps(value)


def of_ours(user: str, start: int, count: int, total: int) -> Record:
    begin, end = (datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in (start, start + SIZE_MS))
    window = {"start": begin, "end": end}
    value = {"user": user, "window": window, "count": count, "total": total, "timestamp": end}
    return json.dumps({"user": user, "window": window}).encode(), json.dumps(value)


FORMS = pytest.mark.parametrize(
    ("record", "written"),
    [(of_ours, ours.written), (of_streams, kafka_streams.written), (of_quix, quix.written)],
    ids=["tidegate", "streams", "quix"],
)


@FORMS
def test_the_last_record_of_a_window_counts_and_the_records_that_close_windows_do_not(
    spark: SparkSession, record, written
) -> None:
    records = topic(
        spark,
        record("user-0000007", START, 1, 10),
        record("user-0000007", START, 2, 30),
        record("user-0000008", START + SIZE_MS, 1, 5),
        record("user-0000050", last_ms(SHAPE) - last_ms(SHAPE) % SIZE_MS, 1, 0),
    )
    found = result(written(records), SHAPE)
    assert found.rows == {("user-0000007", START): (2, 30), ("user-0000008", START + SIZE_MS): (1, 5)}
    assert (found.records, found.one_each) == (3, True)
    assert found.last_ms == int(ARRIVED.timestamp() * 1000) + 3


@FORMS
@pytest.mark.parametrize("counts", [(2,), (1, 1), (1, 3)], ids=str)
def test_an_update_that_is_missing_or_twice_is_seen(spark: SparkSession, record, written, counts) -> None:
    records = topic(spark, *(record("user-0000007", START, count, 10) for count in counts))
    assert not result(written(records), SHAPE).one_each


def test_a_window_in_two_partitions_is_told(spark: SparkSession) -> None:
    records = topic(
        spark, of_streams("user-0000007", START, 1, 1), of_streams("user-0000007", START, 2, 2), partitions=(0, 1)
    )
    with pytest.raises(AssertionError, match="several partitions"):
        result(kafka_streams.written(records), SHAPE)


@FORMS
def test_rows_are_read_as_columns_as_well(spark: SparkSession, record, written) -> None:
    records = topic(
        spark,
        record("user-0000008", START + 1, 1, 5),
        record("user-0000007", START, 1, 10),
        record("user-0000007", START, 2, 30),
        record("user-0000050", last_ms(SHAPE), 1, 0),
    )
    found, same = result_in_columns(written(records), SHAPE), result(written(records), SHAPE)
    assert isinstance(found.rows, Windows)
    assert found.rows.as_rows() == same.rows == {("user-0000007", START): (2, 30), ("user-0000008", START + 1): (1, 5)}
    assert [column.tolist() for column in found.rows.columns()] == [[7, 8], [START, START + 1], [2, 1], [30, 5]]
    assert (found.records, found.one_each, found.last_ms) == (same.records, same.one_each, same.last_ms)
    assert (found.records, found.one_each) == (3, True)
