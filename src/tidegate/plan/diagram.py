"""The plan as a graph of boxes, for drawings, and as Mermaid text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.instants import show_ms
from tidegate.plan.nodes import (
    Changelog,
    Join,
    LateRecords,
    MapFilter,
    Outputs,
    Plan,
    Root,
    Stream,
    Suppress,
    Table,
    root_of,
)
from tidegate.plan.physical import Operation
from tidegate.plan.planner import operation
from tidegate.spec.columns import public_key
from tidegate.spec.joined import Joined, StreamStream
from tidegate.spec.windows import JoinWindows, Windows

SOURCE, STEP, OPERATOR, BUFFER, OUTPUT = ("source", "step", "operator", "buffer", "output")


@dataclass(frozen=True)
class Box:
    """A part of a topology.

    kind     "source", "step" (stateless), "operator" (stateful), "buffer" (a suppression) or "output" (one of several)
    details  lines below the title
    windows  the windows of an operator, if it has some
    inputs   the indexes of the boxes that records come from
    """

    kind: str
    title: str
    details: tuple[str, ...] = ()
    windows: Windows | JoinWindows | None = None
    inputs: tuple[int, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines of text, with lines about the windows."""
        if self.windows is None:
            return (self.title, *self.details)
        return (self.title, *self.details, str(self.windows), f"grace {show_ms(self.windows.grace_ms)}")


def boxes(plan: Plan) -> list[Box]:
    """The parts of a topology; inputs come before the boxes that read them."""
    found = _Boxes()
    found.of(plan)
    return found.listed


def boxes_of(operators: Sequence[Operation]) -> list[Box]:
    """The operators that a checkpoint describes, each with the streams it reads.

    The description does not say which of these streams are rows of another operator.
    """
    found = _Boxes()
    for op in operators:
        inputs = tuple(
            found.add(Box(SOURCE, side.name, (f"key {_listed(side.key)}", f"time {side.timestamp}")))
            for side in op.sides or (op.stream,)
        )
        found.add(_of_operation(op), inputs)
    return found.listed


def mermaid(plan: Plan) -> str:
    """The topology as a flowchart of Mermaid."""
    return flowchart(boxes(plan))


def flowchart(listed: Sequence[Box]) -> str:
    """The boxes as a flowchart of Mermaid."""
    shapes = {SOURCE: ('[("', '")]'), STEP: ('("', '")'), OPERATOR: ('["', '"]'), BUFFER: ('[/"', '"/]')}
    lines = ["flowchart TD"]
    for place, box in enumerate(listed):
        opens, closes = shapes.get(box.kind, ('(["', '"])'))
        lines.append(f"    b{place}{opens}{'<br>'.join(map(_escaped, box.lines))}{closes}")
        lines += [f"    b{source} --> b{place}" for source in box.inputs]
    return "\n".join(lines)


