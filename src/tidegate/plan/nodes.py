"""The logical plan: an immutable tree of streams and tables that the DSL builds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias

from tidegate.errors import DefinitionError
from tidegate.spec.aggregates import Aggregation
from tidegate.spec.clock import Clock
from tidegate.spec.columns import END, START, WINDOW, public_key
from tidegate.spec.emit import EmitStrategy
from tidegate.spec.joined import Joined
from tidegate.spec.materialized import Materialized
from tidegate.spec.steps import MapValues, SelectKey, Step, is_expression
from tidegate.spec.suppressed import UntilTimeLimit, UntilWindowCloses
from tidegate.spec.windows import SessionWindows, Windows

RESULT_COLUMNS = ("window", "timestamp", "deleted", "output")
"""Reserved column names of result rows."""

LATE_COLUMNS = ("reason", "late_by", "stream_time")
"""Further reserved column names of late records."""

STATE_COLUMNS = ("status", "since", "until")
"""Further reserved column names of rows of a store."""

DROP, KEEP = LATE_RECORDS = ("drop", "keep")
"""Whether late and skipped records are dropped or kept as an output."""


@dataclass(frozen=True)
class Stream:
    """An input: a bound DataFrame (`frame`) or a name that is bound later, and the stateless steps of its records.

    sources  the streams that were merged into this one; each has its own steps and number
    table    the table or join whose rows these records are; key, timestamp and columns are those of the rows
    non_values
             columns that are not values, besides key, timestamp, partition and offset
    changes  whether each change retracts an old row and inserts a new one, as in a regrouped table
    forwarded
             whether the records are rows that another operator emits, one by one
    follows  the name of the join whose rows these are, if the records have its stream time: a join that follows its
             slowest partition does not show its stream time by its rows
    moves    whether a record may be two changes: it deletes a row under its old key, and upserts one under another key
    undecoded
             the source of records that workers decode, instead of rows of `frame` (`runtime.spark.row_decoder`)
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
    table: Table | Stream | Join | None = None
    non_values: tuple[str, ...] = ()
    changes: bool = False
    forwarded: bool = False
    follows: str | None = None
    moves: bool = False
    undecoded: Any = field(default=None, compare=False, repr=False)

    @property
    def branches(self) -> tuple[Stream, ...]:
        """The merged streams, or this stream alone."""
        return self.sources or (self,)

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that are not values."""
        order = (self.partition, self.offset)
        return (*public_key(self.key), self.timestamp, *(name for name in order if name is not None), *self.non_values)

    def then(self, step: Step) -> Stream:
        """The stream after one more step."""
        if self.sources:
            # Rows of an operator and records of a source differ in the columns that are not values.
            kept = [replace(step, kept=one.kept) if isinstance(step, MapValues) else step for one in self.sources]
            return replace(self, sources=tuple(one.then(own) for one, own in zip(self.sources, kept, strict=True)))
        if self.table is None or not isinstance(step, MapValues):
            return replace(self, steps=(*self.steps, step))
        # Behind `select_key` the stream has another key, but the operator's key still tells the operator's rows apart.
        key = public_key(root_of(self.table).key)
        aside = tuple(name for name in key if name not in (*step.kept, *step.columns))
        step = replace(step, kept=(*step.kept, *aside))
        return replace(self, steps=(*self.steps, step), non_values=(*self.non_values, *aside))

    @property
    def unbound(self) -> Stream:
        """The stream without DataFrames and tables, which exist only in the driver of the query."""
        sources = tuple(source.unbound for source in self.sources)
        return replace(self, frame=None, undecoded=None, table=None, sources=sources)

    @property
    def is_source(self) -> bool:
        """Whether this is one source alone: its records come unchanged, without steps and merges."""
        return not (self.steps or self.sources or self.table)

    @property
    def from_upstream(self) -> bool:
        """Whether all records come from other operators."""
        return self.changes or self.forwarded or (bool(self.sources) and all(one.from_upstream for one in self.sources))

    @property
    def as_rows(self) -> Stream:
        """Rows of another operator as one of several inputs: without partition and offset."""
        return replace(self, sources=(), partition=None, offset=None, forwarded=True)

    @property
    def without_sources(self) -> bool:
        """Whether no record is read from a source."""
        return all(branch.table is not None for branch in self.branches)

    @property
    def ordered(self) -> bool:
        """Whether the source has the order of its records, as partition and offset."""
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

    @property
    def emits_on_close(self) -> bool:
        """Whether only final results leave, by its emit strategy."""
        return self.emit == EmitStrategy.on_window_close()


@dataclass(frozen=True)
class Changelog:
    """A table given as its changes: upserts, and tombstones where the column `deleted` is true.

    history_ms  how long a join finds versions of its rows by their timestamps; None: only the latest row
    """

    stream: Stream
    deleted: str | None
    history_ms: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the table: the key of its stream."""
        return self.stream.key


