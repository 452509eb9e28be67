"""From the logical plan to operators: builds the `Operation` that computes a table.

Here `suppress(until_window_closes(...))` and `emit_strategy(on_window_close())` become the same operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tidegate.errors import DefinitionError
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
    WindowedAggregate,
    root_of,
    same,
    windows_of,
)
from tidegate.plan.physical import DEFAULT_STORE, Limit, Operation, Output
from tidegate.spec.joined import JoinValues, stores_of_sides
from tidegate.spec.steps import Filter, MapValues, Step
from tidegate.spec.suppressed import StrictBuffer, UntilTimeLimit, UntilWindowCloses
from tidegate.spec.windows import UnlimitedWindows, Windows


def operation(table: Plan | Join) -> Operation:
    """The operator that computes `table`. Raises DefinitionError for an impossible one."""
    op = _together(table) if isinstance(table, Outputs) else _alone(table)
    if op.retention_ms is not None and op.emits == "updates":
        # Closed windows are kept, so the operator must compute them, even if no output has them.
        op = replace(op, emits="both", outputs=op.all_outputs)
    kinds = {output.kind for output in op.all_outputs}
    if op.expects is not None and "updates" in kinds and "final" not in kinds:
        raise DefinitionError(
            "`expect_keys` needs final results: that a key is missing shows when the window closes, and this "
            "table gives updates alone. Use emit_strategy(EmitStrategy.on_window_close()), or suppress until the "
            "window closes."
        )
    return op


def with_row_ids(op: Operation) -> Operation | None:
    """The same operation with ids of records in its rows; None if the records have no ids.

    Rows of a join have ids if its records come from sources with partition and offset, or from other such joins, or are
    final results of windows.
    """
    if op.joined is None:
        return None
    for side, stream in enumerate(op.sides):
        if not op.joined.identifies(side):
            continue
        if not all(_identified(branch) for branch in stream.branches):
            return None
    return replace(op, row_ids=True)


def _identified(branch: Stream) -> bool:
    """Whether the records of an input have ids."""
    if branch.table is None:
        return branch.ordered
    op = operation(branch.table)
    return op.identified_by_window or with_row_ids(op) is not None


def _alone(table: Table | LateRecords | Stream | Join) -> Operation:
    if isinstance(table, LateRecords):
        op = _alone(table.parent)
        return replace(op, emits="updates" if op.windows is None else "final", outputs=(Output("", "late"),))
    if isinstance(table, Stream):
        if table.table is None:
            raise DefinitionError(f"The stream {table.name!r} has no aggregation, so there is no operator.")
        op = _alone(table.table)
        return replace(op, after=op.after + table.steps)
    suppressions = list(_suppressions(table))
    aggregate = root_of(table)
    store = _store_of(aggregate)
    limits, after = _steps(table)
    named = next((how.name for how in suppressions if how.name), DEFAULT_STORE)
    limits = tuple(replace(limit, store=named) for limit in limits) if len(limits) == 1 else _placed(limits)
    behind = [limit.store for limit in limits] or ([named] if suppressions else [])
    _check_stores(store, behind, joins=isinstance(aggregate, Join))
    if isinstance(aggregate, Join):
        op = _of_join(aggregate)
        limits, after = _behind_values(op.after, limits, after)
    elif isinstance(aggregate, Changelog):
        op = Operation(stream=aggregate.stream, key=aggregate.key, name=store, deleted=aggregate.deleted)
    else:
        op = _of_aggregate(aggregate, suppressions)
    return replace(op, buffer_name=named, limits=limits, after=after)


def _placed(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """Limits with their places in the checkpoint; unnamed ones get a name."""
    return tuple(
        replace(limit, place=place, store=limit.how.name or DEFAULT_STORE + (f"-{place + 1}" if place else ""))
        for place, limit in enumerate(limits)
    )


def _check_stores(store: str, suppressions: list[str], *, joins: bool) -> None:
    """Raise DefinitionError if two stores of the operator `store` have one name; a join has one for each side too."""
    twice = next((name for n, name in enumerate(suppressions) if name in suppressions[:n]), None)
    if twice is not None:
        raise DefinitionError(
            f"Two suppressions of one operator are both called {twice!r}, so that their stores and metrics cannot be "
            'told apart. Name one of them otherwise: .with_name("name").'
        )
    own = (store, *(stores_of_sides(store) if joins else ()))
    twice = next((name for name in own if name in suppressions), None)
    if twice is not None:
        raise DefinitionError(
            f"The store and the suppression behind it are both called {twice!r}, so that neither can be read or told "
            'apart in a checkpoint. Name one of them otherwise: Materialized.as_("name"), .with_name("name").'
        )


def _store_of(root: Root) -> str:
    if isinstance(root, WindowedAggregate):
        return root.materialized.name
    return "table" if isinstance(root, Changelog) else root.store


def _of_aggregate(aggregate: WindowedAggregate, suppressions: list[UntilWindowCloses | UntilTimeLimit]) -> Operation:
    return Operation(
        stream=aggregate.stream,
        key=aggregate.key,
        name=_store_of(aggregate),
        windows=aggregate.windows,
        aggregations=aggregate.aggregations,
        emits="final" if _final(aggregate, suppressions) else "updates",
        caching=aggregate.materialized.caching,
        # Behind an aggregation that emits on close, a buffer never holds anything.
        buffer=None if aggregate.emits_on_close else _bound(suppressions),
        retention_ms=aggregate.materialized.retention_ms if _closes(aggregate.windows) else None,
        expects=aggregate.expects,
    )


def _of_join(join: Join) -> Operation:
    values = join.joined.values
    return Operation(
        stream=join.stream,
        key=join.key,
        name=join.store,
        after=() if values is None else (values,),
        joined=join.joined,
        sides=join.sides,
        deletions=join.deletions,
    )


def _behind_values(
    values: tuple[Step, ...], limits: tuple[Limit, ...], after: tuple[Step, ...]
) -> tuple[tuple[Limit, ...], tuple[Step, ...]]:
    """The limits and the steps of a join's rows with the step `values` of its value joiner, before all other steps.

    Limits before the first other step hold the values of both sides, as checkpoints have them.
    """
    first = next((n for n, limit in enumerate(limits) if limit.before), None)
    if first is None:
        return limits, (*values, *after)
    _check_typed(values)
    held = replace(limits[first], before=(*values, *limits[first].before))
    return (*limits[:first], held, *limits[first + 1 :]), after


def _steps(table: Table) -> tuple[tuple[Limit, ...], tuple[Step, ...]]:
    """The time limits of a table's rows, each with the steps before it, and the steps after the last limit."""
    before: tuple[Step, ...] = ()
    segments: list[tuple[Step, ...]] = []
    limits: list[UntilTimeLimit] = []
    root = root_of(table)
    closes = isinstance(root, WindowedAggregate) and root.emits_on_close
    while isinstance(table, Suppress | MapFilter):
        if isinstance(table, MapFilter):
            # Only the last update of a window leaves, unless it is a tombstone.
            step = table.step
            if closes and isinstance(step, Filter):
                step = replace(step, tombstones=False)
            before = (step, *before)
        elif isinstance(table.how, UntilTimeLimit):
            segments, limits, before = [before, *segments], [table.how, *limits], ()
        else:
            closes = True
        table = table.parent
    *held, after = [before, *segments]
    for steps in held:
        _check_typed(steps)
    return tuple(Limit(how, steps) for how, steps in zip(limits, held, strict=True)), after


