"""The oracle of joins against the scenarios, Kafka's rows included, and against the promises of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance import runner
from oracle_joins import (
    JoinedRow,
    KafkaStreamJoin,
    StreamJoin,
    StreamTableJoin,
    TableTableJoin,
    key_bytes,
    null,
    skipped,
)
from oracle_slowest import StreamsTime

KINDS = ("stream_join", "stream_table_join", "table_table_join")
SCENARIOS = [scenario for scenario in map(runner.load, runner.names()) if scenario.kind in KINDS]
STREAMS = [scenario for scenario in SCENARIOS if scenario.kind == "stream_join"]

Row = dict[str, Any]
Take = Callable[..., list[JoinedRow]]


def name(scenario: runner.Scenario) -> str:
    return scenario.id


def test_the_scenarios_are_there() -> None:
    assert len(SCENARIOS) >= 54
    assert {scenario.kind for scenario in SCENARIOS} == set(KINDS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name)
def test_rows_order_and_drops_are_those_of_the_scenario(scenario: runner.Scenario) -> None:
    join = ours(scenario.topology)
    slowest = isinstance(join, StreamTableJoin) and "stream_time" in scenario.topology
    check(scenario.data["input"], by_the_slowest(join) if slowest else join.take, scenario.data)
    if "expected_drops" in scenario.data:
        assert dict(join.drops) == scenario.data["expected_drops"]
    if "expected_dropped" in scenario.data:
        assert join.drops.total() == scenario.data["expected_dropped"]


@pytest.mark.parametrize("scenario", STREAMS, ids=name)
def test_kafka_gives_what_the_scenario_says_it_does(scenario: runner.Scenario) -> None:
    join = kafkas(scenario.topology)
    # Without a stated difference, Kafka's rows are ours.
    expected = scenario.data.get("kafka", scenario.data)
    check(scenario.data["input"], join.take, expected)
    if "expected_dropped" in expected:
        assert join.drops == expected["expected_dropped"]


def ours(topology: Row) -> StreamJoin | StreamTableJoin | TableTableJoin:
    how = topology["join"]
    if topology["kind"] == "stream_table_join":
        return StreamTableJoin(how, topology.get("history_ms"), topology.get("grace_ms"))
    if topology["kind"] == "table_table_join":
        return TableTableJoin(how)
    return StreamJoin(*bounds(topology), how, topology.get("self", False))


def kafkas(topology: Row) -> KafkaStreamJoin:
    legacy = topology["windows"].get("spurious_result_fix") is False
    return KafkaStreamJoin(*bounds(topology), topology["join"], topology.get("self", False), legacy=legacy)


def bounds(topology: Row) -> tuple[int, int, int]:
    windows = topology["windows"]
    return windows["before_ms"], windows["after_ms"], windows["grace_ms"]


def by_the_slowest(join: StreamTableJoin) -> Take:
    """`take` for records with partitions; each record is a batch."""
    own = StreamsTime()

    def take(side: str, key: Any, value: Any, timestamp: int, partition: int = 0) -> list[JoinedRow]:
        (now,) = own.batch([(partition, timestamp)]) if side == "left" else (None,)
        return [*join.take(side, key, value, timestamp, now), *join.advance(own.now)]

    return take


def check(records: list[Row], take: Take, expected: Row) -> None:
    rows: list[JoinedRow] = []
    after = [0]
    for record in records:
        more = {"partition": record["partition"]} if "partition" in record else {}
        rows += take(record.get("side", "left"), record["key"], record["value"], record["timestamp_ms"], **more)
        after.append(len(rows))
    assert [shown(row) for row in rows] == expected["expected"]
    for point in expected.get("checkpoints", []):
        assert after[point["after_inputs"]] == point["outputs_so_far"], point


def shown(row: JoinedRow) -> Row:
    sides = ("null" if side is None else str(side) for side in (row.left, row.right))
    return {"key": row.key, "value": None if row.deleted else "+".join(sides), "timestamp_ms": row.timestamp}


# Promises of the rules, for any records (7b, "Why it holds").

Piped = tuple[str, Any, Any, int | None]
END = 10**6


@dataclass(frozen=True)
class Case:
    """Windows and records; all values differ, so that a row shows its records."""

    before: int
    after: int
    grace: int
    records: list[Piped]

    def join(self, how: str = "outer", self_join: bool = False) -> StreamJoin:
        return StreamJoin(self.before, self.after, self.grace, how, self_join)

    def rows(self, how: str = "outer", self_join: bool = False) -> list[JoinedRow]:
        """All rows, with what is open at the end."""
        join = self.join(how, self_join)
        return [row for record in self.records for row in join.take(*record)] + join.advance(END)


@st.composite
def cases(draw: st.DrawFn, reach: int = -8, clean: bool = False) -> Case:
    before = draw(st.integers(reach, 12))
    after = draw(st.integers(max(reach, -before), 12))
    instants = st.integers(0, 60)
    keys = st.sampled_from(["a", "b", ("a", 1)])
    if not clean:
        instants |= st.sampled_from([None, -1])
        keys |= st.sampled_from([None, ("a", None)])
    sides = st.sampled_from(["left", "right"])
    drawn = draw(st.lists(st.tuples(sides, keys, st.integers(0, 9), instants), max_size=30))
    records = [(s, k, None if not clean and empty == 0 else n, t) for n, (s, k, empty, t) in enumerate(drawn)]
    return Case(before, after, draw(st.integers(0, 10)), records)


def good(record: Piped) -> bool:
    return skipped(*record[1:]) is None


def pairs(rows: list[JoinedRow]) -> list[JoinedRow]:
    return [row for row in rows if row.left is not None and row.right is not None]


def alone(rows: list[JoinedRow]) -> list[JoinedRow]:
    return [row for row in rows if row.left is None or row.right is None]


@given(cases(), st.sampled_from(["inner", "left", "outer"]), st.booleans())
def test_each_pair_comes_once_and_what_left_alone_joins_nothing(case: Case, how: str, self_join: bool) -> None:
    rows = case.rows(how, self_join)
    assert len(set(rows)) == len(rows)
    for side in ("left", "right"):
        joined = {getattr(row, side) for row in pairs(rows)}
        without = {getattr(row, side) for row in alone(rows)} - {None}
        assert not joined & without
        if case.join(how).preserves(side):
            own = {value for s, _, value, _ in filter(good, case.records) if self_join or s == side}
            assert own <= joined | without


@given(cases(), st.booleans())
def test_inner_is_left_is_outer_but_for_what_is_alone(case: Case, self_join: bool) -> None:
    inner, left, outer = (case.rows(how, self_join) for how in ("inner", "left", "outer"))
    assert inner == pairs(left) == pairs(outer)
    assert alone(left) == [row for row in alone(outer) if row.left is not None]


@given(cases(clean=True), st.integers(1, 1000))
def test_zero_is_an_instant_like_any_other(case: Case, by: int) -> None:
    moved = replace(case, records=[(side, key, value, at + by) for side, key, value, at in case.records])
    assert moved.rows() == [row._replace(timestamp=row.timestamp + by) for row in case.rows()]


@given(cases())
def test_left_and_right_may_change_places(case: Case) -> None:
    other = {"left": "right", "right": "left"}
    mirrored = Case(case.after, case.before, case.grace, [(other[side], *rest) for side, *rest in case.records])
    rows = [row._replace(left=row.right, right=row.left) for row in mirrored.rows()]
    assert pairs(rows) == pairs(case.rows())
    assert Counter(rows) == Counter(case.rows())


@given(cases(), st.booleans())
def test_skipped_records_move_nothing(case: Case, self_join: bool) -> None:
    clean = replace(case, records=[record for record in case.records if good(record)])
    assert clean.rows(self_join=self_join) == [row for row in case.rows(self_join=self_join) if not null(row.key)]


@given(cases(clean=True))
def test_a_key_hears_of_others_by_stream_time_alone(case: Case) -> None:
    rows, stream_time = case.rows(), 0
    joins = {key: case.join() for _, key, _, _ in case.records}
    apart: dict[Any, list[JoinedRow]] = {key: [] for key in joins}
    for side, key, value, timestamp in case.records:
        stream_time = max(stream_time, timestamp)
        apart[key] += joins[key].take(side, key, value, timestamp, stream_time)
    for key, join in joins.items():
        apart[key] += join.advance(END)
        own = [row for row in rows if row.key == key]
        assert pairs(apart[key]) == pairs(own)
        # The time at which a row leaves may differ: here records of other keys do not let it out.
        assert Counter(apart[key]) == Counter(own)


@given(cases(), st.booleans(), st.data())
def test_whoever_moves_stream_time_the_rows_are_the_same(case: Case, self_join: bool, data: st.DataObject) -> None:
    join, told = case.join(self_join=self_join), case.join(self_join=self_join)
    rows: list[JoinedRow] = []
    moved: list[JoinedRow] = []
    for record in case.records:
        was = join.stream_time
        rows += join.take(*record)
        moved += told.advance(data.draw(st.integers(was, join.stream_time)))
        moved += told.take(*record)
    assert pairs(moved) == pairs(rows)
    assert Counter(moved) == Counter(rows)
    assert told.drops == join.drops


@given(cases(), st.booleans(), st.lists(st.integers(0, 80), min_size=30, max_size=30))
def test_any_stream_time_that_never_goes_back_will_do(case: Case, self_join: bool, seen: list[int]) -> None:
    join = case.join(self_join=self_join)
    rows = []
    for record, stream_time in zip(case.records, seen, strict=False):
        before, late = join.stream_time, join.drops["late"]
        own = join.take(*record, stream_time)
        assert join.stream_time == (max(before, stream_time) if good(record) else before)
        # A late record joins nothing.
        assert join.drops["late"] == late or not pairs(own)
        rows += own
    rows += join.advance(END)
    assert len(set(rows)) == len(rows)
    for side in ("left", "right"):
        own_side = {getattr(row, side) for row in alone(rows)} - {None}
        assert not own_side & {getattr(row, side) for row in pairs(rows)}


@given(cases(), st.booleans())
def test_a_late_record_joins_nothing_now_or_later(case: Case, self_join: bool) -> None:
    join = case.join(self_join=self_join)
    late = set()
    for record in case.records:
        before = join.drops["late"]
        join.take(*record)
        if join.drops["late"] > before:
            late.add(record[2])
    assert not late & {side for row in pairs(case.rows(self_join=self_join)) for side in (row.left, row.right)}


@given(cases(), st.sampled_from(["inner", "left", "outer"]), st.booleans())
def test_only_open_records_need_to_be_kept(case: Case, how: str, self_join: bool) -> None:
    join = case.join(how, self_join)
    rows = []
    for record in case.records:
        rows += join.take(*record)
        join.taken = [taken for taken in join.taken if join.stream_time <= join.close(taken)]
    assert rows + join.advance(END) == case.rows(how, self_join)


@given(cases(clean=True))
def test_in_the_order_of_timestamps_the_window_alone_decides(case: Case) -> None:
    case = replace(case, records=sorted(case.records, key=lambda record: record[3]))
    met = {
        (left, right)
        for left_side, left_key, left, left_at in case.records
        for right_side, right_key, right, right_at in case.records
        if (left_side, right_side) == ("left", "right") and left_key == right_key
        if left_at - case.before <= right_at <= left_at + case.after
    }
    assert {(row.left, row.right) for row in pairs(case.rows())} == met


@given(cases(reach=1, clean=True), st.sampled_from(["inner", "left", "outer"]))
def test_in_the_order_of_timestamps_kafka_gives_the_same_rows(case: Case, how: str) -> None:
    records = [*sorted(case.records, key=lambda record: record[3]), ("left", "z", "end", END)]
    kafka = KafkaStreamJoin(case.before, case.after, case.grace, how)
    join = case.join(how)
    theirs = [row for record in records for row in kafka.take(*record)]
    rows = [row for record in records for row in join.take(*record)]
    assert pairs(theirs) == pairs(rows)
    assert Counter(theirs) == Counter(rows)


Change = tuple[str, str, Any, int]
CHANGES = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from(["a", "b"]), st.booleans(), st.integers(0, 60)),
    max_size=30,
).map(lambda changes: [(side, key, None if gone else n, at) for n, (side, key, gone, at) in enumerate(changes)])


def of_stream(changes: list[Change]) -> list[Change]:
    """Nulls are tombstones on the right only."""
    return [(side, key, n if side == "left" else value, at) for n, (side, key, value, at) in enumerate(changes)]


@given(CHANGES.map(of_stream))
def test_with_time_enough_it_says_nothing_which_input_came_first(changes: list[Change]) -> None:
    def rows(records: list[Change]) -> list[JoinedRow]:
        join = StreamTableJoin("left", history=100, grace=100)
        return [row for record in records for row in join.take(*record)] + join.advance(END)

    assert rows(changes) == rows(sorted(changes, key=lambda change: change[0] == "left"))
    assert [row.timestamp for row in rows(changes)] == sorted(at for side, _, _, at in changes if side == "left")


@given(CHANGES.map(of_stream))
def test_in_the_order_of_timestamps_the_latest_row_is_that_of_the_instant(changes: list[Change]) -> None:
    changes.sort(key=lambda change: (change[3], change[0] == "left"))
    latest, as_of = StreamTableJoin("left"), StreamTableJoin("left", history=0)
    for change in changes:
        assert latest.take(*change) == as_of.take(*change)
    assert not latest.drops + as_of.drops


@given(CHANGES.map(of_stream), st.none() | st.integers(0, 60), st.none() | st.integers(0, 60))
def test_inner_is_left_without_what_found_no_row(changes: list[Change], history: int | None, grace: int | None) -> None:
    grace = None if grace is None or history is None else min(grace, history)
    inner, left = (StreamTableJoin(how, history, grace) for how in ("inner", "left"))
    for change in changes:
        assert inner.take(*change) == pairs(left.take(*change))
    assert inner.advance(END) == pairs(left.advance(END))
    assert inner.drops == left.drops


@given(
    CHANGES, st.sampled_from(["inner", "left", "outer"]), st.sampled_from([{}, {"left": 60}, {"left": 60, "right": 60}])
)
def test_the_result_is_the_join_of_what_the_tables_hold(
    changes: list[Change], how: str, history: dict[str, int]
) -> None:
    join = TableTableJoin(how, history)
    result: dict[str, Any] = {}
    tables: dict[str, dict[str, tuple[int, Any]]] = {"left": {}, "right": {}}
    for side, key, value, at in changes:
        if side not in history or at >= tables[side].get(key, (0, None))[0]:
            tables[side][key] = (at, value)
        for row in join.take(side, key, value, at):
            assert row.deleted == (row.left is None and row.right is None)
            result[row.key] = (row.left, row.right)
        left, right = (tables[s].get(key, (0, None))[1] for s in ("left", "right"))
        there = {"inner": left is not None and right is not None, "left": left is not None}
        expected = (left, right) if there.get(how, True) else (None, None)
        assert result.get(key, (None, None)) == expected


# Rules that the scenarios do not show.


def test_keys_are_ordered_by_their_bytes() -> None:
    keys = ["b", "a", "é", "Z", "aa"]
    assert sorted(keys, key=key_bytes) == ["Z", "a", "aa", "b", "é"]
    assert sorted([256, -1, 1, 255], key=key_bytes) == [1, 255, 256, -1]
    assert sorted([("a", 2), ("a", 1), ("", 3)], key=key_bytes) == [("", 3), ("a", 1), ("a", 2)]


def test_a_record_is_skipped_for_the_first_reason() -> None:
    join = StreamJoin(5, 5, 0, "left")
    assert join.take("right", None, None, None) == []
    assert join.take("left", ("a", None), "x", -1) == []  # preserved, but its row would have no timestamp
    assert join.take("left", "a", None, None) == []
    assert join.take("left", "a", None, 50) == []
    assert join.drops == {"null_key": 1, "bad_timestamp": 2, "null_value": 1}
    assert join.stream_time == -1


def test_a_self_join_counts_what_both_copies_skip() -> None:
    left, inner = StreamJoin(5, 5, 0, "left", self_join=True), StreamJoin(5, 5, 0, "inner", self_join=True)
    outer = StreamJoin(5, 5, 0, "outer", self_join=True)
    assert left.take("left", None, "x", 3) == [(None, "x", None, 3, False)]
    assert inner.take("left", None, "x", 3) == []
    assert outer.take("left", None, "x", 3) == [(None, "x", None, 3, False), (None, None, "x", 3, False)]
    assert (left.drops, inner.drops, outer.drops) == ({}, {"null_key": 1}, {})


def test_a_self_join_is_late_where_both_copies_are() -> None:
    # As left its partners may lie up to t - 2, as right up to t + 8.
    join = StreamJoin(8, -2, 0, "inner", self_join=True)
    join.take("left", "z", "time", 100)
    join.take("left", "k", "x", 92)
    assert join.drops == {}
    join.take("left", "k", "y", 91)
    assert join.drops == {"late": 1}


def test_what_is_due_with_a_record_leaves_in_one_order_with_it() -> None:
    join = StreamTableJoin("left", history=10, grace=10)
    join.take("left", "b", "1", 5, stream_time=0)
    assert join.take("left", "a", "2", 5, stream_time=15) == [("a", "2", None, 5, False), ("b", "1", None, 5, False)]


def test_stores_refuse_what_their_segments_have_left_behind() -> None:
    join = KafkaStreamJoin(5, 5, 0)
    join.take("left", "k", "a", 200_000)
    assert join.drops == 0
    join.take("left", "k", "b", 1000)
    assert join.drops == 1


def test_before_its_history_a_table_has_its_newest_versions_only() -> None:
    join = StreamTableJoin("left", history=10)
    for key, value, timestamp in [("k", "old", 3), ("k", "new", 5), ("other", "x", 50), ("m", "m", 45)]:
        join.take("right", key, value, timestamp)
    seen = [join.take("left", key, "s", timestamp)[0].right for key, timestamp in [("k", 4), ("k", 5), ("m", 39)]]
    assert seen == [None, "new", None]
    join.take("right", "m", "late", 39)
    assert join.drops == {"late": 1}


def test_kafkas_walk_ends_behind_an_open_record_of_both_sides() -> None:
    join = KafkaStreamJoin(5, 5, 0, "outer")
    records = [("left", "a", 10), ("right", "b", 11), ("left", "c", 12), ("left", "d", 13), ("left", "e", 15)]
    for side, key, timestamp in [*records, ("right", "q", 16)]:
        rows = join.take(side, key, key, timestamp)
    assert [row.key for row in rows] == ["a"]
    # The scan ended at d, whose timestamp is the threshold of the next scan.
    assert [row.key for row in join.take("right", "q", "q", 19)] == ["b", "c", "d"]
