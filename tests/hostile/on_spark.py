"""Runs scenarios on Spark: several in one streaming query, each with its own source and stateful operator.

A column of the query has the rows of one scenario, as structs. If a query fails, its scenarios run one by one.

The wall clock of a batch is the time in Spark's offset log. For scenarios that depend on it, each batch is planned,
its time is written into that log, and the next query finds the planned batch and runs it. A full buffer stops the
query, which then goes on from its checkpoint with a larger bound.
"""

from __future__ import annotations

import json
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import reduce
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from hostile import files, functions
from hostile.case import Case, Row
from hostile.drawn import scenario
from hostile.runs import differ
from hostile.steps import Stopped
from hostile.truths import AnyTruth, truth_of
from spark.replay import observed
from spark.session import builder
from tidegate import Window
from tidegate.runtime.spark.checkpoints import draining
from tidegate.runtime.spark.to_spark import to_df

if TYPE_CHECKING:
    from hostile.topics import Topics

# Workers cannot import test modules: send the functions themselves.
cloudpickle.register_pickle_by_value(functions)

MOST_SECONDS = 600
REASONS = ("late", "null_key", "null_value", "bad_timestamp", "future")
OVERLOADED = ("CANNOT_OPEN_SOCKET", "Python worker failed to connect back", "Timed out while waiting")
"""Parts of Spark's error if a Python worker starts too slowly: the machine is busy, and the group runs again."""
AT_ONCE = "0 seconds"
PLANNED = "planned and not taken"
"""Error of a query that stops before a batch whose wall clock is not set yet."""
FOREVER = 2**63 - 1

PENDING_ON_SPARK = {
    "names that are the same but for case": "refused, because Spark's names have no case",
    "functions of records past the year 9999": "refused, because they are given datetimes, which Python does not have",
}
"""Shapes that are not drawn for Spark, with the reason."""


@dataclass
class Ran:
    """Result of one scenario: rows by batch, rows of the drain, drops by reason; `error` if it stopped.

    resumed  whether it went on with a larger bound after a batch that stopped it: then `batches` has all batches
    """

    batches: list[list[Row]] = field(default_factory=list)
    resumed: bool = False
    drained: list[Row] | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    error: str = ""


@dataclass
class Finding:
    """A scenario with a wrong result."""

    what: Case
    problem: str


def stops(what: Case) -> str:
    """Name of the error that must stop the scenario; empty if none must."""
    truth = truth_of(what, ticks=True)
    for number in range(len(what.batches)):
        try:
            truth.batch(number)
        except Stopped as stopped:
            return stopped.error
    return ""


def groups(seed: int, cases: int, size: int) -> Iterator[list[Case]]:
    """The scenarios from a seed on, in groups that share a query; a scenario that must stop is alone.

    A query has one wall clock, so scenarios that depend on the clock share a query only if their clocks are equal.
    """
    waiting: defaultdict[tuple[int, ...], list[Case]] = defaultdict(list)
    for number in range(seed, seed + cases):
        what = scenario(number, spark=True)
        if stops(what):
            yield [what]
            continue
        group = waiting[tuple(what.clocks) if what.clocked else ()]
        group.append(what)
        if len(group) == size:
            yield [*group]
            group.clear()
    yield from filter(None, waiting.values())


def check(spark: SparkSession, group: Sequence[Case], servers: str = "") -> list[Finding]:
    """Run a group; returns the wrong results. With `servers`, the brokers of Kafka, records may come from topics."""
    try:
        ran = _run(spark, group, servers)
        if any(told in ran[0].error for told in OVERLOADED):
            ran = [one for what in group for one in _run(spark, [what], servers)]
    except Exception:
        if len(group) > 1:
            return [finding for what in group for finding in check(spark, [what], servers)]
        return [Finding(group[0], traceback.format_exc(limit=-4))]
    found = [Finding(what, problem) for what, one in zip(group, ran, strict=True) if (problem := _compare(what, one))]
    if len(group) > 1 and found:
        # Run each wrong scenario alone, so that a report can be repeated alone.
        again = [finding for wrong in found for finding in check(spark, [wrong.what], servers)]
        return again or [Finding(one.what, f"in a query with others alone: {one.problem}") for one in found]
    return found