def _check_typed(held: Iterable[Step]) -> None:
    """Raise DefinitionError if a step before a suppression gives columns of unknown types."""
    untyped = next((step for step in held if isinstance(step, MapValues) and not step.typed), None)
    if untyped is not None:
        given = "join" if isinstance(untyped, JoinValues) else "map_values"
        raise DefinitionError(
            f"{untyped} is followed by a suppression, whose buffer must know the types of its columns. Give "
            f'{given}(..., types={{"column": "long"}}), or expressions instead of functions.'
        )


def _final(root: WindowedAggregate, suppressions: Iterable[UntilWindowCloses | UntilTimeLimit]) -> bool:
    return root.emits_on_close or any(isinstance(how, UntilWindowCloses) for how in suppressions)


def _together(outputs: Outputs) -> Operation:
    """The one operator behind several tables of one aggregation."""
    parts = [(name, _alone(table)) for name, table in outputs.named]
    _check_one_aggregation(parts)
    first = parts[0][1]
    all_outputs = tuple(_beside_others(name, part) for name, op in parts for part in op.all_outputs)
    limits = tuple(limit for output in all_outputs for limit in output.limits)
    if len(limits) > 1:
        limits = _placed(limits)
        _check_stores(first.name, [limit.store for limit in limits], joins=first.joined is not None)
        rest = iter(limits)
        all_outputs = tuple(replace(output, limits=tuple(next(rest) for _ in output.limits)) for output in all_outputs)
    kinds = {output.kind for output in all_outputs} - {"late"}
    bounded = next((op for _, op in parts if op.buffer is not None), first)
    if bounded.buffer is not None and "updates" in kinds and first.caching:
        raise DefinitionError(
            f"An output waits in a buffer with a bound ({bounded.buffer}), which is checked record by record, and "
            "another one gives the last update per micro-batch. Use BufferConfig.unbounded(), or "
            "Materialized.as_(...).with_caching_disabled()."
        )
    # The buffer has the name of the final results that wait for their windows; limits have names of their own.
    closing = [op for _, op in parts if op.identified_by_window and not op.limits]
    limited = [op for _, op in parts if op.limits]
    held = next(iter([*sorted(closing, key=lambda op: op.buffer is None), *limited]), first)
    emits = "both" if len(kinds) > 1 else kinds.pop() if kinds else first.emits
    return replace(
        first,
        emits=emits,
        buffer=bounded.buffer,
        buffer_name=held.buffer_name,
        limits=(),
        after=(),
        outputs=all_outputs,
    )


