"""`tg.advise` against a slow computation that shares no code with it, and against the test driver."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from advice.recordings import asked, drawn, final_results
from advice.slowly import Recording, alerts, complete, outcome
from seeds import seeds
from tidegate.advice import counts, here

GRACES = [0, 1, 7, 25, 1_000, 2**62]
SEEDS = seeds(30, 120)
VIEW = pa.string_view()
DECIMAL = pa.decimal32(5, 0) if hasattr(pa, "decimal32") else pa.decimal128(5, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_grace_costs_what_a_slow_computation_says(seed: int) -> None:
    recording = drawn(seed)
    advice = asked(recording, GRACES)
    whole = complete(recording)
    assert advice.records == len(recording.good())
    assert sum(advice.skipped.values()) == len(recording.records) - len(recording.good())
    for grace in GRACES:
        cost, expected = advice.cost(grace), outcome(recording, grace)
        missing = [name for name in whole if name not in expected.rows and late_for(recording, name, grace)]
        assert (cost.late, cost.lost) == (expected.late, expected.lost)
        assert cost.results == len(expected.rows)
        assert cost.incomplete == sum(len(records) < len(whole[name]) for name, records in expected.rows.items())
        assert (cost.missing, cost.still_open) == (len(missing), expected.open)
        assert cost.wait == (median(expected.waits) if expected.waits else None)


def late_for(recording: Recording, name: tuple[str, int], grace: int) -> bool:
    """Whether every record of a (key, window) comes after it closed."""
    end = name[1] + recording.size + grace
    mine = [time for r, time in recording.seen if (r["k"]) == name[0] and name[1] in recording.windows(r["ts"])]
    return all(end <= time for time in mine)


@pytest.mark.parametrize("seed", SEEDS)
def test_other_clocks(seed: int) -> None:
    recording = drawn(seed)
    advice = asked(recording, GRACES)
    partitions = {r["p"] for r in recording.good()}
    for grace in GRACES:
        cost = advice.cost(grace)
        slowest = outcome(replace(recording, slowest=True), grace).late
        assert cost.late_by_slowest == (slowest if len(partitions) > 1 else None)
        if advice.guard is None:
            assert cost.late_by_guarded is None
        else:
            assert cost.late_by_guarded == outcome(replace(recording, guard=advice.guard), grace).late
        own = [outcome(replace(recording, records=of(recording, p), trigger=10**9), grace).late for p in partitions]
        assert cost.late_by_own == sum(own)


def of(recording: Recording, partition: int) -> list[dict[str, object]]:
    return [r for r in recording.records if r["p"] == partition]


def test_a_guard_is_looked_at_where_clocks_run_ahead() -> None:
    records = [{"k": "a", "ts": 10_000 * i, "p": 0, "o": i, "at": 10_000 * i} for i in range(2_000)]
    records[500] |= {"ts": 10_000 * 900}
    recording = Recording(records, 60_000, 60_000)
    advice = asked(recording, [0])
    assert (advice.guard, advice.future) == (1_000, 1)
    cost = advice.cost(0)
    assert cost.late == outcome(recording, 0).late > 300
    assert cost.late_by_guarded == outcome(replace(recording, guard=1_000), 0).late == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_alerts(seed: int) -> None:
    recording = drawn(seed)
    advice = asked(recording, GRACES, aggregates={"n": tg.count(), "most": tg.max("o")}, alert="n < 3 and most > 1")
    for grace in GRACES:
        cost = advice.cost(grace)
        found = alerts(recording, grace, lambda records: len(records) < 3 and max(r["o"] for r in records) > 1)
        assert (cost.alerts, cost.false_alerts, cost.missed_alerts) == found


@pytest.mark.parametrize("seed", SEEDS)
def test_worst_keys_and_partitions(seed: int) -> None:
    recording = drawn(seed)
    advice = asked(recording, [], today=2)
    expected = outcome(recording, 2)
    assert {name: late for name, _, late in advice.keys} == dict(expected.late_keys)
    assert [late for _, _, late in advice.keys] == sorted(expected.late_keys.values(), reverse=True)
    records = Counter(str(r["p"]) for r in recording.good())
    assert {name: count for name, count, _ in advice.partitions} == (dict(records))
    assert sum(late for _, _, late in advice.partitions) == expected.late


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slowest", [False, True])
def test_the_driver_drops_as_many_and_gives_as_many_wrong_rows(seed: int, slowest: bool) -> None:
    recording = drawn(seed)
    grace = (0, 3, 12)[seed % 3]
    advice = asked(recording, [grace])
    windows = tg.TimeWindows(recording.size, recording.advance, grace)
    driver = final_results(recording, windows, "min_partition" if slowest else "max")
    cost = advice.cost(grace)
    if slowest:
        if cost.late_by_slowest is not None:
            assert driver.drops["late"] == cost.late_by_slowest
        return
    assert driver.drops["late"] == cost.late
    rows = {(row["k"], row["window"].start): row["count"] for row in driver.read_output()}
    whole = complete(recording)
    assert len(rows) == cost.results
    assert sum(count < len(whole[name]) for name, count in rows.items()) == cost.incomplete


def test_parts_hours_and_shares_add_up() -> None:
    recording = drawn(5, least=400, most=500, bad=False)
    advice = asked(recording, [0, 10])
    at_none = advice.cost(0).late_share
    weighted = [found[0] for found in advice.parts if found is not None]
    assert sum(weighted) / len(weighted) == pytest.approx(at_none, abs=0.1)
    assert advice.hours[0] is not None
    assert advice.hours[0][0] == pytest.approx(at_none)


def test_counts_are_exact_for_the_graces_that_the_table_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if there are too many distinct latenesses. One partition and windows of 1 ms: each rule says the same."""
    monkeypatch.setattr(counts, "MOST_VALUES", 20)
    newest = 10_000_000
    earlier = [newest - 1 - 997 * i for i in range(2_000)]
    Random(1).shuffle(earlier)
    records = pa.table({"k": ["a"] * 2_001, "ts": [newest, *earlier], "p": [0] * 2_001, "o": range(2_001)})
    windows = tg.TimeWindows.of_size_with_no_grace("1 ms")
    asked_for = {"key": "k", "timestamp": "ts", "partition": "p", "offset": "o", "windows": windows}
    advice = tg.advise(records, **asked_for, target=0.3)
    assert advice.choice.grace == 30 * 60_000
    for cost in advice.costs:
        late = sum(newest - ts > cost.grace for ts in earlier)
        assert (cost.late, cost.lost, cost.late_by_own, cost.missing) == (late,) * 4


