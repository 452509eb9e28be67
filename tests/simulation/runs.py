"""One case: the scenario of a seed under the faults of the seed, compared with the truth; and its shrinking."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from random import Random

from oracle import Row, same
from simulation.cluster import Cluster
from simulation.faults import Adversary
from simulation.query import Deal, Query
from simulation.scenarios import Plan, Scenario, scenario
from simulation.truths import nonzero, rows, truth
from sizes import SMALL
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.plan import operation
from tidegate.spec.joined import StreamStream

SIZES = {name: size for name, size in asdict(SMALL).items() if size != getattr(DEFAULT, name)}
"""Sizes at which the kernel changes its way: so small that a handful of records reaches them."""


@dataclass(frozen=True)
class Case:
    """A seed; `without` these faults, and `only` these records (by batch and place), None for all."""

    seed: int
    without: frozenset[str] = frozenset()
    only: frozenset[tuple[int, int]] | None = None

    @property
    def tuning(self) -> Tuning:
        """Default sizes in some cases, small ones in others."""
        random = Random(f"sizes {self.seed}")
        few = random.random() < 0.7
        return replace(DEFAULT, **{name: size for name, size in SIZES.items() if few and random.random() < 0.5})

    @property
    def scenario(self) -> Scenario:
        whole = scenario(self.seed)
        if self.only is None:
            return whole
        kept = [[r for i, r in enumerate(batch) if (n, i) in self.only] for n, batch in enumerate(whole.batches)]
        return replace(whole, batches=kept)


@dataclass
class Outcome:
    """Result of a case; `problem` is empty if all is right."""

    problem: str
    adversary: Adversary
    scenario: Scenario


def run(case: Case) -> Outcome:
    """Run a case."""
    adversary, what = Adversary.of(case.seed, case.without), case.scenario
    try:
        problem = _compared(what, adversary, case.tuning)
    except Exception:  # any error is a finding
        problem = traceback.format_exc(limit=-8)
    return Outcome(problem, adversary, what)


def _compared(what: Scenario, adversary: Adversary, tuning: Tuning) -> str:
    cluster = Cluster(adversary, what.tasks, what.on_spark, contiguous=what.contiguous, tuning=tuning)
    query = Query(cluster, _deal(what, adversary), what.clocks)
    plans = _live(what, adversary, query)
    right = truth(what)
    first = operation(plans[0].table().node)
    # Rows of a join of streams leave in parts whose number decides the order: on Spark they have no order.
    key = None if isinstance(first.joined, StreamStream) else first.key
    for number in range(len(what.batches)):
        if number and number in plans:
            right.start(plans[number])
        if told := _differ(f"batch {number}", key, rows(query, number), right.batch(number)):
            return told
    ending = [row for number in range(len(what.batches), query.committed) for row in rows(query, number)]
    if told := _differ("the drain", key, ending, right.drain() if what.drains else []):
        return told
    got, wanted = nonzero(query.drops), nonzero(right.drops)
    return "" if got == wanted else f"dropped: {dict(got)}, and should have: {dict(wanted)}"


def _live(what: Scenario, adversary: Adversary, query: Query) -> dict[int, Plan]:
    """The life of a query; returns its plans by the batch from which each applies."""
    plan, *later = what.plans
    plans = {0: plan}
    query.start(plan.table())
    for number in range(len(what.batches)):
        where = f"before batch {number}"
        if number and later and adversary.strikes("upgrade", where):
            plan = plans[number] = later.pop(0)
            adversary.happened("upgrade", where, plan.says)
            query.start(plan.table())
        elif number and adversary.strikes("restart", where):
            adversary.happened("restart", where)
            query.start(plan.table())
        # An upgrade takes the first batch in which a task steps: a batch without records may be that of the drain.
        planned = number + 1 == len(what.batches) and what.drains and (what.batches[number] or number not in plans)
        if planned and adversary.strikes("drain takes a planned batch", where):
            adversary.happened("drain takes a planned batch", where)
            query.interrupted()
        else:
            query.batch()
    if what.drains:
        query.drain(plan.table())
    return plans


def _deal(what: Scenario, adversary: Adversary) -> Deal:
    def dealt(number: int, run: int) -> list[list[Row]]:
        kind, where = "batch is read in other parts", f"batch {number}, run {run}"
        parts = run if run and adversary.strikes(kind, where) else 0
        if parts:
            adversary.happened(kind, where)
        return what.dealt(number, parts)

    return dealt


def _differ(where: str, key: tuple[str, ...] | None, got: list[Row], wanted: list[Row]) -> str:
    if same(placed(key, got), placed(key, wanted)):
        return ""
    return f"{where} gave\n{_lines(got)}\nand should have given\n{_lines(wanted)}"


def placed(key: tuple[str, ...] | None, found: list[Row]) -> list[Row]:
    """Rows sorted by output, window and key, in order within each; without a key, sorted by all columns."""
    if key is None:
        return sorted(found, key=repr)
    names = ("output", "window", *key)
    return sorted(found, key=lambda row: repr([row.get(name) for name in names]))


def _lines(found: list[Row]) -> str:
    return "\n".join(f"  {row}" for row in found) or "  nothing"


# -- smaller ---------------------------------------------------------------------------------------------------------


def smaller(case: Case, most_runs: int = 400) -> Case:
    """A smaller case that still fails, without needless faults and records."""
    runs = 0

    def fails(other: Case) -> bool:
        nonlocal runs
        runs += 1
        return runs <= most_runs and bool(run(other).problem)

    while runs < most_runs:
        before = case
        case = _fewer_records(case, fails)
        for fault in reversed(dict.fromkeys(run(case).adversary.struck)):
            if fails(other := replace(case, without=case.without | {fault})):
                case = other
        if case == before:
            break
    return case


def _fewer_records(case: Case, fails: Callable[[Case], bool]) -> Case:
    what = case.scenario
    whole = scenario(case.seed)
    if case.only is None:
        every = {(n, i) for n, batch in enumerate(whole.batches) for i in range(len(batch))}
        case = replace(case, only=frozenset(every))
    for number in range(len(what.batches)):
        assert case.only is not None
        rest = frozenset(at for at in case.only if at[0] != number)
        if rest != case.only and fails(other := replace(case, only=rest)):
            case = other
    for at in sorted(case.only or (), reverse=True):
        assert case.only is not None
        if fails(other := replace(case, only=case.only - {at})):
            case = other
    return case


def report(case: Case) -> str:
    """The events of a case as text."""
    outcome = run(case)
    what = outcome.scenario
    way = "as Spark calls it" if what.on_spark else "in the kernel"
    head = f"{what.family}, {what.tasks} tasks, {way}, truth: {what.truth}"
    plans = "\n".join(f"  {plan.says}" for plan in what.plans)
    batches = "\n".join(
        f"  batch {n} at {clock} ms\n" + "\n".join(f"    {row}" for row in batch)
        for n, (batch, clock) in enumerate(zip(what.batches, what.clocks, strict=True))
    )
    history = "\n".join(f"  {line}" for line in outcome.adversary.history)
    parts = (
        f"seed {case.seed}: {head}",
        f"plans:\n{plans}",
        f"input:\n{batches}",
        f"what happened:\n{history}",
        outcome.problem,
    )
    return "\n".join(parts)
