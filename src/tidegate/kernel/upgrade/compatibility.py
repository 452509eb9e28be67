"""A checkpoint under a changed plan: the changes that can go on, and the losses by which others are refused.

    grace         another one     the close time reached stays reached: windows closed by a shorter grace stay closed
    aggregation   new columns     null in windows that began by then, and for keys that were there
    limit         a new one       rows wait from now on
                  none any more   waiting rows leave first (kernel.upgrade.flush)
    final         updates         the results so far of open windows leave first
    updates       final           windows that are open give a final result
    buffer        bound or not    the stored form is rewritten (Operator.rewrite_from), as for the two above
    history       another one     versions older than the old history are gone; without one the last row is the first
    retention, bounds, lengths of limits and the code of functions are in no identity: they go on without a check
    the steps in front of a limit are in no identity either: another number of steps, or other columns there, are
    refused while rows wait for the limit; with another kind of rows there, waiting rows leave first

Every other change is refused, before anything is touched. A new grace moves the close time reached by the difference,
because a window closes at its end plus the grace:

    window [0, 10), grace 5      stream time 15 closes it; the checkpoint has closed windows that end by 10
    grace 20 from then on        as if stream time 30 had closed it: 10 + 20. A record at 9 is late until stream time
                                 itself has passed 30, while the window [10, 20) stays open to stream time 40
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.instants import MAX_MS, show_ms
from tidegate.kernel.choice import operator_class, operator_of
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.schema_evolution import FROM_THE_START, Column, SchemaEvolution
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Store
from tidegate.kernel.upgrade import description, drain, flush
from tidegate.kernel.upgrade.description import Described
from tidegate.kernel.upgrade.flush import Flushed, OfLimit
from tidegate.kernel.windows import retention
from tidegate.plan import Operation
from tidegate.spec.aggregates import Aggregate, Fold
from tidegate.spec.columns import END, ROW_ID, START, TIMESTAMP, public_name
from tidegate.spec.suppressed import StrictBuffer
from tidegate.spec.types import arrow_type
from tidegate.spec.upgrade import Change, refusal

_HISTORY = (
    "which changes of the table are late: deletions that the other history needs are not kept, so that a late change "
    "could bring back a deleted row"
)
_LOSES = {
    "left table": _HISTORY,
    "right table": _HISTORY,
    "key": "what is kept is filed by the old key, and no record of the new one would find it",
    "timestamp": "stream time would go on from another column's times: what it has passed would be dropped as late",
    "order": "records would be taken in another order than those before them",
    "windows": "the windows that are open have other bounds, and would never be completed",
    "aggregation": "what was aggregated for a column that is gone, or is computed in another way; or a column was "
    "added in front of a buffer with a bound, or of a table that is grouped anew",
    "emits": "what is kept for updates is not what is kept for final results",
    "limit": "the rows that wait by the old limit, for which the plan has no output, or one with other columns: keep "
    "the steps in front of the limit as they were, or run the old plan with the limit set to zero, which lets out what "
    "waits",
    "rows": "the rows that wait for the limit: they have other columns, or have taken other steps. Keep what is in "
    "front of the limit as it was, or run the old plan with the limit set to zero, which lets out what waits",
    "store": "the rows of the store by its old name",
    "old rows": "the rows that a change must take out of their groups, which are not known",
    "types": "what is stored has the old types",
    "join": "records that have left without a partner, or were not kept because they could not",
    "table": "rows of the table as the other kind of join keeps them: of versions, nothing says which one came last",
}
_CLOSED = (
    "what has closed: with this grace it would close after the last instant, 2**63 - 1 ms. Choose a shorter grace: "
    '"36500000000 days" are a hundred million years'
)
_TURNED = "what is stored takes the other form"  # operator.Operator.rewrite_from
_SO_FAR = "results so far of the windows that are open leave first, as updates"
_WHEN_CLOSED = "windows that are open give a final result when they close; of those that have closed it was an update"


@dataclass(frozen=True)
class Loaded:
    """The state that an operator goes on from, and the layout for it.

    `old` is the plan that wrote the state. `description` is the store's, if another plan than the layout's wrote it.
    `is_described`: the store's description is known to be that of the layout.
    """

    state: State
    layout: Layout
    old: Operation
    description: Described | None = None
    is_described: bool = False


def load(store: Store, layout: Layout, tasks: int) -> Loaded:
    """The state in `store`, or a new one; nothing is stored.

    Raises CheckpointError if the state cannot go on under this plan, or if another number of tasks wrote it.
    """
    state = State.load(store, layout.identity, tasks)
    if layout.op.append_only and layout.panes.shared:
        state.logs.shares = layout.panes.windows_shared
    same = state.identity == layout.identity
    # The steps in front of a limit, the kinds of several outputs and the retention are in no identity, but in the
    # description.
    asked = bool(layout.op.all_limits) or layout.op.named or bool(state.closed)
    is_described = asked and description.describes(layout, state)
    if same and (is_described or not asked):
        return Loaded(state, evolved(state, layout), layout.op, is_described=is_described)
    described = description.of(store)
    check(changes(state.identity, described, layout, store))
    if same:
        return Loaded(state, evolved(state, layout), layout.op, described)
    if described is not None:
        _go_on(state, described.layout, layout)
        old = described.layout.op
    else:
        bounded = state.identity["buffer"] == "bounded"
        old = replace(layout.op, buffer=StrictBuffer()) if bounded else layout.op.without_bound
    state.identity = layout.identity
    return Loaded(state, evolved(state, layout), old, described)


def start(loaded: Loaded) -> Flushed:
    """Rewrite the state as the plan needs it. Returns the rows held back by suppressions that the plan removed."""
    state, layout, described = loaded.state, loaded.layout, loaded.description
    was = operator_class(loaded.old)(layout)
    operator_of(layout).rewrite_from(was, state, bounded=loaded.old.buffer is not None)
    flushed = Flushed()
    if described is not None:
        retention.drop_expired(described.layout, layout, state)
        flushed.of_limits = flush.empty_removed_limits(described, layout, state)
    if described is not None and (to := flush.closing_removed(described.layout.op, layout.op)):
        flushed.results, flushed.outputs = list(flush.open_results(layout, state)), to
    return flushed


def evolved(state: State, layout: Layout) -> Layout:
    """The layout for a state that earlier plans began. Sets `state.evolution`: the state gives and takes its rows."""
    if not state.columns:
        return layout
    state.evolution = SchemaEvolution(tuple(state.columns), _blank(layout), counts_plan_changes=not layout.closes)
    return replace(layout, added_at=tuple(column.added_at for column in state.columns))


def check(found: list[Change]) -> None:
    """Raise CheckpointError if one of the changes cannot go on."""
    if any(change.loses for change in found):
        raise CheckpointError(refusal(found))


def other_order(before: str, after: str) -> Change:
    """The change of the order of records, by the words of `plan.identity`."""
    return Change("order", before, after, _LOSES["order"])


def preview(store: Store, op: Operation, layout: Layout | None, tasks: int | None) -> list[Change]:
    """The changes between a store and an operator that would be started on it; the store stays as it is.

    layout  of the operator, None if the types of its columns are not known: then types are not compared
    tasks   the number of tasks of the operator, None if it is not known
    """
    state, described = State.open(store), description.of(store)
    if state is None or described is None:
        return []
    if layout is None:
        layout = _untyped(op, described)
    found = changes(state.identity, described, layout, store)
    if state.drain:
        found.append(drain.change(state.drain))
    if tasks not in (None, state.tasks):
        loses = f"keys would be looked for in the wrong task. Set spark.sql.shuffle.partitions to {state.tasks}"
        found.append(Change("tasks", str(state.tasks), str(tasks), loses))
    return found


def _untyped(op: Operation, described: Described) -> Layout:
    """The layout of a plan over columns of unknown types: those of the checkpoint have its types."""
    known = described.layout.schema
    # A function reads the key as a value, too.
    columns = dict.fromkeys(name[2:] for name in known.names if name[:2] in ("k:", "v:", "r:"))
    names = [*(f"k:{name}" for name in op.key), *(f"v:{name}" for name in op.input_columns(tuple(columns)))]
    types = [known.field(name).type if name in known.names else pa.null() for name in names]
    return Layout(op, pa.schema(list(zip(names, types, strict=True))), typed=False)


def changes(written: dict[str, str], described: Described | None, layout: Layout, store: Store) -> list[Change]:
    """The changes from the identity `written` in a checkpoint to a plan; `described`: the description in `store`."""
    running = layout.identity
    found = []
    for name in sorted(running.keys() | written.keys()):
        before, after = written.get(name), running.get(name)
        if (
            name == "limit"
            and before == after
            and described is not None
            and flush.moves(described.layout.op, layout.op)
        ):
            before, after = (f"{_limited(op)}: {before}" for op in (described.layout.op, layout.op))
        if before == after or (name == "types" and None in (before, after)):
            continue  # a plan without declared types learns them
        effect = _TURNED if name == "buffer" else None if described is None else _effect(name, described, layout, store)
        if effect is None:
            loses = _LOSES.get(name, "what it holds may mean something else")
        else:
            late = name == "grace" and described is not None and not _closes_in_time(described.layout, layout, store)
            loses = _CLOSED if late else ""
        found.append(Change(name, before, after, loses, "" if loses else effect or ""))
    if described is None:
        return found
    return [*found, *_lengths(described.layout.op, layout.op), *_rows(described, layout, store)]


def _limited(op: Operation) -> str:
    """The names of the outputs with limits: the identity of a plan with one limit has no name."""
    return ", ".join(output.name for output in op.all_outputs if output.limits)


def _lengths(old: Operation, new: Operation) -> Iterator[Change]:
    """The changes of settings that are in no identity."""
    removed = {one.limit.place for one in flush.removed_limits(old, new)}
    for before, after in zip(old.all_limits, new.all_limits, strict=False):
        if before.place in removed:
            continue
        of = "" if len(new.all_limits) == 1 else f" {after.store}"
        if before.how.limit_ms != after.how.limit_ms:
            lengths = (show_ms(before.how.limit_ms), show_ms(after.how.limit_ms))
            yield Change(f"length of the limit{of}", *lengths, effect="what waits leaves by the new one")
        if (measured := before.how.measured_from) != after.how.measured_from:
            effect = "what waits keeps the time from which it waits"
            yield Change(f"start of the limit{of}", measured, after.how.measured_from, effect=effect)
    if old.retention_ms != new.retention_ms:
        had, has = ("none" if op.retention_ms is None else show_ms(op.retention_ms) for op in (old, new))
        yield Change("retention", had, has, effect="results that are gone stay gone")
    yield from _kinds(old, new)


def _kinds(old: Operation, new: Operation) -> Iterator[Change]:
    """The changes between updates and final results of one of several outputs; those of the only one are `emits`.

    Where an output has a limit in both plans, the change of the limit's rows says it (`_rows`).
    """
    limited = {now.output.name for _, now in flush.limits(old, new) if now is not None}
    had, has = ({one.name: one.kind for one in op.all_outputs if one.kind != "late"} for op in (old, new))
    if len(had) > 1 or len(has) > 1:
        for name in (name for name in has if name not in limited and had.get(name, has[name]) != has[name]):
            effect = _SO_FAR if has[name] == "updates" else _WHEN_CLOSED
            yield Change(f"emits of {name}", had[name], has[name], effect=effect)


def _rows(described: Described, new: Layout, store: Store) -> Iterator[Change]:
    """The changes of the rows that come to a limit of both plans, if rows of the old plan wait there or leave first."""
    for one, now in flush.limits(described.layout.op, new.op):
        if now is None:
            continue
        loses = flush.loses_rows(described, new, store, one, now)
        if loses or one.output.kind != now.output.kind:
            of = "" if len(new.op.all_limits) == 1 else f" {now.limit.store}"
            waits, comes = described.buffered[one.limit.place], new.of_limit(now.output, now.number)
            before = _shown(one, waits, described.steps[one.limit.place], new.op)
            after = _shown(now, comes.result_schema, len(comes.applied_steps), new.op)
            effect = "" if loses else "what waited leaves first; rows wait by the new limit from then on"
            yield Change(f"rows of the limit{of}", before, after, _LOSES["rows"] if loses else "", effect)


def _shown(one: OfLimit, schema: pa.Schema, steps: int, op: Operation) -> str:
    """The rows that come to a limit as text: their kind, their columns and the number of steps that they have taken."""
    kind = "final results" if one.output.kind == "final" else "updates"
    others = (*op.key, START, END, TIMESTAMP, ROW_ID)
    columns = ", ".join(f"{public_name(field.name)} {field.type}" for field in schema if field.name not in others)
    return f"{kind} of {columns}" + (f" after {steps} step{'s' if steps > 1 else ''}" if steps else "")


def _effect(name: str, described: Described, new: Layout, store: Store) -> str | None:
    """Text for the user: the effect of a change on a query that goes on; None if it cannot."""
    old = described.layout
    if name == "grace" and type(old.op.windows) is type(new.op.windows) and type(old.op.joined) is type(new.op.joined):
        return operator_of(new).effect_of_grace(new.op.grace_ms - old.op.grace_ms)
    if name == "table":
        return operator_of(new).effect_of_table(old.op)
    if name == "aggregation":
        return _of_type(old, new) or _of_aggregation(old, new)
    if name == "types":
        # A function of whole records keeps its aggregate and no record; but of a table it takes old rows out of groups.
        whole = isinstance(new.op.function, Fold) and not new.op.stream.changes
        kept = [field for field in old.schema if field.name[:2] in (("k:",) if whole else ("k:", "v:"))]
        same = all(f.name in new.schema.names and new.schema.field(f.name).type == f.type for f in kept)
        if same and whole:
            return "the function gets records with other columns"
        return "columns that are read besides" if same and _of_aggregation(old, new) is not None else None
    if name == "limit":
        return _of_limit(described, new, store)
    if name == "emits":
        return _of_emits(old, new)
    return None


def _closes_in_time(old: Layout, new: Layout, store: Store) -> bool:
    """Whether the times that the state has reached are instants by the new grace too; the last one ends the input."""
    state = State.open(store)
    assert state is not None
    operator_of(new).rewrite_times(old.op, state)  # this state is not stored
    return max(state.closed_through, state.looked_up_to) < MAX_MS


def _of_limit(described: Described, new: Layout, store: Store) -> str | None:
    removed = flush.removed_limits(described.layout.op, new.op)
    if not removed:
        return "rows wait from now on" if not described.layout.op.all_limits else "rows wait for each limit from now on"
    if any(flush.loses_rows(described, new, store, one, None) for one in removed):
        return None
    one = len(described.layout.op.all_limits) == 1
    of = "" if one else f" for {', '.join(one.limit.store for one in removed)}"
    then = "; rows wait by the new limit from then on" if one else "; rows wait by the limits of the plan from then on"
    return f"what waited{of} leaves first{then if new.op.all_limits else ''}"


def _of_emits(old: Layout, new: Layout) -> str:
    if flush.closing_removed(old.op, new.op):
        return _SO_FAR
    return _WHEN_CLOSED if new.op.emits == "final" else _TURNED


def _of_type(old: Layout, new: Layout) -> str | None:
    """The effect of another text for the same type of a function's results, such as "bigint" for "long"."""
    had, has = old.op.function, new.op.function
    if not isinstance(had, Fold) or not isinstance(has, Fold):
        return None
    if [name for name, _ in old.op.aggregations] != [name for name, _ in new.op.aggregations]:
        return None
    return "the same type by another name" if arrow_type(had.type) == arrow_type(has.type) else None


