"""Graces that records needed by themselves: the rules at their bounds, records taken despite them, the size."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.instants import MAX_MS, ROUND_MS
from tidegate.kernel.inspect.graces import GraceHistory, Graces
from tidegate.kernel.time.record_graces import RecordGraces, Rule
from tidegate.plan import operation
from tidegate.spec.metrics import OF_JOIN, OF_SESSIONS, OF_SLIDING


def rule(windows: Any, side: int | None = None, itself: bool = False) -> Rule:
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("n", pa.int64())])
    events, others = (
        tg.stream(name, key="k", timestamp="ts", schema=schema, stream_time="max") for name in ("events", "others")
    )
    if isinstance(windows, tg.JoinWindows):
        op = operation(events.join(events if itself else others, windows, suffixes=("_l", "_r")).node)
        found = Rule.of(op.of_side(side) if side is not None else op)
    else:
        found = Rule.of(operation(events.group_by_key().windowed_by(windows).count().node))
    assert found is not None
    return found


def needs(made: Rule, ts: int, seen: int) -> int:
    return int(made.needs(np.array([ts]), np.array([seen]))[0])


@pytest.mark.parametrize(("before", "after"), [(3, 5), (-3, 9), (8, -2)])
@pytest.mark.parametrize("grace", [0, 7, 3_600_000])
def test_a_record_is_late_where_the_windows_say_so(grace: int, before: int, after: int) -> None:
    sliding, sessions = tg.SlidingWindows(10, grace), tg.SessionWindows(10, grace)
    join = tg.JoinWindows(before, after, grace)
    of_side = [rule(join, 0), rule(join, 1)]
    both = rule(join, 0, itself=True)
    for seen in range(60):
        for ts in range(seen + 1):
            time = seen + grace
            assert (needs(rule(sliding), ts, time) > grace) == (max(ts, 10) < sliding.open_from_ms(time))
            assert (needs(rule(sessions), ts, time) > grace) == (ts < sessions.open_from_ms(time))
            late = [ts < join.late_before_ms(side, time) for side in (0, 1)]
            assert [needs(one, ts, time) > grace for one in of_side] == late
            assert (needs(both, ts, time) > grace) == all(late)


def test_windows_that_never_close_and_times_at_the_end_do_not_overflow() -> None:
    for windows in (
        tg.SlidingWindows(MAX_MS, MAX_MS),
        tg.SessionWindows(MAX_MS, MAX_MS),
        tg.JoinWindows(MAX_MS, MAX_MS, MAX_MS),
        tg.JoinWindows(-MAX_MS, MAX_MS, 0),
    ):
        made = rule(windows, 0 if isinstance(windows, tg.JoinWindows) else None)
        for ts, seen in ((0, -1), (0, MAX_MS), (MAX_MS, MAX_MS), (MAX_MS, -1)):
            assert needs(made, ts, seen) <= 0
    assert needs(rule(tg.SessionWindows(1, 0)), 0, MAX_MS) == MAX_MS - 1


@pytest.mark.parametrize("seed", range(30))
def test_who_was_taken_needed_no_more_than_the_grace_of_today(seed: int) -> None:
    random = Random(seed)
    today = random.choice([0, 5, 20])
    graces = RecordGraces(Rule(OF_SESSIONS, today, 10))
    ts = np.array([random.randrange(50) for _ in range(60)])
    seen = ts + np.array([random.choice([0, 3, 12, 30, 80]) for _ in ts])
    for part in np.array_split(np.arange(60), 3):
        graces.add(ts[part], seen[part])
    itself = [int(time - 10 - at) for time, at in zip(seen, ts, strict=True)]
    late = [i for i, need in enumerate(itself) if need > today and random.random() < 0.5]
    history = GraceHistory()
    history.add(graces.histogram([(i, int(ts[i]), int(ts[i])) for i in late]), 0)
    live = history.last_day(0)
    assert (live.windows, live.today, live.total) == ("sessions", today, 60)
    assert live.late(today) == len(late)
    for grace in (0, 1, 2, 5, 10, 20, 50):
        sure = sum(itself[i] > grace for i in late)
        if grace < today:
            assert live.late(grace) == sum(need > grace for need in itself)
        else:
            # With equal times it is not known which record was late: those that needed most count as late.
            assert sure <= live.late(grace) <= len(late)


@pytest.mark.parametrize("kind", [OF_SLIDING, OF_SESSIONS, OF_JOIN])
def test_a_task_tells_few_classes(kind: int) -> None:
    graces = RecordGraces(Rule(kind, 777_777, 0))
    seen = np.unique(np.geomspace(1, 2**62, 200_000).astype(np.int64))
    graces.add(np.zeros(len(seen), np.int64), seen)
    found = graces.histogram([(0, 0, 0)] * len(seen))
    assert found[:5] == [kind, 0, 0, 777_777, len(seen)]
    assert len(found) < 620
    live = Graces(777_777, len(seen), dict(zip(found[5::2], found[6::2], strict=True)))
    assert [live.late(one) for one in (*ROUND_MS, 777_777)] == [int((seen > one).sum()) for one in (*ROUND_MS, 777_777)]


def test_no_records() -> None:
    assert RecordGraces(Rule(OF_SESSIONS, 5, 10)).histogram() == [OF_SESSIONS, 0, 0, 5, 0]


def test_todays_grace_is_enough_before_a_longer_round_one_is() -> None:
    """25 s is no round duration; as it is the present grace, no advice may ask for 30 s."""
    assert Graces(25_000, 1_000, {24_000: 5}).enough() == 25_000
    assert Graces(25_000, 1_000, {26_000: 5}).enough() == 30_000
    assert Graces(25_000, 1_000, {19_000: 5}).enough() == 20_000
    assert Graces(777_000, 1_000, {777_000: 5}).enough() == 777_000