def _compare(what: Case, ran: Ran) -> str:
    right, error, truth = _right(what, ran.resumed)
    if error not in ran.error or bool(error) != bool(ran.error):
        return f"it should have raised {error or 'nothing'}: {ran.error[:6000] or ran.batches}"
    for number, (got, wanted) in enumerate(zip(ran.batches, right, strict=False)):
        if told := differ(f"batch {number}", what, got, wanted):
            return told
    if any(more := [row for rows in ran.batches[len(right) :] for row in rows]) or len(ran.batches) < len(right):
        return f"there are {len(ran.batches)} batches instead of {len(right)}, with these rows behind: {more}"
    if error and not ran.resumed:
        return ""
    if ran.drained is not None and (told := differ("the drain", what, ran.drained or [], truth.drain())):
        return told
    return "" if ran.dropped == truth.drops else f"dropped {dict(ran.dropped)}, and should have: {dict(truth.drops)}"


def _right(what: Case, resumed: bool) -> tuple[list[list[Row]], str, AnyTruth]:
    """Expected rows of each batch, the error that stops it, and the final truth. `resumed`: with a larger bound."""
    truth, error = truth_of(what, ticks=True), ""
    right: list[list[Row]] = []
    for number in range(len(what.batches)):
        try:
            right.append(truth.batch(number))
        except Stopped as stopped:
            error = stopped.error
            if not resumed:
                break
            truth = truth_of(what.roomier, ticks=True)
            right.append([truth.batch(before) for before in range(number + 1)][-1])
    return right, error, truth


# -- one query -----------------------------------------------------------------------------------------------------


def _run(spark: SparkSession, group: Sequence[Case], servers: str) -> list[Ran]:
    random = Random(f"query {group[0].seed}")
    with TemporaryDirectory(prefix="hostile") as folder:
        query = _Query(spark, Path(folder), group, servers)
        whole = max(len(what.batches) for what in group)
        if group[0].clocked:
            query.take_at(group[0].clocks)
            return query.ended(drains=random.random() < 0.3)
        first = random.randint(1, whole - 1) if whole > 1 and random.random() < 0.4 else whole
        for batches in (range(first), range(first, whole)):
            if batches and not query.error:
                query.take(batches)
        return query.ended(drains=random.random() < 0.3)


