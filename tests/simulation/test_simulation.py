"""The simulated cluster: no case goes wrong, every kind of fault happens, and planted bugs are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from simulation import attempts, cluster, workers
from simulation.faults import KINDS, Adversary
from simulation.runs import SIZES, Case, report, run, smaller
from simulation.scenarios import FAMILIES
from simulation.stores import Calls, KernelStore, Version
from simulation.truths import Undisturbed
from tidegate.kernel import stage
from tidegate.kernel.exchange import batch
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.state.state import DRAINED, State
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import drain
from tidegate.testing.layout import Tasks

CHUNKS = 4
"""Chunks of smoke cases, which run side by side."""
CHUNK_CASES = 15


@pytest.mark.parametrize("number", range(CHUNKS))
def test_every_result_leaves_once(number: int) -> None:
    for seed in range(number * CHUNK_CASES, (number + 1) * CHUNK_CASES):
        outcome = run(Case(seed))
        assert not outcome.problem, report(Case(seed))


def test_every_kind_of_fault_happens() -> None:
    counts: Counter[str] = Counter()
    for seed in range(200, 400):
        counts += run(Case(seed)).adversary.counts
        if counts.keys() == KINDS.keys():
            return
    assert counts.keys() == KINDS.keys()


def test_every_family_is_drawn() -> None:
    drawn = [Case(seed).scenario for seed in range(400)]
    assert {what.family for what in drawn} == FAMILIES.keys()
    assert sum(what.contiguous for what in drawn) > 50
    assert sum("merged" in plan.says for what in drawn for plan in what.plans) > 3


def test_rows_of_a_join_are_merged_with_records_as_in_a_layout() -> None:
    """Without faults both inputs of the second operator reach it."""
    cases = (Case(seed).scenario for seed in range(2_000))
    merged = [what for what in cases if "merged" in what.plans[0].says][:8]
    for what in merged:
        right = Undisturbed(what)
        tasks = Tasks(what.plans[0].table().node, what.tasks, as_spark=True)
        for number, clock in enumerate(what.clocks):
            read = [("events", part) for part in what.dealt(number, 0)]
            assert Counter(map(repr, right.batch(number))) == Counter(map(repr, tasks.batch(read, clock)))
    assert len(merged) == 8


def test_a_seed_repeats_what_happened() -> None:
    for seed in range(5):
        assert run(Case(seed)).adversary.history == run(Case(seed)).adversary.history


def test_a_fault_that_is_left_out_moves_no_other() -> None:
    first = Adversary(7, enabled=frozenset(KINDS))
    names = [f"place {number}" for number in range(50)]
    struck = [name for name in names if first.strikes("restart", name)]
    second = Adversary(7, without=frozenset({f"restart: {struck[0]}"}))
    assert [name for name in names if second.strikes("restart", name)] == struck[1:]


def test_what_a_worker_remembers_is_known() -> None:
    """Review each new container: may it come from an attempt that died, or from an older version?"""
    assert list(workers.remembered()) == ["tidegate.kernel.suppress.key_index._cache"]


def test_small_sizes_are_those_of_the_kernel() -> None:
    assert len(SIZES) > 12
    assert all(getattr(DEFAULT, name) > size for name, size in SIZES.items())
    assert {Case(seed).tuning == DEFAULT for seed in range(40)} == {True, False}


def test_small_sizes_cut_the_values_of_spark_s_store(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: set[int] = set()
    whole = attempts._whole

    def looked_at(version: Version) -> None:
        parts.update(part for _, _, part in version.data)
        whole(version)

    monkeypatch.setattr(attempts, "_whole", looked_at)
    for seed in range(12):
        run(Case(seed))
    assert max(parts) > 0


# -- what is wrong on purpose ----------------------------------------------------------------------------------------


class _Leaking(KernelStore):
    """Writes into the version that it was opened over, whether the attempt commits or not."""

    def __init__(self, version: Version, calls: Calls, tuning: Tuning = DEFAULT) -> None:
        super().__init__(version, calls, tuning)
        version.data.setdefault("values", self.values)
        version.data.setdefault("log", self.log)
        self.values, self.log = version.data["values"], version.data["log"]


def dead_writes_survive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempts, "KernelStore", _Leaking)


def dead_rows_count(patch: pytest.MonkeyPatch) -> None:
    run_attempt, left = cluster.attempt, []

    def leaking(*given: Any) -> attempts.Attempt:
        made = run_attempt(*given)
        made.tables, left[:] = [*left, *made.tables], [] if made.alive else made.tables
        return made

    patch.setattr(cluster, "attempt", leaking)


def a_cache_ignores_versions(patch: pytest.MonkeyPatch) -> None:
    load: Callable[..., State] = State.load.__func__  # type: ignore[attr-defined]
    known: dict[Any, bytes | None] = {}

    def cached(cls: Any, store: Any, identity: dict[str, str], tasks: int) -> State:
        name = (str(identity), tasks)
        if name in known and known[name] is not None:
            store.put("meta", known[name])
        state = load(cls, store, identity, tasks)
        known[name] = store.get("meta")
        return state

    patch.setattr(State, "load", classmethod(cached))


def the_order_of_blobs_shows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch.Batch, "order", lambda self, rows: np.arange(rows.num_rows))


def a_drain_runs_twice(patch: pytest.MonkeyPatch) -> None:
    def advance(state: State, drains: bool) -> bool:
        state.drain = drain.BEGUN if drains and not state.drain else DRAINED if drains else ""
        return drains

    patch.setattr(stage.drain, "advance", advance)


def a_drained_state_takes_records(patch: pytest.MonkeyPatch) -> None:
    advance = drain.advance
    patch.setattr(stage.drain, "advance", lambda state, drains: advance(state, drains) if drains else False)


def a_promise_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Map tasks promise unbroken stretches for scattered records."""
    patch.setattr(cluster, "pack", lambda layout, batches, tasks, contiguous: pack(layout, batches, tasks, True))


def map_tasks_differ(patch: pytest.MonkeyPatch) -> None:
    turns = [0]

    def packed(layout: Any, batches: Any, tasks: Any, contiguous: bool) -> Iterator[tuple[int, bytes]]:
        turns[0] += 1
        batches = list(batches)
        for part in [batches] if turns[0] % 2 else [[rows.slice(0, 1), rows.slice(1)] for rows in batches]:
            yield from (
                pack(layout, part, tasks) if len(part) == 1 else (b for p in part for b in pack(layout, [p], tasks))
            )

    patch.setattr(cluster, "pack", packed)


@pytest.mark.parametrize(
    "plant",
    [
        dead_writes_survive,
        dead_rows_count,
        a_cache_ignores_versions,
        the_order_of_blobs_shows,
        a_drain_runs_twice,
        a_drained_state_takes_records,
        map_tasks_differ,
        a_promise_is_not_kept,
    ],
)
def test_what_is_wrong_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(run(Case(seed)).problem for seed in range(60))


def test_a_failing_case_becomes_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    dead_writes_survive(monkeypatch)
    tried = ((case, run(case)) for case in map(Case, range(200)))
    # A case with a single fault cannot lose one.
    case, before = next((case, found) for case, found in tried if found.problem and len(found.adversary.struck) > 1)
    small = smaller(case, most_runs=60)
    after = run(small)
    assert after.problem
    assert len(after.adversary.struck) < len(before.adversary.struck)
    assert sum(map(len, after.scenario.batches)) < sum(map(len, before.scenario.batches))
    assert report(small).count("what happened") == 1
