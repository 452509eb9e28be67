"""Merges several streams into one, for `KStream.merge` and cogroups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.plan import Join, Stream


def merged(streams: Sequence[Stream]) -> Stream:
    """The inputs of all the streams as one stream; each keeps its own partitions."""
    branches = [branch for node in streams for branch in node.branches]
    numbered = tuple(replace(branch, number=i) for i, branch in enumerate(branches))
    non_values = tuple(dict.fromkeys(name for branch in branches for name in branch.non_values))
    # Rows of other operators have no clock and no order: those of the source records apply.
    records = [branch for branch in branches if branch.table is None]
    named = (records or branches)[0]
    name, clock = named.name, named.clock
    if len(records) == len(branches):
        name = streams[0].name
    elif not records:
        name = " and ".join(dict.fromkeys(one.name for one in streams))
        joins = [branch.table.clock for branch in branches if isinstance(branch.table, Join)]
        clock = next((one for one in joins if one.slowest), clock)
    base = replace(named, name=name, clock=clock, frame=None, table=None, number=None)
    return replace(base, steps=(), sources=numbered, non_values=non_values)
