"""The workers read a CSV file exactly as Spark's `from_csv` does, line by line, whatever is in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 or later")

from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

import tidegate as tg
from seeds import first
from spark.test_kafka_plain import read_by_both
from tidegate.runtime.spark.files.lines import CHUNK
from tidegate.runtime.spark.files.plain_csv import MOST_FIELDS, Dialect
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.kafka import handed_over

SCHEMA = (
    "user string, ts timestamp, amount long, price double, share float, small int, two short, one byte, ok boolean, "
    "cost decimal(9,2), whole decimal(4,0), part decimal(2,1), day date, `a.b c-ü` string"
)
FIELDS = 14
TEXTS = (
    """
    A ü😀 a/b \\u0041 \\ \\\\ \\N \\" NA null NULL NaN - . # #x //x 5 "A" 'A' "" '' """
    '''"a""b" 'a\'\'b' "a\\"b" a"b "a"b b"a"'''
)
TEXTS_WITH_SPACE = [
    "",
    " ",
    "  x ",
    " x",
    "x ",
    '" x "',
    ' "x"',
    '"x" ',
    "\t",
    "a\tb",
    "\x7f\u2028\x85",
    "\ufeffx",
    "\ufffd",
]
TEXTS_WITH_SPACE += [
    '"a,b"',
    '"a;b"',
    "'a,b'",
    "a,b",
    '"',
    "'",
    '"x',
    "'x",
    'x"',
    '","',
    "\u00a0",
    "\x00",
    "#",
    "\x0b",
    "\x1f",
]
NUMBERS = """
    0 -0 5 -17 007 +5 -007 1.0 1.50 -0.0 .5 5. -.5 1e3 1E-7 1e400 1e39 1e-50 12e 0.1 1e22 99 100 127 -128 128 999
    9999 -9999 32767 32768 99999 999999999 1234567890 2147483647 2147483648 999999999999999999 9223372036854775807
    9223372036854775808 123456789012345678901234567890 0.30000000000000004 2.2250738585072011e-308 4.9e-324
    9007199254740993 123456789012345.123456789012345 16777217 0.1000000014901161193847656 NaN Infinity Inf -Inf 1d
    1f 0x1F 1_000 1767225600 1767225600000 9999999.99 9999999.999 99999999 0.005 0.01 0.999 -0.99 -0 1,5 ٣ 5L
"""
TIMES = """
    2026-01-01T00:00:00Z 2026-02-28T23:59:59.123456Z 2026-02-29T00:00:00Z 2024-02-29T00:00:00Z 2026-04-31T00:00:00Z
    2026-12-31T23:59:59.1+14:00 1999-12-31T00:00:00.12-05:30 2026-01-01T24:00:00Z 2026-01-01T00:00:00 2026-01-01
    2026-01-01T00:00:60Z 2026-1-1T0:0:0Z 2026-01-01T00:00:00.1234567Z 2026-01-01T00:00:00z 2026-01-01T00:00:00+01
    1600-01-01T00:00:00Z 2026-01-01T00:00:00+00:00 2026-01-01T00:00Z 2026-13-01T00:00:00Z 2026-02-28 2026-02-29
    2024-02-29 1900-01-01 2199-12-31 0001-01-01 12026-01-01 2026/01/01 20260101 2026-1-1 today now epoch
"""
REST = ["true", "false", "True", "TRUE", "tRue", "FALSE", "yes", "1", "T", "2026-01-01 00:00:00", " 5", "5 ", " true"]
VALUES = [*TEXTS.split(), *TEXTS_WITH_SPACE, *NUMBERS.split(), *TIMES.split(), *REST]
BREAKS = [b"", b"\xc3", b"\x00", b'"', b"'", b",", b";", b" ", b"\\", b"\t", b"#"]
ALONE = [b"", b" ", b",", b",,", b'"', b"#", b"# no", b" # no", b"\xff", b"user", b'""', b"\\", b"," * (FIELDS - 1)]


def digits(r: random.Random, whole: int, scale: int) -> str:
    text = f"{r.choice(['', '-'])}{r.randrange(10**whole)}"
    return text + (f".{r.randrange(10**scale):0{scale}}" if scale and r.random() < 0.8 else "")


def day(r: random.Random) -> str:
    return f"2026-{r.randrange(1, 13):02}-{r.randrange(1, 32):02}"


def instant(r: random.Random) -> str:
    second = f"{r.randrange(24):02}:00:00{r.choice(['', '.5', '.000001'])}"
    return f"{day(r)}{r.choice('T ')}{second}{r.choice(['', 'Z', '+05:30'])}"


