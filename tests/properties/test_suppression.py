"""Suppression until a time limit: buffered and emitted rows; no row is lost or repeated, and no bound is passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate, zip_longest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle import Oracle, Row, Sessions
from oracle_suppress import Full, Limit, Suppression
from properties import cases
from properties.cases import Case
from properties.comparing import lines, placed, same
from tidegate.testing import TopologyTestDriver, layout

KEY = ("k",)


@st.composite
def limits(draw: Any, *, bounded: bool = True, windowed: bool = True) -> Limit:
    """`bounded`: buffers with and without a bound, otherwise without. `windowed`: for rows with windows."""
    strategy = draw(st.sampled_from(["emit_early", "emit_early", "shut_down", "spill_to_disk"]))
    most = draw(st.one_of(st.none(), st.integers(0, 4))) if bounded else None
    measured_from = ["first_update", "first_update", "latest_update", *(["window_start"] if windowed else [])]
    span = draw(st.one_of(st.just(0), st.integers(1, 30)))
    return Limit(span, most, strategy, draw(st.sampled_from(measured_from)))


def suppressed(limit: Limit) -> Any:
    """The limit as a suppression of tidegate."""
    buffer: Any = tg.BufferConfig.unbounded().emit_early_when_full()
    if limit.max_records is not None:
        buffer = tg.BufferConfig.max_records(limit.max_records)
    if limit.max_bytes is not None:
        buffer = buffer.with_max_bytes(limit.max_bytes)
    if limit.strategy != "emit_early":
        buffer = getattr(buffer, f"{limit.strategy}_when_full")()
    span = timedelta(milliseconds=limit.ms)
    return tg.Suppressed.until_time_limit(span, buffer, clock="stream", measured_from=limit.measured_from)


@st.composite
def byte_limits(draw: Any, *, windowed: bool = True) -> Limit:
    """With a bound in bytes (an entry here has 26 to 50), and perhaps one in records."""
    limit = draw(limits(windowed=windowed))
    # A buffer that spills has no bound.
    strategy = "emit_early" if limit.strategy == "spill_to_disk" else limit.strategy
    return replace(limit, max_bytes=draw(st.integers(0, 200)), strategy=strategy)


# -- tables: every change is an update ---------------------------------------------------------------------------


@st.composite
def changes(draw: Any, *, max_size: int = 25, keys_alone: bool = False) -> list[Row]:
    """Upserts and tombstones in offset order; `n` is the number of the change.

    `keys_alone`: sometimes the table has no value column, not even `n`.
    """
    records = draw(cases.streams(max_size=max_size))
    gone, values = st.integers(0, 4), not keys_alone or draw(st.integers(0, 4)) > 0
    return [
        {"k": r["k"], "ts": r["ts"], **({"n": n} if values else {}), "gone": draw(gone) == 0}
        for n, r in enumerate(records)
    ]


def table(limit: Limit) -> Any:
    return tg.table("changes", key="k", timestamp="ts", deleted="gone").suppress(suppressed(limit))


def forwarded(change: Row) -> list[Row]:
    """The row that a table forwards for a change; none for a change without a key or a usable timestamp."""
    if change["k"] is None or change["ts"] is None or change["ts"] < 0:
        return []
    values = {"n": None if change["gone"] else change["n"]} if "n" in change else {}
    return [{"k": change["k"], **values, "timestamp": change["ts"], "deleted": change["gone"]}]


def required(buffer: Suppression, updates: list[list[Row]], times: Sequence[int] = ()) -> tuple[list[list[Row]], bool]:
    """Rows that must leave after each record, and whether a strict buffer stopped after the last of them.

    `times` are the records' times, if they matter.
    """
    rows: list[list[Row]] = []
    for forwards, at in zip_longest(updates, times):
        leaving, made = [], []
        for row in forwards:
            again = row.get("window") in made
            made += [row["window"]] if "window" in row else []
            try:
                leaving += buffer.take(row, at, again=again)
            except Full:
                return rows, True
        rows.append(leaving)
    return rows, False


def piped(driver: Any, batches: list[list[Row]]) -> tuple[list[list[Row]], bool]:
    """Rows that leave the driver after each batch, and whether a batch stopped it."""
    rows: list[list[Row]] = []
    for batch in batches:
        try:
            driver.pipe_batch(batch)
        except tg.BufferFullError:
            assert driver.read_output() == [], "a batch that failed left rows behind"
            return rows, True
        rows.append(driver.read_output())
    return rows, False


def assert_told(limit: Limit, records: Any, got: Any, wanted: Any) -> None:
    if not same(got, wanted):
        raise AssertionError(f"{limit}\ninput:\n{lines(records)}\ngot:\n{lines(got)}\nwanted:\n{lines(wanted)}")


@given(limit=st.one_of(limits(windowed=False), byte_limits(windowed=False)), records=changes(keys_alone=True))
def test_changes_of_a_table_record_by_record(limit: Limit, records: list[Row]) -> None:
    """The same rows leave, at the same record and in the same order; a strict buffer stops at the same record."""
    wanted, stops = required(Suppression(limit, KEY), [forwarded(record) for record in records])
    got, stopped = piped(TopologyTestDriver(table(limit)), [[record] for record in records])
    assert stopped == stops
    assert_told(limit, records, got, wanted)


def cut_and_restarted(topology: Any, records: list[Row], data: Any) -> tuple[list[Row], bool]:
    """Rows that leave for drawn cuts and restarts, up to a batch that stops the query, and whether one did."""
    driver = TopologyTestDriver(topology)
    rows: list[Row] = []
    for batch in data.draw(cases.cut(records)):
        found, stopped = piped(driver, [batch])
        if stopped:
            return rows, True
        rows += found[0]
        if data.draw(st.booleans(), label="restart"):
            driver = TopologyTestDriver(topology, state=driver.state())
    return rows, False


@given(
    limit=st.one_of(limits(windowed=False), byte_limits(windowed=False)),
    records=changes(keys_alone=True),
    data=st.data(),
)
def test_changes_of_a_table_in_any_cutting_with_restarts(limit: Limit, records: list[Row], data: Any) -> None:
    """Changes have an order of their own, so batches and restarts change nothing, whatever the buffer."""
    wanted, stops = required(Suppression(limit, KEY), [forwarded(record) for record in records])
    rows, stopped = cut_and_restarted(table(limit), records, data)
    assert stopped == stops
    before = sum(wanted, [])
    # The batch that stops takes back the rows of its earlier records.
    assert_told(limit, records, rows, before[: len(rows)] if stops else before)


# -- updates and final results of windows -------------------------------------------------------------------------


def windowed(data: Any, kind: str, *, final: bool, bounded: bool = True) -> tuple[Case, Limit, Any]:
    """A case over windows with every update forwarded, a limit, and both as a topology of tidegate."""
    case = data.draw(cases.cases(final=final, kind=kind))
    case = replace(case, topology=replace(case.topology, key=KEY, caching=False))
    limit = data.draw(limits(bounded=bounded))
    return case, limit, case.table().suppress(suppressed(limit))


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(records=cases.streams(), data=st.data())
def test_updates_of_windows_record_by_record(kind: str, records: list[Row], data: Any) -> None:
    case, limit, topology = windowed(data, kind, final=False)
    oracle = Oracle(case.topology)
    sessions = isinstance(case.topology.windows, Sessions)
    wanted, stops = required(Suppression(limit, KEY, sessions), [oracle.batch([record]) for record in records])
    got, stopped = piped(TopologyTestDriver(topology), [[record] for record in records])
    assert stopped == stops
    assert_told(limit, [case.topology, *records], got, wanted)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(limit=byte_limits(), records=cases.streams(), data=st.data())
def test_updates_of_windows_by_their_bytes(kind: str, limit: Limit, records: list[Row], data: Any) -> None:
    """The value before an entry waited counts: a count that left and comes again has an old value."""
    case = data.draw(cases.cases(final=False, kind=kind))
    counts = {"n": cases.BuiltIn("count"), "last": cases.BuiltIn("last", "s")}
    case = replace(case, topology=replace(case.topology, key=KEY, caching=False, aggregates=counts))
    oracle = Oracle(case.topology)
    sessions = isinstance(case.topology.windows, Sessions)
    buffer = Suppression(limit, KEY, sessions, initial=None if sessions else (0, None))
    got, stopped = piped(TopologyTestDriver(case.table().suppress(suppressed(limit))), [[record] for record in records])
    wanted, stops = required(buffer, [oracle.batch([record]) for record in records])
    assert stopped == stops
    assert_told(limit, [case.topology, *records], got, wanted)


@st.composite
def slid(draw: Any, difference: int) -> list[Row]:
    """Records, of which many are one difference and an instant behind two near ones.

    The right window of the record in front of such a one is then its own left window.
    """
    steps = st.one_of(st.integers(-4, 12), st.just(difference + 1), st.integers(1, difference))
    drawn = draw(st.lists(st.tuples(st.sampled_from("aab"), steps), max_size=20))
    times = accumulate((step for _, step in drawn), lambda ts, step: max(0, ts + step), initial=0)
    return [{"k": k, "ts": ts, "s": "x" * (n % 7)} for n, ((k, _), ts) in enumerate(zip(drawn, times, strict=False))]


@given(limit=byte_limits(), difference=st.integers(1, 8), data=st.data())
def test_updates_of_sliding_windows_by_their_bytes(limit: Limit, difference: int, data: Any) -> None:
    """A left window replaces what the one before it held, and a right window that is a copy replaces nothing.

    A left window that its record made as a right one just before replaces what it began with.
    """
    windows = tg.SlidingWindows.of_time_difference_and_grace(timedelta(milliseconds=difference), "6 ms")
    records = data.draw(slid(difference), label="records")
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
    materialized = tg.Materialized.as_("store").with_caching_disabled()
    updates = windowed.agg(n=tg.count(), last=tg.last("s"), materialized=materialized)
    forwards = piped(TopologyTestDriver(updates), [[record] for record in records])[0]
    buffer = Suppression(limit, ("k",), initial=(0, None), difference=difference)
    wanted, stops = required(buffer, forwards, [record["ts"] for record in records])
    got, stopped = piped(TopologyTestDriver(updates.suppress(suppressed(limit))), [[record] for record in records])
    assert stopped == stops
    assert [lines(rows) for rows in got] == [lines(rows) for rows in wanted[: len(got)]]


def test_a_window_that_begins_twice_replaces_what_it_began_with() -> None:
    """[14, 15] is the right window of the record at 13 and the left one of that at 15, which updates it twice.

    Each of the four entries has 41 bytes: 16 of times, 9 of the key, and 8 of a count before and after.
    """
    windows = tg.SlidingWindows.of_time_difference_and_grace("1 ms", "6 ms")
    materialized = tg.Materialized.as_("store").with_caching_disabled()
    stream = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
    counts = stream.count(materialized=materialized)
    batches = [[{"k": "a", "ts": ts}] for ts in (12, 13, 15)]

    def rows(suppression: tg.Suppressed) -> list[int]:
        got, _ = piped(TopologyTestDriver(counts.suppress(suppression)), batches)
        return [len(each) for each in got]

    early = tg.BufferConfig.max_bytes
    assert rows(tg.Suppressed.until_time_limit("1 s", early(4 * 41), clock="stream")) == [0, 0, 0]
    assert rows(tg.Suppressed.until_time_limit("1 s", early(4 * 41 - 1), clock="stream")) == [0, 0, 1]
    assert rows(tg.Suppressed.until_window_closes(early(4 * 41).shut_down_when_full())) == [0, 0, 0]
    # If it becomes full, no row of the batch is read.
    assert rows(tg.Suppressed.until_window_closes(early(4 * 41 - 1).shut_down_when_full())) == [0, 0]


@pytest.mark.parametrize("kind", cases.KINDS)
@given(records=cases.streams(), data=st.data())
def test_final_results_behind_a_limit_in_any_cutting(kind: str, records: list[Row], data: Any) -> None:
    """Final results have an order, so a limit behind them does not depend on batches and restarts either."""
    case, limit, topology = windowed(data, kind, final=True)
    oracle = Oracle(case.topology)
    sessions = isinstance(case.topology.windows, Sessions)
    wanted, stops = required(Suppression(limit, KEY, sessions), [oracle.batch([record]) for record in records])
    rows, stopped = cut_and_restarted(topology, records, data)
    assert stopped == stops
    before = sum(wanted, [])
    assert_told(limit, [case.topology, *records], rows, before[: len(rows)] if stops else before)


@pytest.mark.parametrize("kind", ["time", "batch", "unlimited"])
@given(records=cases.streams(bad=False), data=st.data())
def test_updates_of_ordered_records_in_any_cutting(kind: str, records: list[Row], data: Any) -> None:
    """Caching off and records in the order of their timestamps: batches forward what the records would alone.

    Rows of one batch enter the suppression in the order of their timestamps, which is that of the records here; but for
    sessions, whose tombstones are older than the record that makes them.
    """
    case, limit, topology = windowed(data, kind, final=False, bounded=False)
    records = sorted(records, key=lambda record: record["ts"])
    single, _ = piped(TopologyTestDriver(topology), [[record] for record in records])
    driver = TopologyTestDriver(topology)
    rows: list[Row] = []
    for batch in data.draw(cases.cut(records)):
        driver.pipe_batch(batch)
        rows += driver.read_output()
        if data.draw(st.booleans(), label="restart"):
            driver = TopologyTestDriver(topology, state=driver.state())
    assert_told(limit, [case.topology, *records], rows, sum(single, []))


# -- the books: emitted + buffered + merged = received -------------------------------------------------------------


FLUSH = {"k": "\U0001f600 the last", "ts": cases.FOREVER, "n": -1, "gone": False}


@given(limit=limits(windowed=False), size=st.one_of(st.none(), st.integers(0, 120)), records=changes())
def test_the_books_of_a_buffer_are_in_balance(limit: Limit, size: int | None, records: list[Row]) -> None:
    """Every change is emitted, replaced by the next one of its key, or waits; never more waits than the bound says."""
    limit = replace(limit, strategy="emit_early")
    buffer = suppressed(limit).buffer
    buffer = buffer if size is None else buffer.with_max_bytes(size)
    how = replace(suppressed(limit), buffer=buffer)
    driver = TopologyTestDriver(tg.table("changes", key="k", timestamp="ts", deleted="gone").suppress(how))
    waiting: dict[str, Row] = {}
    received = emitted = merged = 0
    for record in [*records, FLUSH]:
        driver.pipe_input(record)
        for row in forwarded(record):
            received += 1
            merged += row["k"] in waiting
            waiting[row["k"]] = row
        for row in driver.read_output():
            assert waiting.pop(row["k"]) == row, "what leaves is the newest update of its key, once"
            emitted += 1
        assert emitted + merged + len(waiting) == received
        assert limit.max_records is None or len(waiting) <= limit.max_records
        # Lower bound of the bytes: key, value and two times.
        least = sum(16 + len(k.encode()) + (0 if row["deleted"] else 8) for k, row in waiting.items())
        assert size is None or least <= size
    assert set(waiting) <= {FLUSH["k"]}, "time has passed for all the others"


@pytest.mark.parametrize("kind", cases.KINDS)
@given(records=cases.streams(), data=st.data())
def test_no_final_result_is_lost_or_repeated(kind: str, records: list[Row], data: Any) -> None:
    """Once everything has closed: one row per key and window, and every record in the rows or counted as dropped."""
    case = data.draw(cases.cases(final=True, kind=kind))
    counting = {"n": cases.BuiltIn("count")}
    case = replace(case, topology=replace(case.topology, key=KEY, aggregates=counting))
    driver = TopologyTestDriver(case.table())
    for batch in data.draw(cases.cut(records)):
        driver.pipe_batch(batch)
    rows = driver.read_output()
    driver.drain()
    rows += driver.read_output()
    places = Counter((row["k"], row["window"]) for row in rows)
    assert set(places.values()) <= {1}
    good = [r for r in records if r["k"] is not None and r["ts"] is not None and r["ts"] >= 0]
    windows = case.topology.windows
    # A record is in one window, except in hopping windows, whose drops are also counted per window.
    pairs = sum(len(windows.of(r["ts"])) for r in good) if isinstance(windows, cases.Windows) else len(good)
    assert sum(row["n"] for row in rows) + driver.drops["late"] == pairs
    assert len(records) - len(good) == driver.dropped - driver.drops["late"]


# -- tasks -------------------------------------------------------------------------------------------------------


def changes_of(batches: list[list[Row]]) -> list[list[Row]]:
    return [[{**r, "gone": r["n"] is None} for r in batch] for batch in batches]


@given(
    limit=limits(bounded=False, windowed=False), batches=cases.partitioned(), tasks=st.integers(1, 5), data=st.data()
)
def test_tables_over_any_number_of_tasks(limit: Limit, batches: list[list[Row]], tasks: int, data: Any) -> None:
    """Each change sees the stream time of all tasks: per key the rows of the oracle, in the same order."""
    batches = changes_of(batches)
    splits = data.draw(cases.splits(batches, interleaved=data.draw(st.booleans())))
    names = ("k", "n", "ts", "gone", "partition", "offset")
    batches, splits = cut_down(batches, names), [cut_down(parts, names) for parts in splits]
    order = {"partition": "partition", "offset": "offset"}
    changes = tg.table("changes", key="k", timestamp="ts", deleted="gone", **order).suppress(suppressed(limit))
    got, _ = layout.run(changes, batches, tasks=tasks, splits=splits)
    wanted, _ = required(Suppression(limit, KEY), [forwarded(record) for record in in_order(batches)])
    assert_told(limit, batches, by_key(got), by_key(sum(wanted, [])))


def cut_down(batches: list[list[Row]], names: tuple[str, ...]) -> list[list[Row]]:
    return [[{name: record[name] for name in names} for record in batch] for batch in batches]


def in_order(batches: list[list[Row]]) -> list[Row]:
    """The records in the order of a table: in each batch by (stream time seen, partition, offset)."""
    now, taken = -1, []
    for batch in batches:
        seen: dict[int, int] = {}
        order = []
        for record in batch:
            if forwarded(record):
                partition = record["partition"]
                seen[partition] = max(seen.get(partition, now), record["ts"])
                order.append((seen[partition], partition, record["offset"], record))
        order.sort(key=lambda item: item[:3])
        taken += [record for *_, record in order]
        now = max([now, *seen.values()])
    return taken


@given(
    limit=limits(bounded=False, windowed=False),
    batches=cases.partitioned(),
    clock=st.sampled_from(["stream", "wall"]),
    data=st.data(),
)
def test_tables_without_an_order_over_any_number_of_tasks(
    limit: Limit, batches: list[list[Row]], clock: str, data: Any
) -> None:
    """Batches in timestamp order, ties in an order of their own; and the wall clock, which moves before a batch."""
    how = replace(suppressed(limit), clock=clock)
    batches = changes_of(batches)
    splits = data.draw(cases.splits(batches, interleaved=True))
    clocks = sorted(data.draw(st.lists(st.integers(0, 60), min_size=len(splits), max_size=len(splits))))
    changes = tg.table("changes", key="k", timestamp="ts", deleted="gone").suppress(how)
    one, _ = layout.run(changes, batches, tasks=1, splits=splits, clocks=clocks)
    many, _ = layout.run(changes, batches, tasks=4, splits=splits, clocks=clocks)
    assert_told(limit, batches, by_key(many), by_key(one))


@pytest.mark.parametrize("kind", [*cases.ALL_KINDS, "plain"])
@given(batches=cases.partitioned(), data=st.data())
def test_windows_over_any_number_of_tasks(kind: str, batches: list[list[Row]], data: Any) -> None:
    """Updates (all, or the last of each batch) and final results: the rows of the driver for the same batches."""
    plain = kind == "plain"
    case = data.draw(cases.cases(ordered=True, kind=None if plain else kind, plain=plain))
    limit = data.draw(limits(bounded=False, windowed=not plain))
    table = case.table().suppress(suppressed(limit))
    splits = data.draw(cases.splits(batches, interleaved=data.draw(st.booleans())))
    driver = TopologyTestDriver(table)
    wanted = sum(piped(driver, batches)[0], [])
    got, _ = layout.run(table, batches, tasks=data.draw(st.integers(1, 5)), splits=splits)
    assert_told(limit, [case.topology, *batches], placed(case.topology, got), placed(case.topology, wanted))


def by_key(rows: list[Row]) -> list[list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["k"], []).append(row)
    return [found[key] for key in sorted(found)]
