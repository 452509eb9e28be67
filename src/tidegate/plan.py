"""The plan: an immutable tree that the DSL builds and the kernel and the runtimes read.

`operation(table)` turns the tree into what one stateful operator computes; this is where
`suppress(until_window_closes(...))` and `emit_strategy(on_window_close())` become the same thing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any, TypeAlias

from tidegate.errors import DefinitionError
from tidegate.instants import show_ms
from tidegate.spec import metrics
from tidegate.spec.aggregates import Aggregate, Aggregation, Fold, Reduce
from tidegate.spec.clock import Clock
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.materialized import Materialized
from tidegate.spec.steps import Filter, MapValues, Step
from tidegate.spec.suppressed import StrictBuffer, UntilTimeLimit, UntilWindowCloses
from tidegate.spec.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows

RESULT_COLUMNS = ("window", "timestamp", "deleted", "output")
"""Names that rows of a result use themselves."""

LATE_COLUMNS = ("reason", "late_by", "stream_time")
"""Names that rows of late records use besides."""

STATE_COLUMNS = ("status", "since", "until")
"""Names that rows of a store use besides."""

DROP, KEEP = LATE_RECORDS = ("drop", "keep")
"""What becomes of a record that is not taken."""


@dataclass(frozen=True)
class Stream:
    """An input: a bound DataFrame (`frame`) or a name that is bound later, and the stateless steps its records take.

    sources  the streams that were merged into this one; each has steps and a number of its own
    table    the table whose changes these are; key, timestamp and columns are those of its rows
    aside    columns that are no values, besides key, timestamp, partition and offset
    changes  whether each change takes an old row out and puts a new one in, as in a table that is grouped anew
    forwarded
             whether records are the rows that another operator lets out, one by one
    raw      what Spark hands over instead of rows of `frame`, where workers make them (runtime.spark.raw)
    """

    name: str
    key: tuple[str, ...]
    timestamp: str
    partition: str | None = None
    offset: str | None = None
    schema: Any = None
    clock: Clock = Clock()  # noqa: RUF009 - a frozen value
    frame: Any = field(default=None, compare=False, repr=False)
    late_records: str | None = None
    steps: tuple[Step, ...] = ()
    sources: tuple[Stream, ...] = ()
    number: int | None = None
    table: Table | Stream | None = None
    aside: tuple[str, ...] = ()
    changes: bool = False
    forwarded: bool = False
    raw: Any = field(default=None, compare=False, repr=False)

    @property
    def branches(self) -> tuple[Stream, ...]:
        """The inputs."""
        return self.sources or (self,)

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that are no values."""
        order = (self.partition, self.offset)
        return (*self.key, self.timestamp, *(name for name in order if name is not None), *self.aside)

    def then(self, step: Step) -> Stream:
        """The stream after one more step."""
        if self.sources:
            return replace(self, sources=tuple(source.then(step) for source in self.sources))
        return replace(self, steps=(*self.steps, step))

    @property
    def unbound(self) -> Stream:
        """The stream without DataFrames and tables, which stay where the query is written."""
        sources = tuple(source.unbound for source in self.sources)
        return replace(self, frame=None, raw=None, table=None, sources=sources)

    @property
    def as_read(self) -> bool:
        """Whether the records are those of one input, as they are."""
        return not (self.steps or self.sources or self.table)

    @property
    def behind(self) -> bool:
        """Whether the records come from another operator."""
        return self.changes or self.forwarded

    @property
    def ordered(self) -> bool:
        """Whether the source says in which order its records came."""
        return self.offset is not None


@dataclass(frozen=True)
class WindowedAggregate:
    """An aggregation of a stream grouped by `key`, per window or (`windows` None) over the whole of each group."""

    stream: Stream
    key: tuple[str, ...]
    windows: Windows | None
    aggregations: tuple[tuple[str, Aggregation], ...]
    emit: EmitStrategy
    materialized: Materialized
    expects: Any = field(default=None, compare=False, repr=False)
    late_records: str | None = None


