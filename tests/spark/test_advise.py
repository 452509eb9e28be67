"""`tg.advise` over a DataFrame equals `tg.advise` over the same records in memory, for any number of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from advice.recordings import SCHEMA, drawn
from advice.slowly import Recording
from seeds import first
from tidegate.advice.order import Arrived, Times, batches, delivered, in_order, see
from tidegate.errors import DefinitionError, InputError
from tidegate.runtime.spark.advising import limits, order, stream
from tidegate.runtime.spark.frames.arrow import LARGE

GRACES = [f"{grace} ms" for grace in (0, 1, 7, 25)]
_NAMED = "k string, ts long, p int, o long, at long"


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket has a dozen records, and a stretch of offsets three."""
    monkeypatch.setattr(stream, "ROWS", 12)
    monkeypatch.setattr(stream, "STRETCH", 3)


def both(spark: Any, recording: Recording, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    table = pa.Table.from_pylist(recording.records, SCHEMA)
    frame = spark.createDataFrame(
        [tuple(r.values()) for r in table.to_pylist()], "k string, ts long, p int, o long, at long"
    )
    windows = tg.TimeWindows(recording.size, recording.advance, 3)
    asked = {"key": "k", "timestamp": "ts", "windows": windows, "graces": GRACES} | more
    found = [tg.advise(records, **asked).as_dict() for records in (frame.repartition(3), table)]
    for advice in found:
        for cost in advice["costs"]:
            # Estimated from a sample of the keys of each task.
            del cost["state_bytes"]
    return found[0], found[1]


@pytest.mark.parametrize("seed", first(1, [8, 21, 3, 34]))
def test_tasks_say_what_one_process_says(spark: Any, in_small_parts: None, seed: int) -> None:
    recording = drawn(seed, least=80, most=150)
    trigger = None if recording.trigger is None else f"{recording.trigger} ms"
    aggregates = {"n": tg.count(), "most": tg.max("o")}
    on_spark, here = both(
        spark,
        recording,
        partition="p",
        offset="o",
        arrival="at",
        trigger=trigger,
        aggregates=aggregates,
        alert="n < 3 and most > 1",
    )
    assert on_spark == here


@pytest.fixture
def large_types(spark: Any) -> Iterator[None]:
    spark.conf.set(LARGE, "true")
    yield
    spark.conf.unset(LARGE)


@pytest.mark.full
def test_where_spark_has_large_types(spark: Any, large_types: None) -> None:
    recording = drawn(21, least=80, most=150)
    asked: dict[str, Any] = {"partition": "p", "offset": "o", "arrival": "at"}
    for windows in (tg.TimeWindows(8, 8, 3), tg.SessionWindows(8, 3)):
        on_spark, here = both(spark, recording, windows=windows, **asked)
        assert on_spark == here
    table = pa.Table.from_pylist(recording.records, SCHEMA)
    frame = spark.createDataFrame([tuple(r.values()) for r in table.to_pylist()], _NAMED)
    asked |= {"key": "k", "timestamp": "ts"}
    assert tg.advise_limit(frame, **asked) == tg.advise_limit(table, **asked)
    assert tg.advise_join(frame, frame, **asked).json() == tg.advise_join(table, table, **asked).json()


@pytest.mark.parametrize("windows", [tg.SlidingWindows(8, 3), tg.SessionWindows(8, 3)], ids=["sliding", "session"])
def test_sliding_windows_and_sessions(spark: Any, in_small_parts: None, windows: Any) -> None:
    recording = drawn(21, least=80, most=150)
    asked = {"partition": "p", "offset": "o", "arrival": "at", "trigger": "10 ms", "alert": "count < 3"}
    on_spark, here = both(spark, recording, windows=windows, **asked)
    assert on_spark == here
    assert any(cost["late"] for cost in here["costs"])


def test_without_arrivals_each_partition_goes_by_itself(spark: Any, in_small_parts: None) -> None:
    on_spark, here = both(spark, drawn(12, least=80, most=150), partition="p", offset="o")
    assert on_spark == here
    assert here["costs"][0]["wait"] is None


def test_without_offsets(spark: Any, in_small_parts: None) -> None:
    on_spark, here = both(spark, drawn(13, least=80, most=150), arrival="at", trigger="10 ms")
    assert on_spark == here


@pytest.mark.full
def test_columns_may_have_any_name(spark: Any) -> None:
    """Spark reads a dot in a name as a field of a struct, and a backtick as a quote."""
    frame = spark.range(9).selectExpr("id % 2 AS `user.id`", "(id * 7) % 9 AS `t.s`", "id AS `a``t`", "id AS `v.x`")
    table, asked = frame.toArrow(), {"key": "user.id", "timestamp": "t.s", "arrival": "a`t"}
    windows = tg.TimeWindows.of_size_with_no_grace("2 ms")
    most = {"most": tg.max("v.x")}
    on_spark, here = (tg.advise(r, windows=windows, aggregates=most, alert="most > 5", **asked) for r in (frame, table))
    assert on_spark.costs == here.costs
    assert tg.advise_limit(frame, **asked) == tg.advise_limit(table, **asked)
    assert tg.advise_join(frame, frame, **asked).json() == tg.advise_join(table, table, **asked).json()


@pytest.mark.parametrize("kind", first(1, ["timestamp", "binary", "array<int>", "boolean", "date", "decimal(9, 2)"]))
def test_partitions_of_any_type(spark: Any, kind: str) -> None:
    number = "id % 2"
    made = {
        "date": f"date_add(DATE'2024-05-01', CAST({number} AS INT))",
        "timestamp": f"timestamp_seconds({number})",
        "binary": f"CAST(CAST({number} AS STRING) AS BINARY)",
        "array<int>": f"array({number})",
    }
    named = made.get(kind, f"CAST({number} AS {kind})")
    frame = spark.range(20).selectExpr("'a' AS k", "id AS ts", f"{named} AS p", "id AS o")
    windows = tg.TimeWindows.of_size_with_no_grace("5 ms")
    found = tg.advise(frame, key="k", timestamp="ts", windows=windows, partition="p", offset="o", arrival="ts")
    assert [records for _, records, _ in found.partitions] == [10, 10]


@pytest.mark.parametrize("kind", ["double", "float", "decimal(20, 3)", "boolean", "binary", "array<int>"])
def test_a_time_that_is_none_is_refused(spark: Any, kind: str) -> None:
    """Milliseconds in a column of doubles, as pandas makes them of integers beside nulls, are no seconds."""
    made = {"binary": "CAST('1' AS BINARY)", "array<int>": "array(1)"}
    frame = spark.range(3).selectExpr("'a' AS k", f"{made.get(kind, f'CAST(id AS {kind})')} AS no", "id AS ms")
    windows = tg.TimeWindows.of_size_with_no_grace("5 ms")
    said = rf"The column 'no' is {re.escape(kind.replace(', ', ','))}, not a time\. Use timestamps, epoch milliseconds"
    for timestamp, arrival in (("no", "ms"), ("ms", "no")):
        asked: dict[str, Any] = {"key": "k", "timestamp": timestamp, "arrival": arrival}
        with pytest.raises(DefinitionError, match=said):
            tg.advise(frame, windows=windows, **asked)
        with pytest.raises(DefinitionError, match=said):
            tg.advise_limit(frame, **asked)
        with pytest.raises(DefinitionError, match=said):
            tg.advise_join(frame, frame, **asked)


@pytest.mark.parametrize("kind", ["double", "float", "decimal(5, 1)", "boolean", "timestamp"])
def test_an_offset_that_is_no_whole_number_is_refused(spark: Any, kind: str) -> None:
    """Spark would cut 2.7 and 2.2 to one offset, and the records would be in another order."""
    frame = spark.range(3).selectExpr("'a' AS k", "id AS ts", "0 AS p", f"CAST(id AS {kind}) AS o")
    windows = tg.TimeWindows.of_size_with_no_grace("5 ms")
    with pytest.raises(DefinitionError, match=rf"The offset column 'o' is {re.escape(kind.replace(', ', ','))}\."):
        tg.advise(frame, key="k", timestamp="ts", windows=windows, partition="p", offset="o")


def test_text_that_is_no_time_and_no_offset_is_said(spark: Any) -> None:
    frame = spark.range(2).selectExpr("'a' AS k", "id AS ts", "'soon' AS text", "0 AS p")
    windows = tg.TimeWindows.of_size_with_no_grace("5 ms")
    said = "The recording has text that is no time or no offset: .*'soon'"
    with pytest.raises(InputError, match=said):
        tg.advise(frame, key="k", timestamp="text", windows=windows, arrival="ts")
    with pytest.raises(InputError, match=said):
        tg.advise(frame, key="k", timestamp="ts", windows=windows, partition="p", offset="text")
    with pytest.raises(InputError, match=said):
        tg.advise_join(frame, frame, key="k", timestamp="text")


@pytest.mark.parametrize("again", ["k", "K"])
def test_a_column_that_is_there_twice_is_refused(spark: Any, again: str) -> None:
    frame = spark.range(3).selectExpr("'a' AS k", "id AS ts", f"'b' AS {again}")
    asked: dict[str, Any] = {"key": "k", "timestamp": "ts", "arrival": "ts"}
    said = "two columns 'k'" if again == "k" else "the columns 'k' and 'K'"
    for advise in (partial(tg.advise, windows=tg.TimeWindows.of_size_with_no_grace("5 ms")), tg.advise_limit):
        with pytest.raises(DefinitionError, match=f"The recording has {said}"):
            advise(frame, **asked)
    with pytest.raises(DefinitionError, match=f"The recording has {said}"):
        tg.advise_join(frame, frame, **asked)


@pytest.mark.parametrize("kind", first(3, ["timestamp", "void", "string", "timestamp_ntz", "date", "int"]))
def test_times_of_each_type(spark: Any, kind: str) -> None:
    made = {"int": "CAST(id AS INT)", "void": "NULL"}
    named = made.get(kind, f"CAST(DATE'2024-05-01' AS {kind})")
    frame = spark.range(3).selectExpr("'a' AS k", f"{named} AS ts")
    windows = tg.TimeWindows.of_size_with_no_grace("5 ms")
    advice = tg.advise(frame.selectExpr("*", "1 AS at"), key="k", timestamp="ts", windows=windows, arrival="at")
    assert (advice.records, advice.skipped["bad_timestamp"]) == ((0, 3) if kind == "void" else (3, 0))


def test_nothing_at_all(spark: Any) -> None:
    on_spark, here = both(spark, Recording([], 10, 10), partition="p", offset="o", arrival="at")
    assert on_spark == here


def test_what_cannot_be_asked(spark: Any) -> None:
    frame = spark.createDataFrame([("a", 5, 0, None)], "k string, ts long, p int, o long")
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    with pytest.raises(DefinitionError, match=r"Rows of a DataFrame have no order"):
        tg.advise(frame, key="k", timestamp="ts", windows=windows)
    with pytest.raises(DefinitionError, match=r"no column 'user'"):
        tg.advise(frame, key="user", timestamp="ts", windows=windows, partition="p", offset="o")
    with pytest.raises(InputError, match=r"1 records with a key and a time have no offset"):
        tg.advise(frame, key="k", timestamp="ts", windows=windows, partition="p", offset="o")
    streaming = spark.readStream.format("rate").load()
    with pytest.raises(DefinitionError, match=r"streaming DataFrame, which has no end"):
        tg.advise(streaming, key="value", timestamp="timestamp", windows=windows, arrival="timestamp")


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_what_had_passed_before_each_bucket(seed: int, join: bool) -> None:
    """From the maxima of buckets alone, as Spark counts them; no Spark is started."""
    recording = drawn(seed, least=1, bad=False)
    columns = ([r[name] for r in recording.records] for name in ("ts", "p", "o", "at"))
    records = Arrived(*(np.array(column, np.int64) for column in columns))
    ready, _ = delivered(records)
    assert ready is not None
    batch = batches(ready, recording.trigger, len(ready))
    rows = in_order(batch, records)
    batch, ready, records = batch[rows], ready[rows], records.take(rows)
    future = records.ts > ready + 20
    names, number = np.unique(records.partition, return_inverse=True)
    at_start = Times.at_start(len(names), len(names) // 2 if join else None)
    whole, _ = see(records.ts, number, batch, at_start, future=future, slowest=True)
    news = sorted({int(batch[number == p].min()) for p in range(len(names))})
    bucket = (batch - batch[0]) // 7 + sum((batch >= at).astype(np.int64) for at in news)
    parts = []
    for b in np.unique(bucket):
        for p in np.unique(number[bucket == b]):
            mine = (bucket == b) & (number == p)
            kept = records.ts[mine & ~future]
            most = int(kept.max()) if len(kept) else -1
            parts.append((int(b), int(p), int(mine.sum()), int(records.ts[mine].max()), most, int(ready[mine].max())))
    before_bucket = order.before_buckets(parts, at_start, one_batch=False)
    for b in np.unique(bucket):
        mine, before = bucket == b, before_bucket[b]
        found, _ = see(records.ts[mine], number[mine], batch[mine], before.times, future=future[mine], slowest=True)
        for name in ("largest", "own", "slowest", "guarded"):
            assert getattr(found, name).tolist() == getattr(whole, name)[mine].tolist()
        assert before.records == int((bucket < b).sum())
        assert before.arrival == (int(ready[bucket < b].max()) if before.records else -1)


@pytest.mark.parametrize("seed", first(1, [2, 5]))
def test_joins_in_tasks_say_what_one_process_says(spark: Any, in_small_parts: None, seed: int) -> None:
    tables = [pa.Table.from_pylist(drawn(seed + side, least=40, most=80).records, SCHEMA) for side in (0, 1)]
    named = _NAMED
    frames = [spark.createDataFrame([tuple(r.values()) for r in table.to_pylist()], named) for table in tables]
    here = tg.advise_join(*tables, key="k", timestamp="ts", target=0.1)
    on_spark = tg.advise_join(*frames, key="k", timestamp="ts", target=0.1)
    assert on_spark.json() == here.json()
    assert on_spark.found(3, 7) == here.found(3, 7)
    assert on_spark.pairs(3, 7) == here.pairs(3, 7)


@pytest.mark.parametrize(
    ("seed", "asked"),
    first(
        2,
        [
            (8, {"partition": "p", "offset": "o", "trigger": "10 ms", "stream_time": "max"}),
            (21, {"partition": "p", "offset": "o", "trigger": "25 ms"}),
            (3, {"partition": "p", "offset": "o"}),
            (34, {"trigger": "10 ms"}),
        ],
    ),
)
def test_the_grace_of_a_join_in_tasks(spark: Any, in_small_parts: None, seed: int, asked: dict[str, Any]) -> None:
    records = [drawn(seed + side, least=40, most=80).records for side in (0, 1)]
    # The right side sends its first records when the left one has gone on.
    records[1] = [r | {"at": r["at"] + 100} for r in records[1]]
    tables = [pa.Table.from_pylist(side, SCHEMA) for side in records]
    named = _NAMED
    frames = [spark.createDataFrame([tuple(r.values()) for r in table.to_pylist()], named) for table in tables]
    asked = {"key": "k", "timestamp": "ts", "arrival": "at", "target": 0.1} | asked
    here = tg.advise_join(*tables, **asked)
    on_spark = tg.advise_join(*(frame.repartition(3) for frame in frames), **asked)
    assert on_spark.json() == here.json()
    assert any(one.lost for one in here.graces)


@pytest.mark.full
def test_the_grace_of_a_join_without_records(spark: Any) -> None:
    named = _NAMED
    some, none = spark.createDataFrame([("a", 5, 0, 0, 9)], named), spark.createDataFrame([], named)
    asked = {"key": "k", "timestamp": "ts", "partition": "p", "offset": "o", "arrival": "at"}
    for sides in ((none, none), (some, none), (none, some)):
        here = tg.advise_join(
            *(pa.Table.from_pylist([r.asDict() for r in s.collect()], SCHEMA) for s in sides), **asked
        )
        assert tg.advise_join(*sides, **asked).json() == here.json()


@pytest.mark.full
def test_a_join_of_sides_one_of_which_has_no_nulls(spark: Any) -> None:
    left = spark.range(9).selectExpr("id % 2 AS k", "id AS ts", "id AS at")
    right = spark.createDataFrame([(1, 5, 7), (None, 5, 8)], "k long, ts long, at long")
    for sides in ((left, right), (right, left)):
        for arrival in (None, "at"):
            asked: dict[str, Any] = {"key": "k", "timestamp": "ts", "arrival": arrival}
            here = tg.advise_join(*(side.toArrow() for side in sides), **asked)
            assert tg.advise_join(*sides, **asked).json() == here.json()


@pytest.mark.parametrize(
    ("seed", "asked"),
    [
        (3, {"partition": "p", "offset": "o", "arrival": "at"}),
        (8, {"partition": "p", "offset": "o", "windows": tg.TimeWindows(10, 5, 20)}),
        (21, {"arrival": "at", "windows": tg.TimeWindows(6, 6, 0), "limits": ["0 s", "7 ms", "60 ms", "9 days"]}),
    ],
)
def test_limits_in_tasks(
    spark: Any, in_small_parts: None, monkeypatch: pytest.MonkeyPatch, seed: int, asked: dict[str, Any]
) -> None:
    monkeypatch.setattr(limits, "BLOCK", 9)
    since = 0 if seed == 3 else 1_700_000_000_000
    records = [
        r | {"ts": r["ts"] if r["ts"] in (None, -5) else r["ts"] + since, "at": r["at"] + since}
        for r in drawn(seed, least=80, most=150).records
    ]
    table = pa.Table.from_pylist(records, SCHEMA)
    frame = spark.createDataFrame([tuple(r.values()) for r in table.to_pylist()], _NAMED).repartition(3)
    here = tg.advise_limit(table, key="k", timestamp="ts", **asked)
    assert tg.advise_limit(frame, key="k", timestamp="ts", **asked) == here
    assert any(cost.rows for cost in here.costs)


@pytest.mark.full
def test_records_without_a_value_are_skipped_as_in_one_process(spark: Any) -> None:
    records = [r | {"v": None if r["o"] % 3 else 1} for r in drawn(21, least=80, most=150).records]
    table = pa.Table.from_pylist(records, SCHEMA.append(pa.field("v", pa.int64())))
    frame = spark.createDataFrame([tuple(r.values()) for r in table.to_pylist()], f"{_NAMED}, v long")
    asked: dict[str, Any] = {"key": "k", "timestamp": "ts", "partition": "p", "offset": "o", "arrival": "at"}
    sliding = [tg.advise(of, windows=tg.SlidingWindows(8, 3), **asked) for of in (frame, table)]
    assert sliding[0].skipped == sliding[1].skipped
    assert [cost.late for cost in sliding[0].costs] == [cost.late for cost in sliding[1].costs]
    limit = [tg.advise_limit(of, limits=["7 ms"], **asked) for of in (frame, table)]
    assert limit[0] == limit[1]
    assert limit[0].skipped["null_value"] > 0
    for arrival in (None, "at"):
        join = [tg.advise_join(of, of, **asked | {"arrival": arrival}) for of in (frame, table)]
        assert join[0].json() == join[1].json()


def test_limits_of_nothing_and_what_cannot_be_asked(spark: Any) -> None:
    nothing = spark.createDataFrame([], _NAMED)
    assert tg.advise_limit(nothing, key="k", timestamp="ts", arrival="at", limits=["1 s"]).costs == []
    with pytest.raises(DefinitionError, match=r"`max_records` is not looked at over Spark DataFrames"):
        tg.advise_limit(nothing, key="k", timestamp="ts", arrival="at", max_records=[5])
    with pytest.raises(DefinitionError, match=r"Rows of a DataFrame have no order"):
        tg.advise_limit(nothing, key="k", timestamp="ts")


def test_what_cannot_be_asked_of_a_join(spark: Any) -> None:
    frame = spark.createDataFrame([("a", 5)], "k string, ts long")
    numbers = spark.createDataFrame([(1, 5)], "k int, ts long")
    with pytest.raises(DefinitionError, match=r"have different types \(string and int\)"):
        tg.advise_join(frame, numbers, key="k", timestamp="ts")
    with pytest.raises(DefinitionError, match=r"Give both as DataFrames"):
        tg.advise_join(frame, pa.table({"k": ["a"], "ts": [5]}), key="k", timestamp="ts")
    with pytest.raises(DefinitionError, match=r"no column 'user'"):
        tg.advise_join(frame, frame, key="user", timestamp="ts")
    with pytest.raises(DefinitionError, match=r"`stream_time` is 'slowest'"):
        tg.advise_join(frame, frame, key="k", timestamp="ts", arrival="ts", stream_time="slowest")
    many = spark.range(150).selectExpr("'a' k", "id ts", "id p")
    with pytest.raises(DefinitionError, match=r"have 300 partitions.*Use stream_time=\"max\""):
        tg.advise_join(many, many, key="k", timestamp="ts", partition="p", offset="ts", arrival="ts")
    unknown = spark.createDataFrame([("a", 5, None)], "k string, ts long, at long")
    with pytest.raises(InputError, match=r"1 records with a key and a time have no arrival"):
        tg.advise_join(unknown, unknown, key="k", timestamp="ts", arrival="at")
    wide = spark.createDataFrame([(1, 9)], "k long, ts long")
    assert tg.advise_join(numbers, wide, key="k", timestamp="ts").partnered == 1
