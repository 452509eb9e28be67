"""Hypothesis strategies for topologies and streams, and their translation into tidegate's public API.

Streams are built to be nasty: small windows over a short line of time, so that most records meet a boundary; with
disorder, ties, jumps that close many windows at once, nulls everywhere and records that must be skipped.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from oracle import Batches, BuiltIn, Fold, NoWindows, Reduce, Row, Sessions, Topology, Unlimited, Windows

SCHEMA = {
    "k": pa.string(),
    "j": pa.int64(),
    "ts": pa.int64(),
    "n": pa.int64(),
    "x": pa.float64(),
    "d": pa.decimal128(12, 3),
    "s": pa.string(),
    "b": pa.bool_(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
"""n, x, d, s and b are the values; k and j the keys."""


# -- Python functions; each spells what it saw, so that a wrong order or a record too many shows in the result ----


def joined(a: Any, b: Any) -> str:
    return f"{a}+{b}"


def joined_until_x(a: Any, b: Any) -> str | None:
    return None if b == "x" else f"{a}+{b}"


def nothing() -> str:
    return "0"


def history(key: Any, row: Row, aggregate: str) -> str:
    return f"{aggregate}+{key}/{row['n']}/{row['s']}"


def history_until_zero(key: Any, row: Row, aggregate: str) -> str | None:
    return None if row["n"] == 0 else f"{aggregate}+{row['n']}"


PRIME = 1_000_000_007


def zero() -> int:
    return 0


def total(key: Any, row: Row, aggregate: int) -> int:
    return (
        aggregate * 2 + (row["n"] or 0)
    ) % PRIME  # the order of records matters, and a long holds any number of them


def bridged(key: Any, a: str, b: str) -> str:
    return f"{a}|{b}"


def totals(key: Any, a: int, b: int) -> int:
    return (a * 3 + b) % PRIME


def no_list() -> list[Any]:
    return []


def listed(key: Any, row: Row, aggregate: list[Any]) -> list[Any]:
    return [*aggregate, row["n"]]


def listed_in_place(key: Any, row: Row, aggregate: list[Any]) -> Any:
    aggregate.append(row["n"])
    row.clear()
    return aggregate if len(aggregate) % 2 else tuple(aggregate)


def lists(key: Any, a: list[Any], b: list[Any]) -> list[Any]:
    return [*a, -1, *b]


def lists_in_place(key: Any, a: list[Any], b: list[Any]) -> list[Any]:
    a.append(-1)
    a.extend(b)
    b.clear()
    return a


def no_story() -> dict[str, Any]:
    return {"n": 0, "seen": []}


def story(key: Any, row: Row, aggregate: dict[str, Any]) -> dict[str, Any] | None:
    if row["s"] == "zz":
        return None
    return {"n": aggregate["n"] + 1, "seen": [*aggregate["seen"], row["s"]]}


def story_in_place(key: Any, row: Row, aggregate: dict[str, Any]) -> dict[str, Any] | None:
    aggregate["n"] += 1
    aggregate["seen"].append(row.pop("s"))
    aggregate["no field of the type"] = row
    return None if aggregate["seen"][-1] == "zz" else aggregate


def stories(key: Any, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {"n": a["n"] * 10 + b["n"], "seen": a["seen"] + b["seen"]}


def stories_in_place(key: Any, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    b["n"] += a["n"] * 10
    b["seen"][:0] = a["seen"]
    a.clear()
    return b


def no_float() -> float:
    return 0.0


def single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def tenths(key: Any, row: Row, aggregate: float) -> float:
    return single(aggregate * 1.1 + (row["j"] or 0) / 10)


def tenths_as_doubles(key: Any, row: Row, aggregate: float) -> float:
    return aggregate * 1.1 + (row["j"] or 0) / 10


def tenths_added(key: Any, a: float, b: float) -> float:
    return single(a / 3 + b)


def tenths_added_as_doubles(key: Any, a: float, b: float) -> float:
    return a / 3 + b


def total_of_another_type(key: Any, row: Row, aggregate: int) -> Any:
    found = total(key, row, aggregate) % 1_000_000
    return [np.int32(found), float(found), Decimal(found), pa.scalar(found)][found % 4]


def small_total(key: Any, row: Row, aggregate: int) -> int:
    return total(key, row, aggregate) % 1_000_000


STORY = pa.struct([("n", pa.int64()), ("seen", pa.list_(pa.string()))])

FUNCTIONS: dict[str, tuple[Reduce | Fold, Any]] = {
    "reduce": (Reduce(joined, "s"), None),
    "reduce_deleting": (Reduce(joined_until_x, "s"), None),
    "aggregate": (Fold(nothing, history, bridged), "string"),
    "aggregate_deleting": (Fold(nothing, history_until_zero, bridged), "string"),
    "aggregate_long": (Fold(zero, total, totals), "long"),
    "aggregate_list": (Fold(no_list, listed, lists), "array<long>"),
    "aggregate_struct": (Fold(no_story, story, stories), STORY),
    "aggregate_float": (Fold(no_float, tenths, tenths_added), "float"),
    "aggregate_numbers": (Fold(zero, small_total, totals), "long"),
}

AS_WRITTEN = {
    "aggregate_list": Fold(no_list, listed_in_place, lists_in_place),
    "aggregate_struct": Fold(no_story, story_in_place, stories_in_place),
    "aggregate_float": Fold(no_float, tenths_as_doubles, tenths_added_as_doubles),
    "aggregate_numbers": Fold(zero, total_of_another_type, totals),
}
"""Functions for tidegate instead: they change their arguments, or return another type that holds the value."""

BUILT_IN = [
    BuiltIn("count"),
    BuiltIn("count", "n"),
    BuiltIn("count", "s"),
    *(BuiltIn(function, "n") for function in ("sum", "min", "max", "mean", "first", "last", "collect_list")),
    *(BuiltIn(function, "x") for function in ("sum", "min", "max", "mean", "first", "last", "collect_list")),
    *(BuiltIn(function, "d", 3) for function in ("sum", "min", "max", "mean", "last", "collect_list")),
    *(BuiltIn(function, "s") for function in ("min", "max", "first", "last", "collect_list")),
    *(BuiltIn(function, "b") for function in ("min", "max", "first")),
]


@dataclass(frozen=True)
class Case:
    """A topology in the oracle's terms, and its translation into tidegate."""

    topology: Topology
    through_suppress: bool = False
    with_schema: bool = True
    clock: dict[str, Any] = field(default_factory=dict)
    """Arguments of tg.stream that decide how stream time moves."""
    expect_keys: list[dict[str, Any]] | None = None

    def table(self, source: Any = "events") -> Any:
        """The same topology of tidegate."""
        t = self.topology
        schema = pa.schema(list(SCHEMA.items())) if self.with_schema and isinstance(source, str) else None
        stream = tg.stream(
            source,
            key=list(t.key),
            timestamp=t.timestamp,
            partition=t.partition,
            offset=t.offset,
            schema=schema,
            **self.clock,
        )
        grouped = stream.group_by_key()
        if not isinstance(t.windows, NoWindows):
            grouped = grouped.windowed_by(self._windows())
        if t.final and not self.through_suppress:
            grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
        table = self._aggregated(grouped)
        if t.final and self.through_suppress:
            table = table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        return table

    def _windows(self) -> Any:
        match self.topology.windows:
            case Windows(size, advance, grace):
                return tg.TimeWindows.of_size_and_grace(_ms(size), _ms(grace)).advance_by(_ms(advance))
            case Sessions(gap, grace):
                return tg.SessionWindows.of_inactivity_gap_and_grace(_ms(gap), _ms(grace))
            case Batches(size):
                return tg.BatchWindows.of_size(_ms(size))
            case Unlimited(start):
                return tg.UnlimitedWindows.start_on(start)

    def _aggregated(self, grouped: Any) -> Any:
        store = tg.Materialized.as_("store")
        store = store if self.topology.caching else store.with_caching_disabled()
        (name, first), *_ = self.topology.aggregates.items()
        if isinstance(first, Reduce):
            return grouped.reduce(
                first.function, first.column, name=name, materialized=store, expect_keys=self.expect_keys
            )
        if isinstance(first, Fold):
            name_of, kind = next((name, kind) for name, (fold, kind) in FUNCTIONS.items() if fold == first)
            first = AS_WRITTEN.get(name_of, first)
            merger = first.merger if isinstance(self.topology.windows, Sessions) else None
            return grouped.aggregate(
                first.initializer,
                first.aggregator,
                type=kind,
                merger=merger,
                name=name,
                materialized=store,
                expect_keys=self.expect_keys,
            )
        return grouped.agg(
            materialized=store,
            expect_keys=self.expect_keys,
            **{name: built_in(a) for name, a in self.topology.aggregates.items()},
        )


