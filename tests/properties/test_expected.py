"""expect_keys: a row for every expected key in every window that closes, from the first record on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oracle import BuiltIn, Fold, Oracle, Row, serialized
from properties import cases
from properties.cases import Case
from properties.comparing import assert_same, flat, placed, run_driver
from tidegate.testing import TopologyTestDriver, layout

NOTHING = {"count": 0, "approx_count_distinct": 0, "collect_list": []}


@dataclass
class ExpectingOracle(Oracle):
    """Counts up every window, and looks for each expected key in it."""

    expected: list[dict[str, Any]] = field(default_factory=list)
    begun: int | None = None
    done: int = 0

    def _seen(self, records: list[Row]) -> list[tuple[int, Row]]:
        if self.begun is None and records:
            firsts, partition = {}, self.topology.partition
            for record in records:
                firsts.setdefault(record[partition] if partition else 0, record[self.topology.timestamp])
            first = min(firsts.values())
            self.begun = self.topology.windows.of(first)[0][0]
            self.done = self.begun
        return super()._seen(records)

    def _close(self) -> list[Row]:
        rows = super()._close()
        if self.begun is None:
            return rows
        windows = self.topology.windows
        while windows.closed(self.done + windows.size, self.stream_time):
            rows += self._missing(rows, (self.done, self.done + windows.size))
            self.done += windows.advance
        return sorted(rows, key=lambda row: (row["window"][0], serialized(tuple(row[c] for c in self.topology.key))))

    def _missing(self, rows: list[Row], window: tuple[int, int]) -> list[Row]:
        key = self.topology.key
        there = {tuple(row[column] for column in key) for row in rows if tuple(row["window"]) == window}
        blank = {name: _nothing(aggregate) for name, aggregate in self.topology.aggregates.items()}
        return [
            {column: keys[column] for column in key} | {"window": window} | blank | {"timestamp": window[1] - 1}
            for keys in self.expected
            if tuple(keys[column] for column in key) not in there
        ]


def _nothing(aggregate: Any) -> Any:
    if isinstance(aggregate, BuiltIn):
        return NOTHING.get(aggregate.function)
    return aggregate.initializer() if isinstance(aggregate, Fold) else None


KEYS = st.lists(
    st.fixed_dictionaries(dict(cases.KEYS)), max_size=3, unique_by=(lambda keys: keys["k"], lambda keys: keys["j"])
)


def expecting(case: Case, keys: list[dict[str, Any]]) -> Case:
    return replace(case, expect_keys=keys)


@given(case=cases.cases(final=True, kind="time"), records=cases.streams(), keys=KEYS, data=st.data())
def test_the_driver_is_what_the_oracle_says(case: Case, records: list[Row], keys: Any, data: Any) -> None:
    batches = data.draw(cases.cut(records))
    oracle = ExpectingOracle(case.topology, expected=keys)
    wanted = [oracle.batch(batch) for batch in batches]
    rows, dropped = run_driver(TopologyTestDriver(expecting(case, keys).table()), batches)
    assert_same(case, [keys, *batches], flat(rows), flat(wanted))
    assert dropped["late"] == oracle.drops["late"]


@given(case=cases.cases(final=True, kind="time"), records=cases.streams(), keys=KEYS, data=st.data())
def test_how_the_stream_is_cut_changes_nothing(case: Case, records: list[Row], keys: Any, data: Any) -> None:
    table = expecting(case, keys).table()
    one_by_one, _ = run_driver(TopologyTestDriver(table), [[record] for record in records])
    in_batches, _ = run_driver(TopologyTestDriver(table), data.draw(cases.cut(records)))
    assert_same(case, [keys, *records], flat(in_batches), flat(one_by_one))


@given(
    case=cases.cases(final=True, ordered=True, kind="time"),
    batches=cases.partitioned(),
    keys=KEYS,
    tasks=st.integers(1, 4),
    interleaved=st.booleans(),
    data=st.data(),
)
def test_however_rows_are_laid_out(
    case: Case, batches: list[list[Row]], keys: Any, tasks: int, interleaved: bool, data: Any
) -> None:
    oracle = ExpectingOracle(case.topology, expected=keys)
    wanted = [oracle.batch(batch) for batch in batches]
    splits = data.draw(cases.splits(batches, interleaved=interleaved))
    rows, _ = layout.run(expecting(case, keys).table(), batches, tasks=tasks, splits=splits)
    assert_same(case, [keys, *splits], placed(case.topology, rows), placed(case.topology, flat(wanted)))
