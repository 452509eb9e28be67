"""Metrics of graces of sliding windows, sessions and joins, against a computation record by record, for any cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from advice.recordings import drawn
from advice.slowly_keyed import Keyed
from properties.test_joins import SIDES, Case, Row, joins, placed, seen_by_the_slowest, valid
from seeds import seeds
from tidegate.instants import ROUND_MS
from tidegate.kernel.inspect.graces import Graces
from tidegate.kernel.time.window_graces import class_ends
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("p", pa.int32()), ("o", pa.int64()), ("n", pa.int64())])
GRACES = (0, 1, 2, 5, 10, 20, 50, 100)
KINDS = ("sliding", "session")


def asked(seed: int, kind: str, most: int = 70) -> Keyed:
    return Keyed(drawn(seed, most=most), kind, Random(seed).choice([1, 3, 10, 10, 30]))


def windowed(one: Keyed, today: int) -> Any:
    windows: Any = tg.SessionWindows(one.reach, today) if one.kind == "session" else tg.SlidingWindows(one.reach, today)
    stream = tg.stream("events", key="k", timestamp="ts", partition="p", offset="o", schema=SCHEMA)
    return stream.group_by_key().windowed_by(windows)


def tables(one: Keyed, today: int) -> list[Any]:
    """Built-in aggregates or functions, updates or final results, with late records or without."""
    grouped = windowed(one, today)
    final = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
    folded = grouped.aggregate(
        list, lambda _k, r, held: [*held, r["n"]], type="array<long>", merger=lambda _k, a, b: a + b
    )
    return [
        grouped.count(),
        final.count(),
        folded,
        final.agg(one=tg.first("n")),
        tg.outputs(counts=final.count(), late=final.count().late_records()),
    ]


def batches(one: Keyed) -> list[list[Row]]:
    numbers = iter(range(10_000))
    return [
        [{"k": r["k"], "ts": r["ts"], "p": r["p"], "o": r["o"], "n": next(numbers)} for r in batch]
        for batch in one.recording.batches()
    ]


def life(table: Any, stream: Sequence[Sequence[Row]]) -> tuple[Graces, TopologyTestDriver]:
    driver = TopologyTestDriver(table)
    for batch in stream:
        driver.pipe_batch(batch, "events")
    return driver._tallies[0].graces.last_day(0), driver


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_sliding_windows_tell_which_records_miss_a_window(seed: int) -> None:
    one, today = asked(seed, "sliding"), Random(seed).choice([0, 3, 25])
    live, driver = life(tables(one, today)[seed % 5], batches(one))
    if not one.recording.good():
        return
    most: dict[int, int] = {}
    for record, _, need in one.needs():
        most[record] = max(most.get(record, 0), need)
    assert (live.total, live.unit, live.at_most) == (len(most), "records", False)
    assert [live.late(grace) for grace in (*GRACES, today)] == [
        sum(need > grace for need in most.values()) for grace in (*GRACES, today)
    ]
    if seed % 5 == 4:
        late = [row for row in driver.read_output() if row["output"] == "late"]
        assert len({row["n"] for row in late}) == live.late(today)
        assert len(late) == driver.drops["late"]


@pytest.mark.parametrize("seed", seeds(25, 80))
def test_sessions_tell_what_is_late_today_and_at_most_so_many_with_another_grace(seed: int) -> None:
    one, today = asked(seed, "session"), Random(seed).choice([0, 3, 25])
    live, driver = life(tables(one, today)[seed % 5], batches(one))
    if not one.recording.good():
        return
    seen = one.seen
    assert (live.total, live.today, live.unit, live.at_most) == (len(seen), today, "records", True)
    assert live.late(today) == driver.drops["late"] == len(one.outcome(today).late)
    for grace in (*GRACES, today, 7, 33):
        least = len(one.outcome(grace).late)
        assert least <= live.late(grace)
        by_itself = sum(time - one.reach - r["ts"] > grace for _, r, time in seen)
        if grace in (*GRACES, today):
            assert live.late(grace) <= by_itself
        if grace >= today:
            assert live.late(grace) <= driver.drops["late"]
    enough = live.enough(0)
    assert not one.outcome(enough).late
    assert (enough > today) == (driver.drops["late"] > 0)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_keys_in_several_tasks_tell_the_same(kind: str, seed: int, data: Any) -> None:
    one, today = asked(seed, kind, 30), data.draw(st.sampled_from([0, 3, 25]))
    table = tables(one, today)[data.draw(st.integers(0, 4))]
    stream = batches(one)
    live, _ = life(table, stream)
    topology = Tasks(table.node, data.draw(st.integers(1, 4)))
    for batch in stream:
        parts: list[list[Row]] = [[] for _ in range(3)]
        for record in batch:
            parts[data.draw(st.integers(0, 2))].append(record)
        topology.batch([("events", part) for part in parts])
    assert topology.graces[0].last_day(0) == live


def reach(case: Case, side: int) -> int:
    """7b.4; for a stream with itself both copies must be late."""
    ahead, back = (case.after, case.before) if side == 0 else (case.before, case.after)
    mine = ahead + max(back, 0)
    return max(mine, reach(replace(case, self_join=False), 1)) if case.self_join else mine


def seen_by_the_furthest(stream: list[list[tuple[int, Row]]]) -> list[tuple[int, int, Row]]:
    """(stream time, side, record) of each valid record with stream_time="max"."""
    before, found = -1, []
    for batch in stream:
        own: dict[tuple[int, int], int] = {}
        for side, record in sorted(batch, key=lambda one: one[1]["offset"]):
            at = (side, record["partition"])
            own[at] = max(own.get(at, -1), record["ts"] if valid(record) else -1)
            found.append((max(own[at], before), side, record))
        before = max([before, *own.values()])
    return [one for one in found if valid(one[2])]


@pytest.mark.parametrize("clock", ["max", "min_partition"])
@given(case=joins(), data=st.data())
def test_joins_tell_which_records_nothing_can_join(clock: str, case: Case, data: Any) -> None:
    case = case if clock == "max" else replace(case, self_join=False)
    stream = data.draw(placed(case.self_join))
    if clock == "max":
        seen = seen_by_the_furthest(stream)
    else:
        seen = [
            (now, side, record)
            for batch, _ in seen_by_the_slowest(stream)
            for now, side, record in batch
            if valid(record)
        ]
    topology = Tasks(case.table(True, clock).node, data.draw(st.integers(1, 3)))
    for batch in stream:
        topology.learn([record for _, record in batch])
    for batch in stream:
        parts: dict[tuple[int, int], list[Row]] = {}
        for side, record in batch:
            parts.setdefault((side, data.draw(st.integers(0, 1))), []).append(record)
        topology.batch([(SIDES[side], part) for (side, _), part in parts.items()], 0)
    live = topology.graces[-1].last_day(0)
    needs = Counter(max(0, now - record["ts"] - reach(case, side)) for now, side, record in seen)
    assert live.total == needs.total()
    if not seen:
        return
    assert (live.today, live.unit, live.at_most) == (case.grace, "records", False)
    for grace in (*GRACES, case.grace):
        assert live.late(grace) == sum(n for need, n in needs.items() if need > grace)
    assert live.late(case.grace) == topology.dropped[-1]["late"]
    assert set(live.needed) <= {*ROUND_MS, case.grace, *range(200)}


@pytest.mark.parametrize("kind", [*KINDS, "join"])
def test_what_a_shorter_grace_has_closed_counts_by_what_it_needed(kind: str) -> None:
    """After a grace is lengthened more records are late than need it: closed windows stay closed."""

    def table(grace: int) -> Any:
        if kind == "join":
            return Case(3, 5, grace, "inner", False).table(ordered=False)
        return windowed(Keyed(drawn(0), kind, 5), grace).count()

    def row(ts: int) -> Row:
        return {"k": "a", "n": ts, "ts": ts} | ({} if kind == "join" else {"p": 0, "o": next(offset)})

    source, offset = "left" if kind == "join" else "events", iter(range(100))
    before = TopologyTestDriver(table(0))
    before.pipe_batch([row(1_000)], source)
    after = TopologyTestDriver(table(500), state=before.state())
    for ts in (960, 985, 1_000):
        after.pipe_batch([row(ts)], source)
    live = after._tallies[0].graces.last_day(0)
    assert after.drops["late"] == 2
    reached = {"sliding": 0, "session": 5, "join": 5 + 3}[kind]
    assert (live.today, live.total, live.late(500)) == (500, 3, 0)
    assert sorted(live.needed) == sorted({class_end(15 - reached), class_end(40 - reached)})


def class_end(need: int) -> int:
    ends = class_ends(500).tolist()
    return next(end for end in ends if end >= need)