def _ms(value: int) -> str:
    return f"{value} ms"  # a timedelta ends after 2,700 years


def built_in(aggregate: Any) -> Any:
    function = getattr(tg, aggregate.function)
    return function() if aggregate.column is None else function(aggregate.column)


KINDS = ("time", "session", "batch")
"""Kinds of windows whose results can be final."""
ALL_KINDS = (*KINDS, "unlimited")

# -- topologies -------------------------------------------------------------------------------------------------


FOREVER = 2**63 - 1
"""The longest duration: a window with this grace closes only at the end of the input."""
GRACES = st.one_of(st.just(0), st.integers(0, 15), st.integers(10, 60), st.just(FOREVER))


@st.composite
def windows(draw: Any, kind: str = "time") -> Windows | Sessions | Batches | Unlimited:
    """Windows of a kind: "time", "session", "batch" or "unlimited"."""
    if kind == "session":
        gap = draw(st.one_of(st.integers(1, 4), st.integers(1, 12)))
        return Sessions(gap, draw(st.one_of(st.just(0), st.integers(0, 4), st.integers(0, 20), st.just(FOREVER))))
    if kind == "batch":
        return Batches(draw(st.one_of(st.integers(1, 12), st.integers(10, 60))))
    if kind == "unlimited":
        return Unlimited(draw(st.sampled_from([0, 5, 1_700_000_000_000])))
    size = draw(st.one_of(st.integers(1, 12), st.integers(10, 60)))
    advance = draw(st.one_of(st.just(size), st.integers(1 + size // 10, size)))
    return Windows(size, advance, draw(GRACES))


@st.composite
def aggregates(draw: Any) -> dict[str, BuiltIn | Reduce | Fold]:
    if draw(st.booleans()):
        return {"out": FUNCTIONS[draw(st.sampled_from(sorted(FUNCTIONS)))][0]}
    chosen = draw(st.lists(st.sampled_from(BUILT_IN), min_size=1, max_size=5, unique=True))
    return {f"v{i}": aggregate for i, aggregate in enumerate(chosen)}


@st.composite
def cases(
    draw: Any, *, final: bool | None = None, ordered: bool = False, kind: str | None = None, plain: bool = False
) -> Case:
    """A topology.

    ordered  its stream has the columns partition and offset
    kind     of windows, any if left out; `plain`: no windows
    """
    kind = kind or draw(st.sampled_from(KINDS if final else ALL_KINDS))
    final = draw(st.booleans()) if final is None else final
    topology = Topology(
        key=draw(st.sampled_from([("k",), ("j",), ("k", "j")])),
        windows=NoWindows() if plain else draw(windows(kind)),
        aggregates=draw(aggregates()),
        # An unlimited window never closes, so it has no final result; nor has a result without windows.
        final=final and kind != "unlimited" and not plain,
        caching=draw(st.booleans()),
        partition="partition" if ordered else None,
        offset="offset" if ordered else None,
    )
    return Case(topology, through_suppress=draw(st.booleans()))


def latest_on_spark(case: Case) -> int:
    """The latest origin of a stream that this case aggregates on Spark."""
    calls = any(isinstance(aggregate, Reduce | Fold) for aggregate in case.topology.aggregates.values())
    return OF_DATETIMES if calls else ON_SPARK


# -- streams ----------------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.just(0),
    st.integers(0, 4),
    st.integers(-6, 6),
    st.integers(-40, 0),
    st.integers(15, 60),
)
LAST_TIMESTAMP = (2**63 - 1) // 1000
"""The last millisecond of Spark's timestamps, which count microseconds."""
ORIGINS = [0, 0, 0, 7, 1_700_000_000_000, 2**53 - 20, LAST_TIMESTAMP - 5_000, 2**62, FOREVER - 5_000]
ON_SPARK = 2**53
"""The latest origin on Spark: windows must end before Spark's timestamps do, an end that the oracle does not know."""
OF_DATETIMES = 1_700_000_000_000
"""The latest origin on Spark of records for functions: Python's datetimes end with the year 9999."""
VALUES = {
    "n": st.one_of(st.none(), st.integers(-3, 3), st.integers(-(10**12), 10**12)),
    "x": st.one_of(st.none(), st.sampled_from([0.0, -1.5, 0.1, 1e6, float("nan"), float("inf")])),
    "d": st.one_of(st.none(), st.sampled_from([Decimal("0.001"), Decimal("-7.250"), Decimal("12345.678")])),
    "s": st.one_of(st.none(), st.sampled_from(["x", "y", "", "ü", "zz"])),
    "b": st.one_of(st.none(), st.booleans()),
}
KEYS = {"k": st.sampled_from(["a", "b", "ab", "", "ü", "\U0001f600", "\ufb01"]), "j": st.integers(0, 300)}


@st.composite
def streams(draw: Any, *, max_size: int = 25, bad: bool = True, latest: int = FOREVER) -> list[Row]:
    """Records of one partition in offset order, from an origin up to `latest`; `bad`: some lack a key or valid time."""
    clock = origin = draw(st.sampled_from([origin for origin in ORIGINS if origin <= latest]))
    # A few keys per stream, so that records meet; many keys over all streams.
    pools = {name: st.sampled_from(draw(st.lists(keys, min_size=1, max_size=3))) for name, keys in KEYS.items()}
    records: list[Row] = []
    for _ in range(draw(st.integers(0, max_size))):
        ts = max(origin, clock + draw(STEPS))
        clock = max(clock, ts) if draw(st.integers(0, 9)) else ts
        values = {name: draw(values) for name, values in (pools | VALUES).items()}
        flaw = draw(st.integers(0, 19)) if bad else 9
        record = {**values, "ts": ts}
        if flaw == 0:
            record[draw(st.sampled_from(["k", "j"]))] = None
        elif flaw == 1:
            record["ts"] = draw(st.sampled_from([None, -1, -(10**9)]))
        records.append(record)
    return records


@st.composite
def cut(draw: Any, records: list[Row]) -> list[list[Row]]:
    """The records in batches, some of them empty."""
    sizes = st.integers(0, max(1, len(records)))
    batches, rest = [], list(records)
    while rest:
        size = draw(sizes)
        batches.append(rest[:size])
        rest = rest[size:]
        if len(batches) > 2 * len(records):
            return [*batches, rest]
    return batches


@st.composite
def partitioned(draw: Any, *, max_partitions: int = 4, max_size: int = 25, latest: int = FOREVER) -> list[list[Row]]:
    """Batches of a stream of several source partitions, each partition in offset order over the whole stream."""
    partitions = draw(st.integers(1, max_partitions))
    offsets = [draw(st.integers(0, 5)) for _ in range(partitions)]
    records = []
    for record in draw(streams(max_size=max_size, latest=latest)):
        partition = draw(st.integers(0, partitions - 1))
        records.append({**record, "partition": partition, "offset": offsets[partition]})
        offsets[partition] += draw(st.sampled_from([1, 1, 3]))  # Kafka's offsets have gaps
    return draw(cut(records))


@st.composite
def splits(draw: Any, batches: list[list[Row]], *, interleaved: bool, tasks: int = 3) -> list[list[list[Row]]]:
    """Records of each map task, per batch: a partition's rows in contiguous chunks, or dealt out one by one."""
    return [_dealt(draw, batch, tasks) if interleaved else _chunked(draw, batch, tasks) for batch in batches]


def _dealt(draw: Any, batch: list[Row], tasks: int) -> list[list[Row]]:
    inputs: list[list[Row]] = [[] for _ in range(tasks)]
    for record in batch:
        inputs[draw(st.integers(0, tasks - 1))].append(record)
    return inputs


def _chunked(draw: Any, batch: list[Row], tasks: int) -> list[list[Row]]:
    inputs: list[list[Row]] = [[] for _ in range(tasks)]
    for partition in sorted({record["partition"] for record in batch}):
        own = sorted((r for r in batch if r["partition"] == partition), key=lambda r: r["offset"])
        ends = sorted(draw(st.lists(st.integers(0, len(own)), min_size=tasks - 1, max_size=tasks - 1)))
        bounds = zip([0, *ends], [*ends, len(own)], strict=True)
        for task, (start, end) in zip(draw(st.permutations(range(tasks))), bounds, strict=True):
            inputs[task] += own[start:end]
    return inputs
