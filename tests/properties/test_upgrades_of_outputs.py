"""Plans of several outputs that change between any two batches: nothing is lost, and nothing follows a final result.

`make test-deep EXAMPLES=500` draws 250 lives in each test, others each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tidegate as tg
from properties.changing_outputs import LATE, Aggregation, Draw, Moment, Row
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

pytestmark = pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")


class Life(NamedTuple):
    """Batches under changing plans, and the number of stateful tasks that can run them."""

    moments: list[Moment]
    tasks: int

    def __repr__(self) -> str:
        said = []
        for moment in self.moments:
            said += [repr(moment.plan)] if moment.changed else []
            said += [f"after {moment.wait} ms", *(f"  {record}" for record in moment.records)]
        return "\n".join(said)


class Rows(NamedTuple):
    """The rows of each moment, and at last those of a drain; and how many records were late."""

    moments: list[list[Row]]
    late: int


def life(random: Random) -> Life:
    """Plans that change into others which `check_upgrade` accepts."""
    one = Draw(random)
    plan, batches = one.plan(), one.batches()
    assume(defined(plan) and any(records for _, records in batches))
    driver, moments, changed = TopologyTestDriver(plan.made()), [], True
    for wait, records in batches:
        if any(moment.records for moment in moments) and random.randrange(2):
            other = one.changed(plan)
            if other != plan and defined(other) and goes_on(driver, plan, other, moments):
                plan, changed = other, True
                driver = TopologyTestDriver(plan.made(), state=driver.state())
        moments.append(Moment(plan, changed, wait, records))
        driver.advance_wall_clock(f"{wait} ms")
        driver.pipe_batch(records)
        changed = False
    return Life(moments, 3 if one.many else 1)


LIVES = st.randoms(use_true_random=False).map(life)

FEW = settings(max_examples=settings.default.max_examples // 2)
"""A life is many runs."""


def defined(plan: Aggregation) -> bool:
    """Whether tidegate does not refuse to define this plan."""
    try:
        return plan.results != {} and plan.made() is not None
    except tg.DefinitionError:
        return False


def goes_on(driver: TopologyTestDriver, plan: Aggregation, other: Aggregation, moments: Sequence[Moment]) -> bool:
    """Whether the other plan goes on from this driver: as `check_upgrade` says, and as a driver does."""
    told = driver.check_upgrade(other.made())
    last = next(moment.records[-1] for moment in reversed(moments) if moment.records)
    try:
        TopologyTestDriver(other.made(), state=driver.state()).pipe_batch([last])
    except tg.CheckpointError as error:
        refused = str(error)
    else:
        refused = ""
    assert bool(refused) != told.goes_on, f"{plan!r}\nbecomes\n{other!r}\nThe check says\n{told}\nthe driver\n{refused}"
    assert not refused or "Nothing was changed" in refused
    return told.goes_on


def in_driver(life: Life, of: Callable[[Aggregation], Aggregation] = lambda plan: plan) -> Rows:
    """The rows in a test driver, for these variants of the plans."""
    driver, late, found = TopologyTestDriver(of(life.moments[0].plan).made()), 0, []
    for moment in life.moments:
        if moment.changed:
            late += driver.drops["late"]
            driver = TopologyTestDriver(of(moment.plan).made(), state=driver.state())
        driver.advance_wall_clock(f"{moment.wait} ms")
        driver.pipe_batch(moment.records)
        found.append(driver.read_output())
    driver.drain()
    return Rows([*found, driver.read_output()], late + driver.drops["late"])


def in_tasks(life: Life) -> Rows:
    """The rows in two map tasks and the stateful tasks of this life."""
    records = [record for moment in life.moments for record in moment.records]
    tasks, wall, late, found = None, 0, 0, []

    def begin(plan: Aggregation, drains: bool = False) -> Tasks:
        new = Tasks(plan.made().node, life.tasks, tasks, drains=drains)
        new.learn(records)
        return new

    for moment in life.moments:
        if moment.changed or tasks is None:
            late += 0 if tasks is None else sum(one["late"] for one in tasks.dropped)
            tasks = begin(moment.plan)
        wall += moment.wait
        heard = any(one.records for one in life.moments[: len(found)])
        rows = tasks.batch([], wall) if moment.wait and heard and moment.plan.by_wall_clock else []
        if moment.records:
            parts = [[record for record in moment.records if record["p"] == part] for part in range(2)]
            rows += tasks.batch([(None, part) for part in parts], wall)
        found.append(rows)
    assert tasks is not None
    late += sum(one["late"] for one in tasks.dropped)
    tasks = begin(life.moments[-1].plan, drains=True)
    found.append(tasks.drain())
    return Rows(found, late + sum(one["late"] for one in tasks.dropped))


@FEW
@given(life=LIVES)
def test_tasks_give_the_rows_of_the_driver(life: Life) -> None:
    """By the next batch with records: only then does each task hear of the wall clock, or of a change of the plan."""
    changes = sum(moment.changed for moment in life.moments) > 1
    # A driver goes on with a changed plan when time passes, tasks with their next records: timers begin apart.
    assume(not changes or not any(moment.plan.by_wall_clock for moment in life.moments))
    driver, tasks = in_driver(life), in_tasks(life)
    some: list[str] = []
    others: list[str] = []
    for number, (mine, theirs) in enumerate(zip(driver.moments, tasks.moments, strict=True)):
        some, others = sorted([*some, *map(text, mine)]), sorted([*others, *map(text, theirs)])
        if number == len(life.moments) or life.moments[number].records:
            assert some == others, f"{life!r}\nbatch {number}"
            some, others = [], []
    assert driver.late == tasks.late, repr(life)


def text(row: Row) -> str:
    """The row as text. The stream time of a skipped record is not defined."""
    skipped = row.get("reason", "late") not in ("late", None)
    return repr(sorted((name, value) for name, value in row.items() if not (skipped and name == "stream_time")))


@FEW
@given(life=LIVES)
def test_nothing_follows_a_final_result(life: Life) -> None:
    """Where final results take the place of updates, those of windows that had closed are not repeated."""
    final: dict[Any, int] = {}
    turned: set[str] = set()
    before: dict[str, Any] = {}
    rows = in_driver(life)
    for number, (moment, found) in enumerate(zip([*life.moments, life.moments[-1]], rows.moments, strict=True)):
        if moment.changed and number:
            turned |= {n for n, one in moment.plan.results.items() if one.final and not before.get(n)}
        before = {name: one.final for name, one in moment.plan.results.items()}
        for row in found:
            name = row.get("output", "")
            if moment.plan.outputs[name] is LATE:
                continue
            at = (name, row["k"], row["window"])
            assert final.get(at, number) == number, f"{life!r}\nbatch {number} gave {row} behind a final result"
            if moment.plan.results[name].final and name not in turned:
                final[at] = number
        if moment.records:
            turned.clear()


@FEW
@given(life=LIVES)
def test_the_table_of_each_output_is_that_of_every_update(life: Life) -> None:
    """At the end, in a reader of the rows; for outputs that were there from the beginning."""
    got, wanted = in_driver(life), in_driver(life, lambda plan: plan.plainest)
    assert got.late == wanted.late, repr(life)
    plans = [moment.plan for moment in life.moments]
    for name in plans[-1].results:
        mine = [plan.results.get(name) for plan in plans]
        turns = any(plan.kind == "sessions" for plan in plans) and any(
            one is not None and other is not None and not one.final and other.final
            for one, other in zip(mine, mine[1:], strict=False)
        )
        # Sessions that were updates and merged have no tombstones once there are final results alone.
        if turns or not all(mine):
            continue
        stepped = any(one is not None and any(one.steps) for one in mine)
        columns = ["n", "timestamp", *(() if stepped else plans[-1].aggregates)]
        rows = [row for found in got.moments for row in found if row.get("output", "") == name]
        every = [row for found in wanted.moments for row in found]
        assert table(rows, columns) == table(every, columns), f"{life!r}\n{name!r}"


def table(rows: Sequence[Row], columns: Sequence[str]) -> dict[Any, str]:
    """The last row of each key and window that is no tombstone, as text; a window of expected keys counts nothing."""
    last = {(row["k"], row["window"]): row for row in rows}
    return {
        at: repr([row.get(name) for name in columns])
        for at, row in last.items()
        if not row.get("deleted") and row["n"] != 0
    }
