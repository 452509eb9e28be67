"""The workers read a topic exactly as Spark's `from_json` does, record by record, whatever is in it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

import tidegate as tg
from seeds import first
from spark.replay import collect
from spark.topic import raw, values
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.runtime.spark.frames.arrow import MAX_TIMESTAMP_MS, arrow_schema
from tidegate.runtime.spark.kafka import handed_over, plain
from tidegate.runtime.spark.kafka.source import decoded_stream
from tidegate.runtime.spark.row_decoder import Counts

pytestmark = pytest.mark.spark

SCHEMA = (
    "user string, ts timestamp, amount long, price double, small int, two short, one byte, ok boolean, `a.b c-ü` long"
)
TEXTS = [
    "A",
    "",
    "ü ö 😀",
    "a b/c",
    "\\u0041",
    "tab\\t",
    'q\\"q',
    "\t",
    "\x7f\u2028",
    "\ufffd",
    "null",
    "NaN",
    "soon",
    "5",
]
NUMBERS = """
    0 -0 5 -17 007 +5 1.0 1.50 -0.0 .5 5. 1e3 1E-7 1e400 12e 0.1 1e22 99 100 127 -128 128 9999 32767 32768 999999999
    2147483647 2147483648 999999999999999999 9223372036854775807 9223372036854775808 123456789012345678901234567890
    0.30000000000000004 2.2250738585072011e-308 4.9e-324 123456789012345.123456789012345 9007199254740993 NaN Infinity
    1767225600 1767225600000
"""
TIMES = """
    2026-01-01T00:00:00Z 2026-02-28T23:59:59.123456Z 2026-02-29T00:00:00Z 2024-02-29T00:00:00Z 2026-04-31T00:00:00Z
    2026-12-31T23:59:59.1+14:00 1999-12-31T00:00:00.12-05:30 2026-01-01T24:00:00Z 2026-01-01T00:00:00 2026-01-01
    2026-01-01T00:00:60Z 2026-1-1T0:0:0Z 2026-01-01T00:00:00.1234567Z 2026-01-01T00:00:00z 2026-01-01T00:00:00+01
    1600-01-01T00:00:00Z 2026-01-01T00:00:00+00:00 2026-01-01T00:00Z 2026-13-01T00:00:00Z
