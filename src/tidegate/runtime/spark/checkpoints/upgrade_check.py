"""The effect of a changed plan on a checkpoint, computed before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tidegate.dsl import Result
from tidegate.errors import DefinitionTypeError
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.time.idle import Idle
from tidegate.kernel.upgrade import compatibility, description
from tidegate.plan import Node, Operation, Stream, graph, operation
from tidegate.runtime.spark.checkpoints.reading import memories
from tidegate.runtime.spark.session.given import check_session
from tidegate.runtime.spark.to_spark import laid_out
from tidegate.spec.upgrade import Change, Upgrade, other_operators


def check_upgrade(spark: SparkSession, checkpoint: str, table: Any) -> Upgrade:
    """See `tg.check_upgrade`."""
    check_session(spark)
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
    changes += _ticking(stores, op)
    return (replace(change, operator=op.stream.name) for change in dict.fromkeys(changes))


def _ticking(stores: list[DictStore], op: Operation) -> Iterator[Change]:
    """The change if the operator begins or ceases to wake by the wall clock: then a source ticks for it (`flow`).

    Spark counts the sources of a checkpoint.
    """
    found = [
        (described.layout.op, State.open(store)) for store in stores if (described := description.of(store)) is not None
    ]
    if not found:
        return
    # Earlier versions did not describe `idle_advance`; only with it a state has times of an idle input.
    before = any(old.uses_timers or (state is not None and state.idle != Idle()) for old, state in found)
    if before != op.uses_timers:
        loses = (
            "all: Spark refuses a checkpoint with another number of sources, and a time limit by the wall clock, or "
            "`idle_advance`, has one that ticks"
        )
        instead = ". To take a limit away, set it to zero" if any(old.all_limits for old, _ in found) else ""
        names = {True: "by the wall clock", False: "not by the wall clock"}
        yield Change("ticks", names[before], names[op.uses_timers], loses + instead)


def _bound(node: Node) -> bool:
    return all(edge.stream.frame is not None for one in node.upstream_first for edge in one.sources)
