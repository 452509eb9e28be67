"""Whether each map task reads an unbroken stretch of every partition, by Spark's plan.

Spark's Kafka source gives a task the records between two offsets of a partition, in order. So an offset that is missing
there (filtered out, compacted, the end of a transaction) is in no other task, and costs nothing
(`kernel.exchange.packing.pack`). The plan proves this only if the columns for partition and offset are the source's own
and every node above the source keeps rows in their tasks: filters, projections, observations, watermarks. Any other
DataFrame is packed by the general rule, which is exact for whatever the tasks have read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidegate.runtime.spark.frames.declared import is_streaming

SOURCES = ("kafka",)
"""Sources that give each task a stretch of offsets of a partition, in order, under these names:"""
PARTITION, OFFSET = "partition", "offset"

_KEEPS_ROWS = ("Project", "Filter", "SubqueryAlias", "CollectMetrics", "EventTimeWatermark")
_MULTIPLIES = ("Generate", "Expand")
"""Nodes that make several rows of one: explode, stack, unpivot."""


@dataclass(frozen=True)
class Origin:
    """The source of the columns for partition and offset of a DataFrame. All is empty where nothing is known.

    topics      the names, or patterns, of the topics whose own columns they are
    several     whether these may be several topics, which number their partitions alike
    contiguous  whether one task reads an unbroken stretch of each partition
    """

    topics: tuple[str, ...] = ()
    several: bool = False
    contiguous: bool = False

    @classmethod
    def of(cls, frame: DataFrame, partition: str | None, offset: str | None) -> Origin:
        if partition is None or offset is None or not is_streaming(frame):
            return cls()
        try:
            plan = getattr(frame, "_jdf").queryExecution().analyzed()  # noqa: B009 - Spark has no public way
            sources = _sources(plan, _output(plan, partition), _output(plan, offset))
            read = dict.fromkeys(topic for source in sources if source is not None for topic in _topics(source))
        except (AttributeError, NotImplementedError, Py4JError, PySparkException):
            return cls()  # Spark Connect shows no plan, and another version may show it otherwise
        several = len(read) > 1 or any(pattern for *_, pattern in read)
        return cls(tuple(topic for _, topic, _ in read), several, len(sources) == len(read) == 1 and not several)


def repeats_offsets(frame: DataFrame, partition: str | None, offset: str | None) -> bool:
    """Whether several map tasks of `frame` may read records with one offset. False where nothing is known.

    They do so if the frame is a union over one source, or if a record becomes several rows, which are then shuffled.
    """
    if partition is None or offset is None:
        return False
    try:
        plan = getattr(frame, "_jdf").queryExecution().analyzed()  # noqa: B009 - Spark has no public way
        shown = plan.treeString()
        # Most plans have no such node, and each question to Spark's process takes time.
        return any(kind in shown for kind in ("Union", *_MULTIPLIES)) and _repeats(plan)
    except (AttributeError, NotImplementedError, Py4JError, PySparkException):
        return False  # as in `Origin.of`: there is no plan to look at


def _repeats(plan: Any) -> bool:
    kind, below = _kind(plan), _each(plan.children())
    if kind == "Union" and _share_source(below):
        return True
    in_place = kind in ("Union", *_KEEPS_ROWS, *_MULTIPLIES)
    if not in_place and any(each in one.treeString() for one in below for each in _MULTIPLIES):
        return True
    return any(map(_repeats, below))


def _share_source(plans: list[Any]) -> bool:
    """Whether two of the plans read one source."""
    found: set[str] = set()
    for plan in plans:
        mine = {_shown(leaf) for leaf in _each(plan.collectLeaves()) if leaf.isStreaming() == plan.isStreaming()}
        if mine & found:
            return True
        found |= mine
    return False


def _shown(leaf: Any) -> str:
    """A source as text: name and options."""
    options = leaf.extraOptions().asCaseSensitiveMap().toString() if _kind(leaf) == "StreamingRelationV2" else ""
    return re.sub(r"#\d+L?", "", leaf.toString()) + options


def _sources(plan: Any, partition: int | None, offset: int | None) -> list[Any]:
    """The options of the sources whose own partition and offset these columns are: None for another source.

    There is one source, or one for each input of a union. `partition` and `offset` are ids of columns, which stay the
    same on their way through the plan; only a union gives its columns by their places.
    """
    while partition is not None and offset is not None:
        kind = _kind(plan)
        if kind == "StreamingRelationV2":
            named = (_output(plan, PARTITION), _output(plan, OFFSET))
            return [plan.extraOptions() if plan.sourceName() in SOURCES and (partition, offset) == named else None]
        if kind == "Union":
            places = [_ids(plan).index(one) for one in (partition, offset)]
            inputs = [(each, _ids(each)) for each in _each(plan.children())]
            return [found for each, ids in inputs for found in _sources(each, *(ids[place] for place in places))]
        if kind not in _KEEPS_ROWS:
            break
        if kind == "Project":
            given = _each(plan.projectList())
            partition, offset = _source_of(given, partition), _source_of(given, offset)
        plan = plan.child()
    return [None]


def _topics(options: Any) -> Iterator[tuple[str | None, str, bool]]:
    """The topics of a source: the brokers, the name, and whether that is a pattern."""
    brokers = options.get("kafka.bootstrap.servers")
    named, assigned = options.get("subscribe"), options.get("assign")
    names = named.split(",") if named is not None else [] if assigned is None else json.loads(assigned)
    yield from ((brokers, name.strip(), False) for name in names)
    if (pattern := options.get("subscribePattern")) is not None:
        yield brokers, pattern, True


def _source_of(columns: list[Any], wanted: int) -> int | None:
    """The id of the input column of which `wanted` is a copy, perhaps renamed or cast to long; None if of none."""
    for column in columns:
        if column.exprId().id() != wanted:
            continue
        while _kind(column) in ("Alias", "Cast"):
            if _kind(column) == "Cast" and column.dataType().simpleString() != "bigint":
                return None
            column = column.child()
        return int(column.exprId().id()) if _kind(column) == "AttributeReference" else None
    return None


def _output(plan: Any, name: str) -> int | None:
    """The id of the column `name`, None if there is not exactly one of that name."""
    found = [int(column.exprId().id()) for column in _each(plan.output()) if column.name() == name]
    return found[0] if len(found) == 1 else None


def _ids(plan: Any) -> list[int]:
    """The ids of a node's columns."""
    return [int(column.exprId().id()) for column in _each(plan.output())]


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.length())]


def _kind(node: Any) -> str:
    found: str = node.getClass().getSimpleName()
    return found