class _Query:
    """A query over several scenarios, with one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, group: Sequence[Case], servers: str) -> None:
        self.spark, self.folder, self.group = spark, folder, group
        self.topics = topics_of(servers, folder.name) if servers else None
        self.rows: dict[int, list[Any]] = {}
        self.dropped = [Counter[str]() for _ in group]
        self.drained_from: int | None = None
        self.error = self.stopped = ""
        self.written = 0

    def take(self, batches: range) -> None:
        """Take these batches, in a query of their own; with topics each, because a batch ends where its topic does."""
        for number in batches:
            self._put(number)
            if self.topics is not None and not self.error:
                self._run(availableNow=True)
        if self.topics is None:
            self._run(availableNow=True)

    def take_at(self, clocks: Sequence[int]) -> None:
        """Take all batches, each at its time of the wall clock (ms).

        Each query runs the planned batch, plans the next one, and fails before that runs. The trigger is not
        `availableNow`: with the clock of `idle_advance` Spark would take all files as one batch.
        """
        self._put(0)
        self._run(-1, processingTime=AT_ONCE)
        for number, clock in enumerate(clocks):
            if not self.error:
                last = number + 1 == len(clocks)
                if not last:
                    self._put(number + 1)
                _set_time(self.folder / "checkpoint" / "offsets" / str(number), clock)
                self._run(number, **({"once": True} if last else {"processingTime": AT_ONCE}))

    def _put(self, number: int) -> None:
        """Write the files of a batch."""
        for at, what in enumerate(self.group):
            self._write(at, what, number)
        self.written += files.READERS

    def _run(self, until: int | None = None, **trigger: Any) -> None:
        """Run the available batches, up to number `until`; if a buffer is full, go on with a larger bound."""
        frames = self._frames()
        query = self._start(frames, self._collect(frames, until), **trigger)
        ended = False
        try:
            ended = query.awaitTermination(MOST_SECONDS)
        except StreamingQueryException as error:
            self.error = "" if PLANNED in str(error) else str(error)
            ended = True
        finally:
            query.stop()
        if not ended:
            raise TimeoutError("the query did not end")
        self._count(query)
        if "BufferFullError" in self.error and len(self.group) == 1 and not stops(wider := self.group[0].roomier):
            self.group, self.error, self.stopped = [wider], "", self.error
            self._run(until, **trigger)

    def ended(self, drains: bool) -> list[Ran]:
        """Results by scenario, after a drain if `drains`. Without records there is no state to drain."""
        if drains and not self.error and all(any(what.batches) for what in self.group):
            self.drain()
        return self.ran()

    def drain(self) -> None:
        """The steps of `tg.drain`, for all scenarios."""
        checkpoint = str(self.folder / "checkpoint")
        self.drained_from = len(self.rows)
        frames = self._frames(drains=True)
        for _ in range(draining._MOST_BATCHES):
            if draining._done(self.spark, checkpoint):
                return
            draining._plan(self.spark, checkpoint)
            query = self._start(frames, self._collect(frames), once=True)
            query.awaitTermination(MOST_SECONDS)
            self._count(query)
        assert draining._done(self.spark, checkpoint), "the drain does not end"

    def ran(self) -> list[Ran]:
        """Results by scenario."""
        by_batch = [self.rows[number] for number in sorted(self.rows)]
        until = len(by_batch) if self.drained_from is None else self.drained_from
        ran = []
        for at, dropped in enumerate(self.dropped):
            mine = [[row for place, row in rows if place == at] for rows in by_batch]
            drained = None if self.drained_from is None else [row for rows in mine[until:] for row in rows]
            ran.append(Ran(mine[:until], bool(self.stopped), drained, dropped, self.error or self.stopped))
        return ran

    def _start(self, frames: list[DataFrame], sink: Callable[[DataFrame, int], None], **trigger: Any) -> Any:
        shapes = [_as_struct(frame, what) for frame, what in zip(frames, self.group, strict=True)]
        nothing = [F.lit(None).cast(shape.schema[0].dataType).alias(f"case{i}") for i, shape in enumerate(shapes)]
        wide = [
            shape.select(*nothing[:i], F.col("row").alias(f"case{i}"), *nothing[i + 1 :])
            for i, shape in enumerate(shapes)
        ]
        writer = reduce(DataFrame.union, wide).writeStream.outputMode("update").foreachBatch(sink)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger).start()

    def _collect(self, frames: list[DataFrame], until: int | None = None) -> Callable[[DataFrame, int], None]:
        """A sink that keeps the rows of each batch, and fails at a batch after `until`."""
        names = [frame.columns for frame in frames]
        shapes = [_as_struct(frame, what) for frame, what in zip(frames, self.group, strict=True)]
        types = [[field.dataType for field in shape.schema[0].dataType.fields] for shape in shapes]

        def collect(frame: DataFrame, batch: int) -> None:
            if until is not None and batch > until:
                raise RuntimeError(PLANNED)
            rows = []
            for row in frame.collect():
                (at,) = (i for i, value in enumerate(row) if value is not None)
                values = map(_plain, row[at], types[at])
                rows.append((at, _public(dict(zip(names[at], values, strict=True)))))
            self.rows[batch] = rows

        return collect

    def _count(self, query: Any) -> None:
        for progress in query.recentProgress:
            for name, row in (progress.observedMetrics or {}).items():
                for at, what in enumerate(self.group):
                    # Names of operators: "case1 by k" (behind another one), "case1 join case1r" (a join), "case1r"
                    # (rows merged with records).
                    if name.split(" ")[0] in what.names:
                        told = observed(row)
                        self.dropped[at].update({reason: told[reason] for reason in REASONS if told.get(reason)})

    def _sources(self, at: int, what: Case) -> list[Any]:
        if self.topics is not None and (topic := self.topics.read(self.spark, what)):
            return [topic]
        return [
            files.read(self.spark, self.folder / f"in{at}-{side}", files.door(what, side), source)
            for side, source in enumerate(what.sources)
        ]

    def _frames(self, drains: bool = False) -> list[DataFrame]:
        module = files.WithSources()
        tables = [what.table(*self._sources(at, what), module=module) for at, what in enumerate(self.group)]
        return [to_df(table.node, drains, tuning=what.tuning) for table, what in zip(tables, self.group, strict=True)]

    def _write(self, at: int, what: Case, number: int) -> None:
        records = what.batches[number] if number < len(what.batches) else []
        if self.topics is not None and self.topics.read(self.spark, what):
            self.topics.write(what, records)
            return
        for side in range(len(what.sources)):
            mine = [record for place, record in enumerate(records) if what.side_of(number, place) == side]
            files.write(what, side, mine, self.folder / f"in{at}-{side}", self.written)


def topics_of(servers: str, run: str) -> Topics:
    """The topics of a query, for which `confluent_kafka` is imported."""
    from hostile.topics import Topics

    return Topics(servers, run)


def _set_time(entry: Path, clock: int) -> None:
    """Set the time of the wall clock (ms) of a batch in the offset log."""
    version, told, *offsets = entry.read_text().split("\n")
    told = json.dumps(json.loads(told) | {"batchTimestampMs": clock})
    (entry.parent / f".{entry.name}.crc").unlink(missing_ok=True)
    entry.write_text("\n".join([version, told, *offsets]))


def _as_struct(frame: DataFrame, what: Case) -> DataFrame:
    """Rows as one struct. Times of records are milliseconds, because Python's datetimes end with the year 9999; other
    instants are microseconds.
    """
    of_records = {"timestamp", "stream_time", *(source.timestamp for source in what.sources)}
    fields = []
    for number, column in enumerate(frame.schema.fields):
        quoted = f"`{column.name.replace('`', '``')}`"
        value = F.col(quoted)
        if isinstance(column.dataType, TimestampType):
            value = F.unix_millis(value) if column.name in of_records else F.unix_micros(value)
        elif column.name == "window":
            bounds = [F.unix_millis(value[side]).alias(side) for side in ("start", "end")]
            value = F.struct(*bounds)
        fields.append(value.alias(f"f{number}"))
    return frame.select(F.struct(*fields).alias("row"))


def _plain(value: Any, kind: DataType) -> Any:
    """A value as the driver gives it: structs as dicts, maps as pairs."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: _plain(part, field.dataType) for field, part in zip(kind.fields, value, strict=True)}
    if isinstance(kind, ArrayType):
        return [_plain(part, kind.elementType) for part in value]
    if isinstance(kind, MapType):
        return [(_plain(k, kind.keyType), _plain(v, kind.valueType)) for k, v in value.items()]
    # PySpark gives instants as clocks of the machine's zone.
    return value.astimezone(UTC) if isinstance(kind, TimestampType) else value


