"""The graph of operators: an operator reads streams or the rows of other operators.

clicks --.                                        one node per operator, edges are its inputs;
join -- repartition -- aggregation      rows on an edge between two operators are
views  --'                                        records of the one that reads them
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from tidegate.plan.nodes import Stream
from tidegate.plan.physical import Operation, Repartition
from tidegate.plan.planner import operation
from tidegate.spec.aggregates import Fold, Reduce

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Edge:
    """An input of an operator: the records of `stream`, which are rows of `node` if it is not None.

    side  the side of a join that the records belong to; 0 in other operators
    """

    stream: Stream
    side: int = 0
    node: Node | None = None


@dataclass(frozen=True)
class Node:
    """An operator and its inputs. Each branch of a merged stream is an edge."""

    op: Operation
    edges: tuple[Edge, ...]

    @property
    def upstream_first(self) -> list[Node]:
        """This operator and all upstream of it; each comes after the operators whose rows it reads.

        Spark numbers its stateful operators in the reverse order, from the sink on.
        """
        before = [node for edge in reversed(self.edges) if edge.node is not None for node in edge.node.upstream_first]
        return [*before, self]

    @property
    def sources(self) -> list[Edge]:
        """The inputs of this operator that come from a source."""
        return [edge for edge in self.edges if edge.node is None]

    def walk(self, step: Callable[[Node, list[Rows | None]], Rows]) -> Rows:
        """Call `step` for each operator, upstream first; it gets the rows of each edge, None for a source."""
        rows = [None if edge.node is None else edge.node.walk(step) for edge in reversed(self.edges)]
        return step(self, rows[::-1])


def graph(op: Operation) -> Node:
    """The graph that ends in `op`: the operators that records pass before the rows of `op` exist."""
    if op.joined is None:
        return Node(op, tuple(_edges(op, op.stream, 0)))
    return Node(op, tuple(edge for side, stream in enumerate(op.sides) for edge in _edges(op, stream, side)))


def _edges(op: Operation, stream: Stream, side: int) -> list[Edge]:
    return [_edge(op, branch, side) for branch in stream.branches]


def _edge(op: Operation, stream: Stream, side: int) -> Edge:
    if stream.table is None:
        return Edge(stream, side)
    regroup = _repartition(op, stream, side)
    upstream = replace(operation(stream.table), regroup=regroup, row_ids=op.identifies(side))
    return Edge(stream, side, graph(upstream))


def _repartition(op: Operation, stream: Stream, side: int) -> Repartition:
    function = op.function
    non_values = (*stream.key, *op.key, *(stream.non_values if op.joined is not None else ()))
    values = None if isinstance(function, Fold) or op.joined is not None else op.input_columns(())
    value_columns = (function.column,) if isinstance(function, Reduce) else ()
    table = op.joined is not None and op.joined.tables[side]
    return Repartition(
        op.key,
        values,
        stream.changes,
        value_columns,
        non_values,
        with_non_values=op.joined is None,
        full_records=op.keeps_late,
        table=table,
    )
