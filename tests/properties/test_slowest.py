"""stream_time="min_partition": the slowest partition decides, however partitions are spread over tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oracle import Oracle, Row
from properties import cases
from properties.cases import Case
from properties.comparing import assert_same, assert_same_drops, flat, placed, run_driver
from tidegate.testing import TopologyTestDriver, layout


@dataclass
class SlowOracle(Oracle):
    """What a record sees, said again and slowly: see the docstring of tidegate.kernel.time.slowest_partition."""

    times: dict[Any, int] = field(default_factory=dict)

    def _seen(self, records: list[Row]) -> list[tuple[int, Row]]:
        before = self.times
        self.times = dict(before)
        seen = []
        for i, record in enumerate(records):
            mine = record["partition"]
            own = [r["ts"] for r in records[: i + 1] if r["partition"] == mine]
            self.times[mine] = max([*own, before.get(mine, -1)])
            others = {r["partition"] for r in records} | set(before)
            held = [before.get(other, -1) for other in others - {mine}]
            seen.append((max(self.stream_time, min([self.times[mine], *held])), mine, len(own), record))
        seen.sort(key=lambda item: item[:3])
        return [(stream_time, record) for stream_time, _, _, record in seen]

    def _close(self) -> list[Row]:
        self.stream_time = max([self.stream_time, *([min(self.times.values())] if self.times else [])])
        return super()._close()


# Batch windows are refused with it.
KINDS = st.sampled_from(["time", "session", "unlimited"])
SLOW = KINDS.flatmap(lambda kind: cases.cases(ordered=True, kind=kind)).map(
    lambda case: replace(case, clock={"stream_time": "min_partition"})
)


def run_oracle(case: Case, batches: list[list[Row]]) -> tuple[list[list[Row]], dict[str, int]]:
    oracle = SlowOracle(case.topology)
    return [oracle.batch(batch) for batch in batches], dict(oracle.drops)


@given(case=SLOW, batches=cases.partitioned())
def test_the_driver_is_what_the_oracle_says(case: Case, batches: list[list[Row]]) -> None:
    wanted, drops = run_oracle(case, batches)
    rows, dropped = run_driver(TopologyTestDriver(case.table()), batches)
    for got, expected in zip(rows, wanted, strict=True):
        assert_same(case, batches, placed(case.topology, got), placed(case.topology, expected))
    assert_same_drops(case, batches, dropped, drops)


@given(case=SLOW, batches=cases.partitioned(), tasks=st.integers(1, 4), interleaved=st.booleans(), data=st.data())
def test_however_rows_are_laid_out(
    case: Case, batches: list[list[Row]], tasks: int, interleaved: bool, data: Any
) -> None:
    wanted, drops = run_oracle(case, batches)
    splits = data.draw(cases.splits(batches, interleaved=interleaved))
    rows, dropped = layout.run(case.table(), batches, tasks=tasks, splits=splits)
    assert_same(case, splits, placed(case.topology, rows), placed(case.topology, flat(wanted)))
    assert_same_drops(case, splits, dropped, drops)


@given(case=SLOW, batches=cases.partitioned(max_partitions=1), data=st.data())
def test_with_one_partition_it_is_the_plain_rule(case: Case, batches: list[list[Row]], data: Any) -> None:
    plain, plain_drops = run_driver(TopologyTestDriver(replace(case, clock={}).table()), batches)
    slow, slow_drops = run_driver(TopologyTestDriver(case.table()), batches)
    assert_same(case, batches, flat(slow), flat(plain))
    assert slow_drops == plain_drops


@given(case=SLOW, batches=cases.partitioned())
def test_it_drops_no_more_than_the_plain_rule(case: Case, batches: list[list[Row]]) -> None:
    _, plain = run_driver(TopologyTestDriver(replace(case, clock={}).table()), batches)
    _, slow = run_driver(TopologyTestDriver(case.table()), batches)
    assert slow["late"] <= plain["late"]
