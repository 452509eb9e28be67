"""The inputs of a topology's operators."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import DefinitionError, InputError
from tidegate.plan import Edge, Node, Plan, Stream, inputs_of
from tidegate.testing.column_types import Types
from tidegate.testing.inputs import Inputs


@dataclass
class Entry:
    """An input of an operator: the streams that records are piped into, and the types of their columns behind steps.

    place, side  the operator, among all upstream first; and the side of a join
    """

    place: int
    side: int
    inputs: Inputs
    types: Types

    def copy(self) -> Entry:
        """The same, learning on its own."""
        return Entry(self.place, self.side, self.inputs.copy(), self.types.copy())

    def go_on(self, before: Entry) -> None:
        """Know besides what was known before a restart."""
        self.inputs.go_on(before.inputs)
        self.types.go_on(before.types)

    def edge_of(self, node: Node) -> Edge:
        """The edge of its operator by which its records come, all those of a side together."""
        return next(edge for edge in node.sources if edge.side == self.side)


def entries_of(plan: Plan, nodes: list[Node]) -> list[Entry]:
    """The inputs of all operators; of stateless steps alone, the one that there is."""
    if not nodes:
        inputs = Inputs.of(inputs_of(plan))
        return [Entry(0, 0, inputs, inputs.types())]
    found = []
    for place, node in enumerate(nodes):
        for side in dict.fromkeys(edge.side for edge in node.sources):
            inputs = Inputs.of(tuple(edge.stream for edge in node.sources if edge.side == side))
            found.append(Entry(place, side, inputs, inputs.types()))
    return found


def check_names(entries: list[Entry]) -> None:
    """Raise DefinitionError where two inputs that are not one have the same name."""
    named: dict[str, Stream] = {}
    for entry in entries:
        for branch in entry.inputs.branches:
            first = named.setdefault(branch.name, branch)
            if (first.frame, first.schema) != (branch.frame, branch.schema):
                raise DefinitionError(
                    f"Two inputs are called {branch.name!r}, so nobody can say whose a record is. "
                    "Name them: tg.stream(..., name=...)."
                )


def check_input(entries: list[Entry], stream: str | None) -> None:
    """Raise InputError unless it is clear which input records are of."""
    names = list(dict.fromkeys(branch.name for entry in entries for branch in entry.inputs.branches))
    if stream is None and len(names) > 1:
        raise InputError(
            f"This topology has the inputs {', '.join(names)}. Say which: pipe_input(record, {names[0]!r})."
        )
    if stream is not None and stream not in names:
        raise InputError(f"There is no input {stream!r}, only {', '.join(map(repr, names))}.")
