"""Envelopes of Debezium as a table: the effect of each op, tombstones, other keys, and records that change no row."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.replay import FIRST_FILE_S, observed

pytestmark = pytest.mark.spark

ROW = "id long, email string, spent decimal(10,2), `window` string, tags array<string>, address struct<zip: string>"
WRITTEN = 5_000
"""Kafka's time, seconds; the database's are smaller, Debezium's in between."""


def envelope(op: str, before: Any, after: Any, at: int, wrapped: bool = False, **more: Any) -> str:
    said = {"before": before, "after": after, "op": op, "ts_ms": at + 10, "source": {"ts_ms": at, "table": "t"}, **more}
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": said} if wrapped else said)


def row(id: int, email: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": id, "email": email, **more}


def records(spark: SparkSession, values: list[tuple[str | None, str | None]]) -> DataFrame:
    """Keys and values as Kafka has them."""
    rows = [(key and key.encode(), value and value.encode(), 0, i) for i, (key, value) in enumerate(values)]
    frame = spark.createDataFrame(rows, "key binary, value binary, partition int, offset long")
    return frame.withColumn("timestamp", F.timestamp_seconds(F.lit(WRITTEN) + F.col("offset")))


def changes(table: Any) -> list[tuple[Any, ...]]:
    columns = ("offset", "id", "email", F.unix_millis("change_timestamp"), "tombstone")
    return [tuple(found) for found in table.frame.select(*columns).collect()]


def test_each_op_upserts_or_deletes_a_row(spark: SparkSession) -> None:
    key = '{"id": 1}'
    whole = {"spent": 1.25, "window": "w", "tags": ["a", None], "address": {"zip": "8000"}}
    source = records(
        spark,
        [
            (key, envelope("r", None, row(1, "a", **whole), 100, snapshot="first")),
            (key, envelope("u", row(1, "a"), row(1, "b"), 200, wrapped=True)),
            (key, envelope("d", row(1), None, 300)),
            (key, None),
            (key, envelope("c", None, row(1, "c"), 400)),
            ('{"schema": {}, "payload": {"id": 1}}', None),
        ],
    )
    table = tg.debezium.table(source, key="id", row=ROW)
    assert changes(table) == [
        (0, 1, "a", 100, False),
        (1, 1, "b", 200, False),
        (2, 1, None, 300, True),
        (3, 1, None, (WRITTEN + 3) * 1000, True),
        (4, 1, "c", 400, False),
        (5, 1, None, (WRITTEN + 5) * 1000, True),
    ]
    assert table.dead_letters.count() == 0
    first = table.frame.first()
    assert first is not None
    assert (str(first["spent"]), first["window_in"], first["tags"], first["address"]["zip"]) == (
        "1.25",
        "w",
        ["a", None],
        "8000",
    )
    rows = table.to_df().select("id", "email", "deleted").collect()
    assert [tuple(found) for found in rows][-3:] == [(1, None, True), (1, "c", False), (1, None, True)]


@pytest.mark.parametrize("column", ["payload int", "payload string", "Payload int"])
def test_a_column_of_the_key_may_have_the_name_of_the_converters_field(spark: SparkSession, column: str) -> None:
    name = column.partition(" ")[0]
    keys = [json.dumps(key) for key in ({name: 1}, {"schema": {}, "payload": {name: 2}}, {"payload": {name: 3}})]
    values = [envelope("c", None, {name: 1}, 100), None, envelope("d", None, None, 300)]
    table = tg.debezium.table(records(spark, list(zip(keys, values, strict=True))), key=name, row=f"{column}, n int")
    found = table.frame.select("offset", F.col(name).cast("int"), "tombstone").collect()
    assert [tuple(each) for each in found] == [(0, 1, False), (1, 2, True), (2, 3, True)]
    assert table.dead_letters.count() == 0


def test_tombstones_are_skipped_where_times_are_versions_or_asked_for(spark: SparkSession) -> None:
    source = records(spark, [('{"id": 1}', envelope("c", None, row(1, "a"), 100)), ('{"id": 1}', None)])
    for more in ({"history": "1 hour"}, {"tombstones": "skip"}):
        assert changes(tg.debezium.table(source, key="id", row=ROW, **more)) == [(0, 1, "a", 100, False)]
    both = tg.debezium.table(source, key="id", row=ROW, history="1 hour", tombstones="delete")
    assert [change[-1] for change in changes(both)] == [False, True]
    # Without the record's own columns a tombstone has no key to delete.
    alone = source.select("value", "partition", "offset")
    assert changes(tg.debezium.table(alone, key="id", row=ROW, timestamp="ts_ms")) == [(0, 1, "a", 110, False)]


def test_a_row_whose_key_changes_is_deleted_under_the_old_one(spark: SparkSession) -> None:
    source = records(
        spark,
        [
            (None, envelope("c", None, row(1, "a"), 100)),
            (None, envelope("u", row(1, "a"), row(1, "b"), 200)),
            (None, envelope("u", row(1, "b"), row(1, "b", spent=2), 300)),
            # Without the row before, an older key is unknown.
            (None, envelope("u", None, row(1, "c"), 400)),
            (None, envelope("d", row(1, "c"), None, 500)),
        ],
    )
    table = tg.debezium.table(source, key="email", row=ROW, tombstones="skip")
    assert changes(table) == [
        (0, 1, "a", 100, False),
        (1, 1, "a", 200, True),
        (1, 1, "b", 200, False),
        (2, 1, "b", 300, False),
        (3, 1, "c", 400, False),
        (4, 1, "c", 500, True),
    ]
    # A row that loses its key is in the table no more, and one that gets a key was not there before.
    source = records(
        spark,
        [
            (None, envelope("c", None, row(1, "a"), 100)),
            (None, envelope("u", row(1, "a"), row(1, None), 200)),
            (None, envelope("u", row(1, None), row(1, "b"), 300)),
        ],
    )
    table = tg.debezium.table(source, key="email", row=ROW, tombstones="skip")
    assert changes(table) == [
        (0, 1, "a", 100, False),
        (1, 1, "a", 200, True),
        (1, 1, None, 200, False),
        (2, 1, "b", 300, False),
    ]
    rows = table.to_df().select("email", "deleted").collect()
    assert sorted(tuple(found) for found in rows) == [("a", False), ("a", True), ("b", False)]
    table = tg.debezium.table(source, key=["id", "email"], row=ROW, tombstones="skip")
    assert [change[1:3] for change in changes(table) if change[-1]] == [(1, "a")]
    # Debezium itself writes a change of the primary key as a deletion and a creation.
    source = records(
        spark,
        [
            ('{"id": 1}', envelope("c", None, row(1, "a"), 100)),
            ('{"id": 1}', envelope("d", row(1, "a"), None, 200)),
            ('{"id": 1}', None),
            ('{"id": 2}', envelope("c", None, row(2, "a"), 200)),
        ],
    )
    table = tg.debezium.table(source, key=["id"], row=ROW)
    assert [(change[1], change[-1]) for change in changes(table)] == [(1, False), (1, True), (1, True), (2, False)]


def test_the_two_changes_of_a_row_whose_key_changes_have_ids_of_their_own(spark: SparkSession) -> None:
    """They have one partition and offset. Rows of a join that they make are two rows of one record."""
    left = [envelope("c", None, row(1, "a"), 100), envelope("u", row(1, "a"), row(1, "b"), 200)]
    right = [envelope("c", None, {"email": email, "more": 1}, 50) for email in "ab"]
    users = tg.debezium.table(records(spark, [(None, value) for value in left]), key="email", row=ROW, name="users")
    others = tg.debezium.table(
        records(spark, [(None, value) for value in right]), key="email", row="email string, more long", name="others"
    )
    for joined in (users.left_join(others), users.outer_join(others)):
        found = joined.to_df(row_ids=True).select("email", "id", "tidegate:row_id").collect()
        assert sorted(tuple(each) for each in found if each["tidegate:row_id"].startswith("(0@")) == [
            ("a", None, "(0@1-,)"),
            ("b", 1, "(0@1,)"),
        ]


def test_what_is_no_change_of_a_row_is_set_aside_with_its_reason(spark: SparkSession) -> None:
    good = envelope("c", None, row(1, "a"), 100)
    bad: list[tuple[str | None, str | None, str]] = [
        (None, "{", "is not JSON"),
        (None, "[1]", "is JSON, but not an object"),
        (None, '{"id": 1}', "has no op"),
        (None, "null", "is not JSON|not an object"),
        (None, envelope("u", row(1), None, 1), "no row after op u"),
        (None, envelope("d", None, None, 1), "neither the row before op d nor the record has the key"),
        (None, envelope("t", None, None, 1), "op t is about no single row"),
        (None, envelope("m", None, None, 1, message={}), "op m is about no single row"),
        (None, envelope("c", None, {"id": "x"}, 1), "does not fit the schema|is not a"),
        (None, envelope("c", None, "row", 1), "'after' is not a|does not fit the schema"),
        ('{"other": 1}', None, "a tombstone whose key"),
        ("{", None, "a tombstone whose key"),
        (None, None, "a tombstone whose key"),
    ]
    source = records(spark, [(None, good), *((key, value) for key, value, _ in bad)])
    table = tg.debezium.table(source, key="id", row=ROW)
    assert changes(table) == [(0, 1, "a", 100, False)]
    letters = table.dead_letters.orderBy("offset").collect()
    assert [letter["offset"] for letter in letters] == list(range(1, len(bad) + 1))
    for letter, (_, value, reason) in zip(letters, bad, strict=True):
        assert any(each in letter["reason"] for each in reason.split("|")), (value, letter["reason"])
        assert letter["value"] == (None if value is None else value.encode())
    # A deletion without the row before takes the key of the record, also if fields of the row are null.
    source = records(spark, [('{"id": 7}', envelope("d", None, None, 1)), ('{"id": 8}', envelope("d", {}, None, 2))])
    for more in ({}, {"tombstones": "skip"}, {"history": "1 hour"}):
        table = tg.debezium.table(source, key="id", row=ROW, **more)
        assert [change[1:] for change in changes(table)] == [(7, None, 1, True), (8, None, 2, True)]


def test_a_stream_of_envelopes_is_a_table_whose_changes_come_batch_by_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, batch in enumerate(
        (
            [envelope("c", None, row(1, "a"), 100), envelope("c", None, row(2, "b"), 150), "{"],
            [envelope("u", row(1, "a"), row(1, "z"), 200), envelope("d", row(2), None, 300)],
        )
    ):
        (tmp_path / "in").mkdir(exist_ok=True)
        path = tmp_path / "in" / f"{number}.txt"
        path.write_text("\n".join(batch))
        os.utime(path, (FIRST_FILE_S + number,) * 2)  # the source reads the oldest first
    source = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    with pytest.warns(tg.TidegateWarning, match="no partition and offset"):
        rows = tg.debezium.table(source, key="id", row=ROW, partition=None, offset=None).to_df()
    newest: dict[int, Any] = {}

    def save(frame: DataFrame, _: int) -> None:
        for found in frame.select("id", "email", "deleted").collect():
            newest[found["id"]] = None if found["deleted"] else found["email"]

    query = (
        rows.writeStream.outputMode("update")
        .foreachBatch(save)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert query.awaitTermination(120)
    assert newest == {1: "z", 2: None}
    counted = [observed(each.observedMetrics["debezium source"]) for each in query.recentProgress]
    assert sum(each["malformed"] for each in counted) == 1
    assert sum(each["records"] for each in counted) == 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"key": "nobody"}, "`key` is 'nobody', but the row has no such column"),
        ({"key": []}, "`key` is empty"),
        ({"timestamp": "kafka"}, "`timestamp` is 'kafka'"),
        ({"tombstones": "keep"}, "`tombstones` is 'keep'"),
        ({"offset": "place"}, "`source` has no column 'place'"),
        ({"row": "id long, a int, A int"}, "`row` has the columns 'a' and 'A', whose names differ by case alone"),
    ],
)
def test_wrong_arguments_say_what_to_write(spark: SparkSession, more: dict[str, Any], message: str) -> None:
    source = records(spark, [(None, "{}")])
    with pytest.raises(tg.DefinitionError, match=message):
        tg.debezium.table(source, **{"key": "id", "row": ROW, **more})
    with pytest.raises(tg.DefinitionError, match="needs the columns `key` and `timestamp`"):
        tg.debezium.table(source.drop("key"), key="id", row=ROW, tombstones="delete")
    with pytest.raises(tg.DefinitionTypeError, match="`source` is 'topic'"):
        tg.debezium.table("topic", key="id", row=ROW)  # type: ignore[arg-type]
