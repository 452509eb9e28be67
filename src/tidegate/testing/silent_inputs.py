"""Inputs from which nothing was piped yet: their columns are not known, and steps that name them read nulls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidegate.plan import Edge, Node, Operation
from tidegate.spec.columns import WINDOW, public_key
from tidegate.spec.steps import MapValues, SelectKey, Step, unknown_column


def named_columns(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """By operator: the columns of its rows that the steps behind it name, or by which its rows are grouped.

    A Python function hides its reads.
    """
    return [tuple(dict.fromkeys(name for one in _behind(node, nodes) for name in _named(*one))) for node in nodes]


def _behind(node: Node, nodes: Sequence[Node]) -> Iterable[tuple[tuple[Step, ...], tuple[str, ...]]]:
    """The steps behind an operator and the key behind them, by output and by operator that reads its rows."""
    forwarded = [
        (edge.stream.steps, public_key(reader.op.key)) for reader in nodes for edge in reader.edges if edge.node is node
    ]
    for output in node.op.all_outputs:
        before = tuple(step for limit in output.limits for step in limit.before)
        yield from (((*before, *output.after, *steps), key) for steps, key in forwarded or [((), ())])


def _named(steps: Iterable[Step], key: Iterable[str]) -> list[str]:
    """The columns that steps name, up to the first one that replaces all values, and those of the key."""
    found: list[str] = []
    made: list[str] = []
    for step in steps:
        while (name := unknown_column(step, [*found, *made])) is not None:
            found.append(name)
        if isinstance(step, MapValues):
            return found
        made += [step.name] if isinstance(step, SelectKey) else []
    return [*found, *(name for name in key if name not in made)]


def with_named_columns(
    op: Operation, named: Iterable[str], inputs: list[tuple[Edge, pa.Table]], silent: Sequence[bool]
) -> list[tuple[Edge, pa.Table]]:
    """The inputs of an operator. The first silent one gets the columns in `named` that no other one has.

    Which columns suffixes rename is not known before both sides are.
    """
    if not any(silent) or op.aggregations or (op.joined is not None and op.joined.suffixes is not None):
        return inputs
    at, known = silent.index(True), {*public_key(op.key), WINDOW, "timestamp", "deleted"}
    for _, rows in inputs:
        known |= {*rows.schema.names, *(name.partition(":")[2] for name in rows.schema.names)}
    edge, rows = inputs[at]
    for name in named:
        if name not in known:
            rows = rows.append_column(f"v:{name}", pa.nulls(rows.num_rows))
    return [*inputs[:at], (edge, rows), *inputs[at + 1 :]]
