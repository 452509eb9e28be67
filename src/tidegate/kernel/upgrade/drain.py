"""The end of a query: everything held back leaves once, and the state takes no input any more.

A drain has two steps, each a micro-batch of its own. The first takes its input as always and only marks the state, so
that no other plan goes on from it. The second is the end of the input. If the second fails half-way, only a drain runs
it again, and a sink that knows the batch sees the same rows.

    batch 7   ...               state
    batch 8   drain begins      state, begun      another plan is refused from here on
    batch 9   drain ends        empty, done       a drain is refused, too
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.errors import CheckpointError
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.state import DRAINED, State
from tidegate.kernel.state.store import Store
from tidegate.spec.upgrade import DRAIN, Change

BEGUN = "begun"


def advance(state: State, drains: bool) -> bool:
    """Advance the drain in the state if this run `drains`. Returns whether this step is the last one.

    Raises CheckpointError if a drain has begun and this run does not drain, or if a drain is over.
    """
    if state.drained:
        raise drained()
    if state.drain == BEGUN and not drains:
        raise CheckpointError(
            "A drain of this checkpoint has begun, and what it lets out may have left. Nothing was changed. Call "
            "tg.drain(...) again: it goes on where it was."
        )
    if not drains:
        return False
    ending = state.drain == BEGUN
    state.drain = DRAINED if ending else BEGUN
    return ending


def refuse(store: Store) -> bool:
    """Raise as `advance` does in an ordinary run, for a task that takes no step. Returns whether the task has state."""
    state = State.open(store)
    if state is not None:
        advance(state, drains=False)
    return state is not None


def drained() -> CheckpointError:
    """The error for a step behind the last one."""
    return CheckpointError(
        "This checkpoint was drained: everything it held has left, and it takes nothing any more. Nothing was "
        "changed. Start the query with a new checkpointLocation, from where its input goes on."
    )


def change(progress: str) -> Change:
    """The change for a plan that would be started on a checkpoint whose drain has begun or is over."""
    loses = {
        BEGUN: "the rest of the drain, which may have let out rows. Call tg.drain(...) again: it goes on where it was",
        DRAINED: "every record: a drained checkpoint takes none. Start the query with a new checkpointLocation, from "
        "where its input goes on",
    }
    return Change(DRAIN, progress, "none", loses[progress])


def marks(layout: Layout, tasks: int) -> Iterator[tuple[int, bytes]]:
    """(task, blob) for every task, without records: they make each task take a step though no record came."""
    for task in range(tasks):
        meta = {"plan": layout.digest, "tasks": tasks, "task": task}
        nothing = {"chunks": [], "drops": {}, "first": False, "has_records": False}
        yield task, frames.encode(frames.BLOB, meta | nothing)