def _of_aggregation(old: Layout, new: Layout) -> str | None:
    had, has = dict(old.op.aggregations), dict(new.op.aggregations)
    added = [name for name in has if name not in had]
    kept = all(name in has and str(has[name]) == str(how) for name, how in had.items())
    built_in = all(isinstance(how, Aggregate) for how in (*had.values(), *has.values()))
    if not kept or not built_in or (added and _counted(new)):
        return None
    if not added:
        return "the same columns in another order"
    where = "in windows that have begun" if new.closes else "for keys that are there"
    return f"{', '.join(added)} {'is' if len(added) == 1 else 'are'} null {where}"


def _counted(layout: Layout) -> bool:
    """Whether the bytes of a buffer, or groups that retract rows, depend on the values of a row."""
    op = layout.op
    bounded = op.buffer is not None or any(limit.how.buffer.bounded for limit in op.all_limits)
    return bounded or op.stream.changes or op.regroup is not None


def _go_on(state: State, old: Layout, new: Layout) -> None:
    had, has = dict(old.op.aggregations), dict(new.op.aggregations)
    if list(had) != list(has):
        state.columns = list(_columns(state, old, list(has)))
    operator_of(new).rewrite_times(old.op, state)


def _columns(state: State, old: Layout, has: list[str]) -> Iterator[Column]:
    """The columns of the state for the aggregates of the plan, in its order; `state`: as the plan `old` wrote it."""
    had = dict(old.op.aggregations)
    known = dict(zip(had, state.columns or map(Column, range(len(had))), strict=True))
    free = max(column.slot for column in known.values()) + 1
    added_at = _newest(state, old) if old.closes else 1 + max(0, *(column.added_at for column in known.values()))
    for name in has:
        if name in known:
            yield known[name]
        else:
            yield Column(free, added_at)
            free += 1


def _newest(state: State, old: Layout) -> int:
    """The newest timestamp of a record so far (ms): a window that begins later has no record.

    Rows of a join may be ahead of the stream time that they follow. Then open windows tell the newest row of the task.
    """
    times = [FROM_THE_START, state.newest]
    if old.op.follows is not None:
        times.append(operator_of(evolved(state, old)).newest_record(state))
    return max(times)


def _blank(layout: Layout) -> pa.Table:
    """The state of each aggregate over one record without values."""
    values = {name: pa.nulls(1, layout.schema.field(name).type) for name in layout.values}
    record = pa.table({"sign": pa.array([1]), **values})
    return grouping.lift(layout, record).select(layout.state)