def test_sessions_of_each_gap() -> None:
    recording = drawn(7, least=400, most=500)
    advice = asked(recording, [0])
    by_key: dict[str, list[int]] = {}
    for r in recording.good():
        by_key.setdefault(r["k"], []).append(r["ts"])
    for gap, sessions in advice.sessions.gaps.items():
        expected = 0
        for times in by_key.values():
            ordered = sorted(times)
            expected += 1 + sum(b - a > gap for a, b in zip(ordered[:-1], ordered[1:], strict=True))
        assert sessions == expected


def test_open_windows_are_at_most_those_that_are_counted() -> None:
    for seed in range(20):
        recording = drawn(seed, bad=False)
        cost = asked(recording, [5]).cost(5)
        most, seen = 0, recording.seen
        times = sorted({time for _, time in seen})
        for now in times:
            names = {
                (r["k"], start)
                for r, time in seen
                for start in recording.windows(r["ts"])
                if time <= now < start + recording.size + 5
            }
            most = max(most, len(names))
        assert cost.open_windows >= most
        assert cost.open_windows <= max(2 * most, most + 3)


def rows(*records: dict[str, object]) -> pa.Table:
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("ms", "UTC")), ("at", pa.timestamp("ms", "UTC"))])
    return pa.Table.from_pylist(list(records), schema)


def test_nothing_at_all() -> None:
    windows = tg.TimeWindows.of_size_and_grace("1 hour", "0 s")
    for records in (rows(), rows({"k": None, "ts": 5, "at": 5}, {"k": "a", "ts": None, "at": 5})):
        for arrival in (None, "at"):
            advice = tg.advise(records, key="k", timestamp="ts", windows=windows, arrival=arrival, alert="count < 3")
            assert (advice.records, advice.pairs, advice.chosen.late, advice.choice.grace) == (0, 0, 0, 0)
            assert advice.warnings == ["There is no record with a key and a time: nothing can be said."]
            assert "nothing can be said" in str(advice)
            assert advice.json()


def test_one_record_leaves_an_open_window() -> None:
    windows = tg.TimeWindows.of_size_and_grace("1 hour", "0 s")
    (cost,) = tg.advise(
        rows({"k": "a", "ts": 5, "at": 9}), key="k", timestamp="ts", windows=windows, arrival="at"
    ).costs
    assert (cost.late, cost.results, cost.still_open, cost.wait, cost.open_windows) == (0, 0, 1, None, 1)


