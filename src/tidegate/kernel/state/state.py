"""The state of an operator between batches: its stream time and an index of the log of each window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.kernel.columns.arrays import concat_tables
from tidegate.kernel.rows.schema_evolution import Column, SchemaEvolution
from tidegate.kernel.state import frames
from tidegate.kernel.state.log_index import Log, LogIndex
from tidegate.kernel.state.store import Section, Store
from tidegate.kernel.state.tables import (
    CLOSING_TIMES,
    OLD_VALUES,
    OPEN_RIGHT,
    RETAINED,
    WINDOWS_BY_KEY,
    buffered_old_values,
)
from tidegate.kernel.time.idle import Idle
from tidegate.kernel.time.slowest_partition import Reached
from tidegate.kernel.time.stream_time import NEVER, Partition

_META = "meta"
_FEWER = (
    " A buffer with a bound uses fewer tasks where each would get less than 10,000 records or 10 MB of it. A time "
    "limit by stream time behind final results, or behind another limit, uses one."
)


@dataclass(frozen=True)
class Expected:
    """Progress of the rows of expected keys: start of the first window (ms), and the largest timestamp that came (ms),
    up to which windows have begun.
    """

    first: int
    newest: int = NEVER


DRAINED = "done"
"""`State.drain` of a drain that is over."""


@dataclass
class State:
    """The state of one task of an operator; segments of logs stay in the store until they are read."""

    store: Store
    identity: dict[str, str]
    tasks: int
    stream_time: int = NEVER
    logs: LogIndex = field(default_factory=LogIndex)
    partitions: dict[Partition, Reached] = field(default_factory=dict)
    expected: Expected | None = None
    wall_clock: int = NEVER
    idle: Idle = field(default_factory=Idle)
    old_values: LogIndex = field(default_factory=LogIndex)
    """Rows that were emitted, the last one of each key, in ranges of their own (kernel.exchange.retract_insert)."""
    old_values_by_limit: dict[int, LogIndex] = field(default_factory=dict)
    """Rows put into a buffer whose bytes are counted, the last one of each key, by the place of the time limit."""
    closed: LogIndex = field(default_factory=LogIndex)
    """Logs of results that stay readable (kernel.windows.retention)."""
    right: LogIndex = field(default_factory=LogIndex)
    """The open records of the right side of a join; `logs` has the open records of the left side."""
    by_key: LogIndex = field(default_factory=LogIndex)
    """Sliding windows and sessions that are stored by key; then `logs` has none."""
    closing: LogIndex = field(default_factory=LogIndex)
    """Times at which windows that are stored by key must be looked at (kernel.windows.closing_times)."""
    open_windows: int = 0
    """Number of open windows among those stored by key."""
    outlived: dict[int, int] = field(default_factory=dict)
    """Number of closed windows stored by key that are still of use, by about the stream time (ms) at which their use
    ends (kernel.windows.windows_by_key)."""
    large_windows: int = 0
    """Number of windows that have become large so far; it numbers the next one (kernel.windows.window_runs)."""
    input_times: list[int] = field(default_factory=lambda: [NEVER, NEVER])
    """The largest timestamp of each input of a join with a table (ms)."""
    looked_up_to: int = NEVER
    """In a join with a table, waiting records were looked up to this time of the stream (ms), by today's grace. It is
    the stream's entry of `input_times`, unless the grace has changed."""
    history_from: int = NEVER
    """Start of the history in a join with a table when its length was changed (ms); older versions were dropped."""
    first_versions: bool = False
    """Whether the history of a join with a table begins with this step: then only the last stored version of a key
    counts; not stored."""
    described: str = ""
    """The digest of the description in the store (kernel.upgrade.description)."""
    task: int = 0
    """The number of this task, which each step sets."""
    due: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the place of a time limit: when its first buffered row is to leave, and the time of its clock (ms); reported,
    not stored."""
    step_metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of this step about suppressions and final results (spec.metrics); not stored."""
    closed_through: int = NEVER
    """Windows have closed up to this stream time, by today's grace: stream time itself, unless grace has changed."""
    columns: list[Column] = field(default_factory=list)
    """The slot of each aggregate and the time it was added, if the plan's aggregates changed (`kernel.upgrade`)."""
    drain: str = ""
    """Progress of a drain: empty, begun or done (kernel.upgrade.drain)."""
    evolution: SchemaEvolution | None = None
    """Converts stored rows to rows of the plan, where they differ; not stored."""

    def __post_init__(self) -> None:
        of_keys = ((self.by_key, WINDOWS_BY_KEY), (self.closing, CLOSING_TIMES))
        sections = ((self.old_values, OLD_VALUES), (self.closed, RETAINED), (self.right, OPEN_RIGHT))
        for index, section in (*sections, *of_keys):
            if not index:
                index.store = Section(self.store, section)
        if not self.logs:
            self.logs.store = self.store

    @classmethod
    def load(cls, store: Store, identity: dict[str, str], tasks: int) -> State:
        """The state in `store`, or a new one of `identity`. Another plan may have written it (`kernel.upgrade`).

        Raises CheckpointError if another number of tasks wrote it.
        """
        found = store.get(_META)
        if found is None:
            return cls(store, identity, tasks)
        meta, _ = frames.decode(frames.META, found)
        if meta["tasks"] != tasks:
            raise CheckpointError(
                f"The checkpoint was written by {meta['tasks']} tasks and this query runs {tasks}: "
                f"keys would be looked for in the wrong one. Nothing was changed. "
                f"Set spark.sql.shuffle.partitions to {meta['tasks']} and restart, or start with a new checkpoint."
                f"{_FEWER if meta['tasks'] > tasks else ''}"
            )
        return cls._of(store, meta)

    @classmethod
    def open(cls, store: Store) -> State | None:
        """The state in `store`, whichever plan and however many tasks wrote it; None if there is none."""
        found = store.get(_META)
        return None if found is None else cls._of(store, frames.decode(frames.META, found)[0])

    @classmethod
    def _of(cls, store: Store, meta: dict[str, Any]) -> State:
        partitions = {name: Reached(*reached) for name, *reached in meta.get("partitions", [])}
        expected = None
        if "expected" in meta:
            # The number of the task may be wrong in a checkpoint of an earlier version; each step knows it anew.
            first, _, *newest = meta["expected"]
            expected = Expected(first, *newest)
        return cls(
            store,
            meta["identity"],
            meta["tasks"],
            meta["stream_time"],
            LogIndex.load(store, meta["logs"]),
            partitions=partitions,
            expected=expected,
            wall_clock=meta.get("wall_clock", NEVER),
            idle=Idle(*meta.get("idle", [])),
            old_values=LogIndex.load(Section(store, OLD_VALUES), meta.get("kept")),
            old_values_by_limit={
                place: LogIndex.load(Section(store, buffered_old_values(place)), saved)
                for place, saved in meta.get("came", [])
            },
            closed=LogIndex.load(Section(store, RETAINED), meta.get("closed")),
            right=LogIndex.load(Section(store, OPEN_RIGHT), meta.get("right")),
            by_key=LogIndex.load(Section(store, WINDOWS_BY_KEY), meta.get("by_key")),
            closing=LogIndex.load(Section(store, CLOSING_TIMES), meta.get("closing")),
            open_windows=meta.get("open_windows", 0),
            outlived=dict(meta.get("outlived", [])),
            large_windows=meta.get("large_windows", 0),
            input_times=meta.get("input_times", [NEVER, NEVER]),
            looked_up_to=meta.get("looked_up_to", meta.get("input_times", [NEVER])[0]),
            history_from=meta.get("history_from", NEVER),
            described=meta.get("described", ""),
            closed_through=meta.get("closed_to", meta["stream_time"]),
            columns=[Column(*column) for column in meta.get("columns", [])],
            drain=meta.get("drain", ""),
        )

    def save(self) -> None:
        """Write everything but the segments, which are already in the store."""
        meta: dict[str, Any] = {
            "identity": self.identity,
            "tasks": self.tasks,
            "stream_time": self.stream_time,
            "logs": self.logs.save(),
        }
        if self.closed_through != self.stream_time:
            meta["closed_to"] = self.closed_through
        if self.columns:
            meta["columns"] = [[column.slot, column.added_at] for column in self.columns]
        meta |= {name: many for name in ("large_windows", "open_windows") if (many := getattr(self, name))}
        if self.drain:
            meta["drain"] = self.drain
        others = {"kept": self.old_values, "closed": self.closed, "right": self.right}
        others |= {"by_key": self.by_key, "closing": self.closing}
        indexes = {name: index.save() for name, index in others.items()} | {"came": self._saved_by_limit()}
        meta |= {name: saved for name, saved in indexes.items() if saved}
        if self.outlived:
            meta["outlived"] = sorted(self.outlived.items())
        meta |= self._saved_of_lookups()
        if self.described:
            meta["described"] = self.described
        if self.partitions:
            meta["partitions"] = [[name, at.time, at.last_input] for name, at in self.partitions.items()]
        if self.expected is not None:
            # The slowest partition's time lags behind the newest record; any other stream time is its timestamp.
            ahead = [self.expected.newest] if self.expected.newest > self.stream_time else []
            meta["expected"] = [self.expected.first, self.task, *ahead]
        if self.idle != Idle():
            meta["idle"] = [self.idle.last_input, self.idle.base_time, self.idle.tick]
        if self.wall_clock != NEVER:
            meta["wall_clock"] = self.wall_clock
        self.store.put(_META, frames.encode(frames.META, meta))

    def _saved_by_limit(self) -> list[tuple[int, dict[str, Any]]]:
        return [(place, saved) for place, index in sorted(self.old_values_by_limit.items()) if (saved := index.save())]

    def _saved_of_lookups(self) -> dict[str, Any]:
        """The times of a join with a table, for the meta frame."""
        known: dict[str, Any] = {}
        if self.input_times != [NEVER, NEVER]:
            known["input_times"] = self.input_times
        if self.looked_up_to != self.input_times[0]:
            known["looked_up_to"] = self.looked_up_to
        if self.history_from != NEVER:
            known["history_from"] = self.history_from
        return known

    @property
    def drained(self) -> bool:
        """Whether a drain is over, or this step is its end."""
        return self.drain == DRAINED

    @property
    def newest(self) -> int:
        """The largest timestamp of all records so far (ms), or stream time, if idle input moved it on."""
        return max([self.stream_time, *(reached.time for reached in self.partitions.values())])

    def old_values_of_limit(self, place: int) -> LogIndex:
        """The rows of `old_values_by_limit` for the time limit at this place."""
        return self.old_values_by_limit.setdefault(place, LogIndex(Section(self.store, buffered_old_values(place))))

    def of_logs(self, logs: LogIndex) -> State:
        """Other logs of the same store, such as `closed` and `closing`, as the logs of a state of their own."""
        return State(logs.store, self.identity, self.tasks, logs=logs)

    def append(self, window: int, rows: pa.Table, windows: int = 1) -> None:
        """Append a segment to the log of `window`; `windows`: number of windows of its rows, noted in a new log."""
        log = self.logs.get(window) or Log(windows=windows)
        stored = rows if self.evolution is None else self.evolution.to_stored(rows)
        segment = frames.encode(frames.SEGMENT, {}, stored)
        self.store.write(window, log.segments, segment)
        self.logs[window] = log._replace(
            segments=log.segments + 1, size=log.size + len(segment), rows=log.rows + rows.num_rows
        )

    def note(self, window: int, **known: int) -> None:
        """Set fields of the `Log` of `window`."""
        self.logs[window] = self.logs[window]._replace(**known)

    def read(self, window: int) -> list[pa.Table]:
        """The segments of the log of `window`, oldest first."""
        return list(self.segments(window))

    def segments(self, window: int) -> Iterator[pa.Table]:
        """The segments of the log of `window`, oldest first, one at a time."""
        for number in range((self.logs.get(window) or Log()).segments):
            yield self._rows_of(self.store.read(window, number))

    def _rows_of(self, segment: bytes) -> pa.Table:
        rows = frames.decode(frames.SEGMENT, segment)[1][0]
        return rows if self.evolution is None else self.evolution.from_stored(rows)

    def replace(self, window: int, rows: pa.Table, windows: int = 1) -> None:
        """Replace the log of `window` by `rows` of so many `windows`."""
        self.replace_by(window, [rows], windows)

    def replace_by(self, window: int, segments: Iterable[pa.Table], windows: int) -> None:
        """Replace the log of `window` by `segments`, at least one."""
        before = (self.logs.pop(window) or Log()).segments
        for rows in segments:
            self.append(window, rows, windows)
        log = self.logs[window]
        self.note(window, base=log.rows)
        for segment in range(log.segments, before):
            self.store.remove(window, segment)

    def put_together(self, window: int, merged: Callable[[list[pa.Table]], pa.Table] = concat_tables) -> None:
        """Behind an `append`, keep the segments of the log of `window` few: `merged` makes one segment of several.

        The log counts its appends as a number whose base is `Tuning.bucket_segments`: so many segments become one, and
        so many of those one again. A row is rewritten once for each digit. Large segments stay: if one of so many would
        have more than `Tuning.part_rows` rows, about.
        """
        tuning = self.store.tuning
        many = max(2, tuning.bucket_segments)
        self.note(window, waits=self.logs[window].waits + 1)
        appends = self.logs[window].waits
        while appends % many == 0:
            log = self.logs[window]
            if log.segments < many or log.rows * many > tuning.part_rows * log.segments:
                return
            self._put_together(window, log.segments - many, merged)
            appends //= many

    def _put_together(self, window: int, first: int, merged: Callable[[list[pa.Table]], pa.Table]) -> None:
        """Replace the segments of the log of `window` from `first` on by one."""
        log = self.logs[window]
        before = [self.store.read(window, number) for number in range(first, log.segments)]
        tables = [self._rows_of(segment) for segment in before]
        rows = merged(tables)
        for number in range(first, log.segments):
            self.store.remove(window, number)
        size, count = sum(map(len, before)), sum(table.num_rows for table in tables)
        self.logs[window] = log._replace(segments=first, size=log.size - size, rows=log.rows - count)
        self.append(window, rows)

    def forget(self, window: int) -> None:
        """Remove the log of `window`."""
        for segment in range((self.logs.pop(window) or Log()).segments):
            self.store.remove(window, segment)
