"""Joins of two streams against the oracle: in the driver record by record, and in layouts of several tasks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle_join_batches import Arrival, JoinInBatches
from oracle_joins import JoinedRow, StreamJoin
from tidegate.instants import MAX_MS
from tidegate.kernel.stage import Stage, Step
from tidegate.kernel.state import sorted_runs
from tidegate.kernel.state.copies import Copies, Held
from tidegate.kernel.state.store import Store
from tidegate.kernel.tuning import Tuning
from tidegate.testing import TopologyTestDriver, layout
from tidegate.testing.layout import Tasks

Row = dict[str, Any]
SIDES = ("left", "right")
END = 2**64
"""A time at which every record has closed."""
EARLY = 2**62
"""Records before this time may get any grace of the tests: none closes behind the last instant."""
KEYS = ["a", "b", "é", "Z", ""]
SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "ts": pa.int64(), "partition": pa.int32(), "offset": pa.int64()})

FIELDS = ("k", "n", "ts", "partition", "offset")


@dataclass(frozen=True)
class Case:
    """A join: reaches and grace in ms, how, and whether with itself."""

    before: int
    after: int
    grace: int
    how: str
    self_join: bool

    @property
    def windows(self) -> Any:
        made = tg.JoinWindows.of_time_difference_and_grace(span(max(self.before, 0)), span(self.grace))
        for name, value in sorted((("before", self.before), ("after", self.after)), key=lambda step: -step[1]):
            made = getattr(made, name)(span(value))
        return made

    def table(self, ordered: bool, clock: str = "max") -> Any:
        order = {"partition": "partition", "offset": "offset"} if ordered else {}
        schema = SCHEMA if ordered else pa.schema([SCHEMA.field(name) for name in ("k", "n", "ts")])
        left, right = (
            tg.stream(name, key="k", timestamp="ts", schema=schema, stream_time=clock, **order) for name in SIDES
        )
        return left.join(left if self.self_join else right, self.windows, how=self.how, suffixes=("_l", "_r"))

    @property
    def oracle(self) -> StreamJoin:
        return StreamJoin(self.before, self.after, self.grace, self.how, self.self_join)


def span(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


@st.composite
def joins(draw: Any) -> Case:
    before = draw(st.integers(-4, 8))
    after = draw(st.integers(max(-4, -before), 8))
    how = draw(st.sampled_from(["inner", "left", "outer", "outer"]))
    return Case(before, after, draw(st.integers(0, 6)), how, draw(st.sampled_from([False, False, True])))


@st.composite
def records(draw: Any, *, max_size: int = 30, latest: int = MAX_MS) -> list[tuple[str, Row]]:
    """Records of both sides as they come: mostly in order, some far back, some that are skipped.

    Some streams end shortly before `latest`.
    """
    now, made = draw(st.integers(0, 3)) + draw(st.sampled_from([0, 0, 0, latest - 40])), []
    for n in range(draw(st.integers(0, max_size))):
        now = min(now + draw(st.sampled_from([0, 0, 1, 1, 2, 5, 20])), latest - 1)
        ts = max(0, now - draw(st.sampled_from([0, 0, 0, 1, 3, 7, 15])))
        odd = draw(st.integers(0, 19))
        row = {"k": draw(st.sampled_from(KEYS)), "n": n, "ts": ts}
        if odd == 0:
            row["k"] = None
        elif odd == 1:
            row["n"] = None
        elif odd == 2:
            row |= {"ts": draw(st.sampled_from([None, -1]))}
        elif odd == 3:
            row |= {"k": None, "n": None}
        made.append((draw(st.sampled_from(SIDES)), row))
    return made


def shown(row: Row) -> JoinedRow:
    return JoinedRow(row["k"], row.get("n_l"), row.get("n_r"), row["timestamp"])


def nonzero(drops: Any) -> dict[str, int]:
    return {reason: n for reason, n in drops.items() if n}


@given(case=joins(), stream=records())
def test_record_by_record(case: Case, stream: list[tuple[str, Row]]) -> None:
    """The rows of every record, in order, with a restart in the middle."""
    oracle, driver = case.oracle, TopologyTestDriver(case.table(ordered=False))
    drops: Counter[str] = Counter()
    for n, (side, record) in enumerate(stream):
        side = "left" if case.self_join else side
        driver.pipe_input(record, side)
        wanted = oracle.take(side, record["k"], record["n"], record["ts"])
        assert [shown(row) for row in driver.read_output()] == wanted, (n, record)
        if n == len(stream) // 2:
            drops.update(driver.drops)
            driver = TopologyTestDriver(case.table(ordered=False), state=driver.state())
    drops.update(driver.drops)
    assert nonzero(drops) == nonzero(oracle.drops)


@given(case=joins(), stream=records(), data=st.data())
def test_cutting_into_batches(case: Case, stream: list[tuple[str, Row]], data: Any) -> None:
    """Runs of one side's records, taken as batches, give the rows of record by record, in order."""
    oracle, driver = case.oracle, TopologyTestDriver(case.table(ordered=False))
    wanted: list[JoinedRow] = []
    got: list[JoinedRow] = []
    batch: list[Row] = []
    for n, (side, record) in enumerate(stream):
        side = "left" if case.self_join else side
        wanted += oracle.take(side, record["k"], record["n"], record["ts"])
        batch.append(record)
        ends = n + 1 == len(stream) or (not case.self_join and stream[n + 1][0] != side)
        if ends or data.draw(st.booleans()):
            driver.pipe_batch(batch, side)
            got += [shown(row) for row in driver.read_output()]
            batch = []
    assert got == wanted
    assert nonzero(driver.drops) == nonzero(oracle.drops)


