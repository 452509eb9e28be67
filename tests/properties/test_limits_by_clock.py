"""Time limits by the wall clock and by stream time, up to three in a row: record by record, and in tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle import Oracle, Row, Sessions
from oracle_suppress import Full, Limit, Suppression
from properties import cases
from properties.test_suppression import KEY, byte_limits, changes, forwarded, limits, suppressed
from sizes import SMALL
from tidegate.kernel.tuning import DEFAULT
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

KINDS = ("table", "plain", *cases.ALL_KINDS)
WAITS = st.sampled_from([0, 0, 1, 3, 12, 40])
"""How far the wall clock goes on in front of a record (ms)."""


@st.composite
def chains(draw: Any, *, windowed: bool, bounded: bool = True) -> list[Limit]:
    """One to three limits, the first of them mostly by the wall clock; a single one may have a bound in bytes."""
    many = draw(st.sampled_from([1, 1, 2, 3]))
    kinds = limits(bounded=bounded, windowed=windowed)
    if many == 1 and bounded:
        kinds = st.one_of(kinds, byte_limits(windowed=windowed))
    return [replace(draw(kinds), clock=draw(st.sampled_from(["wall", "wall", "stream"]))) for _ in range(many)]


class Case:
    """A table with all its updates, the limits behind it, and what must leave them."""

    def __init__(self, kind: str, data: Any, *, bounded: bool = True) -> None:
        self.limits = data.draw(chains(windowed=kind not in ("table", "plain"), bounded=bounded), label="limits")
        self.oracle, initial, sessions = None, None, False
        if kind == "table":
            self.records = data.draw(changes(keys_alone=True), label="records")
            values = [("n", pa.int64())] * any("n" in record for record in self.records)
            schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), *values, ("gone", pa.bool_())])
            self.updates: Any = tg.table("changes", key="k", timestamp="ts", deleted="gone", schema=schema)
        else:
            drawn = data.draw(cases.cases(final=False, kind=None if kind == "plain" else kind, plain=kind == "plain"))
            topology = replace(drawn.topology, key=KEY, caching=False)
            if any(limit.max_bytes is not None for limit in self.limits):
                # The initial value of a key that did not wait counts in its bytes.
                aggregates = {"n": cases.BuiltIn("count"), "last": cases.BuiltIn("last", "s")}
                topology, initial = replace(topology, aggregates=aggregates), (0, None)
            self.records = data.draw(cases.streams(), label="records")
            self.updates, self.oracle = replace(drawn, topology=topology).table(), Oracle(topology)
            sessions = isinstance(topology.windows, Sessions)
        first = None if sessions else initial
        self.held = [Suppression(limit, KEY, sessions, initial=first) for limit in self.limits]
        self.topology = self.updates
        for limit in self.limits:
            self.topology = self.topology.suppress(replace(suppressed(limit), clock=limit.clock))

    def passed(self, wall: int) -> list[Row]:
        """The rows that leave as time passes: of each limit first its own, then those that come from the one before."""
        rows: list[Row] = []
        for one in self.held:
            rows = one.pass_wall_time(wall) + [row for update in rows for row in one.take(update)]
        return rows

    def taken(self, record: Row) -> list[Row]:
        """The rows that leave because of a record."""
        rows = forwarded(record) if self.oracle is None else self.oracle.batch([record])
        for one in self.held:
            rows = [row for update in rows for row in one.take(update)]
        return rows


def left(call: Any) -> list[Row] | None:
    """The rows that a call gives; None if a strict buffer is full."""
    try:
        found: list[Row] = call()
    except (Full, tg.BufferFullError):
        return None
    return found


def shown(rows: list[Row] | None) -> list[str] | None:
    """Rows as text, in which a NaN is like itself; None if a strict buffer was full."""
    return None if rows is None else [repr(row | {"window": tuple(row.get("window", ()))}) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_record_by_record_as_time_passes(kind: str, data: Any) -> None:
    case = Case(kind, data)
    tuning = data.draw(st.sampled_from([DEFAULT, SMALL]))
    driver, wall = TopologyTestDriver(case.topology, tuning=tuning), 0
    for record in case.records:
        by = data.draw(WAITS)
        wall += by
        for wanted, step in (
            (lambda: case.passed(wall), lambda: driver.advance_wall_clock(f"{by} ms")),  # noqa: B023
            (lambda: case.taken(record), lambda: driver.pipe_input(record)),  # noqa: B023
        ):
            rows = left(wanted)
            got = left(lambda: [step(), driver.read_output()][1])  # noqa: B023
            assert shown(got) == shown(rows), f"{case.limits}\nrecord {record} at {wall}\ngot\n{got}\nwanted\n{rows}"
            if rows is None:
                return
        if data.draw(st.booleans(), label="restart"):
            driver = TopologyTestDriver(case.topology, state=driver.state(), tuning=tuning)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_in_tasks(kind: str, data: Any) -> None:
    """Due rows leave in front of the records of their batch; without records at the instant at which they are due."""
    case = Case(kind, data, bounded=False)
    tasks, wall = Tasks(case.topology.node, data.draw(st.integers(1, 4)), tuning=SMALL), 0
    for record in case.records:
        wall += data.draw(WAITS)
        wanted = case.passed(wall)
        if data.draw(st.booleans(), label="silence"):
            assert sorted(shown(tasks.batch([], wall)) or ()) == sorted(shown(wanted) or ())
            wanted = []
        wanted += case.taken(record)
        got = tasks.batch([(None, [record])], wall)
        assert sorted(shown(got) or ()) == sorted(shown(wanted) or ()), (case.limits, record, wall)