@dataclass(frozen=True)
class Changelog:
    """A table given as its changes: upserts, and tombstones where the column `deleted` is true."""

    stream: Stream
    deleted: str | None

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the table is that of the stream."""
        return self.stream.key


@dataclass(frozen=True)
class Suppress:
    """Updates of `parent`, held back."""

    parent: Table
    how: UntilWindowCloses | UntilTimeLimit


@dataclass(frozen=True)
class LateRecords:
    """The records that `parent` does not take, as rows."""

    parent: WindowedAggregate | Changelog


@dataclass(frozen=True)
class MapFilter:
    """The rows of `parent` after a stateless step."""

    parent: Table
    step: Step


@dataclass(frozen=True)
class Outputs:
    """Several tables of one aggregation, by the names their rows carry."""

    named: tuple[tuple[str, Table | LateRecords], ...]


Table: TypeAlias = "WindowedAggregate | Changelog | Suppress | MapFilter"
Plan: TypeAlias = "Table | LateRecords | Outputs | Stream"


@dataclass(frozen=True)
class Output:
    """What leaves an operation under one name: `kind` is "updates", "final" or "late".

    `limit` holds it back, after the steps `before` and before those `after` it.
    """

    name: str
    kind: str
    limit: UntilTimeLimit | None = None
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Repartition:
    """The groups that an operation's rows go to: their key, and the columns that are aggregated (None: all).

    changes  whether old rows are taken out; otherwise every row is a record of its own
    told_by  the columns that are the value of such a record; empty for all but those `aside`
    """

    key: tuple[str, ...]
    values: tuple[str, ...] | None
    changes: bool = True
    told_by: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """What one stateful operator computes: an aggregation and which of its rows leave.

    emits    "final": one row per key and window, when it closes; "updates": as they happen; "both"
    caching  of updates, only the last one per key, window and micro-batch
    buffer   the bound on how many final results may wait, None if there is none
    limit    updates wait until then, None if they do not
    before, after
             the stateless steps of the rows that leave, before the limit and after it
    windows  None where there are none: a table that is given as its changes (it has no aggregations, and `deleted` is
             its column), or one result per key
    regroup  the groups that its rows go to, if another operator aggregates them
    expects  keys that give a final row in every window, with or without a record: a static DataFrame or a list
    outputs  what leaves under which name; empty for one table, whose rows carry none
    retention_ms
             for how long after it closed a window's result stays readable, None for no longer than it is needed
    """

    stream: Stream
    key: tuple[str, ...]
    windows: Windows | None
    aggregations: tuple[tuple[str, Aggregation], ...]
    emits: str
    caching: bool
    buffer: StrictBuffer | None
    name: str
    buffer_name: str = "suppress"
    limit: UntilTimeLimit | None = None
    deleted: str | None = None
    outputs: tuple[Output, ...] = ()
    retention_ms: int | None = None
    expects: Any = field(default=None, compare=False, repr=False)
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    regroup: Repartition | None = None

    @property
    def all_outputs(self) -> tuple[Output, ...]:
        """What leaves: `outputs`, or the rows of the one table."""
        kind = "final" if self.emits == "final" else "updates"
        return self.outputs or (Output("", kind, self.limit, self.before, self.after),)

    @property
    def named(self) -> bool:
        """Whether rows say which output they are of."""
        return any(output.name for output in self.outputs)

    @property
    def keeps_late(self) -> bool:
        """Whether records that are not taken leave as rows, so that whole records travel."""
        return any(output.kind == "late" for output in self.outputs)

    @property
    def combinable(self) -> bool:
        """Whether records may be aggregated before they meet: built-in aggregates that no order can change."""
        return bool(self.aggregations) and all(isinstance(a, Aggregate) and not a.ordered for _, a in self.aggregations)

    @property
    def every_update(self) -> bool:
        """Whether every single update matters: to be emitted, or because a bound is checked record by record."""
        return self.buffer is not None or (self.emits != "final" and not self.caching)

    @property
    def pre_aggregates(self) -> bool:
        """Whether records are aggregated before they travel; otherwise they travel one by one, in order."""
        regular = self.windows is None or isinstance(self.windows, TimeWindows)
        return regular and self.combinable and not self.every_update

    @property
    def append_only(self) -> bool:
        """Whether a record only adds to a log, because nothing is told of a window before it closes."""
        return self.windows is not None and self.pre_aggregates and self.emits == "final"

    @property
    def without_bound(self) -> Operation:
        """The same operation without a bound on how many final results may wait."""
        return replace(self, buffer=None)

    @property
    def function(self) -> Reduce | Fold | None:
        """The Python function that aggregates, if it is one."""
        aggregation = self.aggregations[0][1] if self.aggregations else None
        return aggregation if isinstance(aggregation, Reduce | Fold) else None

    @property
    def deletes(self) -> bool:
        """Whether rows can be tombstones: a function may return None, and sessions merge into other ones."""
        merges = self.function is not None or isinstance(self.windows, SessionWindows)
        return self.emits != "final" and (merges or self.deleted is not None)

    def spread_over(self, tasks: int) -> int:
        """How many of `tasks` tasks run the operator: fewer where each one's share of a bound would be too small."""
        if self.single_task:
            return 1
        buffers = [self.buffer, None if self.limit is None else self.limit.buffer]
        return min([tasks, *(buffer.worth_tasks for buffer in buffers if buffer is not None and buffer.bounded)])

    @property
    def measured(self) -> frozenset[str]:
        """What there is to be told about this operation (`spec.metrics.GROUPS`)."""
        final = any(output.kind == "final" for output in self.all_outputs)
        bounds = [self.buffer] if self.limit is None else [self.limit.buffer if self.limit.buffer.bounded else None]
        held = final or self.limit is not None
        bounded = bounds != [None]
        groups = {
            metrics.SKEW: self.stream.clock.max_future_skew_ms is not None,
            metrics.FINAL: final,
            metrics.SUPPRESSION: held,
            metrics.BOUND: held and bounded,
            metrics.UNBOUND: held and not bounded,
            metrics.OVERTIME: self.limit is not None,
            metrics.WAITS: self.windows is not None and self.emits != "updates",
            metrics.SLOWEST: self.stream.clock.slowest,
            metrics.WAKES: self.uses_timers,
        }
        return frozenset(group for group, there in groups.items() if there)

    @property
    def buffers_by_stream_time(self) -> bool:
        """Whether updates wait for stream time, so that every task must know how it passed within a batch."""
        return any(output.kind == "updates" and _by_stream_time(output) for output in self.all_outputs)

    @property
    def single_task(self) -> bool:
        """Whether it must be one task: stream time behind final results is theirs, which no other task knows."""
        return any(output.kind == "final" and _by_stream_time(output) for output in self.all_outputs)

    @property
    def plain(self) -> bool:
        """Whether it is an aggregation without windows: one result per key."""
        return self.windows is None and bool(self.aggregations)

    @property
    def needs_wall_clock(self) -> bool:
        """Whether every blob must say what the wall clock was when its micro-batch began."""
        return self.uses_timers or self.stream.clock.needs_wall_clock

    @property
    def uses_timers(self) -> bool:
        """Whether something may have to leave because time passed, though no record came."""
        return self.stream.clock.uses_timers or (self.limit is not None and self.limit.clock == "wall")

    @property
    def skips_null_values(self) -> bool:
        """Whether a record without a value is skipped and moves no stream time: in sliding windows, and in none."""
        return isinstance(self.windows, SlidingWindows) or (self.plain and not self.stream.changes)

    def counts_as_value(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that are a record's value: all but key, timestamp and order; for `reduce`, its column."""
        if isinstance(self.function, Reduce):
            return (self.function.column,)
        stream = self.stream
        aside = {*stream.key, *self.key, stream.timestamp, stream.partition, stream.offset, *stream.aside}
        return tuple(name for name in available if name not in aside)

    def input_columns(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The columns the aggregation reads besides key, timestamp, partition and offset."""
        if isinstance(self.function, Fold):
            return available
        if not self.aggregations:
            return tuple(name for name in self.counts_as_value(available) if name != self.deleted)
        used = dict.fromkeys(a.column for _, a in self.aggregations if not isinstance(a, Fold) and a.column)
        return tuple(column for column in used if column)

    def other_columns(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that nothing reads, but that belong to a whole record; none where records are not kept."""
        used = {*self.key, *self.input_columns(available)}
        return tuple(name for name in available if name not in used) if self.keeps_late else ()

    def identity(self) -> dict[str, str]:
        """What a checkpoint must agree with to go on, by name; a bound of a buffer may change."""
        # Another key changes groups, not the rows that are kept for it; but without it none are kept.
        kept = {"old rows": "kept"} if self.regroup is not None and self.regroup.changes else {}
        return kept | {
            "key": ", ".join(self.key),
            "timestamp": self.stream.timestamp,
            "order": "partition and offset" if self.stream.ordered else "timestamps",
            "windows": str(self.windows),
            "grace": show_ms(self.windows.grace_ms if self.windows else 0),
            "aggregation": ", ".join(f"{name}={_identify(a)}" for name, a in self.aggregations),
            # Final results beside updates are kept in the same state as updates alone.
            "emits": "final" if self.emits == "final" else "updates",
            "buffer": "unbounded" if self.buffer is None else "bounded",
            "limit": "none" if self.limit is None else f"by {self.limit.clock} time",
            "store": self.name,
        }

    def fingerprint(self) -> str:
        """A short digest of `identity()`."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:16]


def _by_stream_time(output: Output) -> bool:
    return output.limit is not None and output.limit.clock == "stream"


def _identify(aggregation: Aggregation) -> str:
    # A function's code is the user's to change; its column and type are what the state holds.
    if isinstance(aggregation, Reduce):
        return f"reduce({aggregation.column})"
    if isinstance(aggregation, Fold):
        return f"aggregate as {aggregation.type}"
    return str(aggregation)


def chain(op: Operation) -> list[Operation]:
    """The operators that records go through until `op` has its rows, in order."""
    stream, function = op.stream, op.function
    if stream.table is None or not stream.behind:
        return [op]
    values = None if isinstance(function, Fold) else op.input_columns(())
    told_by = (function.column,) if isinstance(function, Reduce) else ()
    groups = Repartition(op.key, values, stream.changes, told_by, (*stream.key, *op.key))
    return [*chain(replace(operation(stream.table), regroup=groups)), op]


def operation(table: Plan) -> Operation:
    """The one operator that computes `table`. Raises DefinitionError for one that cannot be."""
    op = _together(table) if isinstance(table, Outputs) else _alone(table)
    if op.retention_ms is not None and op.emits == "updates":
        # What closes is kept, told or not.
        op = replace(op, emits="both", outputs=op.all_outputs)
    kinds = {output.kind for output in op.all_outputs}
    if op.expects is not None and "updates" in kinds and "final" not in kinds:
        raise DefinitionError(
            "`expect_keys` needs final results: that a key is missing shows when the window closes, and this "
            "table gives updates alone. Use emit_strategy(EmitStrategy.on_window_close()), or suppress until the "
            "window closes."
        )
    return op


def _alone(table: Table | LateRecords | Stream) -> Operation:
    if isinstance(table, LateRecords):
        op = _alone(table.parent)
        return replace(op, emits="updates" if op.windows is None else "final", outputs=(Output("", "late"),))
    if isinstance(table, Stream):
        if table.table is None:
            raise DefinitionError(f"The stream {table.name!r} has no aggregation, so there is no operator.")
        op = operation(table.table)
        return replace(op, after=op.after + table.steps)
    suppressions = list(_suppressions(table))
    limits = [how for how in suppressions if isinstance(how, UntilTimeLimit)]
    named = next((how.name for how in suppressions if how.name), "suppress")
    if len(limits) > 1:
        raise DefinitionError(
            f"This table has {len(limits)} suppressions until a time limit, one behind the other, and one operator "
            "holds one. Use the longer limit alone."
        )
    aggregate = root_of(table)
    store = "table" if isinstance(aggregate, Changelog) else aggregate.materialized.name
    if suppressions and store == named:
        raise DefinitionError(
            f"The store and the suppression behind it are both called {named!r}, so that neither can be read or told "
            'apart in a checkpoint. Name one of them otherwise: Materialized.as_("name"), .with_name("name").'
        )
    before, after = _steps(table)
    if isinstance(aggregate, Changelog):
        return Operation(
            stream=aggregate.stream,
            key=aggregate.key,
            windows=None,
            aggregations=(),
            emits="updates",
            caching=False,
            buffer=None,
            name=store,
            buffer_name=named,
            limit=limits[0] if limits else None,
            deleted=aggregate.deleted,
            before=before,
            after=after,
        )
    bound = _bound(suppressions)
    on_close = aggregate.emit == EmitStrategy.on_window_close()
    return Operation(
        stream=aggregate.stream,
        key=aggregate.key,
        windows=aggregate.windows,
        aggregations=aggregate.aggregations,
        emits="final" if _final(aggregate, suppressions) else "updates",
        caching=aggregate.materialized.caching,
        # Behind an aggregation that emits on close, a buffer never holds anything.
        buffer=None if on_close else bound,
        name=aggregate.materialized.name,
        buffer_name=named,
        limit=limits[0] if limits else None,
        retention_ms=aggregate.materialized.retention_ms if _closes(aggregate.windows) else None,
        expects=aggregate.expects,
        before=before,
        after=after,
    )


def _steps(table: Table) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The steps of a table's rows before and behind its time limit; without one, all are behind."""
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    root = root_of(table)
    limited, closes = False, isinstance(root, WindowedAggregate) and root.emit == EmitStrategy.on_window_close()
    while isinstance(table, Suppress | MapFilter):
        if isinstance(table, MapFilter):
            # Of a window only the last update leaves, and not if it is a tombstone.
            step = table.step
            if closes and isinstance(step, Filter):
                step = replace(step, tombstones=False)
            before = (step, *before)
        elif isinstance(table.how, UntilTimeLimit):
            before, after, limited = (), before, True
        else:
            closes = True
        table = table.parent
    untyped = next((step for step in before if isinstance(step, MapValues) and not step.typed), None)
    if limited and untyped is not None:
        raise DefinitionError(
            f"{untyped} is followed by a suppression, whose buffer must know the types of its columns. Give "
            'map_values(..., types={"column": "long"}), or expressions instead of functions.'
        )
    return (before, after) if limited else ((), before)


def _final(root: WindowedAggregate, suppressions: Iterable[UntilWindowCloses | UntilTimeLimit]) -> bool:
    on_close = root.emit == EmitStrategy.on_window_close()
    return on_close or any(isinstance(how, UntilWindowCloses) for how in suppressions)


def _together(outputs: Outputs) -> Operation:
    """The one operator behind several tables of one aggregation."""
    parts = [(name, _alone(table)) for name, table in outputs.named]
    (first_name, first), *others = parts
    for name, op in others:
        differs = [what for what, mine, theirs in _aggregation(first, op) if mine != theirs]
        if differs:
            raise DefinitionError(
                f"The outputs {first_name!r} and {name!r} are not of one aggregation: they differ in their "
                f"{', '.join(differs)}. Build the aggregation once and derive both from it "
                "(final = counts.suppress(...)), or give each a query of its own."
            )
    told = tuple(_beside_others(name, part) for name, op in parts for part in op.all_outputs)
    limited = [output for output in told if output.limit is not None]
    if len(limited) > 1:
        raise DefinitionError(
            f"The outputs {limited[0].name!r} and {limited[1].name!r} are both held back until a time limit, and one "
            "operator holds one such buffer. Give one of them a query of its own."
        )
    kinds = {output.kind for output in told} - {"late"}
    bounded = next((op for _, op in parts if op.buffer is not None), first)
    if bounded.buffer is not None and "updates" in kinds and first.caching:
        raise DefinitionError(
            f"An output waits in a buffer with a bound ({bounded.buffer}), which is checked record by record, and "
            "another one gives the last update per micro-batch. Use BufferConfig.unbounded(), or "
            "Materialized.as_(...).with_caching_disabled()."
        )
    held = next((op for _, op in parts if op.limit is not None), bounded)
    emits = "both" if len(kinds) > 1 else kinds.pop() if kinds else first.emits
    return replace(
        first,
        emits=emits,
        buffer=bounded.buffer,
        buffer_name=held.buffer_name,
        limit=held.limit,
        outputs=told,
    )


def _beside_others(name: str, output: Output) -> Output:
    """An output that leaves beside others under `name`: in its rows the column `output` says so, and nothing else."""

    def checked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        for step in steps:
            if isinstance(step, MapValues) and "output" in step.columns:
                raise DefinitionError(
                    f"{step} of the output {name!r} gives a column 'output': among several outputs that column says "
                    "which one a row is of. Choose another name."
                )
        return tuple(replace(s, kept=(*s.kept, "output")) if isinstance(s, MapValues) else s for s in steps)

    return replace(output, name=name, before=checked(output.before), after=checked(output.after))


def _aggregation(one: Operation, other: Operation) -> Iterator[tuple[str, Any, Any]]:
    """What two operations must have in common to be one aggregation: (what, of one, of the other)."""
    yield "stream", (one.stream, id(one.stream.frame)), (other.stream, id(other.stream.frame))
    yield "key", one.key, other.key
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


def root_of(table: Plan) -> WindowedAggregate | Changelog:
    """The aggregation or the changelog at the root of `table`."""
    if isinstance(table, Outputs):
        table = table.named[0][1]
    while not isinstance(table, WindowedAggregate | Changelog):
        if isinstance(table, Stream):
            assert table.table is not None
            table = table.table
        else:
            table = table.parent
    return table


def inputs_of(table: Plan) -> tuple[Stream, ...]:
    """The streams that records come from."""
    if isinstance(table, Stream):
        return table.branches if table.table is None else inputs_of(table.table)
    return inputs_of(root_of(table).stream)


def merge_conflict(one: Stream, other: Stream) -> str:
    """Why two streams cannot be merged; empty if they can."""
    if one.table is not None or other.table is not None:
        return "merge: a stream of a table's changes cannot be merged. Merge the streams before the aggregation."
    for what in ("key", "timestamp", "partition", "offset", "clock"):
        mine, theirs = getattr(one, what), getattr(other, what)
        if mine != theirs:
            return (
                f"merge: the {what} of {one.name!r} is {mine!r} and that of {other.name!r} {theirs!r}. Name "
                "the columns alike, or use select_key."
            )
    return ""


def surprises(table: Suppress) -> Iterator[str]:
    """What is legal about the outermost suppression of `table`, but probably not meant; each a sentence or two."""
    how, root, buffer = table.how, root_of(table), table.how.buffer
    windows = None if isinstance(root, Changelog) else root.windows
    if isinstance(how, UntilWindowCloses):
        if isinstance(windows, UnlimitedWindows):
            yield (
                f"suppress({how}) on {windows}: an unlimited window never closes, so nothing ever comes out and the "
                "state only grows. Use until_time_limit, or no suppression."
            )
        elif not isinstance(root, Changelog) and _final(root, _suppressions(table.parent)):
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
    """Whether the updates of a key and window come to an end."""
    return windows is not None and not isinstance(windows, UnlimitedWindows)


def headline(table: Plan) -> str:
    """`table` in one line: what it is computed from, what it computes, and what holds its rows back."""
    if isinstance(table, Outputs):
        return ", ".join(f"{name}: {headline(output)}" for name, output in table.named)
    if isinstance(table, LateRecords):
        return f"late records of {headline(table.parent)}"
    if isinstance(table, Stream):
        of = f"changes of {headline(table.table)}" if table.table is not None else table.name
        return " -> ".join([of, *map(str, table.steps)])
    if isinstance(table, Suppress):
        return f"{headline(table.parent)} -> suppress({table.how})"
    if isinstance(table, MapFilter):
        return f"{headline(table.parent)} -> {table.step}"
    if isinstance(table, Changelog):
        return f"table {table.stream.name} by {', '.join(table.key)}"
    columns = ", ".join(f"{name} = {aggregation}" for name, aggregation in table.aggregations)
    windows = f" in {table.windows}" if table.windows is not None else ""
    close = ", on window close" if table.emit == EmitStrategy.on_window_close() else ""
    return f"{columns} of {table.stream.name} by {', '.join(table.key)}{windows}{close}"


def describe(table: Plan) -> str:
    """The tree of `table` as text: every node with its name, windows, grace, buffer and Spark operator."""
    if isinstance(table, Outputs):
        operation(table)
        trees = (f"{name}:\n{indent(describe(output), '   ')}" for name, output in table.named)
        return "\n".join(["Outputs of one operator", *trees])
    if isinstance(table, LateRecords):
        return f"Late records, whole, in the operator of\n{indent(describe(table.parent), '   ')}"
    if isinstance(table, Stream):
        below = _input_lines(table) if table.table is None else describe(table.table).splitlines()
        steps = table.steps if table.table is not None else ()
        for step in steps:
            below = [str(step), *_below(below)]
        return "\n".join(below)
    lines: list[str] = []
    stateful = "transformWithStateInPandas"
    depth = 0
    op = operation(table)
    fused, limited = op.emits == "final", op.limit is not None

    def add(text: str, *details: str) -> None:
        nonlocal depth
        lines.append(("   " * (depth - 1) + "└─ " if depth else "") + text)
        lines.extend("   " * depth + "   " + detail for detail in details)
        depth += 1

    while isinstance(table, Suppress | MapFilter):
        if isinstance(table, MapFilter):
            add(str(table.step), "spark    behind the operator")
            table = table.parent
            continue
        as_operator = "in the operator of the aggregation" if fused or limited else "passes everything through"
        add(f"Suppress {table.how.name or ''}".rstrip(), f"when     {table.how}", f"spark    {as_operator}")
        table = table.parent
    if isinstance(table, Changelog):
        add(f"Table {table.stream.name}", f"key      {', '.join(table.key)}", f"time     {table.stream.timestamp}")
        return "\n".join(lines)
    add(
        f"{'WindowedAggregate' if table.windows else 'Aggregate'} {table.materialized.name}",
        f"columns  {', '.join(f'{name} = {a}' for name, a in table.aggregations)}",
        *([f"windows  {table.windows}", f"grace    {show_ms(table.windows.grace_ms)}"] if table.windows else []),
        f"emits    {_emits(fused, table.materialized.caching, table.windows is not None)}",
        f"spark    mapInArrow ({'pre-aggregates' if op.pre_aggregates else 'packs records'}), {stateful}",
    )
    add(f"GroupBy {', '.join(table.key)}")
    lines += ["   " * (depth - 1) + line for line in _below(_input_lines(table.stream))]
    return "\n".join(lines)


def _input_lines(stream: Stream) -> list[str]:
    """A stream with its steps, or the streams it was merged from."""
    if stream.table is not None:
        return describe(stream.table).splitlines()
    if stream.sources:
        return ["Merge", *(line for source in stream.sources for line in _below(_input_lines(source)))]
    order = f"partition {stream.partition}, offset {stream.offset}" if stream.ordered else "timestamps"
    lines = [
        f"Stream {stream.name}",
        f"   key      {', '.join(stream.key)}",
        f"   time     {stream.timestamp}",
        f"   order    {order}",
        *(f"   clock    {line}" for line in stream.clock.lines()),
    ]
    for step in stream.steps:
        lines = [str(step), *_below(lines)]
    return lines


def _below(lines: list[str]) -> list[str]:
    """A tree one level down."""
    return [("└─ " if i == 0 else "   ") + line for i, line in enumerate(lines)]


def _emits(final: bool, caching: bool, windowed: bool) -> str:
    if final:
        return "final results, once, when the window closes"
    return f"the last update per key{', window' if windowed else ''} and micro-batch" if caching else "every update"