@given(case=joins(), stream=records())
def test_late_records(case: Case, stream: list[tuple[str, Row]]) -> None:
    """With late records as an output, each counted drop is a row, and the joined rows stay the same."""
    joined = case.table(ordered=False)
    driver, alone = (
        TopologyTestDriver(tg.outputs(joined=joined, late=joined.late_records())),
        TopologyTestDriver(joined),
    )
    for side, record in stream:
        for one in (driver, alone):
            one.pipe_input(record, "left" if case.self_join else side)
    found = driver.read_output()
    late = [row for row in found if row["output"] == "late"]
    assert Counter(row["reason"] for row in late) == nonzero(driver.drops) == nonzero(alone.drops)
    assert {row["side"] for row in late} <= ({"both"} if case.self_join else {"left", "right"})
    assert all(row["late_by"] == row["stream_time"] - row["timestamp"] for row in late if row["reason"] == "late")
    assert [shown(row) for row in found if row["output"] == "joined"] == list(map(shown, alone.read_output()))


# -- several partitions, map tasks and stateful tasks ----------------------------------------------------------------


@st.composite
def placed(draw: Any, self_join: bool = False, latest: int = MAX_MS) -> list[list[tuple[int, Row]]]:
    """Batches of records of several partitions of both sides, each partition in offset order."""
    partitions = {side: draw(st.integers(1, 3)) for side in range(2)}
    offsets: Counter[tuple[int, int]] = Counter()
    batches: list[list[tuple[int, Row]]] = [[]]
    for name, record in draw(records(latest=latest)):
        side = 0 if self_join else SIDES.index(name)
        partition = draw(st.integers(0, partitions[side] - 1))
        batches[-1].append((side, {**record, "partition": partition, "offset": offsets[side, partition]}))
        offsets[side, partition] += draw(st.sampled_from([1, 1, 3]))
        if draw(st.integers(0, 4)) == 0:
            batches.append([])
    return [batch for batch in batches if batch]


def copies_of_workers(seed: int) -> Copies:
    """Copies of a task that moves from worker to worker: sometimes one is missing."""
    random = Random(seed)

    class Lost(Copies):
        def get(self, digest: str) -> Held | None:
            return None if random.random() < seed / 10 else super().get(digest)

    return Lost()


def valid(record: Row) -> bool:
    return record["k"] is not None and record["n"] is not None and record["ts"] is not None and record["ts"] >= 0


class AtEnd(Stage):
    """Takes a batch as the whole of a static input."""

    def step(self, store: Store, blobs: Iterable[bytes], *args: Any, **more: Any) -> Step:
        return super().step(store, blobs, *args, **more | {"end_of_input": True})