FITTING: list[Callable[[random.Random], str]] = [
    lambda r: f"user-{r.randrange(9)} é",
    instant,
    lambda r: str(r.randrange(-(10**18), 10**18)),
    lambda r: repr(r.choice([r.random(), r.random() * 10.0 ** r.randrange(-20, 20)])),
    lambda r: repr(r.choice([r.random(), r.random() * 10.0 ** r.randrange(-9, 9)])),
    lambda r: str(r.randrange(-(10**9), 10**9)),
    lambda r: str(r.randrange(-(10**4), 10**4)),
    lambda r: str(r.randrange(-99, 100)),
    lambda r: r.choice(["true", "false"]),
    lambda r: digits(r, 7, 2),
    lambda r: digits(r, 4, 0),
    lambda r: digits(r, 1, 1),
    day,
    lambda r: r.choice(["", "x", "y z"]),
]


def written(r: random.Random, sep: str, quote: str) -> bytes:
    """A line: mostly an ordinary one, sometimes with an odd value, sometimes broken."""
    if r.random() < 0.02:
        return r.choice(ALONE)
    values = [r.choice([fitting(r), fitting(r), fitting(r), ""]) for fitting in FITTING]
    for _ in range(r.choice([0, 0, 0, 1, 2])):
        values[r.randrange(FIELDS)] = r.choice(VALUES)
    values = [f"{quote}{value}{quote}" if r.random() < 0.1 else value for value in values]
    if r.random() < 0.02:
        values = values[: r.randrange(FIELDS)]
    elif r.random() < 0.02:
        values += r.choices(VALUES, k=r.randrange(1, 3))
    data = sep.join(values).encode()
    if r.random() < 0.03:
        at = r.randrange(len(data) + 1)
        return data[:at] + r.choice(BREAKS) + data[at + r.randrange(2) :]
    return data


def read_both(
    spark: SparkSession, folder: Path, schema: str, timestamp: str = "ts", key: str = "user", **options: str
) -> tuple[list[str], list[str], int]:
    """The rows by Spark, the rows by workers, and the number of rows that workers read themselves."""
    source = tg.files.source(
        spark, str(folder), key=key, timestamp=timestamp, format="csv", schema=schema, options=options, streaming=False
    )
    return read_by_both(source)


def a_file(folder: Path, lines: Sequence[bytes], end: bytes = b"\n") -> Path:
    folder.mkdir()
    (folder / "0.csv").write_bytes(end.join(lines) + end)
    return folder


DIALECTS: list[dict[str, str]] = [
    {},
    {"sep": ";", "nullValue": "NA", "quote": "'"},
    {"delimiter": "\t", "nullValue": "\\N", "escape": '"', "inferSchema": "true", "preferDate": "false"},
    {"comment": "#", "header": "true", "enforceSchema": "true", "nullValue": "5", "sep": "|"},
]


@pytest.mark.parametrize("options", first(1, DIALECTS), ids=range(len(DIALECTS)))
def test_random_lines_are_read_alike(spark: SparkSession, tmp_path: Path, options: Mapping[str, str]) -> None:
    r = random.Random(len(options))
    sep = options.get("sep", options.get("delimiter", ","))
    lines = [written(r, sep, options.get("quote", '"')) for _ in range(12_000)]
    folder = a_file(tmp_path / "in", lines, r.choice([b"\n", b"\r\n"]))
    by_spark, by_workers, plains = read_both(spark, folder, SCHEMA, **options)
    assert by_workers == by_spark
    # Enough lines of each kind for a meaningful comparison; some were dead letters.
    assert len(lines) > len(by_spark)
    assert 0.2 < plains / len(by_spark) < 0.97


@pytest.mark.parametrize("options", first(1, DIALECTS), ids=range(len(DIALECTS)))
def test_each_odd_value_in_each_field(spark: SparkSession, tmp_path: Path, options: Mapping[str, str]) -> None:
    sep = options.get("sep", options.get("delimiter", ","))
    quote = options.get("quote", '"')
    lines = [
        sep.join([*[""] * at, form.format(value), *[""] * (FIELDS - 1 - at)]).encode()
        for at in range(FIELDS)
        for value in VALUES
        for form in ("{}", quote + "{}" + quote)
    ]
    by_spark, by_workers, plains = read_both(spark, a_file(tmp_path / "in", lines), SCHEMA, **options)
    assert by_workers == by_spark
    assert 0 < plains < len(by_spark) < len(lines)


@pytest.mark.parametrize("zones", [("",), ("Z", "+01:00"), ("", "Z")], ids=["none", "each", "some"])
def test_times_with_and_without_zones(spark: SparkSession, tmp_path: Path, zones: Sequence[str]) -> None:
    lines = [f"A,2026-01-01T00:{n:02}:00.25{zones[n % len(zones)]}".encode() for n in range(60)]
    by_spark, by_workers, plains = read_both(spark, a_file(tmp_path / "in", lines), "user string, ts timestamp")
    assert by_workers == by_spark
    assert len(by_spark) == plains == 60


