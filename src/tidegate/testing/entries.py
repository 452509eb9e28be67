"""The inputs of a topology's operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.arguments import is_one_of
from tidegate.errors import DefinitionError, InputError, in_one_line
from tidegate.plan import Edge, Node, Plan, Stream, inputs_of, order_of
from tidegate.testing.column_types import Types
from tidegate.testing.inputs import Inputs


@dataclass
class Entry:
    """An input of an operator: its source streams, and the types of their columns after the steps.

    place, side  the index of the operator, upstream first; and the side of a join
    """

    place: int
    side: int
    inputs: Inputs
    types: Types

    def copy(self) -> Entry:
        """A copy that learns independently."""
        return Entry(self.place, self.side, self.inputs.copy(), self.types.copy())

    def go_on(self, before: Entry) -> None:
        """Add the types known before a restart."""
        self.inputs.go_on(before.inputs)
        self.types.go_on(before.types)

    @property
    def silent(self) -> bool:
        """Whether nothing was piped into it yet, and no schema declares its columns."""
        return not self.types.columns

    def edge_of(self, node: Node) -> Edge:
        """The edge of its operator for the records of this side."""
        return next(edge for edge in node.sources if edge.side == self.side)


def entries_of(plan: Plan, nodes: list[Node]) -> list[Entry]:
    """The inputs of all operators; of a topology without operators, its only input."""
    if not nodes:
        inputs = Inputs.of(inputs_of(plan))
        return [Entry(0, 0, inputs, inputs.types())]
    found = []
    for place, node in enumerate(nodes):
        for side in dict.fromkeys(edge.side for edge in node.sources):
            inputs = Inputs.of(tuple(edge.stream for edge in node.sources if edge.side == side))
            found.append(Entry(place, side, inputs, inputs.types()))
    return found


def order_at(place: int, entries: Sequence[Entry]) -> str:
    """The order of the records of an operator's inputs, as `plan.identity` has it; "" without inputs."""
    sources = [entry.inputs.branches[0] for entry in entries if entry.place == place]
    return ", ".join(map(order_of, sources))


def check_names(entries: list[Entry]) -> None:
    """Raise DefinitionError if two different inputs have the same name."""
    named: dict[str, Stream] = {}
    for entry in entries:
        for branch in entry.inputs.branches:
            first = named.setdefault(branch.name, branch)
            if (first.frame, first.schema) != (branch.frame, branch.schema):
                raise DefinitionError(
                    f"Two inputs are called {branch.name!r}, so their records cannot be told apart. "
                    "Name them: tg.stream(..., name=...)."
                )


def check_input(entries: list[Entry], stream: str | None) -> None:
    """Raise InputError unless `stream` names an input, or is None and there is only one."""
    names = list(dict.fromkeys(branch.name for entry in entries for branch in entry.inputs.branches))
    if stream is None and len(names) > 1:
        raise InputError(
            f"This topology has the inputs {', '.join(names)}. Say which: pipe_input(record, {names[0]!r})."
        )
    if stream is not None and not is_one_of(stream, names):
        raise InputError(f"There is no input {in_one_line(stream)}, only {', '.join(map(repr, names))}.")