def static(table: Any, parts: list[tuple[str, list[Row]]], tasks: int) -> tuple[list[Row], Counter[str]]:
    """Rows and drops of a static input of which each part is read by a map task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "Stage", AtEnd)
        many = Tasks(table.node, tasks)
        return many.batch(parts), sum(many.dropped, Counter())


def by_oracle(
    case: Case, batches: list[list[tuple[int, Row]]], ends: bool = False
) -> tuple[list[Counter[JoinedRow]], Counter[str]]:
    """The rows of each batch: records in the order (stream time seen, left before right, partition, offset).

    ends  whether the input ends with each batch
    """
    oracle, before, found = case.oracle, -1, []
    for batch in batches:
        seen: dict[tuple[int, int], int] = {}
        entries = []
        for side, record in sorted(batch, key=lambda one: one[1]["offset"]):
            at = (side, record["partition"])
            now = max(seen.get(at, -1), record["ts"] if valid(record) else -1)
            seen[at] = now
            entries.append((max(now, before), side, record["partition"], record["offset"], record))
        rows: list[JoinedRow] = []
        for now, side, _, _, record in sorted(entries, key=lambda entry: entry[:4]):
            rows += oracle.take(SIDES[side], record["k"], record["n"], record["ts"], stream_time=now)
        before = max([before, *seen.values()])
        rows += oracle.advance(END if ends else before)
        found.append(Counter(rows))
    return found, oracle.drops


def small_sizes() -> st.SearchStrategy[Tuning]:
    """Sizes of joins that a handful of records reaches."""
    return st.builds(
        Tuning,
        pairs=st.just(2),
        open_stretches=st.sampled_from([1, 2, 4]),
        batch_stretches=st.sampled_from([1, 2, 16]),
        merged_rows=st.sampled_from([1, 3, 1_000]),
        copy_bytes=st.sampled_from([0, 100, 1_000, 100_000]),
        copy_seconds=st.sampled_from([0, 60]),
        range_records=st.sampled_from([1, 16]),
        range_rows=st.sampled_from([1, 3, 1_000]),
        read_whole_rows=st.sampled_from([0, 5, 1_000]),
        gap_bytes=st.sampled_from([0, 40, 2_048]),
        block_rows=st.sampled_from([1, 3, 1_000]),
    )


@pytest.mark.parametrize("small", [False, True])
@given(case=joins(), data=st.data())
def test_layouts(small: bool, case: Case, data: Any) -> None:
    """Several map tasks read each side, several tasks join: the rows and drops of the oracle, batch by batch."""
    batches = data.draw(placed(case.self_join))
    tasks = data.draw(st.integers(1, 3))
    splits, sides = [], []
    for batch in batches:
        parts: dict[tuple[int, int], list[Row]] = {}
        for side, record in batch:
            parts.setdefault((side, data.draw(st.integers(0, 1))), []).append(record)
        splits.append(list(parts.values()))
        sides.append([side for side, _ in parts])
    wanted, drops = by_oracle(case, batches)
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(sorted_runs, "COPIES", copies_of_workers(data.draw(st.integers(0, 9))))
        whole = [[record for _, record in batch] for batch in batches]
        got, dropped = layout.run(
            case.table(ordered=True),
            whole,
            tasks=tasks,
            splits=splits,
            sides=sides,
            tuning=data.draw(small_sizes()) if small else Tuning(),
        )
    assert Counter(map(shown, got)) == sum(wanted, Counter())
    assert nonzero(dropped) == nonzero(drops)


@given(case=joins(), data=st.data())
def test_late_records_alone_leave_once_as_on_spark(case: Case, data: Any) -> None:
    batches = data.draw(placed(case.self_join))
    late = case.table(ordered=True).late_records()
    many = Tasks(late.node, data.draw(st.integers(1, 3)), as_spark=True, tuning=data.draw(small_sizes()))
    reasons = Counter[str]()
    for batch in batches:
        read = [(SIDES[_side_of(batch, part[0])], part) for part in _by_partition(batch)]
        reasons.update(row["reason"] for row in many.batch(read))
    assert reasons == nonzero(by_oracle(case, batches)[1])


@given(case=joins(), data=st.data())
def test_a_static_input_ends(case: Case, data: Any) -> None:
    """All records are one batch, behind which every record closes."""
    batch = [record for records in data.draw(placed(case.self_join)) for record in records]
    parts = [(SIDES[_side_of(batch, part[0])], part) for part in _by_partition(batch)]
    got, dropped = static(case.table(ordered=True), parts, data.draw(st.integers(1, 3)))
    [wanted], drops = by_oracle(case, [batch], ends=True)
    assert (Counter(map(shown, got)), nonzero(dropped)) == (wanted, nonzero(drops))


# -- the slower side -------------------------------------------------------------------------------------------------


def seen_by_the_slowest(batches: list[list[tuple[int, Row]]]) -> list[tuple[list[tuple[int, int, Row]], int]]:
    """Stream time that records see by the slowest partition of both inputs, and the stream time after each batch.

    An input without any record is a partition with time -1.
    """
    reached: dict[tuple[int, int | None], int] = {(0, None): -1, (1, None): -1}
    stream_time, found = -1, []
    for batch in batches:
        before, now = dict(reached), dict(reached)
        for side, record in batch:
            if valid(record):
                at = (side, record["partition"])
                now[at] = max(now.get(at, -1), record["ts"])
                now.pop((side, None), None)
        own = dict(before)
        entries = []
        for side, record in sorted(batch, key=lambda one: one[1]["offset"]):
            at = (side, record["partition"])
            own[at] = max(own.get(at, -1), record["ts"] if valid(record) else -1)
            others = min((before.get(name, -1) for name in now if name != at), default=2**62)
            entries.append((max(min(own[at], others), stream_time), side, record))
        reached, stream_time = now, max(stream_time, min(now.values()))
        found.append((entries, stream_time))
    return found


@given(case=joins(), data=st.data())
def test_layouts_of_the_slower_side(case: Case, data: Any) -> None:
    """As `test_layouts`, with the default clock of a join: the slowest partition of both inputs holds back time."""
    case = replace(case, self_join=False)
    batches = data.draw(placed(self_join=False))
    splits = [[[record] for _, record in batch] for batch in batches]
    if data.draw(st.booleans()):
        splits = [_by_partition(batch) for batch in batches]
    sides = [[_side_of(batch, part[0]) for part in parts] for batch, parts in zip(batches, splits, strict=True)]
    oracle, wanted = case.oracle, Counter()
    for entries, after in seen_by_the_slowest(batches):
        entries.sort(key=lambda entry: (entry[0], entry[1], entry[2]["partition"], entry[2]["offset"]))
        for now, side, record in entries:
            wanted.update(oracle.take(SIDES[side], record["k"], record["n"], record["ts"], stream_time=now))
        wanted.update(oracle.advance(after))
    table = case.table(ordered=True, clock="min_partition")
    tasks = data.draw(st.integers(1, 3))
    whole = [[record for _, record in batch] for batch in batches]
    got, dropped = layout.run(table, whole, tasks=tasks, splits=splits, sides=sides)
    assert Counter(map(shown, got)) == wanted
    assert nonzero(dropped) == nonzero(oracle.drops)


@st.composite
def crowded(draw: Any) -> list[list[tuple[int, Row]]]:
    """Batches of records of one key, two partitions a side, near each other in time and in no order."""
    batches, count = [], itertools.count()
    places = st.tuples(st.integers(0, 1), st.sampled_from([0, 0, 1]), st.integers(0, 15))
    for _ in range(draw(st.integers(2, 4))):
        drawn = draw(st.lists(places, min_size=6, max_size=12))
        batches.append(
            [
                (side, {"k": "a", "n": n, "ts": ts, "partition": partition, "offset": n})
                for (side, partition, ts), n in zip(drawn, count, strict=False)
            ]
        )
    return batches


@pytest.mark.parametrize("clock", ["max", "min_partition"])
@given(case=joins(), batches=crowded(), data=st.data())
def test_another_grace_between_any_two_batches(
    clock: str, case: Case, batches: list[list[tuple[int, Row]]], data: Any
) -> None:
    """Closed records stay closed; the order of a batch is that of the stream time seen, whatever has closed."""
    case = replace(case, grace=0, self_join=False)
    oracle, dropped = JoinInBatches(lambda: case.oracle, clock == "min_partition"), Counter[str]()
    many = Tasks(case.table(ordered=True, clock=clock).node, data.draw(st.integers(1, 3)))
    for number, batch in enumerate(batches):
        if number:
            now = replace(case, grace=data.draw(st.sampled_from([0, 3, 60, 60])))
            oracle.change(now.grace)
            dropped.update(sum(many.dropped, Counter()))
            many = Tasks(now.table(ordered=True, clock=clock).node, len(many.operators[0].stores), many)
        parts = _by_partition(batch)
        got = many.batch([(SIDES[_side_of(batch, part[0])], part) for part in parts])
        wanted = oracle.batch(Arrival(SIDES[side], *map(record.get, FIELDS)) for side, record in batch)
        assert Counter(map(shown, got)) == Counter(wanted), batch
    assert nonzero(dropped + sum(many.dropped, Counter())) == nonzero(oracle.drops)


def test_what_has_closed_by_a_shorter_grace_does_not_change_the_order_of_a_batch() -> None:
    """Right 1 sees 50 and left 2 sees 55, though all up to 150 has closed: 1 comes first, is open, and joins 2."""
    case = Case(10, 10, 0, "left", self_join=False)
    before = Tasks(case.table(ordered=True).node, 1)
    before.batch([("left", [dict(zip(FIELDS, ("z", 0, 50, 0, 0), strict=True))])])
    after = Tasks(replace(case, grace=100).table(ordered=True).node, 1, before)
    left = [dict(zip(FIELDS, values, strict=True)) for values in (("x", 9, 55, 0, 1), ("a", 2, 38, 0, 2))]
    right = [dict(zip(FIELDS, ("a", 1, 45, 0, 0), strict=True))]
    assert [shown(row) for row in after.batch([("left", left), ("right", right)])] == [JoinedRow("a", 2, 1, 45)]


def _by_partition(batch: list[tuple[int, Row]]) -> list[list[Row]]:
    parts: dict[tuple[int, int], list[Row]] = {}
    for side, record in batch:
        parts.setdefault((side, record["partition"]), []).append(record)
    return list(parts.values())


def _side_of(batch: list[tuple[int, Row]], record: Row) -> int:
    return next(side for side, other in batch if other is record)


# -- what stands behind ----------------------------------------------------------------------------------------------


def row_batches(case: Case, batches: list[list[tuple[int, Row]]], clock: str) -> list[tuple[list[JoinedRow], int]]:
    """By the oracle: the rows of each batch, and the stream time of the join after it."""
    if clock == "max":
        found, now = by_oracle(case, batches)[0], -1
        ends = [now := max([now, *(r["ts"] for _, r in batch if valid(r))]) for batch in batches]
        return [(list(rows.elements()), end) for rows, end in zip(found, ends, strict=True)]
    oracle, made = case.oracle, []
    for entries, after in seen_by_the_slowest(batches):
        entries.sort(key=lambda entry: (entry[0], entry[1], entry[2]["partition"], entry[2]["offset"]))
        rows: list[JoinedRow] = []
        for now, side, record in entries:
            rows += oracle.take(SIDES[side], record["k"], record["n"], record["ts"], stream_time=now)
        made.append(([*rows, *oracle.advance(after)], after))
    return made


@pytest.mark.parametrize("clock", ["max", "min_partition"])
@given(case=joins(), data=st.data())
def test_rows_of_one_key_and_time_enter_the_next_operator_in_the_order_in_which_they_leave(
    clock: str, case: Case, data: Any
) -> None:
    """On Spark too, where rows of different keys leave in no order, and a batch is taken in ranges of hashes."""
    batches = data.draw(placed(case.self_join))
    lists = case.table(ordered=True, clock=clock).group_by_key().agg(l=tg.collect_list("n_l"), r=tg.collect_list("n_r"))
    small = replace(data.draw(small_sizes()), divided_rows=1, joined_rows=data.draw(st.sampled_from([1, 4, 1_000])))
    in_order, as_spark = Tasks(lists.node, 1), Tasks(lists.node, 1, as_spark=True, tuning=small)
    for batch in batches:
        read = [(SIDES[_side_of(batch, part[0])], part) for part in _by_partition(batch)]
        wanted, got = ({row["k"]: (row["l"], row["r"]) for row in many.batch(read)} for many in (in_order, as_spark))
        assert got == wanted


def test_a_pair_of_an_earlier_record_enters_the_next_operator_in_the_order_of_times() -> None:
    """Left 4, 5 and 6 join right 10 in this order, whichever batch each came in."""
    table = Case(10, 10, 50, "inner", self_join=False).table(ordered=True)
    for first in range(4):
        many = Tasks(table.group_by_key().agg(n=tg.collect_list("n_l")).node, 1, as_spark=True)
        left = [dict(zip(FIELDS, ("a", ts, ts, 0, n), strict=True)) for n, ts in enumerate((5, 6, 4))]
        right = [dict(zip(FIELDS, ("a", 10, 10, 0, 0), strict=True))]
        assert many.batch([("left", left[:first])]) == []
        [row] = many.batch([("left", left[first:]), ("right", right)])
        assert row["n"] == [4, 5, 6]


@pytest.mark.parametrize("one_by_one", [False, True])
@given(case=joins(), data=st.data())
def test_windows_behind_a_join_go_by_its_slower_side(one_by_one: bool, case: Case, data: Any) -> None:
    """A row is late by the join's stream time after the previous batch; windows close by its time after this batch."""
    case = replace(case, self_join=False)
    batches = data.draw(placed(self_join=False))
    size, advance, grace = data.draw(st.sampled_from([(5, 5, 0), (10, 5, 3), (10, 10, 20), (7, 2, 14)]))
    before, late, open_, wanted = -1, 0, Counter[tuple[str, int]](), []
    for rows, after in row_batches(case, batches, "min_partition"):
        for row in rows:
            first = max(0, (row.timestamp - size) // advance * advance + advance)
            starts = [] if row.key is None else range(first, row.timestamp + 1, advance)
            late += sum(start + size + grace <= before for start in starts)
            open_.update((row.key, start) for start in starts if start + size + grace > before)
        closed = sorted(at for at in open_ if at[1] + size + grace <= after)
        wanted.append([(*at, open_.pop(at)) for at in closed])
        before = after
    windows = tg.TimeWindows.of_size_and_grace(span(size), span(grace)).advance_by(span(advance))
    grouped = case.table(ordered=True, clock="min_partition").group_by_key().windowed_by(windows)
    final = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
    counts = final.agg(n=tg.count(), **({"last": tg.last("n_l")} if one_by_one else {}))
    many = Tasks(counts.node, data.draw(st.integers(1, 3)))
    got = []
    for batch in batches:
        read = [(SIDES[side], [record]) for side, record in batch]
        got.append(sorted((row["k"], row["window"].start, row["n"]) for row in many.batch(read)))
    assert got == [sorted(rows) for rows in wanted]
    assert many.dropped[1]["late"] == late


@pytest.mark.parametrize("clock", ["max", "min_partition"])
@given(case=joins(), data=st.data())
def test_rows_of_a_join_merged_with_records(clock: str, case: Case, data: Any) -> None:
    """Windows over both: rows of the join are a partition of their own among the partitions of the records."""
    case = replace(case, self_join=False)
    joined, others = data.draw(placed(self_join=False)), data.draw(placed(self_join=True))
    others += [[]] * (len(joined) - len(others))
    joined += [[]] * (len(others) - len(joined))
    size, grace = data.draw(st.sampled_from([(5, 0), (10, 3), (10, 20), (7, 14)]))
    # A join that has not begun holds the records back, too.
    reached: dict[Any, int] = {} if clock == "max" else {"rows": -1}
    late, now, open_, wanted = 0, -1, Counter[tuple[str, int]](), []
    for (rows, told), batch in zip(row_batches(case, joined, clock), others, strict=True):
        before, records = dict(reached), []
        for row in (row for row in rows if row.key is not None):
            own = row.timestamp if clock == "max" else before.get("rows", -1)
            records.append(("rows", row.key, row.timestamp, own))
            reached["rows"] = max(reached.get("rows", -1), row.timestamp) if clock == "max" else told
        if clock != "max":
            reached["rows"] = told
        for _, record in sorted(batch, key=lambda one: one[1]["offset"]):
            if record["k"] is None or record["ts"] is None or record["ts"] < 0:
                continue
            at = record["partition"]
            reached[at] = max(reached.get(at, -1), record["ts"])
            records.append((at, record["k"], record["ts"], reached[at]))
        for at, key, ts, own in records:
            seen = own if clock == "max" else min(own, *(before.get(p, -1) for p in reached if p != at), 2**62)
            start = ts - ts % size
            if start + size + grace <= max(seen, now):
                late += 1
            else:
                open_[key, start] += 1
        moved = max(reached.values(), default=-1) if clock == "max" else min(reached.values(), default=-1)
        now = max(now, moved)
        closed = [at for at in open_ if at[1] + size + grace <= now]
        wanted.append(sorted((*at, open_.pop(at)) for at in closed))
    windows = tg.TimeWindows.of_size_and_grace(span(size), span(grace))
    order = {"partition": "partition", "offset": "offset"}
    other = tg.stream("others", key="k", timestamp="ts", schema=SCHEMA, stream_time=clock, **order)
    rows_and_records = [case.table(ordered=True, clock=clock), other]
    one, another = data.draw(st.permutations(rows_and_records))
    counted = one.merge(another).group_by_key().windowed_by(windows)
    final = counted.emit_strategy(tg.EmitStrategy.on_window_close())
    aggregates = {"n": tg.count(), **({"last": tg.last("k")} if data.draw(st.booleans()) else {})}
    many = Tasks(final.agg(**aggregates).node, data.draw(st.integers(1, 3)))
    got = []
    for batch, more in zip(joined, others, strict=True):
        read = [(SIDES[side], [record]) for side, record in batch] + [("others", [record]) for _, record in more]
        got.append(sorted((row["k"], row["window"].start, row["n"]) for row in many.batch(read)))
    assert got == wanted
    assert many.dropped[1]["late"] == late


@given(
    records=st.lists(st.tuples(st.sampled_from(["one", "other"]), st.integers(0, 99), st.integers(-2, 2))),
    joins=st.booleans(),
    tasks=st.integers(1, 3),
    data=st.data(),
)
def test_records_without_order_beside_rows_of_a_join_are_in_timestamp_order(
    records: list[tuple[str, int, int]], joins: bool, tasks: int, data: Any
) -> None:
    """Ties are in the order of values, whatever map task reads a record, and whether or not the join has a row."""

    def stream(name: str, *values: str) -> tg.KStream:
        schema = pa.schema({"k": pa.string(), "ts": pa.int64(), **dict.fromkeys(values, pa.int64())})
        return tg.stream(name, key="k", timestamp="ts", schema=schema, stream_time="max")

    joined = stream("left", "x").join(stream("right", "y"), tg.JoinWindows.of_time_difference_with_no_grace("5 ms"))
    inputs = data.draw(st.permutations([joined, *(stream(name, "x", "y") for name in ("one", "other"))]))
    windows = tg.TimeWindows.of_size_and_grace("100 ms", "100 ms")
    table = inputs[0].merge(*inputs[1:]).group_by_key().windowed_by(windows).agg(all=tg.collect_list("x"))
    topology = Tasks(table.node, tasks)
    topology.batch([("one", [{"k": "before", "ts": 50, "x": 0, "y": 0}])])
    read = [(name, [{"k": "a", "ts": ts, "x": x, "y": 0}]) for name, ts, x in records]
    if joins:
        read += [(name, [{"k": "joined", "ts": 60, "x": 0, "y": 0}]) for name in SIDES]
    rows = {row["k"]: row["all"] for row in topology.batch(data.draw(st.permutations(read)))}
    assert rows.get("a", []) == [x for ts, x in sorted((ts, x) for _, ts, x in records)]
    assert ("joined" in rows) == joins
