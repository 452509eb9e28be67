"""`tg.advise` for sliding windows and sessions, against a slow computation and against the test driver."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from advice import recordings
from advice.recordings import drawn
from advice.slowly_keyed import Keyed
from seeds import seeds
from tidegate.advice import here, keyed_results
from tidegate.advice.advice import Advice
from tidegate.advice.ordered import least, place
from tidegate.testing import TopologyTestDriver

GRACES = [0, 1, 2, 5, 9, 25, 1_000]
SEEDS = seeds(10, 20)
KINDS = ("sliding", "session")


def keyed(seed: int, kind: str, **more: Any) -> Keyed:
    recording = drawn(seed, **{"most": 40, **more})
    return Keyed(recording, kind, Random(seed).choice([1, 3, 10, 10, 30]))


def windows_of(asked: Keyed, grace: int = 0) -> Any:
    if asked.kind == "session":
        return tg.SessionWindows(asked.reach, grace)
    return tg.SlidingWindows(asked.reach, grace)


def advised(asked: Keyed, graces: list[int] = GRACES, *, today: int = 0, **more: Any) -> Advice:
    return recordings.advised(asked.recording, windows_of(asked, today), graces, **more)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_grace_costs_what_a_slow_computation_says(seed: int, kind: str) -> None:
    asked = keyed(seed, kind)
    offsets = {number: r["o"] for number, r, _ in asked.seen}
    aggregates = {"n": tg.count(), "most": tg.max("o")}
    advice = advised(asked, aggregates=aggregates, alert="n < 3 and most > 1")
    needs = list(asked.needs())
    assert advice.pairs == len(needs)
    for grace in GRACES:
        cost = advice.cost(grace)
        assert cost.late == sum(need > grace for _, _, need in needs)
        assert cost.lost == sum(
            min(need for number, _, need in needs if number == record) > grace
            for record in {number for number, _, _ in needs}
        )
        expected = asked.cost(grace, lambda held: len(held) < 3 and max(offsets[number] for number in held) > 1)
        assert {name: getattr(cost, name) for name in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_other_clocks(seed: int, kind: str) -> None:
    asked = keyed(seed, kind, most=25)
    recording = asked.recording
    advice = advised(asked)
    partitions = {r["p"] for r in recording.good()}

    def late(of: Keyed, grace: int) -> int:
        return sum(need > grace for _, _, need in of.needs())

    for grace in (0, 5):
        cost = advice.cost(grace)
        slowest = late(replace(asked, recording=replace(recording, slowest=True)), grace)
        assert cost.late_by_slowest == (slowest if len(partitions) > 1 else None)
        if advice.guard is not None:
            guarded = replace(asked, recording=replace(recording, guard=advice.guard))
            assert cost.late_by_guarded == late(guarded, grace)
        own = [replace(recording, records=[r for r in recording.records if r["p"] == p]) for p in partitions]
        own = [replace(one, trigger=10**9) for one in own]
        assert cost.late_by_own == sum(late(replace(asked, recording=one), grace) for one in own)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(15, 40))
def test_the_driver_drops_as_many_and_gives_as_many_wrong_rows(seed: int, kind: str) -> None:
    asked = keyed(seed, kind, most=70)
    grace = (0, 3, 12)[seed % 3]
    cost = advised(asked, [grace], today=grace).cost(grace)
    driver = recordings.final_results(asked.recording, windows_of(asked, grace))
    complete = asked.complete()
    rows = driver.read_output()
    assert len(rows) == cost.results
    if kind == "session":
        assert driver.drops["late"] == cost.late == cost.lost
    wrong = 0
    for row in rows:
        name = (row["k"], row["window"].start, row["window"].end)
        wrong += name not in complete or row["count"] != len(complete[name])
    assert wrong == cost.incomplete


@pytest.mark.parametrize("seed", range(6))
def test_a_record_without_a_value_is_in_no_sliding_window(seed: int) -> None:
    recording, random = drawn(seed, least=20, most=40), Random(seed)
    schema = recordings.SCHEMA.append(pa.field("v", pa.int64()))
    records = [r | {"v": random.choice([None, 1, 2])} for r in recording.records]
    order: dict[str, Any] = {"key": "k", "timestamp": "ts", "partition": "p", "offset": "o"}
    grace = random.choice([0, 3])

    def asked(of: list[dict[str, Any]], windows: Any) -> Advice:
        return tg.advise(pa.Table.from_pylist(of, schema), arrival="at", windows=windows, **order)

    windows = tg.SlidingWindows(10, grace)
    advice, valued = asked(records, windows), [r for r in records if r["v"] is not None]
    without = asked(valued, windows)
    assert advice.costs == without.costs
    kept = replace(recording, records=valued, trigger=None)
    none = [r for r in records if r["v"] is None]
    stream = tg.stream("events", schema=schema.remove(4), **order).group_by_key().windowed_by(windows)
    driver = TopologyTestDriver(stream.emit_strategy(tg.EmitStrategy.on_window_close()).count())
    for batch in (*([r] for r in none), *kept.batches()):
        driver.pipe_batch([{name: r[name] for name in ("k", "ts", "p", "o", "v")} for r in batch])
    assert (len(driver.read_output()), driver.drops["null_value"]) == (
        advice.cost(grace).results,
        advice.skipped["null_value"],
    )
    assert advice.skipped["null_value"] > 0
    # Sessions take such records.
    assert asked(records, tg.SessionWindows(10, grace)).skipped["null_value"] == 0


def test_without_columns_of_values_no_record_lacks_one() -> None:
    order = pa.table({"k": ["a", "a"], "ts": [1, 90], "at": [5, 6]})
    asked: dict[str, Any] = {"key": "k", "timestamp": "ts", "windows": tg.SlidingWindows(10, 0), "arrival": "at"}
    assert tg.advise(order, **asked).records == 2
    assert tg.advise(order.append_column("v", pa.nulls(2)), **asked).skipped["null_value"] == 2
    twice = pa.table([*order.columns, pa.array([None, 1]), pa.array([None, None])], [*order.schema.names, "v", "v"])
    assert tg.advise(twice, **asked).skipped["null_value"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_worst_keys(kind: str) -> None:
    for seed in range(8):
        asked = keyed(seed, kind, most=60)
        names = {number: r["k"] for number, r, _ in asked.seen}
        late: dict[str, int] = {}
        for number, _, need in asked.needs():
            if need > 2:
                late[names[number]] = late.get(names[number], 0) + 1
        assert {name: many for name, _, many in advised(asked, [], today=2).keys} == late


@pytest.mark.parametrize("kind", KINDS)
def test_keys_and_windows_a_few_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        asked = keyed(seed, kind, least=20)
        whole = advised(asked, alert="count < 3")
        with monkeypatch.context() as patched:
            patched.setattr(here, "PAIRS", 8)
            patched.setattr(keyed_results, "_AT_ONCE", 5)
            assert advised(asked, alert="count < 3") == whole


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_and_one_record(kind: str) -> None:
    asked = keyed(1, kind)
    empty = replace(asked, recording=replace(asked.recording, records=[]))
    assert advised(empty).warnings == ["There is no record with a key and a time: nothing can be said."]
    one = {"k": "a", "ts": 50, "p": 0, "o": 0, "at": 50}
    cost = advised(replace(asked, recording=replace(asked.recording, records=[one])), [0]).cost(0)
    assert (cost.late, cost.results, cost.still_open, cost.open_windows) == (0, 0, 1, 1)


@pytest.mark.parametrize("windows", [tg.SlidingWindows(10, 0), tg.SessionWindows(10, 0)], ids=KINDS)
def test_times_at_the_borders(windows: Any) -> None:
    last = 2**62
    table = pa.table({"k": ["a"] * 5, "ts": pa.array([-1, 0, last, last - 1, 1], pa.int64())})
    advice = tg.advise(table, key="k", timestamp="ts", windows=windows, graces=["0 s", "1 day"])
    assert advice.skipped == {"null_key": 0, "bad_timestamp": 1, "null_value": 0}
    assert advice.cost(0).lost == advice.cost(86_400_000).lost == 1


@pytest.mark.parametrize("longest", [tg.SlidingWindows(2**63 - 1, 0), tg.SessionWindows(2**63 - 1, 0)], ids=KINDS)
def test_windows_without_an_end(longest: Any) -> None:
    table = pa.table({"k": ["a"] * 3, "ts": pa.array([5, 2**62, 7], pa.int64())})
    cost = tg.advise(table, key="k", timestamp="ts", windows=longest, graces=["0 s"]).cost(0)
    assert (cost.late, cost.results) == (0, 0)


def test_a_session_that_a_record_bridges_into() -> None:
    """Late by itself, but taken because the session that it joins is open: it needs no grace."""
    times = [100, 108, 119, 99]
    table = pa.table({"k": ["a"] * 4, "ts": times})
    advice = tg.advise(table, key="k", timestamp="ts", windows=tg.SessionWindows(10, 0), graces=["0 s"])
    # At 119 the session of 100 and 108 has been closed for a millisecond, so that 99 does not find it.
    assert advice.cost(0).late == 1
    open_still = pa.table({"k": ["a"] * 4, "ts": [100, 109, 119, 99]})
    assert tg.advise(open_still, key="k", timestamp="ts", windows=tg.SessionWindows(10, 0)).cost(0).late == 0


def test_text_and_page_say_what_windows_these_are() -> None:
    for kind, words in (("sliding", "SlidingWindows of"), ("session", "SessionWindows with a gap of")):
        advice = advised(keyed(3, kind, least=30), alert="count < 3")
        assert words in str(advice)
        assert words in advice.html()
        assert advice.json()


@pytest.mark.parametrize("seed", range(10))
def test_places_and_smallest_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    key, time = np.sort(random.integers(0, 3, 40)), random.integers(0, 20, 40)
    order = np.lexsort((time, key))
    key, time = key[order], time[order]
    of, at = random.integers(0, 4, 30), random.integers(-1, 22, 30)
    for behind in (False, True):
        found = place(key, time, of, at, behind=behind)
        expected = [
            sum((k, t) < (a, b) or (behind and (k, t) == (a, b)) for k, t in zip(key, time, strict=True))
            for a, b in zip(of, at, strict=True)
        ]
        assert found.tolist() == expected
    low = random.integers(0, 39, 50)
    high = np.minimum(low + random.integers(1, 40, 50), 40)
    assert least(time, low, high).tolist() == [time[a:b].min() for a, b in zip(low, high, strict=True)]