def test_times_at_the_borders() -> None:
    """Before 1970 there are no windows; at the other end 64 bits are far away."""
    last = 2**62
    table = pa.table({"k": ["a"] * 5, "ts": pa.array([-1, 0, last, last - 1, 1], pa.int64())})
    advice = tg.advise(
        table,
        key="k",
        timestamp="ts",
        windows=tg.TimeWindows.of_size_and_grace("10 ms", "0 s"),
        graces=["0 s", "1 day"],
    )
    assert advice.skipped == {"null_key": 0, "bad_timestamp": 1, "null_value": 0}
    assert [cost.late for cost in advice.costs if cost.grace in (0, 86_400_000)] == [1, 1]


def test_sub_millisecond_times_are_cut_as_in_the_stream() -> None:
    table = pa.table({"k": ["a", "a"], "ts": pa.array([10_000_999, 9_999_999], pa.timestamp("us"))})
    windows = tg.TimeWindows.of_size_and_grace("10 seconds", "0 s")
    assert tg.advise(table, key="k", timestamp="ts", windows=windows).cost(0).late == 1


@pytest.mark.parametrize("seed", range(20))
def test_keys_a_few_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = drawn(seed, least=20)
    more = {"aggregates": {"n": tg.count(), "most": tg.max("o")}, "alert": "n < 3"}
    whole = asked(recording, GRACES, **more)
    monkeypatch.setattr(here, "PAIRS", 8)
    assert asked(recording, GRACES, **more) == whole


def test_aggregates_without_an_alert() -> None:
    advice = asked(drawn(5, least=20), [0], aggregates={"most": tg.max("o")})
    assert advice.chosen.alerts is None
    assert advice.chosen.state_bytes > 0


def test_long_windows_that_begin_every_second() -> None:
    """A record has as many windows as its size has seconds; few of them are open when the record arrives."""
    times = list(range(0, 200_000, 1_000))
    records = [{"k": "a", "ts": ts, "p": 0, "o": i, "at": ts} for i, ts in enumerate(times)]
    records[150] |= {"ts": 0}
    recording = Recording(records, 60_000, 1_000)
    cost = asked(recording, [0]).cost(0)
    assert (cost.late, cost.results) == (outcome(recording, 0).late, len(outcome(recording, 0).rows))


def test_keys_that_python_has_not_are_shown() -> None:
    """Text that is not UTF-8, and instants past the year 9999, come from Spark's Parquet."""
    far = 300_000 * 86_400 * 1_000_000 * 12
    for keys, shown in (
        (pa.array([b"\xff"] * 2).cast(pa.string(), safe=False), "b'\\xff'"),
        (pa.array([far] * 2, pa.timestamp("us")), str(far)),
    ):
        table = pa.table({"k": keys, "ts": [100, 1]})
        windows = tg.TimeWindows.of_size_with_no_grace("2 ms")
        assert tg.advise(table, key="k", timestamp="ts", windows=windows).keys == [(shown, None, 1)]


def test_keys_with_commas_stay_apart() -> None:
    table = pa.table({"a": ["x, y", "x"] * 2, "b": ["z", "y, z"] * 2, "ts": [100, 100, 1, 1]})
    found = tg.advise(table, key=["a", "b"], timestamp="ts", windows=tg.TimeWindows.of_size_with_no_grace("2 ms"))
    assert found.keys == [("'x, y', z", None, 1), ("x, 'y, z'", None, 1)]


