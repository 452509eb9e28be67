"""The physical plan: what one stateful operator computes, and which of its rows leave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.plan.nodes import Stream
from tidegate.spec import metrics
from tidegate.spec.aggregates import Aggregate, Aggregation, Cogroup, Fold, Reduce
from tidegate.spec.columns import ROW
from tidegate.spec.joined import Joined, StreamStream, TableTable
from tidegate.spec.steps import Step
from tidegate.spec.suppressed import StrictBuffer, UntilTimeLimit
from tidegate.spec.windows import LEFT, RIGHT, SessionWindows, SlidingWindows, TimeWindows, Windows

DEFAULT_STORE = "suppress"
"""The store of a suppression without a name; the second one without a name is "suppress-2"."""


@dataclass(frozen=True)
class Limit:
    """A suppression until a time limit: after the steps `before`, rows wait as `how` says.

    before  the steps between the previous limit, or the aggregation, and this limit
    store   the name under which its rows can be read
    place   its number in the checkpoint, among all limits of the operation
    """

    how: UntilTimeLimit
    before: tuple[Step, ...] = ()
    store: str = DEFAULT_STORE
    place: int = 0


@dataclass(frozen=True)
class Output:
    """The rows of an operation under one name: `kind` is "updates", "final" or "late".

    `limits` hold the rows back, one after the other. The steps `after` follow the last limit.
    """

    name: str
    kind: str
    limits: tuple[Limit, ...] = ()
    after: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, before, between and after the limits."""
        return self.steps_before(len(self.limits))

    def steps_before(self, number: int) -> tuple[Step, ...]:
        """The steps of rows before they reach limit `number`; behind the last limit, before they leave."""
        before = tuple(step for limit in self.limits[: number + 1] for step in limit.before)
        return before if number < len(self.limits) else (*before, *self.after)

    @property
    def buffers_by_stream_time(self) -> bool:
        """Whether updates wait for stream time in the first limit."""
        return self.kind == "updates" and _by_stream_time(self.limits[:1])


@dataclass(frozen=True)
class Repartition:
    """Repartitions the rows of an operation for the next operator: by `key`, with the columns `values` (None: all).

    changes  whether an update retracts the old row first; otherwise every row is a record
    value_columns
             a record whose value columns are all null has no value; empty: all columns but `non_values`
    non_values
             columns that are not values
    with_non_values
             whether all columns include `non_values`; the records of a join only have values
    full_records
             whether unread columns go along, because late records leave with all their columns
    table    whether the rows belong to a table: tombstones are changes, and rows keep the order in which they left
    """

    key: tuple[str, ...]
    values: tuple[str, ...] | None
    changes: bool = True
    value_columns: tuple[str, ...] = ()
    non_values: tuple[str, ...] = ()
    with_non_values: bool = True
    full_records: bool = False
    table: bool = False


