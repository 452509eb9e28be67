"""A changed plan between any two batches: the rows are those that the definition gives for the whole stream.

The definition of a change: a closed window stays closed, every other one closes by the new grace; an added aggregate
is null in windows that had begun, and, without closing windows, for keys that already existed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle import BuiltIn, NoWindows, Oracle, Row, Sessions, Unlimited, Windows, compute
from properties import cases, test_suppression
from properties.cases import Case
from properties.comparing import assert_same, assert_same_drops, placed
from tidegate.testing import TopologyTestDriver

BUILT_IN = st.dictionaries(
    st.sampled_from(["p", "q", "r", "s1", "t"]), st.sampled_from(cases.BUILT_IN), min_size=1, max_size=3
)


@dataclass(frozen=True)
class Regraced(Windows):
    """Windows whose grace has changed at a stream time."""

    before: Any = None
    at: int = -1

    def closed(self, end: int, stream_time: int) -> bool:
        return super().closed(end, stream_time) or self.before.closed(end, self.at)


@dataclass(frozen=True)
class RegracedSessions(Sessions):
    """Session windows whose grace has changed at a stream time."""

    before: Any = None
    at: int = -1

    def closed(self, end: int, stream_time: int) -> bool:
        return super().closed(end, stream_time) or self.before.closed(end, self.at)


@dataclass
class Upgraded:
    """The oracle under plans that change."""

    oracle: Oracle
    unknown: dict[str, Any]
    """For each added aggregate: the stream time at the change, or the keys that existed then."""

    @classmethod
    def of(cls, case: Case) -> Upgraded:
        return cls(Oracle(case.topology), {})

    def change(self, case: Case) -> None:
        """Go on with another plan."""
        was, oracle = self.oracle.topology, self.oracle
        oracle.topology = replace(case.topology, windows=_regraced(was.windows, case.topology.windows, oracle))
        for name in case.topology.aggregates.keys() - was.aggregates.keys():
            self.unknown[name] = oracle.stream_time if _closes(case) else {at[0] for at in oracle.entries}
        for entry in oracle.entries.values():
            entry.values = {name: compute(a, entry.records) for name, a in case.topology.aggregates.items()}

    def batch(self, records: list[Row]) -> list[Row]:
        """The rows of a batch."""
        return [{name: self._shown(row, name) for name in row} for row in self.oracle.batch(records)]

    def _shown(self, row: Row, name: str) -> Any:
        since = self.unknown.get(name)
        if isinstance(since, int):
            return row[name] if row["window"][0] > since else None
        key = tuple(row[column] for column in self.oracle.topology.key)
        return None if since is not None and key in since else row[name]


def _regraced(was: Any, now: Any, oracle: Oracle) -> Any:
    if isinstance(now, Windows):
        return Regraced(now.size, now.advance, now.grace, was, oracle.stream_time)
    if isinstance(now, Sessions):
        return RegracedSessions(now.gap, now.grace, was, oracle.stream_time)
    return now


def _closes(case: Case) -> bool:
    return not isinstance(case.topology.windows, NoWindows | Unlimited)


def _ordered(aggregate: BuiltIn) -> bool:
    return aggregate.function in ("first", "last", "collect_list")


def _changed(draw: Any, case: Case) -> Case:
    """Another grace, more aggregates, and another order of aggregates."""
    windows, aggregates = case.topology.windows, case.topology.aggregates
    if isinstance(windows, Windows | Sessions) and draw(st.booleans(), label="grace"):
        longer = st.integers(windows.grace, min(windows.grace + 60, cases.FOREVER))
        grace = st.one_of(longer, st.integers(0, 40), st.just(cases.FOREVER))
        windows = replace(windows, grace=draw(grace, label="the new grace"))
    if draw(st.booleans(), label="aggregates"):
        more = {n: a for n, a in draw(BUILT_IN, label="added").items() if n not in aggregates}
        if isinstance(windows, Windows) and case.topology.final and not any(map(_ordered, aggregates.values())):
            more = {n: a for n, a in more.items() if not _ordered(a)}
        aggregates = dict(draw(st.permutations(list((aggregates | more).items())), label="order"))
    return replace(case, topology=replace(case.topology, windows=windows, aggregates=aggregates))


@pytest.mark.parametrize("kind", [*cases.ALL_KINDS, "none"])
@given(batches=cases.partitioned(), data=st.data())
def test_a_changed_plan_between_any_two_batches(kind: str, batches: list[list[Row]], data: Any) -> None:
    if kind == "none":
        case = data.draw(cases.cases(ordered=True, plain=True))
    else:
        case = data.draw(cases.cases(ordered=True, kind=kind))
    first: dict[str, Any] = data.draw(st.dictionaries(st.just("first"), st.sampled_from(cases.BUILT_IN), min_size=1))
    # Without windows a record without any value is skipped, whatever the plan reads.
    case = replace(case, topology=replace(case.topology, aggregates=first), with_schema=True)
    truth, driver = Upgraded.of(case), TopologyTestDriver(case.table())
    dropped: Counter[str] = Counter()
    for batch in batches:
        driver.pipe_batch(batch)
        rows, wanted = driver.read_output(), truth.batch(batch)
        assert_same(case, batches, placed(case.topology, rows), placed(case.topology, wanted))
        # A plan that takes no batch leaves no trace.
        if batch and data.draw(st.booleans(), label="restart"):
            changed = _changed(data.draw, case)
            told = driver.check_upgrade(changed.table())
            if not told.goes_on:  # windows that have closed would close at the last instant or later
                assert [change.what for change in told.changes if change.loses] == ["grace"]
                assert truth.oracle.stream_time + changed.topology.windows.grace >= cases.FOREVER
                continue
            case = changed
            dropped.update(driver.drops)
            truth.change(case)
            driver = TopologyTestDriver(case.table(), state=driver.state())
    dropped.update(driver.drops)
    assert_same_drops(case, batches, dropped, dict(truth.oracle.drops))


def test_a_window_that_closed_stays_closed() -> None:
    """By hand: stream time 15 has closed [0, 10) under grace 5; under grace 20 a record at 9 is late at once."""
    case = Case(cases.Topology(("k",), Windows(10, 10, 5), {"n": BuiltIn("count")}, final=True))
    driver = TopologyTestDriver(case.table())
    for ts in (1, 12, 15):
        driver.pipe_input({"k": "a", "ts": ts, "n": 1})
    assert [row["window"][0] for row in driver.read_output()] == [0]
    longer = replace(case, topology=replace(case.topology, windows=Windows(10, 10, 20)))
    driver = TopologyTestDriver(longer.table(), state=driver.state())
    for ts in (9, 13, 8, 39, 7):
        driver.pipe_input({"k": "a", "ts": ts, "n": 1})
    assert (driver.read_output(), driver.drops["late"]) == ([], 3)
    driver.pipe_input({"k": "a", "ts": 40, "n": 1})
    assert [(row["window"], row["n"]) for row in driver.read_output()] == [((10, 20), 3)]


def _materialized(case: Case, rows: list[Row]) -> list[str]:
    """The table in a reader of the rows, as text, because a NaN is not equal to itself."""
    table: dict[Any, Row] = {}
    for row in rows:
        table[tuple(row[name] for name in case.topology.key), row.get("window")] = row
    shown = ({name: row[name] for name in row if name != "deleted"} for row in table.values() if not row.get("deleted"))
    return sorted(map(repr, shown))


def _switched(before: Any, now: Any, batches: list[list[Row]], at: int) -> tuple[list[list[Row]], TopologyTestDriver]:
    """Rows of each batch if the plan changes after `at` batches, and the driver."""
    driver, out = TopologyTestDriver(before), []
    for number, batch in enumerate(batches):
        if number == at:
            driver = TopologyTestDriver(now, state=driver.state())
        driver.pipe_batch(batch)
        out.append(driver.read_output())
    return out, driver


@pytest.mark.parametrize("kind", cases.KINDS)
@given(batches=cases.partitioned(), data=st.data())
def test_final_results_and_updates_take_turns(kind: str, batches: list[list[Row]], data: Any) -> None:
    """Without the suppression the table is that of a plan without one; with it, later final results are those of a plan
    that always had it.
    """
    case = data.draw(cases.cases(ordered=True, kind=kind))
    final = replace(case, topology=replace(case.topology, final=True), with_schema=True)
    updates = replace(case, topology=replace(case.topology, final=False), with_schema=True)
    batches = [batch for batch in batches if batch]
    at = data.draw(st.integers(0, max(len(batches) - 1, 0)))
    out, _ = _switched(final.table(), updates.table(), batches, at)
    wanted, _ = _switched(updates.table(), updates.table(), batches, 0)
    if batches:
        assert _materialized(case, sum(out, [])) == _materialized(case, sum(wanted, []))
    out, _ = _switched(updates.table(), final.table(), batches, at)
    wanted, _ = _switched(final.table(), final.table(), batches, 0)
    assert repr(out[at:]) == repr(wanted[at:])


@pytest.mark.parametrize("kind", [*cases.ALL_KINDS, "none"])
@given(batches=cases.partitioned(), limit=test_suppression.limits(), data=st.data())
def test_a_limit_that_is_taken_away(kind: str, batches: list[list[Row]], limit: Any, data: Any) -> None:
    """The table is that of a plan without a limit."""
    case = data.draw(cases.cases(ordered=True, plain=True) if kind == "none" else cases.cases(ordered=True, kind=kind))
    case = replace(case, topology=replace(case.topology, final=False), with_schema=True)
    limit = replace(limit, strategy="emit_early", measured_from="first_update")
    batches = [batch for batch in batches if batch]
    at = data.draw(st.integers(0, max(len(batches) - 1, 0)))
    out, driver = _switched(case.table().suppress(test_suppression.suppressed(limit)), case.table(), batches, at)
    wanted, _ = _switched(case.table(), case.table(), batches, 0)
    assert _materialized(case, sum(out, [])) == _materialized(case, sum(wanted, []))
    assert driver.check_upgrade(case.table()).changes == ()


@pytest.mark.parametrize("kind", ["none", "tumbling", "sessions"])
@given(batches=cases.partitioned(), limit=test_suppression.limits(), data=st.data())
def test_a_limit_that_moves_to_another_output(kind: str, batches: list[list[Row]], limit: Any, data: Any) -> None:
    """The table of each output is that of a plan without a limit."""
    case = data.draw(cases.cases(ordered=True, plain=True) if kind == "none" else cases.cases(ordered=True, kind=kind))
    case = replace(case, topology=replace(case.topology, final=False), with_schema=True)
    suppressed = test_suppression.suppressed(replace(limit, strategy="emit_early", measured_from="first_update"))
    batches = [batch for batch in batches if batch]
    last = max(len(batches) - 1, 0)
    at, table = data.draw(st.integers(min(1, last), last)), case.table()
    before, now = {"a": table, "b": table.suppress(suppressed)}, {"a": table.suppress(suppressed), "b": table}
    out, driver = _switched(before, now, batches, at)
    driver.drain()
    rows = [*sum(out, []), *driver.read_output()]
    wanted, _ = _switched(table, table, batches, 0)
    for name in now:
        mine = [{what: row[what] for what in row if what != "output"} for row in rows if row["output"] == name]
        assert _materialized(case, mine) == _materialized(case, sum(wanted, []))


@pytest.mark.parametrize("kind", cases.KINDS)
@given(batches=cases.partitioned(), data=st.data())
def test_one_of_two_outputs_ceases_to_wait_for_windows(kind: str, batches: list[list[Row]], data: Any) -> None:
    """Its table is that of a plan that always had updates."""
    case = data.draw(cases.cases(ordered=True, kind=kind))
    case = replace(case, topology=replace(case.topology, final=False), with_schema=True)
    closing = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    batches = [batch for batch in batches if batch]
    last = max(len(batches) - 1, 0)
    at, table = data.draw(st.integers(min(1, last), last)), case.table()
    other = data.draw(st.sampled_from([table, table.suppress(closing)]))
    out, _ = _switched({"a": table.suppress(closing), "b": other}, {"a": table, "b": other}, batches, at)
    mine = [{what: row[what] for what in row if what != "output"} for row in sum(out, []) if row["output"] == "a"]
    wanted, _ = _switched(table, table, batches, 0)
    assert _materialized(case, mine) == _materialized(case, sum(wanted, []))
