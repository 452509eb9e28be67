"""Plans of several operators: what changes nothing in one operator changes nothing in a plan of many.

`make test-deep EXAMPLES=500` draws a hundred plans of each kind in each test, others each time.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from properties import composed_plans, composed_runs, neutral_steps
from properties.composed_plans import FEW, KINDS, RANDOMS, Plan
from properties.composed_runs import Batch, Rows, accepted, assert_same_rows, rows_of
from sizes import SMALL

pytestmark = pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")


@st.composite
def runs(draw: Any, kind: str) -> tuple[Plan, list[Batch], Rows]:
    """A plan, its batches, and its rows in the test driver."""
    plan = draw(composed_plans.plans(kind))
    result = accepted(plan)
    assume(result is not None)
    batches = composed_runs.batches(draw(RANDOMS), plan)
    return plan, batches, rows_of(result, batches)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data(), random=RANDOMS)
def test_steps_that_change_nothing_may_stand_anywhere(kind: str, data: Any, random: Any) -> None:
    plan, batches, wanted = data.draw(runs(kind))
    more = neutral_steps.with_neutral_steps(random, plan)
    result = accepted(more)
    assume(result is not None)
    got = rows_of(result, batches)
    assert_same_rows(more, batches, got, wanted, in_any_order=neutral_steps.reorders(more))


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data())
def test_restarts_and_sizes_inside_the_kernel_change_nothing(kind: str, data: Any) -> None:
    plan, batches, wanted = data.draw(runs(kind))
    restarts = data.draw(st.sets(st.sampled_from(range(len(batches)))))
    got = rows_of(accepted(plan), batches, restarts=restarts, tuning=SMALL)
    assert_same_rows(plan, batches, got, wanted)


@pytest.mark.parametrize("kind", ["aggregation", "merge", "cogroup", "streams", "groups"])
@FEW
@given(data=st.data())
def test_inputs_without_a_schema_learn_the_types_of_their_columns(kind: str, data: Any) -> None:
    plan, batches, wanted = data.draw(runs(kind))
    result = accepted(plan, learned=True)
    assume(result is not None)  # expressions over both sides of a join need the schemas
    assert_same_rows(plan, batches, rows_of(result, batches), wanted)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data())
def test_each_of_several_outputs_has_the_rows_that_it_has_alone(kind: str, data: Any) -> None:
    plan = data.draw(composed_plans.plans(kind))
    assume(plan.outputs)
    outputs = dict(zip(("one", "other"), (place.name for place in plan.outputs), strict=True))
    if plan.late is not None and data.draw(st.booleans(), label="late records"):
        outputs["late"] = f"{plan.late.name}.late_records()"
    code = f"tg.outputs({', '.join(f'{name}={code}' for name, code in outputs.items())})"
    together = accepted(plan, code)
    assume(together is not None)
    batches = composed_runs.batches(data.draw(RANDOMS), plan)
    rows = rows_of(together, batches)
    for name, alone in outputs.items():
        mine = [[row | {"output": None} for row in batch if row["output"] == name] for batch in rows.batches]
        wanted = rows_of(accepted(plan, alone), batches)
        assert_same_rows(f"{plan}\n{code}\nof {name!r}:", batches, Rows(mine, rows.drops), wanted)
