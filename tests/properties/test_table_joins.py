"""Joins with tables against the oracle: in the driver record by record, and in layouts of several tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle_joins import JoinedRow, StreamTableJoin, TableTableJoin
from oracle_slowest import StreamsTime
from oracle_suppress import Limit, Suppression
from properties.test_joins import (
    EARLY,
    END,
    SIDES,
    Row,
    copies_of_workers,
    nonzero,
    placed,
    records,
    small_sizes,
    span,
    static,
)
from tidegate.kernel.state import sorted_runs
from tidegate.kernel.tuning import Tuning
from tidegate.testing import TopologyTestDriver, layout
from tidegate.testing.layout import Tasks

FIELDS = {"k": pa.string(), "n": pa.int64(), "gone": pa.bool_(), "ts": pa.int64()}
SCHEMA = pa.schema({**FIELDS, "partition": pa.int32(), "offset": pa.int64()})
ORDER = {"partition": "partition", "offset": "offset"}
UNCACHED = tg.Materialized.as_("join").with_caching_disabled()


@dataclass(frozen=True)
class Case:
    """A join with a table; both sides are tables if `of_tables`."""

    how: str
    of_tables: bool
    history: int | None = None
    grace: int | None = None
    of_left: int | None = None
    """The history of the left table."""
    clock: Row = field(default_factory=lambda: {"stream_time": "max"})

    def table(self, ordered: bool) -> Any:
        """The join over unbound inputs."""
        return self.over("left", "right", SCHEMA if ordered else pa.schema(FIELDS), ORDER if ordered else {})

    def over(self, left: Any, right: Any, schema: pa.Schema | None = None, order: Row = ORDER) -> Any:
        """The join over these sources."""
        given: Row = {"key": "k", "timestamp": "ts", "schema": schema, **order}
        more: Row = {} if self.history is None else {"history": span(self.history)}
        table = tg.table(right, deleted="gone", name="right", **given, **more)
        if self.of_tables:
            of_left: Row = {} if self.of_left is None else {"history": span(self.of_left)}
            other = tg.table(left, deleted="gone", name="left", **given, **of_left)
            return other.join(table, self.how, suffixes=("_l", "_r"), materialized=UNCACHED)
        stream = tg.stream(left, name="left", **self.clock, **given)
        grace = None if self.grace is None else span(self.grace)
        return stream.join(table, how=self.how, grace=grace, suffixes=("_l", "_r"))

    @property
    def oracle(self) -> Any:
        if not self.of_tables:
            return StreamTableJoin(self.how, self.history, self.grace)
        histories = {"left": self.of_left, "right": self.history}
        return TableTableJoin(self.how, {side: kept for side, kept in histories.items() if kept is not None})


@st.composite
def cases(draw: Any) -> Case:
    if draw(st.booleans()):
        histories = [draw(st.sampled_from([None, None, 0, 3, 10, 40])) for _ in range(2)]
        return Case(draw(st.sampled_from(["inner", "left", "outer"])), True, histories[0], None, histories[1])
    history = draw(st.sampled_from([None, 0, 3, 10, 40]))
    grace = None if history is None else draw(st.sampled_from([None, 0, *([min(history, 5)] * 3)]))
    return Case(draw(st.sampled_from(["inner", "left"])), False, history, grace)


def prepared(case: Case, side: str, record: Row) -> Row:
    """A record: of a table, a deletion if it has no value; of a stream, with `n` as its value."""
    return {**record, "gone": record["n"] is None if case.of_tables or side == "right" else None}


def shown(row: Row) -> JoinedRow:
    return JoinedRow(
        row["k"], row.get("n_l", row.get("n")), row.get("n_r"), row["timestamp"], row.get("deleted", False)
    )


def taken(oracle: Any, side: str, record: Row) -> list[JoinedRow]:
    return oracle.take(side, record["k"], record["n"], record["ts"])


@given(case=cases(), stream=records())
def test_record_by_record(case: Case, stream: list[tuple[str, Row]]) -> None:
    """The rows of every record, in order, with a restart in the middle."""
    oracle, driver = case.oracle, TopologyTestDriver(case.table(ordered=False))
    drops: Counter[str] = Counter()
    for n, (side, record) in enumerate(stream):
        driver.pipe_input(prepared(case, side, record), side)
        assert list(map(shown, driver.read_output())) == taken(oracle, side, record), (n, side, record)
        if n == len(stream) // 2:
            drops.update(driver.drops)
            driver = TopologyTestDriver(case.table(ordered=False), state=driver.state())
    drops.update(driver.drops)
    assert nonzero(drops) == nonzero(oracle.drops)


@given(case=cases(), stream=records(), data=st.data())
def test_cutting_into_batches(case: Case, stream: list[tuple[str, Row]], data: Any) -> None:
    """Runs of one side's records, taken as batches, give the rows of record by record, in order."""
    oracle, driver = case.oracle, TopologyTestDriver(case.table(ordered=False))
    wanted: list[JoinedRow] = []
    got: list[JoinedRow] = []
    batch: list[Row] = []
    for n, (side, record) in enumerate(stream):
        wanted += taken(oracle, side, record)
        batch.append(prepared(case, side, record))
        if n + 1 == len(stream) or stream[n + 1][0] != side or data.draw(st.booleans()):
            driver.pipe_batch(batch, side)
            got += map(shown, driver.read_output())
            batch = []
    assert got == wanted
    assert nonzero(driver.drops) == nonzero(oracle.drops)