class _Boxes:
    def __init__(self) -> None:
        self.listed: list[Box] = []
        self._shared: list[tuple[Table | Stream, int]] = []
        self._operations: list[tuple[Root, Operation]] = []

    def add(self, box: Box, inputs: tuple[int, ...] = ()) -> int:
        """Add a box that reads `inputs`; returns its index."""
        self.listed.append(replace(box, inputs=inputs))
        return len(self.listed) - 1

    def of(self, plan: Plan) -> int:
        """Add the boxes of `plan`; returns the index of the last one."""
        if not isinstance(plan, Stream):
            # A suppression and outputs behind an aggregation decide what it emits.
            self._operations.append((root_of(plan), operation(plan)))
        if isinstance(plan, Outputs):
            ends = [self.add(Box(OUTPUT, f"output {name}"), (self.of(one),)) for name, one in plan.named]
            return ends[-1]
        if isinstance(plan, LateRecords):
            late = Box(STEP, "late records", ("whole, not taken by the operator",))
            return self.add(late, (self.of(plan.parent),))
        # Several outputs, or both sides of a join, may use the same table: it is one operator and one box.
        for known, place in self._shared:
            if known is plan:
                return place
        place = self._table(plan)
        self._shared.append((plan, place))
        return place

    def _table(self, plan: Table | Stream) -> int:
        if isinstance(plan, Stream):
            return self._stream(plan)
        if isinstance(plan, Suppress):
            title = f"suppress {plan.how.name or ''}".rstrip()
            return self.add(Box(BUFFER, title, (str(plan.how),)), (self.of(plan.parent),))
        if isinstance(plan, MapFilter):
            return self.add(Box(STEP, str(plan.step)), (self.of(plan.parent),))
        if isinstance(plan, Join):
            return self.add(_of_join(plan), tuple(self._stream(side) for side in plan.sides))
        if isinstance(plan, Changelog):
            details = (f"key {_listed(plan.key)}", f"time {plan.stream.timestamp}")
            return self.add(Box(OPERATOR, f"table {plan.stream.name}", details), (self._stream(plan.stream),))
        op = next(op for root, op in self._operations if root is plan)
        return self.add(_aggregated(op, plan.materialized.name or op.name), (self._stream(plan.stream),))

    def _stream(self, stream: Stream) -> int:
        if stream.table is not None:
            place = self.of(stream.table)
        elif stream.sources:
            place = self.add(Box(STEP, "merge"), tuple(self._stream(source) for source in stream.sources))
        else:
            place = self._source(stream)
        for step in stream.steps:
            place = self.add(Box(STEP, str(step)), (place,))
        return place

    def _source(self, stream: Stream) -> int:
        order = f"order {stream.partition}, {stream.offset}" if stream.ordered else "order by timestamps"
        clock = tuple(f"clock {line}" for line in stream.clock.lines())
        details = (f"key {_listed(stream.key)}", f"time {stream.timestamp}", order, *clock)
        box = Box(SOURCE, stream.name, details)
        return self.listed.index(box) if box in self.listed else self.add(box)


def _of_operation(op: Operation) -> Box:
    if op.joined is not None:
        windows = op.joined.windows if isinstance(op.joined, StreamStream) else None
        return Box(OPERATOR, f"join {op.name}", _how(op.joined), windows)
    if not op.aggregations:
        return Box(OPERATOR, f"table {op.name}", (f"key {_listed(op.key)}",))
    return _aggregated(op, op.name)


def _aggregated(op: Operation, name: str) -> Box:
    columns = tuple(f"{column} = {how}" for column, how in op.aggregations)
    by = (f"by {_listed(op.key)}",)
    emits = {"final": "emits each window once, when it closes", "updates": "emits updates"}
    title = "aggregate" if name == "aggregate" else f"aggregate {name}"
    details = (*columns, *by, emits.get(op.emits, "emits updates and final rows"))
    return Box(OPERATOR, title, details, op.windows)


def _of_join(join: Join) -> Box:
    windows = join.joined.windows if isinstance(join.joined, StreamStream) else None
    clock = tuple(f"clock {line}" for line in join.clock.lines())
    return Box(OPERATOR, f"join {join.name}", (*_how(join.joined), f"by {_listed(join.key)}", *clock), windows)


def _how(joined: Joined) -> tuple[str, ...]:
    """Lines about a join without its windows: the kind, and what else it shows, such as the columns of its rows."""
    kind = f"{joined.how} join" if isinstance(joined, StreamStream) else str(joined)
    return kind, *(f"{name} {said}" for name, said in joined.shown.items() if name not in ("windows", "grace", "row"))


def _listed(key: Sequence[str]) -> str:
    return ", ".join(public_key(tuple(key)))


def _escaped(text: str) -> str:
    """Text for a label of Mermaid, with markup characters as entities."""
    for sign, entity in (("#", "#35;"), ("&", "#amp;"), ("<", "#lt;"), (">", "#gt;"), ('"', "#quot;"), ("`", "#96;")):
        text = text.replace(sign, entity)
    return text.replace("\n", " ")
