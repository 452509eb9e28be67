"""Plans of several operators that change between two batches: `check_upgrade` says what a driver does.

A step that changes nothing may come and go.

`make test-deep EXAMPLES=500` draws a hundred plans of each kind in each test, others each time.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tidegate as tg
from properties import changing_plans, composed_plans, composed_runs, neutral_steps
from properties.composed_plans import FEW, KINDS, RANDOMS, Plan
from properties.composed_runs import Batch, accepted, assert_same_rows, pipe, rows_of
from tidegate.testing import TopologyTestDriver

pytestmark = pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")


def begun(random: Random, before: Plan, after: Plan) -> tuple[Any, Any, list[Batch], int, TopologyTestDriver]:
    """The results of both plans, batches, the number of one of them, and a driver of `before` behind that batch."""
    old, new = accepted(before), accepted(after)
    assume(None not in (old, new))
    batches = composed_runs.batches(random, before)
    at = random.randrange(len(batches))
    driver = TopologyTestDriver(old)
    pipe(driver, batches[: at + 1])
    return old, new, batches, at, driver


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data(), random=RANDOMS)
def test_a_plan_goes_on_exactly_if_the_check_says_so(kind: str, data: Any, random: Any) -> None:
    """A plan that goes on takes all further batches; one that is refused has changed nothing."""
    before = data.draw(composed_plans.plans(kind))
    after = changing_plans.changed(random, before)
    _, new, batches, at, driver = begun(random, before, after)
    told = driver.check_upgrade(new)
    what = f"{before!r}\nbecomes\n{after!r}\nbehind batch {at} of\n{batches}\nThe check says\n{told}"
    try:
        driver = TopologyTestDriver(new, driver.state())
        pipe(driver, batches)  # every operator begins to go on with its first rows
        driver.drain()
    except tg.CheckpointError as error:
        assert not told.goes_on, f"{what}\nthe driver says\n{error}"
        assert "Nothing was changed" in str(error)
    else:
        assert told.goes_on, what


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data(), random=RANDOMS)
def test_a_change_that_changes_nothing_between_two_batches(kind: str, data: Any, random: Any) -> None:
    """In both directions: the step comes or goes."""
    before = data.draw(composed_plans.plans(kind))
    after = neutral_steps.with_neutral_steps(random, before)
    in_any_order = neutral_steps.reorders(after)
    before, after = (before, after) if random.randrange(2) else (after, before)
    old, new, batches, at, driver = begun(random, before, after)
    assume(driver.check_upgrade(new).goes_on)
    got = rows_of(old, batches, restarts={at}, then=new)
    what = f"{before!r}\nbecomes, behind batch {at},\n{after!r}"
    assert_same_rows(what, batches, got, rows_of(old, batches), in_any_order=in_any_order)