@dataclass(frozen=True)
class Join:
    """A join of two inputs by key. `right` is None if a stream is joined with itself.

    The rows of a join of two tables are a table, other joins give a stream. `deletions` are the columns of the sides
    that mark deleted rows of a table.
    """

    left: Stream
    right: Stream | None
    joined: Joined
    name: str
    store: str
    clock: Clock
    deletions: tuple[str | None, str | None] = (None, None)

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the rows: the key of both inputs."""
        return self.left.key

    @property
    def sides(self) -> tuple[Stream, ...]:
        """The inputs: left and right, or one that is both."""
        return (self.left,) if self.right is None else (self.left, self.right)

    @property
    def stream(self) -> Stream:
        """Both inputs as one stream, whose columns are those of the rows."""
        return Stream(self.name, self.key, "timestamp", clock=self.clock)


@dataclass(frozen=True)
class Suppress:
    """Updates of `parent`, held back as `how` says."""

    parent: Table
    how: UntilWindowCloses | UntilTimeLimit


@dataclass(frozen=True)
class LateRecords:
    """The late and skipped records of `parent`, as rows."""

    parent: WindowedAggregate | Changelog | Join


@dataclass(frozen=True)
class MapFilter:
    """The rows of `parent` after a stateless step."""

    parent: Table
    step: Step


@dataclass(frozen=True)
class Outputs:
    """Several tables of one operator by output name, which their rows carry."""

    named: tuple[tuple[str, Table | LateRecords | Stream], ...]


Root: TypeAlias = "WindowedAggregate | Changelog | Join"
Table: TypeAlias = "WindowedAggregate | Changelog | Join | Suppress | MapFilter"
Plan: TypeAlias = "Table | LateRecords | Outputs | Stream"


def root_of(table: Plan | Join) -> Root:
    """The aggregation, the changelog or the join at the root of `table`."""
    if isinstance(table, Outputs):
        table = table.named[0][1]
    while not isinstance(table, WindowedAggregate | Changelog | Join):
        if isinstance(table, Stream):
            assert table.table is not None
            table = table.table
        else:
            table = table.parent
    return table


def windows_of(table: Plan | Join) -> Windows | None:
    """The windows of the aggregation at the root of `table`; None without windows or without an aggregation."""
    root = root_of(table)
    return root.windows if isinstance(root, WindowedAggregate) else None


def window_columns(table: Plan | Join) -> tuple[str, ...]:
    """The window columns of the rows of `table` in the order of its serialized key; empty if rows have no window.

    The window comes from the aggregation, or is a part of the key. In sessions the end comes before the start
    (SEMANTICS 5).
    """
    windows = windows_of(table)
    if windows is None:
        return tuple(name for name in root_of(table).key if name in (START, END))
    return (END, START) if isinstance(windows, SessionWindows) else (START, END)


def check_there(argument: str, name: str, available: Collection[str], what: str) -> None:
    """Raise DefinitionError if the column that `argument` names is not among the available ones; `what` has them."""
    if name not in available:
        raise DefinitionError(
            f"`{argument}` is {name!r}, but the {what} has no such column. Its columns are {', '.join(available)}."
        )


def check_roles(stream: Stream, deleted: str | None, available: Collection[str], what: str) -> None:
    """`check_there` for the columns that a stream names, and for the column `deleted` of a table."""
    named = [("timestamp", stream.timestamp), ("partition", stream.partition), ("offset", stream.offset)]
    for argument, name in (*(("key", name) for name in stream.key), *named, ("deleted", deleted)):
        if name is not None:
            check_there(argument, name, available, what)


def check_key(key: Iterable[str]) -> None:
    """Raise DefinitionError for a key column with a reserved name of result rows."""
    for column in key:
        if column in RESULT_COLUMNS:
            raise DefinitionError(
                f"The column {column!r} has a name that rows of a result use themselves ({', '.join(RESULT_COLUMNS)}). "
                f'Rename it first: df.withColumnRenamed("{column}", "{column}_in").'
            )


def key_of_rows(columns: Sequence[str], table: Table | Stream | Join) -> tuple[str, ...]:
    """The columns of a key of the rows of `table`, with "window" replaced by the columns of its bounds.

    Raises DefinitionError if the rows have no window, for a reserved name of result rows, or for a column that the rows
    are known not to have.
    """
    key: list[str] = []
    for column in columns:
        if column != WINDOW:
            key.append(column)
        elif bounds := window_columns(table):
            key += bounds
        else:
            raise DefinitionError(
                "'window' cannot be a part of the key: the rows have none, because the table has no windows. Leave it "
                "out, or use windowed_by(...) in the first aggregation."
            )
    for column in key:
        if column in RESULT_COLUMNS:
            raise DefinitionError(
                f"{column!r} is what rows of a result call their {column}, and no key. Give what you want of it "
                f'a name of its own first: map_values({{"since": lambda row: ...}}, types=...).'
            )
    what, available = ("stream", readable_columns(table)) if isinstance(table, Stream) else ("table", _of_rows(table))
    if available is not None:
        for column in columns:
            check_there("key", column, available, what)
    return tuple(key)


def _of_rows(table: Table | Join) -> tuple[str, ...] | None:
    return None if isinstance(table, Join) else result_columns(table)


def inputs_of(table: Plan | Join) -> tuple[Stream, ...]:
    """The source streams of a plan."""
    if isinstance(table, Stream):
        if table.table is None:
            return tuple(one for branch in table.branches for one in (inputs_of(branch) if branch.table else (branch,)))
        return inputs_of(table.table)
    root = root_of(table)
    streams = root.sides if isinstance(root, Join) else (root.stream,)
    return tuple(branch for stream in streams for branch in inputs_of(stream))


_BOUND = ("frame", "undecoded", "expects")
"""Fields with what a node is bound to. `==` ignores them."""


def same(one: Any, other: Any) -> bool:
    """Whether two parts of plans are one and the same: equal, and bound to identical DataFrames and expected keys.

    It compares expressions of pyarrow.compute too: their `==` makes another expression and gives no answer.
    """
    if one is other:
        return True
    if is_expression(one) or is_expression(other):
        return is_expression(one) and is_expression(other) and bool(one.equals(other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is not type(other) or not is_dataclass(one) or callable(one):
        return bool(one == other)
    for part in fields(one):
        mine, theirs = getattr(one, part.name), getattr(other, part.name)
        if part.name in _BOUND:
            if mine is not theirs:
                return False
        elif part.compare and not same(mine, theirs):
            return False
    return True


def check_records_alone(stream: Stream) -> None:
    """Raise DefinitionError for a merged stream that includes rows of an operator and has no operator behind it."""
    if any(branch.table is not None for branch in stream.branches):
        raise DefinitionError(
            f"The stream {stream.name!r} has been merged of records and of rows of a join or a table, and nothing "
            "stands behind it. Group it, join it, or write the rows and the records in two queries."
        )


def available_columns(node: Stream) -> tuple[str, ...] | None:
    """The columns of a stream, None if they are not known yet. A merged stream has those that all known inputs have."""
    first, *others = (_columns_of(branch) for branch in node.branches)
    if first is None:
        return None
    known = [set(columns) for columns in others if columns is not None]
    return tuple(name for name in first if all(name in columns for columns in known))


def _columns_of(node: Stream) -> tuple[str, ...] | None:
    """The columns of a stream that is not merged; None for rows of an operator, or if they are not known yet."""
    if node.table is not None or (node.frame is None and node.schema is None):
        return None
    return _behind(node.steps, tuple(node.schema.names) if node.frame is None else tuple(node.frame.columns))


def readable_columns(node: Stream) -> tuple[str, ...] | None:
    """The columns that a step of a stream can read, None if they are not known yet.

    Changes of a table have those of the table's rows.
    """
    if node.table is None or node.sources:
        return available_columns(node)
    if isinstance(node.table, Stream | Join) or (columns := result_columns(node.table)) is None:
        return None
    return _behind(node.steps, columns)


def _behind(steps: Iterable[Step], columns: tuple[str, ...]) -> tuple[str, ...] | None:
    """The columns of records behind these steps, None if a function decides them."""
    for step in steps:
        if isinstance(step, SelectKey):
            columns = (*(name for name in columns if name != step.name), step.name)
        elif isinstance(step, MapValues):
            if not step.typed and callable(step.mapper):
                return None
            columns = (*(name for name in columns if name in step.kept), *step.columns)
    return columns


def result_columns(table: Table) -> tuple[str, ...] | None:
    """The columns of a table's rows, None if they are not known yet. `deleted` is listed even if no row can have it."""
    if isinstance(table, Suppress):
        return result_columns(table.parent)
    if isinstance(table, MapFilter):
        columns = result_columns(table.parent)
        return None if columns is None else _behind((table.step,), columns)
    if isinstance(table, WindowedAggregate):
        window = () if table.windows is None else (WINDOW,)
        return (*public_key(table.key), *window, *(name for name, _ in table.aggregations), "timestamp", "deleted")
    if isinstance(table, Join) or (available := available_columns(table.stream)) is None:
        return None
    others = (table.stream.timestamp, table.stream.partition, table.stream.offset, table.deleted)
    return (*(name for name in available if name not in others), "timestamp", "deleted")


def merge_conflict(one: Stream, other: Stream, called: str = "merge") -> str:
    """The reason why the operator `called` cannot merge two streams; empty if it can.

    Rows of another operator have no partition, no offset and no clock, and their timestamp has its own name.
    """
    rows = any(branch.table is not None for node in (one, other) for branch in node.branches)
    if rows and called != "merge":
        return (
            f"{called}: one stream is of a table's changes, or of a join's rows, and has no partitions of its own. "
            f"Use {called} before the aggregation or the join, or two queries (docs/notyet.md)."
        )
    alike = (
        ("key",)
        if one.without_sources or other.without_sources
        else ("key", "timestamp", "partition", "offset", "clock")
    )
    for what in alike:
        mine, theirs = getattr(one, what), getattr(other, what)
        if mine != theirs:
            return (
                f"{called}: the {what} of {one.name!r} is {mine!r} and that of {other.name!r} {theirs!r}. Name "
                "the columns alike, or use select_key."
            )
    return ""
