"""The effect of a changed plan on a checkpoint, computed before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tidegate.dsl import Result
from tidegate.errors import DefinitionTypeError
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.upgrade import compatibility, description
from tidegate.plan import Node, Operation, Stream, graph, operation
from tidegate.runtime.spark.attach import laid_out
from tidegate.runtime.spark.checkpoints.reading import memories
from tidegate.spec.upgrade import Change, Upgrade, other_operators


def check_upgrade(spark: SparkSession, checkpoint: str, table: Any) -> Upgrade:
    """See `tg.check_upgrade`."""
    if not isinstance(table, Result):
        raise DefinitionTypeError(f"`table` is {table!r}, not a table or outputs of tidegate. Give what you run.")
    node = table.node
    alone = isinstance(node, Stream) and node.table is None
    nodes = [] if alone else graph(operation(node)).upstream_first
    found = memories(spark, checkpoint)
    if len(nodes) != len(found):
        return other_operators(len(found), len(nodes))
    return Upgrade(tuple(change for one, stores in zip(nodes, found, strict=True) for change in _of(one, stores)))


def _of(node: Node, stores: list[DictStore]) -> Iterator[Change]:
    """The changes for an operator, from the state of every task that has any."""
    op = node.op
    layout, tasks = laid_out(node) if _bound(node) else (None, None)
    unbound = replace(op, stream=op.stream.unbound) if layout is None else op
    changes = [change for store in stores for change in compatibility.preview(store, unbound, layout, tasks)]
    changes += [change for store in stores for change in _ticking(store, op)]
    return (replace(change, operator=op.stream.name) for change in dict.fromkeys(changes))


def _ticking(store: DictStore, op: Operation) -> Iterator[Change]:
    """The change if wall-clock limits come or go: they have a source of ticks, and Spark counts sources (`flow`)."""
    what = description.of(store)
    if what is None:
        return
    before, after = (any(limit.how.clock == "wall" for limit in one.all_limits) for one in (what.layout.op, op))
    if before != after:
        loses = "all: Spark refuses a checkpoint with another number of sources, and such a limit has one that ticks"
        names = {True: "by the wall clock", False: "not by the wall clock"}
        yield Change("ticks", names[before], names[after], loses + ". To take it away, set it to zero")


def _bound(node: Node) -> bool:
    return all(edge.stream.frame is not None for one in node.upstream_first for edge in one.sources)