def test_categories_and_views_are_text() -> None:
    """pandas and polars have categories as dictionaries, and polars has text as views."""
    recording = drawn(5, least=20, bad=False)
    table = pa.Table.from_pylist(recording.records)
    names = pa.DictionaryArray.from_arrays(pa.array(range(table.num_rows)), table["k"].combine_chunks().cast(VIEW))
    asking = {"key": "k", "timestamp": "ts", "partition": "p", "offset": "o", "arrival": "at"}
    windows = tg.TimeWindows(recording.size, recording.advance, 0)
    parts = table["p"].cast(pa.string())
    for keys, partitions in (
        (table["k"].dictionary_encode(), parts.dictionary_encode()),
        (table["k"].cast(VIEW), parts.cast(VIEW)),
        (names, parts),
    ):
        given = table.set_column(0, "k", keys).set_column(2, "p", partitions)
        advice = tg.advise(given, windows=windows, alert="k == 'hot'", **asking)
        assert advice.cost(0).late == outcome(replace(recording, trigger=None), 0).late
        limits = [tg.advise_limit(one, windows=windows, limits=["7 ms"], **asking).costs for one in (given, table)]
        assert limits[0] == limits[1]
        joins = [tg.advise_join(one, one, key="k", timestamp="ts") for one in (given, table)]
        assert str(joins[0]) == str(joins[1])


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([uuid.UUID(int=number).bytes for number in (1, 1, 2)], pa.uuid()),
        pa.array(["1", "1", "2"], pa.json_()),
        pa.array([Decimal(1), Decimal(1), Decimal(2)], pa.decimal128(5, 0)).cast(DECIMAL),
    ],
    ids=["UUIDs", "JSON", "decimals"],
)
def test_keys_and_partitions_of_rare_types(keys: pa.Array, tmp_path: Path) -> None:
    """Arrow groups neither values of an extension nor decimals of fewer than 128 bits. Parquet has UUIDs."""
    table = pa.table({"k": keys, "ts": [100, 1, 50], "o": [0, 1, 2]})
    pq.write_table(table, tmp_path / "events.parquet")
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    for given in (table, tmp_path / "events.parquet"):
        found = tg.advise(given, key="k", timestamp="ts", partition="k", offset="o", windows=windows)
        assert [late for _, _, late in found.keys] == [1]
        assert len(found.partitions) == 2
        assert tg.advise_limit(given, key="k", timestamp="ts", limits=["1 s"]).updates == 3
        assert tg.advise_join(given, given, key="k", timestamp="ts").partnered == 3


@pytest.mark.parametrize("column", ["ts", "at"])
def test_a_time_of_more_than_64_bits_is_refused(column: str) -> None:
    table = pa.table({name: pa.array([1, 2**63 if name == column else 5], pa.uint64()) for name in ("k", "ts", "at")})
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    said = rf"^The column '{column}' has a time of more milliseconds than 64 bits hold: .*\. Correct such records\.$"
    with pytest.raises(tg.InputError, match=said):
        tg.advise(table, key="k", timestamp="ts", arrival="at", windows=windows)
    with pytest.raises(tg.InputError, match=said):
        tg.advise_join(table, table, key="k", timestamp="ts", arrival="at")


def test_an_alert_that_raises() -> None:
    table = pa.table({"k": ["A"], "ts": [1]})
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    with pytest.raises(
        tg.AggregationError, match=r"^`alert` raised KeyError: .*x.*\. It gets an Arrow table with the co"
    ):
        tg.advise(table, key="k", timestamp="ts", windows=windows, alert=lambda results: results["x"])
    with pytest.raises(tg.DefinitionTypeError, match=r"^`alert` is .*, which cannot be called as alert\(results\): "):
        tg.advise(table, key="k", timestamp="ts", windows=windows, alert=lambda: True)


def advised(table: pa.Table, partition: str) -> object:
    windows = tg.TimeWindows.of_size_with_no_grace("1 s")
    return tg.advise(table, key="k", timestamp="ts", partition=partition, offset="o", windows=windows)


@pytest.mark.parametrize("value", [[1], {"a": 1}])
def test_a_partition_of_several_values_is_refused(value: object) -> None:
    table = pa.table({"k": ["A", "B"], "ts": [1, 2], "o": [0, 1], "p": [value, value]})
    with pytest.raises(tg.DefinitionError, match=r"partition column 'p' is (list|struct).* integers or strings"):
        advised(table, "p")


@pytest.mark.parametrize("value", [1.5, b"x", "x", date(2020, 1, 1), [1]])
def test_an_offset_that_is_no_whole_number_is_refused(value: object) -> None:
    table = pa.table({"k": ["A", "B"], "ts": [1, 2], "o": [value, value]})
    with pytest.raises(tg.InputError, match=r"The offset column 'o' is .* not all of its values are whole numbers"):
        advised(table, "k")


def test_several_key_columns() -> None:
    table = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "ts": [30, 5, 5]})
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    advice = tg.advise(table, key=["a", "b"], timestamp="ts", windows=windows, alert="a == 1 and not b == 'x'")
    assert advice.keys == [("1, y", None, 1), ("2, x", None, 1)]
    assert (advice.cost(0).missing, advice.cost(0).missed_alerts) == (2, 1)
