"""Times and days of Parquet and ORC files are those that Spark reads, whatever their unit, inside nested values too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.sql import SparkSession

from tidegate.errors import InputError
from tidegate.runtime.spark.files.columnar import Columns
from tidegate.runtime.spark.files.times import Times

INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")
EVER = tuple(
    map(
        datetime.fromisoformat,
        ("0001-01-01", "1677-01-01", "1969-12-31 23:59:59.999999", "1970-01-01", "2262-12-31", "9999-12-31 23:59:59"),
    )
)
EPOCH = EVER[3]


def read(path: Path, schema: pa.Schema, kind: str = "parquet", **how: Any) -> list[dict[str, Any]]:
    batches = Columns(schema, kind, **how).rows(lambda: pa.OSFile(str(path)), path.name)
    return pa.Table.from_batches(list(batches), schema).to_pylist()


def micros(at: datetime | None) -> int | None:
    return None if at is None else (at.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize("key", ["few", None])
def test_a_time_of_96_bits_may_lie_in_any_year(tmp_path: Path, key: str | None) -> None:
    """Spark writes timestamps in this way by default. The key is read through its dictionary."""
    path = tmp_path / "of-spark.parquet"
    rows = pa.table({"key": [key] * len(EVER), "ts": pa.array(EVER, WALL)})
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, store_schema=False)
    found = read(path, pa.schema([("key", pa.string()), ("ts", INSTANT)]))
    assert found == [{"key": key, "ts": each.replace(tzinfo=UTC)} for each in EVER]


def test_spark_agrees_on_a_file_that_it_wrote(tmp_path: Path, spark: SparkSession) -> None:
    days = "'0001-01-01 00:00:00', '1969-12-31 23:59:59.999999', '2026-01-01 12:00:00', '9999-12-31 23:59:59'"
    frame = spark.sql(f"SELECT ts, struct(ts) AS s, array(ts) AS l FROM (SELECT explode(array({days})) AS d) "
                      "LATERAL VIEW explode(array(CAST(d AS TIMESTAMP))) AS ts")  # fmt: skip
    frame.coalesce(1).write.parquet(str(tmp_path / "t"))
    (path,) = (tmp_path / "t").glob("*.parquet")
    assert "int96" in str(pq.ParquetFile(path).schema)
    schema = pa.schema([("ts", INSTANT), ("s", pa.struct([("ts", INSTANT)])), ("l", pa.list_(INSTANT))])
    of_spark = spark.read.parquet(str(path)).selectExpr("unix_micros(ts)", "unix_micros(s.ts)", "unix_micros(l[0])")
    mine = [(micros(row["ts"]), micros(row["s"]["ts"]), micros(row["l"][0])) for row in read(path, schema)]
    assert sorted(mine) == sorted(map(tuple, of_spark.collect()))


def test_digits_behind_a_microsecond_are_cut_off_downwards(tmp_path: Path) -> None:
    finer = pa.array([-1_500, -1, 0, 1, 1_999, None], pa.timestamp("ns"))
    for name, how in (("of-spark", {"use_deprecated_int96_timestamps": True}), ("of-arrow", {"version": "2.6"})):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"ts": finer, "s": pa.StructArray.from_arrays([finer], ["ts"])}), path, **how)  # type: ignore[arg-type]
        found = read(path, pa.schema([("ts", INSTANT), ("s", pa.struct([("ts", WALL)]))]))
        micros = [
            None if r["ts"] is None else (r["ts"].replace(tzinfo=None) - EPOCH).total_seconds() * 1e6 for r in found
        ]
        assert micros == [-2, -1, 0, 0, 1, None]
        assert [r["s"]["ts"] for r in found] == [r["ts"] and r["ts"].replace(tzinfo=None) for r in found]


def test_a_wall_clock_of_orc_has_its_zone_at_any_depth(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.orc", datetime.fromisoformat("2026-07-01T12:00")
    row = {
        "ts": clock,
        "s": {"at": clock, "n": 1},
        "l": [clock, None],
        "m": {"k": clock},
        "deep": [{"s": {"at": clock}}],
    }
    kind = pa.schema(
        [("ts", WALL), ("s", pa.struct([("at", WALL), ("n", pa.int64())])), ("l", pa.list_(WALL)),
         ("m", pa.map_(pa.string(), WALL)), ("deep", pa.list_(pa.struct([("s", pa.struct([("at", WALL)]))])))]
    )  # fmt: skip
    table = pa.Table.from_pylist([row, dict.fromkeys(row), row], kind)
    orc.write_table(table, str(path))
    wanted = pa.schema(
        [("ts", INSTANT), ("s", pa.struct([("at", INSTANT), ("n", pa.int64())])), ("l", pa.list_(INSTANT)),
         ("m", pa.map_(pa.string(), INSTANT)), ("deep", pa.list_(pa.struct([("s", pa.struct([("at", WALL)]))])))]
    )  # fmt: skip
    found, nothing, again = read(path, wanted, "orc", zone="America/New_York")
    at = clock.replace(tzinfo=ZoneInfo("America/New_York"))
    assert found["ts"] == found["s"]["at"] == found["l"][0] == dict(found["m"])["k"] == at
    assert (found["s"]["n"], found["l"][1], found["deep"][0]["s"]["at"]) == (1, None, clock)
    assert nothing == dict.fromkeys(row)
    assert again == found


@pytest.mark.parametrize(
    ("clock", "instant"),
    [
        ("2037-07-01T12:00", "2037-07-01T12:00-04:00"),
        ("2038-01-01T12:00", "2038-01-01T12:00-05:00"),
        ("2040-07-01T12:00:00.000001", "2040-07-01T12:00:00.000001-04:00"),
        ("2040-11-04T01:30", "2040-11-04T01:30-04:00"),
        ("2261-07-01T12:00", "2261-07-01T12:00-04:00"),
        ("1900-07-01T12:00", "1900-07-01T12:00-05:00"),
    ],
)
def test_a_wall_clock_of_orc_in_years_whose_changes_of_clocks_arrow_does_not_know(
    tmp_path: Path, clock: str, instant: str
) -> None:
    """Behind 2037 Arrow knows no summer time."""
    at = datetime.fromisoformat(clock)
    orc.write_table(
        pa.table({"ts": pa.array([at, None, datetime.fromisoformat("2026-07-01")], WALL), "l": [[at], None, []]}),
        tmp_path / "a.orc",
    )
    found = read(
        tmp_path / "a.orc", pa.schema([("ts", INSTANT), ("l", pa.list_(INSTANT))]), "orc", zone="America/New_York"
    )
    summer = datetime.fromisoformat("2026-07-01T04:00Z")
    wanted = datetime.fromisoformat(instant)
    assert [(row["ts"], row["l"]) for row in found] == [(wanted, [wanted]), (None, None), (summer, [])]
    fixed = read(tmp_path / "a.orc", pa.schema([("ts", INSTANT)]), "orc", zone="+02:00")
    assert fixed[0]["ts"] == at.replace(tzinfo=timezone(timedelta(hours=2)))


DAYS = (
    *("0001-01-01", "0004-02-29", "0099-12-31", "0100-03-01", "1000-02-28", "1500-03-01", "1582-10-04", "1582-10-15"),
    *("1700-01-01", "1970-01-01", "9999-12-31"),
)
CLOCKS_OF_NTZ = ("0001-01-01 00:00:00", "1900-01-01 00:00:00", "2026-03-08 02:30:00", "9999-12-31 23:59:59.999999")
OF_SPARK_2 = {"org.apache.spark.version": "2.4.8"}


def marked(path: Path, marks: dict[str, str]) -> Path:
    """The rows of a file of Parquet in another one, with marks."""
    pq.write_table(pq.read_table(path).replace_schema_metadata(marks), path.parent / "marked.parquet")
    return path.parent / "marked.parquet"


@pytest.mark.parametrize(("format", "marks"), [("orc", None), ("parquet", None), ("parquet", OF_SPARK_2)])
def test_spark_agrees_on_days_before_1582(
    tmp_path: Path, spark: SparkSession, format: str, marks: dict[str, str] | None
) -> None:
    """Spark counts them by the Julian calendar in ORC, and did so in Parquet."""
    frame = spark.sql(f"SELECT d, struct(d) AS s, array(d) AS l FROM (SELECT explode(array{DAYS}) AS t) "
                      "LATERAL VIEW explode(array(CAST(t AS DATE), NULL)) AS d")  # fmt: skip
    frame.coalesce(1).write.format(format).save(str(tmp_path / "t"))
    (path,) = (tmp_path / "t").glob(f"*.{format}")
    path = path if marks is None else marked(path, marks)
    day = pa.date32()
    schema = pa.schema([("d", day), ("s", pa.struct([("d", day)])), ("l", pa.list_(day))])
    batches = Columns(schema, format).rows(lambda: pa.OSFile(str(path)), path.name)
    found = pa.Table.from_batches(list(batches), schema).flatten()
    mine = [found["d"], found["s.d"], pc.list_element(found["l"], 0)]
    of_spark = spark.read.format(format).load(str(path)).selectExpr("unix_date(d)", "unix_date(s.d)", "unix_date(l[0])")
    rows = list(zip(*(each.cast(pa.int32()).to_pylist() for each in mine), strict=True))
    assert rows == [tuple(row) for row in of_spark.collect()]


@pytest.mark.parametrize(
    ("marks", "of_96_bits", "fine"),
    [
        ({}, True, True),
        ({"org.apache.spark.version": "4.0.0"}, True, True),
        (OF_SPARK_2, False, False),
        ({"org.apache.spark.version": "3.0.3"}, False, True),
        ({"org.apache.spark.version": "3.0.3"}, True, False),
        ({"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""}, False, False),
        ({"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""}, True, True),
        ({"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyINT96": ""}, True, False),
    ],
)
def test_times_that_spark_2_counted_are_refused_before_1900(
    tmp_path: Path, marks: dict[str, str], of_96_bits: bool, fine: bool
) -> None:
    """Spark would count them anew, by the clocks of the zone in which they were written."""
    path, schema = tmp_path / "a.parquet", pa.schema([("ts", INSTANT), ("s", pa.struct([("ts", INSTANT)]))])
    for year in (1899, 1900):
        at = datetime(year, 12, 31, tzinfo=UTC)
        table = pa.Table.from_pylist([{"ts": None, "s": {"ts": at}}], schema).replace_schema_metadata(marks)
        pq.write_table(table, path, use_deprecated_int96_timestamps=of_96_bits)
        if year == 1900 or fine:
            assert read(path, schema) == [{"ts": None, "s": {"ts": at}}]
        else:
            with pytest.raises(
                InputError, match=r"a\.parquet has a column 's' with a time before 1900 as Spark 2 count"
            ):
                read(path, schema)


@pytest.mark.parametrize("format", ["orc", "parquet"])
def test_spark_agrees_on_a_wall_clock_that_it_wrote(tmp_path: Path, spark: SparkSession, format: str) -> None:
    """In ORC it is a number, at any depth."""
    clock = "CAST(d AS TIMESTAMP_NTZ)"
    frame = spark.sql(
        f"SELECT {clock} AS n, struct({clock} AS n) AS s FROM (SELECT explode(array{CLOCKS_OF_NTZ}) AS d)"
    )
    frame.coalesce(1).write.format(format).save(str(tmp_path / "t"))
    (path,) = (tmp_path / "t").glob(f"*.{format}")
    found = read(path, pa.schema([("n", WALL), ("s", pa.struct([("n", WALL)]))]), format, zone="America/New_York")
    assert [(str(row["n"]), str(row["s"]["n"])) for row in found] == [(each, each) for each in CLOCKS_OF_NTZ]


CLOCKS = st.none() | st.datetimes(*map(datetime.fromisoformat, ("1900-01-01", "2100-01-01")))
NESTED = st.lists(st.none() | st.lists(st.none() | st.fixed_dictionaries({"at": CLOCKS, "n": st.integers(0, 9)})))


@given(NESTED, st.integers(0, 3), st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from([None, "Europe/Berlin"]))
def test_nested_times_are_cast_as_times_are(values: list[Any], start: int, unit: str, zone: str | None) -> None:
    of_file = pa.list_(pa.struct([("at", pa.timestamp(unit)), ("n", pa.int8())]))
    column = (
        pa.array(values, pa.list_(pa.struct([("at", WALL), ("n", pa.int8())]))).cast(of_file, safe=False).slice(start)
    )
    found = Times(zone).cast(column, pa.list_(pa.struct([("at", INSTANT), ("n", pa.int64())])))
    found.validate(full=True)
    flat = [one and one["at"] for each in column.to_pylist() for one in each or ()]
    one_by_one = Times(zone).cast(pa.array(flat, pa.timestamp(unit)), INSTANT).to_pylist()
    assert [one and one["at"] for each in found.to_pylist() for one in each or ()] == one_by_one
    shape = [each and [one and one["n"] for one in each] for each in column.to_pylist()]
    assert [each and [one and one["n"] for one in each] for each in found.to_pylist()] == shape