@given(
    case=cases().filter(lambda case: case.of_tables),
    stream=records(),
    ms=st.sampled_from([0, 3, 10]),
    measured=st.sampled_from(["first_update", "latest_update"]),
    most=st.sampled_from([None, None, 1]),
    ordered=st.booleans(),
)
def test_rows_of_two_tables_wait_for_a_limit(
    case: Case, stream: list[tuple[str, Row]], ms: int, measured: Any, most: int | None, ordered: bool
) -> None:
    """Record by record: its time has come before its row, which takes the place of the row that waits, and then both
    limits, of time and of records, hold.
    """
    buffer = tg.BufferConfig.unbounded() if most is None else tg.BufferConfig.max_records(most)
    limit = tg.Suppressed.until_time_limit(f"{ms} ms", buffer, clock="stream", measured_from=measured)
    joined = case.table(ordered)
    plain, late = TopologyTestDriver(joined), TopologyTestDriver(joined.suppress(limit))
    oracle = Suppression(Limit(ms, most, measured_from=measured), ("k",))
    for n, (side, record) in enumerate(stream):
        piped = prepared(case, side, record) | ({"partition": 0, "offset": n} if ordered else {})
        dropped = plain.dropped
        plain.pipe_input(piped, side)
        late.pipe_input(piped, side)
        if record["k"] is not None and record["ts"] is not None and record["ts"] >= 0:
            oracle.stream_time = max(oracle.stream_time, record["ts"])
        wanted = [row for update in plain.read_output() for row in oracle.take(update)]
        if plain.dropped == dropped:
            wanted += oracle.pass_time(oracle.stream_time)
        assert list(map(shown, late.read_output())) == list(map(shown, wanted)), (n, side, record)
        if n == len(stream) // 2:
            late = TopologyTestDriver(joined.suppress(limit), state=late.state())


@given(case=cases(), stream=records())
def test_what_is_dropped_leaves_as_rows(case: Case, stream: list[tuple[str, Row]]) -> None:
    """Each counted drop is a row with its record, and the joined rows are the same as without late records."""
    joined, oracle = case.table(ordered=False), case.oracle
    driver = TopologyTestDriver(tg.outputs(joined=joined, late=joined.late_records()))
    for side, record in stream:
        before = Counter(oracle.drops)
        wanted = taken(oracle, side, record)
        driver.pipe_input(prepared(case, side, record), side)
        found = driver.read_output()
        assert [shown(row) for row in found if row["output"] == "joined"] == wanted
        late = [row for row in found if row["output"] == "late"]
        assert Counter(row["reason"] for row in late) == oracle.drops - before
        for row in late:
            value = row["n_l" if side == "left" else "n_r"]
            assert (row["side"], row["k"], value) == (side, record["k"], record["n"])
            assert row["late_by"] == (row["stream_time"] - row["timestamp"] if row["reason"] == "late" else None)
    assert nonzero(driver.drops) == nonzero(oracle.drops)


@st.composite
def lengths(draw: Any) -> Row:
    """A history, and a grace that it covers."""
    history = draw(st.sampled_from([0, 3, 10, 40]))
    return {"history": history, "grace": draw(st.sampled_from([None, 0, min(history, 2), *([min(history, 5)] * 3)]))}