"""
REST = ["true", "false", "null", "True", "[]", "[1]", "{}", '{"a": {"b": 1}}', "", "'A'", '"2026-01-01 00:00:00"']
VALUES = [*(f'"{text}"' for text in [*TEXTS, *TIMES.split()]), *NUMBERS.split(), *REST]
NAMES = [
    "user",
    "ts",
    "amount",
    "price",
    "small",
    "two",
    "one",
    "ok",
    "a.b c-ü",
    "User",
    "more",
    "",
    "am\\u006funt",
    "x y",
]
ALONE = [b"", b"{}", b"{ }", b"null", b"[]", b"5", b'"x"', b"\xff\xfe", b"{}\n", b" {}", b"{} x", b"\xef\xbb\xbf{}"]
BREAKS = [b"", b"\xc3", b"\x00", b'"', b",", b"}", b" ", b"\n", b"\\"]


def instant(r: random.Random) -> str:
    day = f"2026-{r.randrange(1, 13):02}-{r.randrange(1, 32):02}"
    second = f"{r.randrange(24):02}:00:00{r.choice(['', '.5', '.000001'])}"
    return f'"{day}T{second}{r.choice(["", "Z", "+05:30"])}"'


FITTING: dict[str, Callable[[random.Random], str]] = {
    "user": lambda r: f'"user-{r.randrange(9)} é"',
    "ts": instant,
    "amount": lambda r: str(r.randrange(-(10**18), 10**18)),
    "price": lambda r: repr(r.choice([r.random(), r.random() * 10.0 ** r.randrange(-20, 20)])),
    "small": lambda r: str(r.randrange(-(2**31), 2**31)),
    "two": lambda r: str(r.randrange(-(2**15), 2**15)),
    "one": lambda r: str(r.randrange(-128, 128)),
    "ok": lambda r: r.choice(["true", "false"]),
    "a.b c-ü": lambda r: str(r.randrange(100)),
    "more": lambda r: r.choice(["1.5", '"x"', "null", "true", "[1]"]),
}


def written(r: random.Random) -> bytes | None:
    """A record: mostly an ordinary one, sometimes with an odd value, sometimes broken."""
    if r.random() < 0.02:
        return r.choice([None, *ALONE])
    members = [(name, FITTING[name](r)) for name in r.sample(list(FITTING), r.randrange(len(FITTING) + 1))]
    for _ in range(r.choice([0, 0, 1, 2])):
        name = r.choice(NAMES)
        # Duplicate fields are rare: with one, Arrow reads all other records or none.
        if r.random() < 0.01 or name not in dict(members):
            members.insert(r.randrange(len(members) + 1), (name, r.choice(VALUES)))
    comma = r.choice([",", ", "]) if r.random() < 0.9 else " , "
    colon = r.choice([":", ": "]) if r.random() < 0.9 else " : "
    data = ("{" + comma.join(f'"{name}"{colon}{value}' for name, value in members) + "}").encode()
    if r.random() < 0.05:
        at = r.randrange(len(data))
        return data[:at] + r.choice(BREAKS) + data[at + r.randrange(2) :]
    return data


def read_both(
    records: DataFrame, schema: Any = SCHEMA, timestamp: str | None = "ts", key: str = "user", several: bool = False
) -> tuple[list[str], list[str], int]:
    """The rows by Spark, the rows by workers, and the number of rows that workers read themselves."""
    source = decoded_stream(records, key=key, value=schema, timestamp=timestamp, name="events", several=several)
    return read_by_both(source)


def read_by_both(source: Any) -> tuple[list[str], list[str], int]:
    """The same for a stream whose records are not decoded yet."""
    wanted = arrow_schema(source.frame.schema)
    frame, row_decoder = source.node.undecoded.for_workers(wanted)
    given = frame.toArrow().to_batches()
    streams = [each for batch in given for each in batch.column(handed_over.PLAIN).drop_null()]
    plains = sum(pa.ipc.open_stream(each.as_buffer()).read_all().num_rows for each in streams)
    made = pa.Table.from_batches(list(row_decoder.rows(iter(given), Counts())), wanted)
    assert made["offset"].to_pylist() == sorted(made["offset"].to_pylist())
    return rows_of(source.frame.toArrow()), rows_of(made), plains


def rows_of(table: pa.Table) -> list[str]:
    """Rows in order, as text: a NaN is not equal to itself, but -0.0 equals 0.0."""
    columns = {name: table[name] for name in table.column_names}
    # Some of these values are no datetime or date of Python.
    columns |= {name: column.cast(pa.int64()) for name, column in columns.items() if pa.types.is_timestamp(column.type)}
    columns |= {name: column.cast(pa.int32()) for name, column in columns.items() if pa.types.is_date(column.type)}
    return [repr(row) for row in pa.table(columns).sort_by("offset").to_pylist()]


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_random_records_are_read_alike(spark: SparkSession, seed: int) -> None:
    r = random.Random(seed)
    records = [written(r) for _ in range(10_000)]
    by_spark, by_workers, plains = read_both(values(spark, *records))
    assert by_workers == by_spark
    # Enough records of each kind for a meaningful comparison; some were dead letters.
    assert len(records) > len(by_spark)
    assert 0.2 < plains / len(by_spark) < 0.9


def test_each_odd_value_in_each_field(spark: SparkSession) -> None:
    fields = ["user", "ts", "amount", "price", "small", "two", "one", "ok", "a.b c-ü", "unknown"]
    records = [f'{{"{name}": {value}, "also": 1}}'.encode() for name in fields for value in VALUES]
    by_spark, by_workers, plains = read_both(values(spark, *records))
    assert by_workers == by_spark
    assert 0 < plains < len(by_spark)


def test_keys_as_text_several_topics_and_headers(spark: SparkSession) -> None:
    headers = F.array(F.struct(F.lit("h").alias("key"), F.col("value").alias("value")))
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (b"t", b'{"amount": 1}'),
        (b"\xff", b'{"amount": 2}'),
        (b"t", b'{"amount": [3]}'),
        (b"t", b'{"amount": 4, "who": "x"}'),
        (b"t", b'{"amount": 1e1}'),
        (None, None),
    ]
    keyed = raw(spark, *pairs).withColumn("headers", headers)
    by_spark, by_workers, plains = read_both(keyed, "amount long, who string", None, "name", several=True)
    assert by_workers == by_spark
    assert len(by_spark) == 3
    assert plains == 2
    assert "'partition': 't-0'" in by_spark[0]


def test_a_time_in_milliseconds_beyond_what_a_timestamp_holds_is_none(spark: SparkSession) -> None:
    schema = "user string, at long"
    largest = MAX_TIMESTAMP_MS
    written_ = [0, 1_767_225_600_000, -5, 10**15, largest, largest + 1, 10**17, 10**18, 2**63 - 1, -(2**63)]
    records = [json.dumps({"user": "A", "at": at}).encode() for at in written_]
    source = decoded_stream(values(spark, *records), key="user", value=schema, timestamp="at", name="events")
    times = [row[0] for row in source.frame.select(F.unix_millis("at")).collect()]
    assert times == [*written_[:5], *[None] * 5]
    frame, row_decoder = source.node.undecoded.for_workers(arrow_schema(source.frame.schema))
    made = pa.Table.from_batches(list(row_decoder.rows(iter(frame.toArrow().to_batches()), Counts())))
    assert made["at"].cast(pa.int64()).to_pylist() == [None if ms is None else ms * 1000 for ms in times]


def final(stream: tg.KStream) -> DataFrame:
    windows = tg.TimeWindows.of_size_and_grace("10 seconds", "0 ms")
    counted = stream.group_by_key().windowed_by(windows).agg(n=tg.count(), most=tg.max("amount"))
    return counted.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()


def test_results_of_a_topic_are_those_of_its_decoded_rows(spark: SparkSession) -> None:
    r = random.Random(7)
    records: list[bytes | None] = []
    for n in range(2_000):
        ts = f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z"
        user = r.choice(["A", "B", "C\\u0041", "é"])
        amount = r.choice(["5", "7", "null", '"no"', str(n)])
        records.append(f'{{"user": "{user}", "ts": "{ts}", "amount": {amount}, "x": 1}}'.encode())
    frame = values(spark, *records)
    source = decoded_stream(frame, key="user", value="user string, ts timestamp, amount long", timestamp="ts", name="e")
    plan = final(source)._jdf.queryExecution().toString()
    assert handed_over.PLAIN in plan
    by_rows = tg.stream(source.frame, key="user", timestamp="ts", partition="partition", offset="offset", name="e")
    assert handed_over.PLAIN not in final(by_rows)._jdf.queryExecution().toString()
    found = collect(final(source))
    assert len(found) > 100
    assert found == collect(final(by_rows))


@pytest.mark.parametrize(
    "schema",
    [
        "user string, tags array<string>",
        "user string, price decimal(10,2)",
        "user string, day date",
        'user string, `a"b` long',
    ],
)
def test_other_schemas_are_read_by_spark(spark: SparkSession, schema: str) -> None:
    source = decoded_stream(values(spark, b"{}"), key="user", value=schema, timestamp=None, name="events")
    assert source.node.undecoded is None


def test_options_of_from_json_are_spark_s_to_apply(spark: SparkSession) -> None:
    lenient = tg.kafka.json("user string, amount long", {"allowUnquotedFieldNames": "true"})
    source = decoded_stream(values(spark, b"{user: 'A'}"), key="user", value=lenient, timestamp=None, name="events")
    assert source.node.undecoded is None
    assert [row["user"] for row in source.frame.collect()] == ["A"]


@pytest.mark.parametrize("zone", ["timeZone", "timezone", "TIMEZONE"])
def test_options_of_from_json_have_names_in_any_case(spark: SparkSession, zone: str) -> None:
    """The zone is ours to choose if nobody says one; how malformed values are found is always ours."""
    value = tg.kafka.json("user string, ts timestamp", {zone: "Europe/Paris", "Mode": "FAILFAST"})
    said = [b'{"user": "A", "ts": "2026-07-01T02:00:00"}', b"nothing"]
    source = decoded_stream(values(spark, *said), key="user", value=value, timestamp="ts", name="events")
    assert [row[0] for row in source.frame.select(F.unix_seconds("ts") % 86_400).collect()] == [0]


def test_times_are_spark_s_to_read_under_its_parser_of_old(spark: SparkSession) -> None:
    """The old parser reads .5 as five milliseconds."""
    schema = "user string, ts timestamp"
    said = b'{"user": "A", "ts": "2026-01-01T00:00:00.5Z"}'
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        source = decoded_stream(values(spark, said), key="user", value=schema, timestamp="ts", name="events")
        assert source.node.undecoded is None
        assert [row[0] for row in source.frame.select(F.unix_millis("ts") % 1000).collect()] == [5]
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


def test_long_records_cost_what_they_weigh(spark: SparkSession) -> None:
    """A pattern that can match in many ways could take forever, or the whole stack."""
    long = [
        b'{"user": "' + b"x" * 40_000 + b'"}',
        b'{"user": "' + b"x" * 500_000,
        b"{" + b", ".join(b'"f%d": %d' % (n, n) for n in range(20_000)) + b"}",
        b'{"user": "A", "more": "' + b'", "a": "' * 40_000 + b"}",
        b'{"user": "' + b"x" * plain.LONGEST + b'"}',
    ]
    by_spark, by_workers, plains = read_both(values(spark, *long), "user string", None)
    assert by_workers == by_spark
    assert len(by_spark) == 3
    assert plains == 1


def test_a_stream_with_restarts_gives_the_results_of_its_decoded_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Two partitions, a few slices each, odd and malformed records in between, a restart between any two batches."""
    r = random.Random(3)
    ends = [b"null", b'{"user": "B", "amount": 1.5}', b'{"user": "\\ud800", "ts": "2026-01-01", "amount": 007}']
    queries = {"workers": False, "spark": True}
    found: dict[str, list[Any]] = {name: [] for name in queries}
    counted: dict[str, list[Any]] = {name: [] for name in queries}
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        for batch in range(3):
            for partition in range(2):
                written_ = [timed(r, batch * 200 + n) for n in range(200)]
                at = F.col("offset") + batch * 203
                frame = values(spark, *written_[:100], *ends, *written_[100:])
                moved = frame.withColumn("offset", at).withColumn("partition", F.lit(partition))
                moved.coalesce(1).write.mode("append").parquet(str(tmp_path / "topic"))
            for name, rows in queries.items():
                told, seen = once(spark, tmp_path / "topic", tmp_path / name, rows)
                found[name] += told
                counted[name] += seen
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(found["workers"]) > 50
    assert sorted(found["workers"]) == sorted(found["spark"])
    assert counted["workers"] == counted["spark"]
    assert sum(malformed for _, malformed in counted["workers"]) > 12