def test_one_column_and_epoch_milliseconds(spark: SparkSession, tmp_path: Path) -> None:
    lines = [b"5", b"", b'""', b'"7"', b" ", b"1767225600000", b"9223372036854775807", b",", b"x"]
    by_spark, by_workers, plains = read_both(spark, a_file(tmp_path / "in", lines), "at long", "at", "at")
    assert by_workers == by_spark
    assert plains == 3


@pytest.mark.parametrize(
    "options",
    [
        {"ignoreLeadingWhiteSpace": "true"},
        {"timestampFormat": "yyyy"},
        {"nanValue": "nan"},
        {"emptyValue": "x"},
        {"sep": "||"},
        {"sep": ":"},
        {"quote": ""},
        {"escape": "^"},
        {"nullValue": "a b"},
        {"locale": "de-DE"},
        {"timeZone": "Europe/Berlin"},
        {"mode": "PERMISSIVE"},
    ],
    ids=repr,
)
def test_other_options_are_sparks_to_apply(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    assert not read_by_workers(spark, tmp_path, SCHEMA, options)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_times_by_the_rules_of_spark_2_are_sparks_to_read(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Spark 2's rules read the fraction of a second as a number of milliseconds."""
    assert read_by_workers(
        spark, tmp_path, "user string, ts timestamp", {"sep": "\\t"} if format == "csv" else {}, format
    )
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        assert not read_by_workers(spark, tmp_path, "user string, ts timestamp", {}, format)
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


@pytest.mark.parametrize("kind", ["timestamp_ntz", "decimal(2,2)"])
def test_other_types_are_sparks_to_read(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    assert not read_by_workers(spark, tmp_path, f"user string, ts timestamp, other {kind}", {})


@pytest.mark.parametrize("odd", [[], [200_000], [5, 249_999]], ids=["none", "in the third part", "first and last"])
def test_results_of_large_files_with_odd_lines(spark: SparkSession, tmp_path: Path, odd: list[int]) -> None:
    """The worker that reads packs the parts before the first odd line; a part has 4 MB."""
    line = '{"user": "user-%d", "ts": "2026-01-01T00:%02d:00Z", "amount": %d}'
    lines = [(line % (number % 7, number // 10_000, number)).encode() for number in range(250_000)]
    for number in odd:
        lines[number] = lines[number].replace(b"}", b', "nested": {"deep": {"deeper": [1]}}}')
    lines.insert(240_000, b"[malformed")
    folder = a_file(tmp_path / "in", lines)
    assert (folder / "0.csv").stat().st_size > 3 * CHUNK
    source = tg.files.source(
        spark,
        str(folder),
        key="user",
        timestamp="ts",
        format="json",
        schema="user string, ts timestamp, amount long",
        streaming=False,
    )
    counted = source.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 minute"))
    totals = counted.agg(n=tg.count(), total=tg.sum("amount")).suppress(
        tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    )
    found = {(row.user, row.window.start.minute): (row.n, row.total) for row in totals.to_df().collect()}
    expected: dict[tuple[str, int], tuple[int, int]] = {}
    for number in range(250_000):
        at = f"user-{number % 7}", number // 10_000
        n, total = expected.get(at, (0, 0))
        expected[at] = n + 1, total + number
    assert found == expected


def read_by_workers(
    spark: SparkSession, folder: Path, schema: str, options: dict[str, str], format: str = "csv"
) -> bool:
    source = tg.files.source(
        spark, str(folder), key="user", timestamp="ts", format=format, schema=schema, options=options, streaming=False
    )
    raw: Any = source.node.undecoded  # type: ignore[union-attr]
    return handed_over.PLAIN in raw.for_workers(arrow_schema(source.frame.schema))[0].columns


def test_lines_of_many_fields_are_sparks_to_read() -> None:
    fields = StructType([StructField(f"c{n}", TimestampType()) for n in range(MOST_FIELDS)])
    assert Dialect().pattern(fields) is not None
    assert Dialect().pattern(fields.add("more", TimestampType())) is None


def test_the_longest_pattern_is_followed_in_time() -> None:
    """A pattern that can match in many ways could take forever; RE2 takes time in proportion to the line."""
    fields = StructType()
    for n in range(MOST_FIELDS):
        fields = fields.add(f"c{n}", StringType())
    pattern = Dialect().pattern(fields)
    assert pattern is not None
    fits = ",".join(['"a,b"'] * MOST_FIELDS)
    texts = pa.array([fits, fits + ",", '"' * 40_000, "," * 40_000, fits[:-1]] * 20)
    assert pc.match_substring_regex(texts, pattern).to_pylist() == [True, False, False, False, False] * 20