@given(first=cases(), stream=records(max_size=40, latest=EARLY), data=st.data())
def test_another_grace_and_history_between_any_two_batches(
    first: Case, stream: list[tuple[str, Row]], data: Any
) -> None:
    """Dropped records stay dropped, and looked-up rows stay; the rest goes by the new lengths."""
    case = Case("left" if first.how == "outer" else first.how, False, first.history, first.grace)
    oracle, driver = case.oracle, TopologyTestDriver(case.table(ordered=False))
    wanted: list[JoinedRow] = []
    got: list[JoinedRow] = []
    drops: Counter[str] = Counter()
    batch: list[Row] = []
    for n, (side, record) in enumerate(stream):
        record = {**record, "k": record["k"] and "ab"[n % 2]}
        wanted += taken(oracle, side, record)
        batch.append(prepared(case, side, record))
        if n + 1 < len(stream) and stream[n + 1][0] == side and data.draw(st.booleans()):
            continue
        driver.pipe_batch(batch, side)
        got += map(shown, driver.read_output())
        assert got == wanted, (n, record)
        batch = []
        waits = driver.read_state("join-left")
        assert Counter(row["n"] for row in waits) == Counter(one.value for one in oracle.waiting)
        if data.draw(st.integers(0, 3)) == 0:
            case = replace(case, **data.draw(lengths()))
            told = driver.check_upgrade(case.table(ordered=False))
            assert told.goes_on
            drops.update(driver.drops)
            driver = TopologyTestDriver(case.table(ordered=False), state=driver.state())
            wanted += oracle.change(case.history, case.grace)
    drops.update(driver.drops)
    assert nonzero(drops) == nonzero(oracle.drops)


def valid(case: Case, side: int, record: Row) -> bool:
    """Whether a record moves time."""
    has_value = record["n"] is not None or case.of_tables or side == 1
    return record["k"] is not None and has_value and record["ts"] is not None and record["ts"] >= 0


def by_oracle(
    case: Case, batches: list[list[tuple[int, Row]]], ends: bool = False
) -> tuple[Counter[JoinedRow], Counter[str]]:
    """Records in the order (stream time seen over both, the table first, partition, offset); of two tables the left.

    ends  whether the input ends with the last batch
    """
    oracle, before = case.oracle, -1
    rows: Counter[JoinedRow] = Counter()
    for batch in batches:
        seen: dict[tuple[int, int], int] = {}
        entries = []
        for side, record in sorted(batch, key=lambda one: one[1]["offset"]):
            at = (side, record["partition"])
            seen[at] = max(seen.get(at, -1), record["ts"] if valid(case, side, record) else -1)
            first = side if case.of_tables else 1 - side
            entries.append((max(seen[at], before), first, record["partition"], record["offset"], side, record))
        for *_, side, record in sorted(entries, key=lambda entry: entry[:4]):
            rows.update(taken(oracle, SIDES[side], record))
        before = max([before, *seen.values()])
    if ends and not case.of_tables:
        rows.update(oracle.advance(END))
    return rows, oracle.drops


@pytest.mark.parametrize("small", [False, True])
@given(case=cases(), data=st.data())
def test_layouts(small: bool, case: Case, data: Any) -> None:
    """Several map tasks read each side, several tasks join: the rows and drops of the oracle."""
    batches = data.draw(placed())
    tasks = data.draw(st.integers(1, 3))
    splits, sides = [], []
    for batch in batches:
        parts: dict[tuple[int, int], list[Row]] = {}
        for side, record in batch:
            parts.setdefault((side, data.draw(st.integers(0, 1))), []).append(prepared(case, SIDES[side], record))
        splits.append(list(parts.values()))
        sides.append([side for side, _ in parts])
    wanted, drops = by_oracle(case, batches)
    whole = [[prepared(case, SIDES[side], record) for side, record in batch] for batch in batches]
    table, tuning = case.table(ordered=True), data.draw(small_sizes()) if small else Tuning()
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(sorted_runs, "COPIES", copies_of_workers(data.draw(st.integers(0, 9))))
        got, dropped = layout.run(table, whole, tasks=tasks, splits=splits, sides=sides, tuning=tuning)
    assert Counter(map(shown, got)) == wanted
    assert nonzero(dropped) == nonzero(drops)


@given(case=st.one_of(cases(), st.just(Case("left", False, history=40, grace=40))), data=st.data())
def test_a_static_input_ends(case: Case, data: Any) -> None:
    """All records are one batch, and then those that wait are looked up: they see every change of the table."""
    batch = [record for records in data.draw(placed()) for record in records]
    parts = [(SIDES[side], [prepared(case, SIDES[side], record)]) for side, record in batch]
    got, dropped = static(case.table(ordered=True), parts, data.draw(st.integers(1, 3)))
    wanted, drops = by_oracle(case, [batch], ends=True)
    assert (Counter(map(shown, got)), nonzero(dropped)) == (wanted, nonzero(drops))