def timed(r: random.Random, second: int) -> bytes:
    ts = f"2026-01-01T00:{second // 60:02}:{second % 60:02}{r.choice(['', 'Z', '.5Z', '+00'])}"
    amount = r.choice(["5", "null", "1" * 19, str(second)])
    return f'{{"user": "{r.choice("AB")}", "ts": "{ts}", "amount": {amount}}}'.encode()


def once(spark: SparkSession, folder: Path, checkpoint: Path, rows: bool) -> tuple[list[Any], list[Any]]:
    """Rows of a query over the new files in `folder`, and its records and malformed ones by batch."""
    schema = spark.read.parquet(str(folder)).schema
    given = spark.readStream.schema(schema).parquet(str(folder))
    source = decoded_stream(given, key="user", value="user string, ts timestamp, amount long", timestamp="ts", name="e")
    order = {"partition": "partition", "offset": "offset"}
    stream = tg.stream(source.frame, key="user", timestamp="ts", name="e", **order) if rows else source
    out: list[Any] = []
    writer = final(stream).writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    query = (
        writer.foreachBatch(lambda frame, _: out.extend(map(repr, frame.collect()))).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(120)
    told = [progress.observedMetrics["e source"] for progress in query.recentProgress if progress.numInputRows]
    return out, [(each["records"], each["malformed"]) for each in told]


READER = plain.Reader(
    pa.schema([("amount", pa.int64())]), StructType([StructField("amount", LongType())]), {"amount": "amount"}, None
)


def test_more_than_is_read_at_once_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    objects = plain._objects

    def noted(texts: pa.Array, asked: pa.Schema) -> pa.Table:
        read.append(texts.nbytes)
        return objects(texts, asked)

    monkeypatch.setattr(plain, "MOST_BYTES", 5_000)
    monkeypatch.setattr(plain, "_objects", noted)
    monkeypatch.setattr(plain.Reader, "_alike", lambda self, texts: None)
    texts = pa.array([b'{"amount": %d}' % n for n in range(1_000)])
    (made,) = READER(iter([pa.record_batch([texts], ["value"])]))
    rows = pa.ipc.open_stream(made.column(handed_over.PLAIN)[0].as_buffer()).read_all()
    assert rows["amount"].to_pylist() == list(range(1_000))
    assert max(read) <= 5_000
    assert len(read) > 1


def test_the_wall_clock_comes_along() -> None:
    texts = [b'{"amount": 1}', b"[]", b'{"amount": 3}']
    made = list(READER(iter([pa.record_batch([pa.array(texts)], ["value"])])))
    # As Spark returns it: with the fields that Spark reads, and the batch's clock, which is never null.
    (of_plain, of_place) = (made[0].schema.field(name) for name in (handed_over.PLAIN, handed_over.AT))
    clock = pa.field(WALL_CLOCK, pa.int64(), nullable=False)
    schema = pa.schema([("amount", pa.int64()), of_plain, of_place, clock])
    given = [
        pa.record_batch(
            [
                pa.array([7] * each.num_rows),
                each.column(handed_over.PLAIN),
                each.column(handed_over.AT),
                pa.array([9] * each.num_rows),
            ],
            schema=schema,
        )
        for each in made
    ]
    (rows,) = handed_over.Joiner(READER.wanted).rows(iter(given), Counts())
    assert rows.to_pydict() == {"amount": [1, 7, 3], WALL_CLOCK: [9, 9, 9]}


@pytest.mark.parametrize("rows_to_a_frame", [1, 2, 3, 100])
def test_records_are_in_order_however_spark_cuts_its_frames(rows_to_a_frame: int) -> None:
    """Two reads, each with odd records and then a row of its plain ones, in frames cut anywhere."""
    texts = [b'{"amount": 10}', b"[]", b"[]", b'{"amount": 40}', b"[]"]
    made = READER(iter([pa.record_batch([pa.array(part)], ["value"]) for part in (texts, texts[::-1])]))
    read = pa.concat_tables(
        pa.table(
            [
                pc.multiply(each.column(handed_over.AT), -1).cast(pa.int64()),
                each.column(handed_over.PLAIN),
                each.column(handed_over.AT),
            ],
            ["amount", handed_over.PLAIN, handed_over.AT],
        )
        for each in made
    )
    cut = read.combine_chunks().to_batches(max_chunksize=rows_to_a_frame)
    found = [
        row
        for batch in handed_over.Joiner(READER.wanted).rows(iter(cut), Counts())
        for row in batch["amount"].to_pylist()
    ]
    assert found == [10, -1, -2, 40, -4, 0, 40, -2, -3, 10]


def test_times_that_end_with_z_are_read_as_those_with_an_offset_are() -> None:
    """Times with a Z are read without the pattern of plain times: Arrow reads no other text of their length."""
    draw = random.Random(1)
    read = 0
    for _ in range(3_000):
        year, month, day = draw.choice([1899, 1900, 2024, 2199, 2200]), draw.randint(0, 13), draw.randint(0, 32)
        clock = f"{draw.randint(0, 24):02}:{draw.randint(0, 60):02}:{draw.randint(0, 60):02}"
        text = f"{year}-{month:02}-{day:02}{draw.choice('TT t')}{clock}{draw.choice(['', '.'])}"
        text += "".join(draw.choice("0123456789") for _ in range(draw.randint(0, 7)) if "." in text)
        if draw.random() < 0.3:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice("0123456789-:+ TZ.x\u00e9") + text[at + draw.randint(0, 1) :]
        if "-02-29" in text:
            continue  # the pattern leaves each of them to Spark
        by_pattern, found = (instants_of(text + zone) for zone in ("+00:00", "Z"))
        assert found == by_pattern, text
        read += found is not None
    assert read > 300


def instants_of(text: str) -> list[Any] | None:
    try:
        return plain.instants(pa.chunked_array([[text]])).to_pylist()
    except pa.ArrowInvalid:
        return None