def _check_one_aggregation(parts: list[tuple[str, Operation]]) -> None:
    """Raise DefinitionError if outputs, given by name, are not of one aggregation."""
    (first_name, first), *others = parts
    for name, op in others:
        differs = [what for what, mine, theirs in _aggregation(first, op) if not same(mine, theirs)]
        if differs:
            raise DefinitionError(
                f"The outputs {first_name!r} and {name!r} are not of one aggregation: they differ in their "
                f"{', '.join(differs)}. Build the aggregation once and derive both from it "
                "(final = counts.suppress(...)), or give each a query of its own."
            )


def _beside_others(name: str, output: Output) -> Output:
    """One of several outputs, with its `name`.

    Raises DefinitionError if a step sets the column `output`, or if the types of its columns are not known.
    """

    def checked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        for step in steps:
            if isinstance(step, MapValues) and not step.typed:
                raise DefinitionError(
                    f"{step} of the output {name!r} has columns of unknown types. Rows of several outputs are one "
                    'table, whose columns have types before there is a row. Give map_values(..., types={"column": '
                    '"long"}), or expressions instead of functions.'
                )
            if isinstance(step, MapValues) and "output" in step.columns:
                raise DefinitionError(
                    f"{step} of the output {name!r} gives a column 'output': among several outputs that column says "
                    "which one a row is of. Choose another name."
                )
        return tuple(replace(s, kept=(*s.kept, "output")) if isinstance(s, MapValues) else s for s in steps)

    limits = tuple(replace(limit, before=checked(limit.before)) for limit in output.limits)
    return replace(output, name=name, limits=limits, after=checked(output.after))


def _aggregation(one: Operation, other: Operation) -> Iterator[tuple[str, Any, Any]]:
    """Properties that two operations must share to be one aggregation: (property, value of one, of the other)."""
    yield "stream", one.stream, other.stream
    yield "key", one.key, other.key
    yield "join", (one.joined, one.sides), (other.joined, other.sides)
    yield "windows", one.windows, other.windows
    yield "aggregates", one.aggregations, other.aggregations
    yield "expected keys", id(one.expects), id(other.expects)
    yield "store", (one.name, one.caching, one.retention_ms), (other.name, other.caching, other.retention_ms)


def _suppressions(table: Table) -> Iterator[UntilWindowCloses | UntilTimeLimit]:
    while isinstance(table, Suppress | MapFilter):
        if isinstance(table, Suppress):
            yield table.how
        table = table.parent


def _bound(suppressions: list[UntilWindowCloses | UntilTimeLimit]) -> StrictBuffer | None:
    for how in suppressions:
        if isinstance(how, UntilWindowCloses) and how.buffer.bounded:
            return how.buffer
    return None


def surprises(table: Suppress) -> Iterator[str]:
    """Warnings about the outermost suppression of `table`: legal, but probably not intended."""
    how, root, buffer = table.how, root_of(table), table.how.buffer
    windows = windows_of(table)
    if isinstance(how, UntilWindowCloses):
        if isinstance(windows, UnlimitedWindows):
            yield (
                f"suppress({how}) on {windows}: an unlimited window never closes, so nothing ever comes out and the "
                "state only grows. Use until_time_limit, or no suppression."
            )
        elif isinstance(root, WindowedAggregate) and _final(root, _suppressions(table.parent)):
            yield (
                f"suppress({how}) has nothing to do: the table before it emits final results already (on window "
                "close, or through another suppress). Leave one of the two out."
            )
    elif how.limit_ms and how.measured_from == "latest_update" and not _closes(windows) and not buffer.bounded:
        yield (
            f"suppress({how}): the limit begins again with every update and the buffer has no bound, so a key that is "
            f'updated more often than every {show_ms(how.limit_ms)} never comes out. Use measured_from="first_update", '
            "or a bound, as in BufferConfig.max_records(1_000_000)."
        )


def _closes(windows: Windows | None) -> bool:
    """Whether the windows close at some time, so that updates of a key and window end."""
    return windows is not None and not isinstance(windows, UnlimitedWindows)