def test_a_record_that_waits_sees_the_last_change_of_a_static_input() -> None:
    case = Case("left", False, 1000, 50)
    order = {"k": "a", "n": 1, "ts": 100, "partition": 0, "offset": 0}
    changes = [order | {"n": 7, "ts": 200}, order | {"n": 2, "ts": 90, "offset": 1}]
    parts = [("left", [order]), ("right", [prepared(case, "right", change) for change in changes])]
    rows, _ = static(case.table(ordered=True), parts, tasks=1)
    assert [row["n_r"] for row in rows] == [2]


# -- grace by the slowest partition of the stream --------------------------------------------------------------------


def by_the_slowest(
    case: Case,
    batches: list[list[tuple[int, Row]]],
    clocks: list[int],
    idle_after: int | None,
    changes: dict[int, Case] | None = None,
) -> tuple[list[Counter[JoinedRow]], list[int], Counter[str]]:
    """The rows of each batch, and the stream's own time after it; the order of a batch is that of `by_oracle`.

    changes  by number of a batch: the join from that batch on
    """
    case = replace(case, grace=case.grace or None)  # without a grace nothing waits, whatever the clock
    oracle, before, found, times = case.oracle, -1, [], []
    own = StreamsTime(idle_after)
    for number, (batch, clock) in enumerate(zip(batches, clocks, strict=True)):
        rows: Counter[JoinedRow] = Counter()
        if changes and (now := changes.get(number)):
            rows.update(oracle.change(now.history, now.grace or None))
        ordered = sorted(batch, key=lambda one: one[1]["offset"])
        mine = [record for side, record in ordered if side == 0]
        moves = [(record["partition"], record["ts"] if valid(case, 0, record) else -1) for record in mine]
        sees = dict(zip(map(id, mine), own.batch(moves, clock), strict=True))
        seen: dict[tuple[int, int], int] = {}
        entries = []
        for side, record in ordered:
            at = (side, record["partition"])
            seen[at] = max(seen.get(at, -1), record["ts"] if valid(case, side, record) else -1)
            entries.append((max(seen[at], before), 1 - side, record["partition"], record["offset"], side, record))
        for *_, side, record in sorted(entries, key=lambda entry: entry[:4]):
            own_time = sees.get(id(record))
            rows.update(oracle.take(SIDES[side], record["k"], record["n"], record["ts"], stream_time=own_time))
        rows.update(oracle.advance(own.now))
        before = max([before, *seen.values()])
        found.append(rows)
        times.append(own.now)
    return found, times, oracle.drops


def of_a_stream(case: Case) -> Case:
    """The case as a join of a stream with a table."""
    how = "left" if case.how == "outer" else case.how
    return replace(case, how=how, of_tables=False, of_left=None)


def slowest(idle_after: int | None) -> Row:
    return {"stream_time": "min_partition"} | ({} if idle_after is None else {"idle_after": span(idle_after)})


@st.composite
def clocked(draw: Any, batches: list[Any]) -> list[int]:
    """The wall clock of each batch."""
    return list(accumulate(draw(st.sampled_from([0, 1, 5, 20])) for _ in batches))


@pytest.mark.parametrize("small", [False, True])
@given(case=cases(), idle_after=st.sampled_from([None, None, 5, 20]), data=st.data())
def test_layouts_by_the_slowest_partition(small: bool, case: Case, idle_after: int | None, data: Any) -> None:
    """The stream's own time is that of its slowest partition; the table neither moves it nor holds it back."""
    case = replace(of_a_stream(case), clock=slowest(idle_after))
    batches = data.draw(placed())
    clocks = data.draw(clocked(batches))
    wanted, _, drops = by_the_slowest(case, batches, clocks, idle_after)
    tuning = data.draw(small_sizes()) if small else Tuning()
    many = Tasks(case.table(ordered=True).node, data.draw(st.integers(1, 3)), tuning=tuning)
    for batch, clock, rows in zip(batches, clocks, wanted, strict=True):
        parts: dict[tuple[int, int], list[Row]] = {}
        for side, record in batch:
            parts.setdefault((side, data.draw(st.integers(0, 1))), []).append(prepared(case, SIDES[side], record))
        got = many.batch([(SIDES[side], part) for (side, _), part in parts.items()], clock)
        assert Counter(map(shown, got)) == rows
    assert nonzero(sum(many.dropped, Counter())) == nonzero(drops)