@dataclass(frozen=True)
class Operation:
    """The computation of one stateful operator (aggregation, table or join), and which of its rows leave.

    emits    "final": one row per key and window, when the window closes; "updates": rows as they change; "both"
    caching  whether only the last update per key, window and micro-batch leaves
    buffer   the bound on waiting final results, None if there is none
    limits   the time limits that rows wait for, one after the other
    after    the stateless steps of the emitted rows, after the limits
    windows  None for one result per key, or for a table given as its changes (without aggregations; `deleted` is its
             column)
    regroup  the repartitioning of its rows, if another operator aggregates or joins them
    joined   the settings of a join; its inputs are `sides` (one, if a stream is joined with itself)
    deletions
             in a join with a table, the column of each side that marks deleted rows
    side     the side of a join, in the operation of a map step; None for the whole operation
    expects  keys that get a final row in every window, with or without a record: a static DataFrame or a list
    row_ids  whether rows have the ids of the records they were made from (`spec.columns.ROW_ID`)
    outputs  the outputs by name; empty for a single table, whose rows carry no name
    retention_ms
             how long the result of a closed window stays readable; None: no longer than needed
    """

    stream: Stream
    key: tuple[str, ...]
    name: str
    windows: Windows | None = None
    aggregations: tuple[tuple[str, Aggregation], ...] = ()
    emits: str = "updates"
    caching: bool = False
    buffer: StrictBuffer | None = None
    buffer_name: str = DEFAULT_STORE
    limits: tuple[Limit, ...] = ()
    deleted: str | None = None
    outputs: tuple[Output, ...] = ()
    retention_ms: int | None = None
    expects: Any = field(default=None, compare=False, repr=False)
    after: tuple[Step, ...] = ()
    regroup: Repartition | None = None
    joined: Joined | None = None
    sides: tuple[Stream, ...] = ()
    deletions: tuple[str | None, str | None] = (None, None)
    side: int | None = None
    row_ids: bool = False

    def of_side(self, side: int) -> Operation:
        """The operation of the map step of one input. The map step of a join sends whole records, one by one."""
        if self.joined is None:
            return self
        stream = self.sides[min(side, len(self.sides) - 1)]
        deleted = self.deletions[side]
        stream = replace(stream, clock=self.stream.clock)
        return replace(self, stream=stream, sides=(), side=side, deleted=deleted, row_ids=self.identifies(side))

    @property
    def uncached(self) -> Operation:
        """The same operation, which emits every update."""
        joined = replace(self.joined, caching=False) if isinstance(self.joined, TableTable) else self.joined
        return replace(self, caching=False, joined=joined)

    def identifies(self, side: int) -> bool:
        """Whether records of one side of a join have ids, from which the ids of its rows are made."""
        return self.row_ids and self.joined is not None and self.joined.identifies(side)

    @property
    def identified_by_window(self) -> bool:
        """Whether key and window identify each row: all rows are final results."""
        return self.joined is None and self.windows is not None and {o.kind for o in self.all_outputs} == {"final"}

    @property
    def sends_time_progress(self) -> bool:
        """Whether the map step of one input of a join sends the progress of that input's time to every task."""
        return self.joined is not None and self.side is not None and self.joined.needs_time_progress

    @property
    def passes_time(self) -> bool:
        """Whether its rows carry its stream time, which the next operator then uses.

        A join that follows its slowest partition sends it: rows of a fast partition are far ahead of its stream time.
        """
        return self.joined is not None and self.stream.clock.slowest and self.regroup is not None

    @property
    def follows(self) -> str | None:
        """The name of the join whose stream time it uses (`Stream.follows`), None if stream time comes from records."""
        branches = (branch for stream in (self.stream, *self.sides) for branch in stream.branches)
        return next((branch.follows for branch in branches if branch.follows is not None), None)

    @property
    def keeps_null_keys(self) -> bool:
        """Whether records with a null key are kept, because they leave without a partner."""
        if self.joined is None or self.side is None or self.joined.tables[self.side]:
            return False
        return any(self.joined.preserves(side) for side in ((LEFT, RIGHT) if self.joined.self_join else (self.side,)))

    @property
    def all_outputs(self) -> tuple[Output, ...]:
        """`outputs`, or the single output of one table."""
        kind = "final" if self.emits == "final" else "updates"
        return self.outputs or (Output("", kind, self.limits, self.after),)

    @property
    def all_limits(self) -> tuple[Limit, ...]:
        """The time limits of all outputs, in the order of their places."""
        return tuple(limit for output in self.all_outputs for limit in output.limits)

    @property
    def limit(self) -> UntilTimeLimit:
        """The time limit of an operation with exactly one, such as that of `Layout.of_limit`."""
        (limit,) = self.all_limits
        return limit.how

    @property
    def named(self) -> bool:
        """Whether rows carry the name of their output."""
        return any(output.name for output in self.outputs)

    @property
    def keeps_late(self) -> bool:
        """Whether late and skipped records leave as rows. Then whole records are shuffled."""
        return any(output.kind == "late" for output in self.outputs)

    @property
    def combinable(self) -> bool:
        """Whether records may be aggregated before the shuffle: aggregates are built in and do not depend on order."""
        return bool(self.aggregations) and all(isinstance(a, Aggregate) and not a.ordered for _, a in self.aggregations)

    @property
    def every_update(self) -> bool:
        """Whether every update matters: each one is emitted, or a bound is checked record by record."""
        return self.buffer is not None or (self.emits != "final" and not self.caching)

    @property
    def pre_aggregates(self) -> bool:
        """Whether records are aggregated before the shuffle; otherwise they are shuffled one by one, in order."""
        regular = self.windows is None or isinstance(self.windows, TimeWindows)
        return regular and self.combinable and not self.every_update

    @property
    def append_only(self) -> bool:
        """Whether a record is only appended to a log: no row of a window leaves before the window closes."""
        return self.windows is not None and self.pre_aggregates and self.emits == "final"

    @property
    def without_bound(self) -> Operation:
        """The same operation without a bound on how many final results may wait."""
        return replace(self, buffer=None)

    @property
    def function(self) -> Reduce | Fold | None:
        """The aggregation, if it is a Python function."""
        aggregation = self.aggregations[0][1] if self.aggregations else None
        return aggregation if isinstance(aggregation, Reduce | Fold) else None

    @property
    def grace_ms(self) -> int:
        """How long its windows, or its join, wait for late records (ms)."""
        waiting = self.joined or self.windows
        return 0 if waiting is None else waiting.grace_ms

    @property
    def deletes(self) -> bool:
        """Whether rows can be tombstones: a function may return None, sessions merge, rows of tables are deleted."""
        merges = self.function is not None or isinstance(self.windows, SessionWindows)
        joins = self.joined is not None and all(self.joined.tables)
        return self.emits != "final" and (merges or joins or self.deleted is not None)

    def spread_over(self, tasks: int) -> int:
        """How many of `tasks` tasks run the operator: fewer if each task's share of a bound would be too small."""
        if self.single_task:
            return 1
        buffers = [self.buffer, *(limit.how.buffer for limit in self.all_limits)]
        return min([tasks, *(buffer.worth_tasks for buffer in buffers if buffer is not None and buffer.bounded)])

    @property
    def measured(self) -> frozenset[str]:
        """The groups of numbers that this operation reports (`spec.metrics.GROUPS`)."""
        final = any(output.kind == "final" for output in self.all_outputs)
        limits = [limit.how for limit in self.all_limits]
        held = final or bool(limits)
        bounded = self.buffer is not None or any(how.buffer.bounded for how in limits)
        groups = {
            metrics.SKEW: self.stream.clock.max_future_skew_ms is not None,
            metrics.FINAL: final,
            metrics.SUPPRESSION: held,
            metrics.BOUND: held and bounded,
            metrics.OVERTIME: bool(limits),
            metrics.WAITS: (self.windows is not None and self.emits != "updates") or self.joined is not None,
            metrics.SLOWEST: self.stream.clock.slowest,
            metrics.FOLLOWS: self.follows is not None,
            metrics.WAKES: self.uses_timers,
            metrics.JOIN: self.joined is not None,
            metrics.LOOKUPS: self.joined is not None and self.joined.waits,
            metrics.GRACES: self.reports_graces,
            metrics.ORDER: any(stream.ordered for stream in (self.stream, *self.sides)),
        }
        return frozenset(group for group, there in groups.items() if there)

    @property
    def numbers(self) -> dict[str, str]:
        """The numbers that a batch reports, formulas by name; each of several time limits also reports its own."""
        if len(self.all_limits) < 2:
            return metrics.numbers(self.measured)
        wakes = {metrics.WAKES} & self.measured
        own = {limit.store: (limit.place, {*_groups_of(limit), *wakes}) for limit in self.all_limits}
        return metrics.numbers(self.measured, own)

    @property
    def joins_streams(self) -> bool:
        """Whether it is a join of two streams. It keeps their records, and combines none before the shuffle."""
        return isinstance(self.joined, StreamStream)

    @property
    def reports_graces(self) -> bool:
        """Whether it reports the graces that its records would have needed: its windows have a grace."""
        if self.joined is not None:
            return self.joins_streams
        return isinstance(self.windows, TimeWindows | SlidingWindows | SessionWindows)

    @property
    def counts_panes(self) -> bool:
        """Whether the map step counts records by pane for these graces, before it may combine them."""
        return self.reports_graces and isinstance(self.windows, TimeWindows)

    @property
    def buffers_by_stream_time(self) -> bool:
        """Whether updates wait for stream time. Then every task needs the progress of stream time within a batch."""
        return any(output.buffers_by_stream_time for output in self.all_outputs)

    @property
    def single_task(self) -> bool:
        """Whether it must run as a single task: a limit by stream time behind final results, or behind another limit,
        gets its time from arriving rows, which other tasks do not see.
        """
        behind = (output.limits if output.kind == "final" else output.limits[1:] for output in self.all_outputs)
        return any(_by_stream_time(limits) for limits in behind)

    @property
    def plain(self) -> bool:
        """Whether it is an aggregation without windows, with one result per key."""
        return self.windows is None and bool(self.aggregations)

    @property
    def needs_wall_clock(self) -> bool:
        """Whether every blob must have the wall clock at the start of its micro-batch."""
        return self.uses_timers or self.stream.clock.needs_wall_clock

    @property
    def uses_timers(self) -> bool:
        """Whether rows may leave because time passed, without a record."""
        return self.stream.clock.uses_timers or any(limit.how.clock == "wall" for limit in self.all_limits)

    @property
    def skips_null_values(self) -> bool:
        """Whether a record without a value is skipped and does not advance stream time: in joins, sliding windows, and
        without windows.
        """
        if self.joined is not None:
            return self.side is not None and not self.joined.tables[self.side]
        return isinstance(self.windows, SlidingWindows) or (self.plain and not self.stream.changes)

    def counts_as_value(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The value columns of a record: all but key, timestamp and order; for `reduce`, its column."""
        if isinstance(self.function, Reduce):
            return (self.function.column,)
        stream = self.stream
        non_values = {*stream.key, *self.key, stream.timestamp, stream.partition, stream.offset, *stream.non_values}
        return tuple(name for name in available if name not in non_values)

    def input_columns(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The columns the aggregation reads besides key, timestamp, partition and offset."""
        if isinstance(self.function, Cogroup):
            return tuple(name for name in available if name.startswith(ROW))
        if isinstance(self.function, Fold):
            return available
        if not self.aggregations:
            return tuple(name for name in self.counts_as_value(available) if name != self.deleted)
        used = dict.fromkeys(a.column for _, a in self.aggregations if not isinstance(a, Fold) and a.column)
        return tuple(column for column in used if column)

    def other_columns(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The unread columns that belong to a whole record; empty if late records are not kept."""
        used = {*self.key, *self.input_columns(available)}
        return tuple(name for name in available if name not in used) if self.keeps_late else ()


def _by_stream_time(limits: tuple[Limit, ...]) -> bool:
    return any(limit.how.clock == "stream" for limit in limits)


def _groups_of(limit: Limit) -> set[str]:
    """The groups of numbers that one of several time limits reports."""
    return {metrics.OVERTIME, metrics.SUPPRESSION, *([metrics.BOUND] if limit.how.buffer.bounded else [])}
