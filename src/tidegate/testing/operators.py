"""The operators of a topology that the driver runs."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.dsl import KLateRecords, KStream, KTable, Result, outputs_by_name
from tidegate.errors import DefinitionTypeError, in_one_line
from tidegate.plan import Node, Plan, Stream, check_records_alone, graph, operation
from tidegate.testing.piped_order import in_piped_order


def operators(table: Result | Mapping[str, KTable | KStream | KLateRecords]) -> tuple[Plan, list[Node]]:
    """The plan of a topology and its operators, upstream first; a topology of stateless steps has none."""
    if not isinstance(table, Result | Mapping):
        raise DefinitionTypeError(
            f"A driver runs a topology, not {in_one_line(table)}. Give what a query is made of, for example "
            'TopologyTestDriver(tg.stream("events", key="user", timestamp="ts").group_by_key().count()).'
        )
    node = (table if isinstance(table, Result) else outputs_by_name(table)).node
    if isinstance(node, Stream) and node.table is None:
        check_records_alone(node)
        return node, []
    return node, in_piped_order(graph(operation(node))).upstream_first
