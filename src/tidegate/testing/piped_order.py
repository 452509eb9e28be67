"""The order of records without partition and offset: one partition, in the order piped."""

from __future__ import annotations

from dataclasses import replace

from tidegate.plan import Node, Operation, Stream
from tidegate.testing.records import OWN, Record

_PARTITION, _OFFSET = OWN


def in_piped_order(node: Node) -> Node:
    """The operators, with partition and offset of the driver for streams that have none."""
    edges = tuple(edge if edge.node is None else replace(edge, node=in_piped_order(edge.node)) for edge in node.edges)
    op = node.op
    if op.joined is not None:
        op = replace(op, sides=tuple(side if side.from_upstream else _ordered(side) for side in op.sides))
    elif not op.stream.from_upstream:
        op = replace(op, stream=_ordered(op.stream))
    return Node(op, edges)


def _ordered(stream: Stream) -> Stream:
    return stream if stream.ordered else replace(stream, partition=_PARTITION, offset=_OFFSET)


def numbered(op: Operation, records: list[Record], start: int) -> list[Record]:
    """Records with the partition and offset columns that `in_piped_order` added; `start` is the first offset."""
    if op.stream.partition != _PARTITION:
        return records
    return [{**record, _PARTITION: 0, _OFFSET: start + i} for i, record in enumerate(records)]