def _public(row: Row) -> Row:
    if "window" not in row:
        return row
    start, end = row["window"]["start"], row["window"]["end"]
    return row | {"window": None if start is None else Window(start, FOREVER if end is None else end)}


def smaller(spark: SparkSession, what: Case, most_runs: int = 20, servers: str = "") -> Case:
    """A smaller scenario that still fails on Spark; a run takes seconds, so there are few runs."""
    left = most_runs

    def fails(other: Case) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and bool(check(spark, [other], servers))

    for number in reversed(range(len(what.batches))):
        whole = {(number, i) for i in range(len(what.batches[number]))}
        if whole and fails(other := what.without(whole)):
            what = other
    size = max(1, sum(map(len, what.batches)) // 2)
    while size and left > 0:
        places = [(n, i) for n, batch in enumerate(what.batches) for i in range(len(batch))]
        for at in reversed(range(0, len(places), size)):
            if fails(other := what.without(set(places[at : at + size]))):
                what = other
        size //= 2
    return what


def session(jars: Sequence[Path] = ()) -> SparkSession:
    """A session as the tests have it, silent. `jars`: of Spark's Kafka connector."""
    silent = builder("tidegate-hostile").config("spark.ui.showConsoleProgress", "false")
    if jars:
        silent = silent.config("spark.jars", ",".join(map(str, jars)))
    made: SparkSession = silent.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made
