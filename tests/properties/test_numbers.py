"""The numbers of a batch (`observedMetrics`) are those that the definition gives, however tasks share its records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import Oracle, Row, Sessions, Windows
from oracle_slowest import SlowOracle
from properties import cases
from properties.cases import Case
from sizes import SMALL
from tidegate.instants import MAX_MS
from tidegate.kernel.tuning import DEFAULT
from tidegate.spec.metrics import combined
from tidegate.testing.layout import Tasks

SKIPPED = ("null_key", "null_value", "bad_timestamp")


@dataclass
class Counting:
    """The numbers of each batch, from an oracle.

    taken    the records of the batch that are not skipped, each with its lateness
    reached  the largest timestamp of each partition so far
    """

    case: Case
    oracle: Oracle
    taken: list[tuple[int, Row]] = field(default_factory=list)
    reached: dict[Any, int] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, *, slowest: bool) -> Counting:
        counting = cls(case, SlowOracle(case.topology) if slowest else Oracle(case.topology))
        of_batch = counting.oracle._seen

        def noted(records: list[Row]) -> list[tuple[int, Row]]:
            seen, before = of_batch(records), counting.oracle.stream_time
            counting.taken = [(time, record) for time, record in seen]
            if slowest:
                counting.taken = [(max(before, counting._reaches(record)), record) for record in records]
            return seen

        counting.oracle._seen = noted  # type: ignore[method-assign]
        return counting

    def _reaches(self, record: Row) -> int:
        name = record["partition"]
        self.reached[name] = max(self.reached.get(name, -1), record["ts"])
        return self.reached[name]

    def batch(self, records: list[Row]) -> dict[str, Any]:
        """The numbers of a batch with records."""
        oracle, before = self.oracle, Counter(self.oracle.drops)
        rows, drops = oracle.batch(records), oracle.drops - before
        late = [time - record["ts"] for time, record in self.taken]
        times: dict[int, int] = {}
        for _, record in self.taken:
            times[record["partition"]] = max(times.get(record["partition"], -1), record["ts"])
        final = {"emit_final_records": len(rows), "suppression_emit": len(rows)} if self.case.topology.final else {}
        return final | {
            "records": len(late),
            "late": drops["late"],
            **{reason: drops[reason] for reason in SKIPPED},
            "stream_time": oracle.stream_time,
            "record_lateness_max": max(late, default=0),
            "record_lateness_avg": pytest.approx(sum(late) / max(len(late), 1)),
            "partition_times": times,
        }

    @property
    def next_close(self) -> int | None:
        """The stream time at which the first open window closes; None if no window does."""
        closes = [self._close(end) for _, (_, end) in self.oracle.entries]
        return min((at for at in closes if at < MAX_MS), default=None)

    def _close(self, end: int) -> int:
        windows = self.case.topology.windows
        if isinstance(windows, Windows):
            return end + windows.grace
        return end + windows.gap + windows.grace + 1 if isinstance(windows, Sessions) else end


@pytest.mark.parametrize(
    ("kind", "slowest"),
    # Batch windows are refused with the slowest partition.
    [
        (kind, slowest)
        for kind in (*cases.ALL_KINDS, "none")
        for slowest in (False, True)
        if (kind, slowest) != ("batch", True)
    ],
)
@given(batches=cases.partitioned(), tasks=st.sampled_from([1, 1, 2, 5]), data=st.data())
def test_numbers_of_a_batch(kind: str, slowest: bool, batches: list[list[Row]], tasks: int, data: Any) -> None:
    case: Case = data.draw(
        cases.cases(ordered=True, plain=True) if kind == "none" else cases.cases(ordered=True, kind=kind)
    )
    case = replace(case, clock={"stream_time": "min_partition" if slowest else "max"}, with_schema=True)
    tuning, wanted = data.draw(st.sampled_from([DEFAULT, SMALL])), Counting.of(case, slowest=slowest)
    plan = Tasks(case.table().node, tasks, tuning=tuning)
    for batch, parts in zip(
        batches, data.draw(cases.splits(batches, interleaved=data.draw(st.booleans()))), strict=True
    ):
        expected = wanted.batch(batch)
        rows = plan.batch([(None, part) for part in parts])
        if not batch:
            continue
        numbers = combined(plan.operators[0].op.numbers, plan.numbers[0])
        numbers["partition_times"] = dict(json.loads(str(numbers["partition_times"] or "[]")))
        where = f"{case!r}\n{batches!r}\n{parts!r}"
        assert {name: numbers[name] for name in expected} == expected, where
        assert numbers["emitted"] == len(rows), where
        if kind != "none":
            check_windows(case, wanted, numbers, [one["open_windows"] for one in plan.numbers[0]], where)
        if data.draw(st.booleans(), label="restart"):
            plan = Tasks(case.table().node, tasks, plan, tuning=tuning)


def check_windows(case: Case, wanted: Counting, numbers: Any, of_tasks: list[int], where: str) -> None:
    """Check `open_windows`, of which each task has its own, and `next_close`."""
    entries, first = wanted.oracle.entries, wanted.next_close
    sessions = isinstance(case.topology.windows, Sessions)
    if sessions:
        assert sum(of_tasks) == len(entries), where
    else:
        assert numbers["open_windows"] <= len({window for _, window in entries}) <= sum(of_tasks), where
    if case.topology.final and sessions and first is not None:  # many sessions have a lower bound
        assert wanted.oracle.stream_time < numbers["next_close"] <= first, where
    elif case.topology.final:
        assert numbers["next_close"] == first, where
