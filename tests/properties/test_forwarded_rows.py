"""The stream of a table's changes, grouped and aggregated again: two chained oracles against two operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from oracle import BuiltIn, NoWindows, Oracle, Row, Sessions, serialized
from properties import cases
from properties.cases import Case, built_in
from properties.comparing import lines, placed, same
from tidegate.testing import TopologyTestDriver, Window, layout

FIRST = {"n2": BuiltIn("count"), "s2": BuiltIn("last", "s")}
SECOND = {"c": BuiltIn("count"), "t": BuiltIn("sum", "n2"), "l": BuiltIn("collect_list", "n2")}


@dataclass(frozen=True)
class Chain:
    """Two topologies: the rows of the first are the records of the second, grouped by a value or by the key."""

    first: Case
    second: Case

    def table(self) -> Any:
        """The chain in tidegate."""
        topology = self.second.topology
        rows = self.first.table().to_stream()
        grouped = rows.group_by_key() if topology.key == ("k",) else rows.group_by(*topology.key)
        if not isinstance(topology.windows, NoWindows):
            grouped = grouped.windowed_by(self.second._windows())
        if topology.final:
            grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
        store = tg.Materialized.as_("second")
        store = store if topology.caching else store.with_caching_disabled()
        return grouped.agg(materialized=store, **{name: built_in(a) for name, a in topology.aggregates.items()})


@dataclass
class Oracles:
    chain: Chain

    def __post_init__(self) -> None:
        self.first, self.second = Oracle(self.chain.first.topology), Oracle(self.chain.second.topology)

    def batch(self, records: list[Row], piped: bool = False) -> list[Row]:
        """`piped`: as the driver does, caching works between records, never within one."""
        rows = self.first.batch(records)
        if piped and len(records) == 1:
            self.second.topology = replace(self.second.topology, caching=False)
        # The key of the first table is not among the values of its rows.
        key = self.second.topology.key
        names = dict.fromkeys((*(key if "window" in key else ("k",)), *FIRST, "timestamp"))
        forwarded = [{name: row[name] for name in names} for row in self._in_order(rows)]
        told = self.second.batch(forwarded)
        self.second.topology = self.chain.second.topology
        return told

    def _in_order(self, rows: list[Row]) -> list[Row]:
        topology = self.chain.first.topology
        sessions = isinstance(topology.windows, Sessions)

        def place(row: Row) -> Any:
            window = row["window"][::-1] if sessions else row["window"][:1]
            return row["timestamp"], window if topology.final else (), serialized((row["k"],))

        return sorted(rows, key=place if topology.final else lambda row: (row["timestamp"], serialized((row["k"],))))


@st.composite
def chains(draw: Any, *, kind: str, ordered: bool = False) -> Chain:
    first = draw(cases.cases(ordered=ordered, plain=draw(st.integers(0, 3)) == 0))
    first = replace(first, topology=replace(first.topology, key=("k",), aggregates=FIRST))
    second = draw(cases.cases(kind=None if kind == "plain" else kind, plain=kind == "plain"))
    keys: list[tuple[str, ...]] = [("k",), ("s2",), ("s2", "n2")]
    if kind == "plain" and not isinstance(first.topology.windows, NoWindows):
        keys += [("k", "window"), ("window",), ("window", "s2")]
    key = draw(st.sampled_from(keys))
    topology = replace(second.topology, key=key, aggregates=SECOND, timestamp="timestamp")
    return Chain(first, replace(second, topology=topology, through_suppress=False))


KINDS = pytest.mark.parametrize("kind", [*cases.ALL_KINDS, "plain"])


@KINDS
@given(records=cases.streams(max_size=15), data=st.data())
def test_record_by_record_and_in_batches(kind: str, records: list[Row], data: Any) -> None:
    """The driver against two oracles in a row, with restarts; rows and drops."""
    chain = data.draw(chains(kind=kind))
    oracles, driver = Oracles(chain), TopologyTestDriver(chain.table())
    single, drops = data.draw(st.booleans()), 0
    batches = [[record] for record in records] if single else data.draw(cases.cut(records))
    for batch in batches:
        driver.pipe_batch(batch)
        assert_same(chain, batches, driver.read_output(), oracles.batch(batch, piped=True))
        if data.draw(st.booleans(), label="restart"):
            drops = drops + driver.dropped
            driver = TopologyTestDriver(chain.table(), state=driver.state())
    assert drops + driver.dropped == sum((oracles.first.drops + oracles.second.drops).values())


@KINDS
@given(batches=cases.partitioned(max_size=15), tasks=st.integers(1, 4), data=st.data())
def test_in_any_layout(kind: str, batches: list[list[Row]], tasks: int, data: Any) -> None:
    """Several source partitions, map tasks, and tasks of both operators."""
    chain = data.draw(chains(kind=kind, ordered=True))
    splits = data.draw(cases.splits(batches, interleaved=data.draw(st.booleans())))
    oracles = Oracles(chain)
    wanted = [row for batch in batches for row in oracles.batch(batch)]
    got, _ = layout.run(chain.table(), batches, tasks=tasks, splits=splits)
    assert_same(chain, batches, got, wanted)


@pytest.mark.parametrize("kind", cases.ALL_KINDS)
@given(batches=cases.partitioned(max_size=15), tasks=st.integers(1, 4), data=st.data())
def test_late_records_of_the_second_operator(
    kind: str, batches: list[list[Row]], tasks: int, data: st.DataObject
) -> None:
    """Late rows are whole rows of the first operator; the other rows are the same as without late records."""
    chain = data.draw(chains(kind=kind, ordered=True))
    splits = data.draw(cases.splits(batches, interleaved=data.draw(st.booleans())))
    oracles, table = Oracles(chain), chain.table()
    wanted = [row for batch in batches for row in oracles.batch(batch)]
    rows, _ = layout.run(tg.outputs(out=table, late=table.late_records()), batches, tasks=tasks, splits=splits)
    out = [{name: row[name] for name in wanted[0]} for row in rows if wanted and row["output"] == "out"]
    assert_same(chain, batches, out, wanted)
    late = [row for row in rows if row["output"] == "late"]
    told = [(record(row), row["reason"], row["window"], row["stream_time"]) for row in late if row["reason"] == "late"]
    second = oracles.second
    assert counted(told) == counted((record(one), "late", Window(*window), at) for one, window, at in second.late)
    others = [(record(row), row["reason"]) for row in late if row["reason"] != "late"]
    assert counted(others) == counted((record(one), reason) for one, reason in second.skipped)


def record(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("k", *FIRST, "timestamp"))


def counted(items: Any) -> Counter[str]:
    return Counter(map(repr, items))


def assert_same(chain: Chain, batches: list[list[Row]], got: list[Row], wanted: list[Row]) -> None:
    topology = chain.second.topology
    key = lambda row: tuple(row[name] for name in topology.key)  # noqa: E731
    assert all(None not in key(row) for row in [*got, *wanted])
    if not same(placed(topology, got), placed(topology, wanted)):
        said = f"{chain.first.topology}\n{chain.second.topology}\ninput:\n{lines(batches)}"
        raise AssertionError(f"{said}\ngot:\n{lines(got)}\nwanted:\n{lines(wanted)}")
