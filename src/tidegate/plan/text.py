"""The plan as text, for people."""

from __future__ import annotations

from textwrap import indent

from tidegate.instants import show_ms
from tidegate.plan.nodes import Changelog, Join, LateRecords, MapFilter, Outputs, Plan, Stream, Suppress, Table
from tidegate.plan.physical import Operation
from tidegate.plan.planner import operation
from tidegate.spec.columns import public_key
from tidegate.spec.joined import SIDES

_STATEFUL = "transformWithStateInPandas"


def headline(table: Plan) -> str:
    """`table` in one line: its inputs, its computation, and its suppressions."""
    if isinstance(table, Outputs):
        return ", ".join(f"{name}: {headline(output)}" for name, output in table.named)
    if isinstance(table, LateRecords):
        return f"late records of {headline(table.parent)}"
    if isinstance(table, Stream):
        of = table.name
        if isinstance(table.table, Join):
            of = _join_line(table.table)
        elif table.table is not None:
            of = f"changes of {headline(table.table)}"
        return " -> ".join([of, *map(str, table.steps)])
    if isinstance(table, Suppress):
        return f"{headline(table.parent)} -> suppress({table.how})"
    if isinstance(table, MapFilter):
        return f"{headline(table.parent)} -> {table.step}"
    if isinstance(table, Join):
        return _join_line(table)
    if isinstance(table, Changelog):
        return f"table {table.stream.name} by {', '.join(public_key(table.key))}"
    columns = ", ".join(f"{name} = {aggregation}" for name, aggregation in table.aggregations)
    windows = f" in {table.windows}" if table.windows is not None else ""
    close = ", on window close" if table.emits_on_close else ""
    return f"{columns} of {table.stream.name} by {', '.join(public_key(table.key))}{windows}{close}"


def describe(table: Plan) -> str:
    """The tree of `table` as text: every node with its name, windows, grace, buffer and Spark operator."""
    if isinstance(table, Outputs):
        operation(table)
        trees = (f"{name}:\n{indent(describe(output), '   ')}" for name, output in table.named)
        return "\n".join(["Outputs of one operator", *trees])
    if isinstance(table, LateRecords):
        return f"Late records, whole, in the operator of\n{indent(describe(table.parent), '   ')}"
    if isinstance(table, Stream):
        return "\n".join(_input_lines(table))
    return "\n".join(_table_lines(table, operation(table)))


def _table_lines(table: Table, op: Operation) -> list[str]:
    """A table, and below it what it is made of; `op` is the operator that computes it."""
    if isinstance(table, MapFilter):
        return [str(table.step), "   spark    behind the operator", *_below(_table_lines(table.parent, op))]
    if isinstance(table, Suppress):
        in_operator = op.emits == "final" or op.all_limits
        return [
            f"Suppress {table.how.name or ''}".rstrip(),
            f"   when     {table.how}",
            f"   spark    {'in the operator of the aggregation' if in_operator else 'passes everything through'}",
            *_below(_table_lines(table.parent, op)),
        ]
    if isinstance(table, Join):
        return _join_lines(table)
    if isinstance(table, Changelog):
        return [
            f"Table {table.stream.name}",
            f"   key      {', '.join(public_key(table.key))}",
            f"   time     {table.stream.timestamp}",
            *([] if table.deleted is None else [f"   deleted  where {table.deleted} is true"]),
        ]
    windows, emits = table.windows, _emits(op.emits == "final", table.materialized.caching, table.windows is not None)
    return [
        f"{'WindowedAggregate' if windows else 'Aggregate'} {table.materialized.name}",
        f"   columns  {', '.join(f'{name} = {a}' for name, a in table.aggregations)}",
        *([f"   windows  {windows}", f"   grace    {show_ms(windows.grace_ms)}"] if windows else []),
        f"   emits    {emits}",
        *([] if table.expects is None else ["   expects  keys that get a row in every window"]),
        f"   spark    mapInArrow ({'pre-aggregates' if op.pre_aggregates else 'packs records'}), {_STATEFUL}",
        *_below([f"GroupBy {', '.join(public_key(table.key))}", *_below(_input_lines(table.stream))]),
    ]


def _join_line(join: Join) -> str:
    left, *others = [headline(side) for side in join.sides]
    of, how = f"{join.joined.how} join of {left} with {others[0] if others else 'itself'}", str(join.joined)
    return of + how.removeprefix(f"{join.joined.how} join").removeprefix(" of tables").replace(" with ", ", ", 1)


def _join_lines(join: Join) -> list[str]:
    joined = join.joined
    lines = [f"{type(joined).__name__}Join {join.name}"]
    lines.append(f"   how      {joined.how}{' join with itself' if joined.self_join else ''}")
    lines += [f"   {name:<8} {said}" for name, said in joined.shown.items()]
    deleted = zip(SIDES, join.deletions, strict=True)
    lines += [f"   deleted  where {name} of the {side} side is true" for side, name in deleted if name is not None]
    lines += [f"   clock    {line}" for line in join.clock.lines()]
    lines.append(f"   spark    mapInArrow (packs records of both sides), {_STATEFUL}")
    return [*lines, *(line for side in join.sides for line in _below(_input_lines(side)))]


def _input_lines(stream: Stream) -> list[str]:
    """A stream with its steps, or the streams it was merged from."""
    if stream.table is not None:
        lines = _join_lines(stream.table) if isinstance(stream.table, Join) else describe(stream.table).splitlines()
        for step in stream.steps:
            lines = [str(step), *_below(lines)]
        return lines
    if stream.sources:
        return ["Merge", *(line for source in stream.sources for line in _below(_input_lines(source)))]
    order = f"partition {stream.partition}, offset {stream.offset}" if stream.ordered else "timestamps"
    lines = [
        f"Stream {stream.name}",
        f"   key      {', '.join(public_key(stream.key))}",
        f"   time     {stream.timestamp}",
        f"   order    {order}",
        *(f"   clock    {line}" for line in stream.clock.lines()),
    ]
    for step in stream.steps:
        lines = [str(step), *_below(lines)]
    return lines


def _below(lines: list[str]) -> list[str]:
    """The lines of a tree, one level down."""
    return [("└─ " if i == 0 else "   ") + line for i, line in enumerate(lines)]


def _emits(final: bool, caching: bool, windowed: bool) -> str:
    if final:
        return "final results, once, when the window closes"
    return f"the last update per key{', window' if windowed else ''} and micro-batch" if caching else "every update"
