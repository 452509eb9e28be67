"""Random batches for composed plans, their runs in the test driver, and the first batch in which two runs differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import tidegate as tg
from properties.composed_plans import Plan, chance
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.testing import TopologyTestDriver

Row = dict[str, Any]


class Batch(NamedTuple):
    """Records of one input; `wait`: what passes on the wall clock behind them (ms)."""

    input: str
    records: list[Row]
    wait: int


class Rows(NamedTuple):
    """The rows of each batch and of the drain, and the dropped records by reason."""

    batches: list[list[Row]]
    drops: Counter[str]


def batches(random: Random, plan: Plan, least: int = 1) -> list[Batch]:
    """Records of all inputs, near each other in time, with ties, disorder, jumps and nulls; `least` of them a batch."""
    made, now, offsets = [], 0, Counter[tuple[str, int]]()
    for _ in range(random.randint(2, 6)):
        name, records = random.choice(plan.inputs), []
        for _ in range(max(least, random.choice([1, 1, 2, 5]))):
            now = max(0, now + random.choice([0, 1, 2, 5, -3, -12, 20]))
            record = {"u": random.choice("AaBC"), "ts": now} | _values(random, name)
            if chance(random, 5):
                record["u"] = None
            if plan.ordered:
                partition = random.randrange(2)
                record |= {"p": partition, "o": offsets[name, partition]}
                offsets[name, partition] += random.choice([1, 1, 3])
            records.append(record)
        made.append(Batch(name, records, random.choice([0, 0, 3, 20])))
    return made


def _values(random: Random, name: str) -> Row:
    if name in "st":
        value = random.choice([0, 1, 2, 3, None])
        return {"tc": random.choice(["x", "Y", None]), "tv": value, "gone": chance(random, 20)}
    text, value = random.choice(["x", "X", "y", None]), random.choice([0, 1, 2, 3, None])
    return {"c": text, "v": value, "w": random.choice([0, 1, 5])}


def pipe(driver: TopologyTestDriver, batches: Iterable[Batch]) -> None:
    """Pipe the batches, and let the wall clock go on behind each of them."""
    for batch in batches:
        driver.pipe_batch(batch.records, batch.input)
        driver.advance_wall_clock(f"{batch.wait} ms")


def rows_of(
    result: Any,
    batches: Sequence[Batch],
    *,
    restarts: Container[int] = (),
    then: Any = None,
    tuning: Tuning = DEFAULT,
) -> Rows:
    """Run the batches, with restarts behind those of these numbers, and a drain.

    then  the result of the plan behind a restart, if it is another one
    """
    driver, found, drops = TopologyTestDriver(result, tuning=tuning), [], Counter[str]()
    for number, batch in enumerate(batches):
        pipe(driver, [batch])
        found.append(driver.read_output())
        if number in restarts:
            drops.update(driver.drops)
            driver = TopologyTestDriver(result if then is None else then, driver.state(), tuning=tuning)
    driver.drain()
    return Rows([*found, driver.read_output()], drops + Counter(driver.drops))


def assert_same_rows(
    plan: Any, batches: Sequence[Batch], got: Rows, wanted: Rows, *, in_any_order: bool = False
) -> None:
    """The same rows in each batch, and the same drops. `plan` is shown if they differ.

    in_any_order  rows of different keys may be in another order; then what follows may differ, and is not looked at
    """
    for number, (mine, theirs) in enumerate(zip(got.batches, wanted.batches, strict=True)):
        some, others = [*map(shown, mine)], [*map(shown, theirs)]
        if some == others:
            continue
        if in_any_order and sorted(some) == sorted(others):
            return
        raise AssertionError(
            f"batch {number} of\n{plan}\ninput:\n{_lines(batches)}\ngave\n{_lines(mine)}\nand should have given\n"
            f"{_lines(theirs)}"
        )
    assert got.drops == wanted.drops, f"{plan}\ninput:\n{_lines(batches)}"


def shown(row: Row) -> str:
    """A row as text. A column that is null, or false in `deleted`, may also be missing."""
    return repr(sorted((name, value) for name, value in row.items() if value is not None and value is not False))


def _lines(items: Sequence[Any]) -> str:
    return "\n".join(f"  {item}" for item in items) or "  nothing"


def accepted(plan: Plan, what: str = "", *, learned: bool = False) -> Any:
    """The result of a plan; None if tidegate refuses to define it."""
    try:
        return plan.made(what, learned=learned)
    except tg.DefinitionError:
        return None