@given(batches=placed(latest=EARLY), how=st.sampled_from(["inner", "left"]), data=st.data())
def test_another_grace_by_the_slowest_partition(batches: list[list[tuple[int, Row]]], how: str, data: Any) -> None:
    """Records of a fast partition wait ahead of the stream's own time, and go by the new lengths too."""
    graces = [data.draw(st.sampled_from([40, 40, 3, 0, None])) for _ in batches]
    joins = [Case(how, False, 40, grace, clock=slowest(None)) for grace in graces]
    case, *later = joins or [Case(how, False, 40, 40, clock=slowest(None))]
    changes = {number: now for number, now in enumerate(later, 1) if now != joins[number - 1]}
    wanted, _, drops = by_the_slowest(case, batches, [0] * len(batches), None, changes)
    tasks, dropped = data.draw(st.integers(1, 3)), Counter[str]()
    many = Tasks(case.table(ordered=True).node, tasks)
    for number, (batch, rows) in enumerate(zip(batches, wanted, strict=True)):
        if number in changes:
            dropped.update(sum(many.dropped, Counter()))
            many = Tasks(changes[number].table(ordered=True).node, tasks, many)
        read = [(SIDES[side], [prepared(case, SIDES[side], record)]) for side, record in batch]
        assert Counter(map(shown, many.batch(read))) == rows, number
    assert nonzero(dropped + sum(many.dropped, Counter())) == nonzero(drops)


@given(case=cases(), stream=records())
def test_with_one_partition_the_slowest_is_the_plain_rule(case: Case, stream: list[tuple[str, Row]]) -> None:
    case = of_a_stream(case)
    rows = []
    for clock in ({"stream_time": "max"}, slowest(None)):
        driver = TopologyTestDriver(replace(case, clock=clock).table(ordered=True))
        for n, (side, record) in enumerate(stream):
            driver.pipe_input(prepared(case, side, {**record, "partition": 0, "offset": n}), side)
        rows.append((driver.read_output(), driver.drops))
    assert rows[0] == rows[1]


@given(case=cases(), data=st.data())
def test_windows_behind_go_by_what_has_been_looked_up(case: Case, data: Any) -> None:
    """A row is late by (stream's own time - grace) after the previous batch; windows close by it after this batch."""
    case = replace(of_a_stream(case), clock=slowest(None))
    batches = data.draw(placed())
    size, grace = data.draw(st.sampled_from([(5, 0), (10, 3), (10, 20), (7, 14)]))
    rows, times, _ = by_the_slowest(case, batches, [0] * len(batches), None)
    before, late, open_, wanted = -1, 0, Counter[tuple[str, int]](), []
    for made, own in zip(rows, times, strict=True):
        for row in (row for row in made.elements() if row.key is not None):
            start = row.timestamp - row.timestamp % size
            if start + size + grace <= before:
                late += 1
            else:
                open_[row.key, start] += 1
        before = max(before, own - (case.grace or 0))
        closed = sorted(at for at in open_ if at[1] + size + grace <= before)
        wanted.append([(*at, open_.pop(at)) for at in closed])
    windows = tg.TimeWindows.of_size_and_grace(span(size), span(grace))
    final = case.table(ordered=True).group_by_key().windowed_by(windows)
    counts = final.emit_strategy(tg.EmitStrategy.on_window_close()).count()
    many = Tasks(counts.node, data.draw(st.integers(1, 3)))
    got = []
    for batch in batches:
        read = [(SIDES[side], [prepared(case, SIDES[side], record)]) for side, record in batch]
        got.append(sorted((row["k"], row["window"].start, row["count"]) for row in many.batch(read)))
    assert got == wanted
    assert many.dropped[1]["late"] == late


@given(case=cases(), stream=records(), data=st.data())
def test_idle_advance_goes_on_where_the_stream_is_silent(case: Case, stream: list[tuple[str, Row]], data: Any) -> None:
    """The wall clock counts from the stream's last record on, even if changes of the table come."""
    case = replace(of_a_stream(case), clock={"stream_time": "max", "idle_advance": span(10)})
    grace = case.grace or None
    oracle, driver = replace(case, grace=grace).oracle, TopologyTestDriver(case.table(ordered=False))
    heard, stood, clock = None, -1, 0
    for n, (side, record) in enumerate(stream):
        passed = data.draw(st.sampled_from([0, 0, 3, 15]))
        driver.advance_wall_clock(span(passed))
        clock += passed
        gone = -1 if heard is None else stood + max(0, clock - heard - 10)
        wanted = oracle.advance(gone) if n else []
        driver.pipe_input(prepared(case, side, record), side)
        wanted += taken(oracle, side, record)
        if side == "left":
            heard, stood = (clock, oracle.stream_time) if oracle.stream_time >= 0 else (heard, stood)
        assert list(map(shown, driver.read_output())) == wanted, (n, side, record)
    assert nonzero(driver.drops) == nonzero(oracle.drops)
