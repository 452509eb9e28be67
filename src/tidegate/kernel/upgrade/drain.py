"""The end of a query: everything is let out once, and its state takes nothing any more.

Two steps, each a micro-batch of its own: the first takes its input as always and only marks the state, so that no other
plan goes on from it; the second is the end of the input. If the second one fails half-way, it is a drain that runs it
again, and a sink that knows the batch sees the same rows.

    batch 7   ...               state
    batch 8   drain begins      state, begun      another plan is refused from here on
    batch 9   drain ends        empty, done       a drain is over, too
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.errors import CheckpointError
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Store

BEGUN, DONE = "begun", "done"


def ends(state: State, drains: bool) -> bool:
    """Whether a step is the last one, and lets everything out.

    Raises CheckpointError where a drain has begun and this step is of another run, or where it is over.
    """
    if state.drain == DONE:
        raise drained()
    if state.drain == BEGUN and not drains:
        raise CheckpointError(
            "A drain of this checkpoint has begun, and what it lets out may have left. Nothing was changed. Call "
            "tg.drain(...) again: it goes on where it was."
        )
    if not drains:
        return False
    ending = state.drain == BEGUN
    state.drain = DONE if ending else BEGUN
    return ending


def refuse(store: Store) -> None:
    """Raise as `ends` does for a task that takes no step and is of an ordinary run."""
    state = State.open(store)
    if state is not None:
        ends(state, drains=False)


def drained() -> CheckpointError:
    """What a step behind the last one is told."""
    return CheckpointError(
        "This checkpoint was drained: everything it held has left, and it takes nothing any more. Nothing was "
        "changed. Start the query with a new checkpointLocation, from where its input goes on."
    )


def marks(layout: Layout, tasks: int) -> Iterator[tuple[int, bytes]]:
    """(task, blob) for every task, without records: a step is to be taken though none came."""
    for task in range(tasks):
        meta = {"identity": layout.identity, "tasks": tasks, "task": task}
        nothing = {"chunks": [], "drops": {}, "first": False, "came": False}
        yield task, frames.encode(frames.BLOB, meta | nothing)
