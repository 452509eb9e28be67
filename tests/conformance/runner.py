"""Turns a scenario (a JSON file) into a topology through the public API, and compares its output.

A scenario's record is `{"key", "value", "ts"}`; the result is always in the column `value`. Nothing here knows
how the topology runs: `build` takes the stream, `check` takes rows in the scenarios' own shape.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.kernel.suppress import strict_bound

SCENARIOS = Path(__file__).parent / "scenarios"
LONG_MAX = 2**63 - 1

Row = dict[str, Any]
"""A row as scenarios state it: key, value, timestamp_ms and, for windowed keys, window_start_ms, window_end_ms."""


@dataclass(frozen=True)
class Scenario:
    """One scenario file."""

    id: str
    data: dict[str, Any]

    @property
    def family(self) -> str:
        return self.data["family"]

    @property
    def topology(self) -> dict[str, Any]:
        return self.data["topology"]

    @property
    def kind(self) -> str:
        return self.topology.get("kind", "windowed_aggregate")

    @property
    def records(self) -> list[Row]:
        return [record_of(entry, self.tabular) for entry in self.data["input"]]

    @property
    def tabular(self) -> bool:
        """Whether records are changes of a table: no aggregation makes them."""
        windowed = (self.topology.get("suppress") or {}).get("kind") == "until_window_closes"
        return self.kind in ("table", "table_group_count") or (self.kind == "changes" and not windowed)

    @property
    def before(self) -> list[Row]:
        """Records that make the old values of changes whose bytes count: upserts of the old values."""
        suppress = self.topology.get("suppress") or {}
        if self.kind != "changes" or suppress.get("max_bytes") is None:
            return []
        return [record_of({**entry, "value": entry["old_value"]}, self.tabular) for entry in self.data["input"]]

    @property
    def final(self) -> bool:
        """Whether only final results are emitted, so that any cutting into batches gives the same rows."""
        suppress = self.topology.get("suppress") or {}
        on_close = self.topology.get("emit_strategy") == "on_window_close"
        return on_close or suppress.get("kind") == "until_window_closes"

    @property
    def output(self) -> str:
        """Name of the output that `expected` states."""
        return "suppressed" if self.topology.get("suppress") else "raw"

    @property
    def expected(self) -> list[Row] | None:
        """Rows that the topology's last node must emit; None if the scenario states none."""
        return self.data.get("expected", self.data.get(f"expected_{self.output}"))

    @property
    def order(self) -> str:
        return self.data.get("expected_order", "exact")

    @property
    def stops(self) -> bool:
        """Whether an error is expected at some record, rather than when the topology is built."""
        return bool(self.data["input"]) and "expected_error" in self.data


def load(name: str) -> Scenario:
    return Scenario(name, json.loads((SCENARIOS / f"{name}.json").read_text()))


def names() -> list[str]:
    return sorted(path.stem for path in SCENARIOS.glob("*.json"))


def record_of(entry: Row, tabular: bool = False) -> Row:
    record = {"key": entry["key"], "value": entry["value"], "ts": entry["timestamp_ms"]}
    if tabular:
        record["deleted"] = entry["value"] is None
        if "window" in entry:
            # The bounds of a window are columns of the key.
            record["start"], record["end"] = entry["window"]
    return record


def ms(value: int) -> timedelta | str:
    """A duration as users write it; Long.MAX does not fit a timedelta."""
    return timedelta(milliseconds=value) if abs(value) < 10**14 else f"{value} milliseconds"


# -- topologies -------------------------------------------------------------------------------------------------


def build(scenario: Scenario, stream: Any, *, caching: bool = True, **changed: Any) -> Any:
    """The scenario's topology on `stream`, a `tg.stream` with the columns key, value and ts.

    changed  fields of its suppression with other values
    """
    builders: dict[str, Callable[..., Any]] = {
        "windowed_aggregate": _windowed,
        "changes": _changes,
        "table": _table,
        "table_group_count": _table_group_count,
    }
    if scenario.kind not in builders:
        raise NotImplementedError(f"the runner has no topology of kind {scenario.kind!r}")
    materialized = tg.Materialized.as_("store") if caching else tg.Materialized.as_("store").with_caching_disabled()
    table = builders[scenario.kind](scenario, stream, materialized)
    suppress = scenario.topology.get("suppress")
    return table.suppress(_suppressed(suppress | changed)) if suppress else table


def _windowed(scenario: Scenario, stream: Any, materialized: Any) -> Any:
    grouped = stream.group_by_key().windowed_by(_windows(scenario.topology["windows"]))
    if scenario.topology["emit_strategy"] == "on_window_close":
        grouped = grouped.emit_strategy(tg.EmitStrategy.on_window_close())
    return _aggregated(grouped, scenario.topology["aggregation"], materialized)


def _windows(spec: Row) -> Any:
    kind = spec["type"]
    if kind == "time":
        windows = tg.TimeWindows.of_size_and_grace(ms(spec["size_ms"]), ms(spec["grace_ms"]))
        return windows if spec["advance_ms"] == spec["size_ms"] else windows.advance_by(ms(spec["advance_ms"]))
    if kind == "sliding":
        return tg.SlidingWindows.of_time_difference_and_grace(ms(spec["time_difference_ms"]), ms(spec["grace_ms"]))
    if kind == "session":
        return tg.SessionWindows.of_inactivity_gap_and_grace(ms(spec["gap_ms"]), ms(spec["grace_ms"]))
    if kind == "unlimited":
        return tg.UnlimitedWindows.start_on(spec["start_ms"])
    if kind == "batch":
        return tg.BatchWindows.of_size(ms(spec["size_ms"]))
    raise NotImplementedError(f"the runner has no windows of type {kind!r}")


def _aggregated(grouped: Any, aggregation: str | Row, materialized: Any) -> Any:
    spec = {"fn": aggregation} if isinstance(aggregation, str) else aggregation
    name, sep = spec["fn"], spec.get("sep", "")
    if name == "count":
        return grouped.count(name="value", materialized=materialized)
    if name == "sum":
        return grouped.agg(value=tg.sum("value"), materialized=materialized)
    if name == "collect":
        return grouped.agg(value=tg.collect_list("value"), materialized=materialized)
    if name.startswith("reduce_"):
        functions = {"reduce_concat": lambda a, b: f"{a}{sep}{b}", "reduce_max": max, "reduce_sum": lambda a, b: a + b}
        return grouped.reduce(functions[name], "value", materialized=materialized)
    aggregators = {
        "aggregate_concat": lambda key, row, aggregate: f"{aggregate}{sep}{row['value']}",
        "aggregate_sorted_chars": lambda key, row, aggregate: "".join(sorted(aggregate + row["value"])),
    }
    return grouped.aggregate(
        lambda: spec.get("init", ""),
        aggregators[name],
        type="string",
        name="value",
        # Only sessions merge: only they are given a merger.
        merger=(lambda key, a, b: f"{a}{sep}{b}") if "Session" in type(grouped).__name__ else None,
        materialized=materialized,
    )


def _changes(scenario: Scenario, stream: Any, materialized: Any) -> Any:
    """Changes fed to suppress alone, as the newest value per window; only if an aggregation could forward them."""
    inputs, suppress = scenario.data["input"], scenario.topology["suppress"]
    if scenario.tabular:
        # A plain table forwards every change it is given.
        return _table(scenario, stream, materialized)
    bounds = [entry.get("window") for entry in inputs]
    size = bounds[0][1] - bounds[0][0] if bounds[0] else 0
    for entry, window in zip(inputs, bounds, strict=True):
        regular = window and window[1] - window[0] == size and window[0] % size == 0
        if not regular or entry["value"] is None or not window[0] <= entry["timestamp_ms"] < window[1]:
            raise NotImplementedError(f"no time window forwards the change {entry}")
    windows = tg.TimeWindows.of_size_and_grace(ms(size), ms(suppress["grace_ms"]))
    newest = lambda aggregate, value: value  # noqa: E731
    return stream.group_by_key().windowed_by(windows).reduce(newest, "value", materialized=materialized)


def _table(scenario: Scenario, stream: Any, materialized: Any) -> Any:
    bounds = ["start", "end"] if any("window" in entry for entry in scenario.data["input"]) else []
    return tg.table("events", key=["key", *bounds], timestamp="ts", deleted="deleted")


def _table_group_count(scenario: Scenario, stream: Any, materialized: Any) -> Any:
    # A row cannot have two columns of one name, so the key of the groups is called `group` until `row_of`.
    grouped = _table(scenario, stream, materialized).map_values({"group": "value"}).group_by("group")
    return grouped.count(name="value", materialized=materialized)


def _suppressed(spec: Row) -> Any:
    buffer = _buffer(spec)
    if spec["kind"] == "until_window_closes":
        return tg.Suppressed.until_window_closes(buffer)
    measured_from = "latest_update" if spec.get("buffer_time_on_update") == "reset" else "first_update"
    limit = ms(spec["limit_ms"])
    return tg.Suppressed.until_time_limit(limit, buffer, clock="stream", measured_from=measured_from)


def _buffer(spec: Row) -> Any:
    if spec["strategy"] == "unbounded":
        return tg.BufferConfig.unbounded()
    records, size = spec.get("max_records"), spec.get("max_bytes")
    if records is None and size is None:
        return tg.BufferConfig.unbounded().emit_early_when_full()
    buffer = tg.BufferConfig.max_records(records) if records is not None else tg.BufferConfig.max_bytes(size)
    if records is not None and size is not None:
        buffer = buffer.with_max_bytes(size)
    return buffer.shut_down_when_full() if spec["strategy"] == "shut_down_when_full" else buffer


def sizes(scenario: Scenario) -> Callable[..., Any] | None:
    """Bytes of an entry as the scenario counts them: characters of the value, or with topic and offset as Kafka.

    None if the scenario states no number of bytes. tests/kernel/test_buffers.py tests tidegate's own count.
    """
    spec = scenario.topology.get("suppress") or {}
    if spec.get("byte_size") == "chars":
        return lambda key, prior, old, new: new
    if spec.get("max_bytes") is None and scenario.kind != "buffer":
        return None
    aside = 8 + 4 + len(spec.get("topic", scenario.topology.get("topic", "")))
    ours = strict_bound.entry_bytes
    return lambda key, prior, old, new: ours(key, prior, old, new) + aside


# -- definitions ------------------------------------------------------------------------------------------------

FACTORIES = {
    "ofSizeAndGrace": ("of_size_and_grace", ("size_ms", "grace_ms")),
    "ofSizeWithNoGrace": ("of_size_with_no_grace", ("size_ms",)),
    "ofSize": ("of_size", ("size_ms",)),
    "ofTimeDifferenceAndGrace": ("of_time_difference_and_grace", ("time_difference_ms", "grace_ms")),
    "ofTimeDifferenceWithNoGrace": ("of_time_difference_with_no_grace", ("time_difference_ms",)),
    "ofInactivityGapAndGrace": ("of_inactivity_gap_and_grace", ("gap_ms", "grace_ms")),
    "ofInactivityGapWithNoGrace": ("of_inactivity_gap_with_no_grace", ("gap_ms",)),
    "startOn": ("start_on", ("start_ms",)),
    "unbounded": ("unbounded", ()),
    "of": ("of", ("time_difference_ms",)),
}
STEPS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "advance_by_ms": ("advance_by", ms),
    "before_ms": ("before", ms),
    "after_ms": ("after", ms),
    "grace_ms": ("grace", ms),
    "max_records": ("with_max_records", int),
    "max_bytes": ("with_max_bytes", int),
}
CHAINED = {"emitEarlyWhenFull": "emit_early_when_full", "shutDownWhenFull": "shut_down_when_full"}
PROPERTIES = {"gap_ms": "inactivity_gap_ms"}
STRATEGIES = {"shut_down_when_full": "shut_down", "emit_early_when_full": "emit_early"}


def define(scenario: Scenario) -> Any:
    """Result of the calls of a `kind: definition` scenario."""
    spec = scenario.topology
    factory, arguments = FACTORIES[spec["call"]]
    values = [spec["args"][argument] for argument in arguments]
    converted = values if factory == "start_on" else [ms(value) for value in values]
    defined = getattr(getattr(tg, spec["family"]), factory)(*converted)
    for step in spec.get("then", []):
        if isinstance(step, str):
            defined = getattr(defined, CHAINED[step])()
            continue
        ((argument, value),) = step.items()
        method, convert = STEPS[argument]
        defined = getattr(defined, method)(convert(value))
    return defined


def properties_of(scenario: Scenario, defined: Any) -> Row:
    """The properties the scenario speaks of, in its own names."""
    found: Row = {}
    for name in scenario.data["expected_properties"]:
        if name == "windows":
            at = scenario.topology["windows_for_ts"]
            given = (
                {}
                if "stream_time_ms" not in scenario.topology
                else {"stream_time_ms": scenario.topology["stream_time_ms"]}
            )
            found[name] = [list(window) for window in defined.windows_for(at, **given)]
        else:
            found[name] = getattr(defined, PROPERTIES.get(name, name))
    if "strategy" in found:
        found["strategy"] = {short: long for long, short in STRATEGIES.items()}[found["strategy"]]
    return found


# -- errors -----------------------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "IllegalArgument": (tg.DefinitionError,),
    "TopologyException": (tg.DefinitionError,),
    "IllegalState": (tg.DefinitionError,),
    "StreamsException": (tg.BufferFullError,),
}


def expected_error(scenario: Scenario) -> tuple[type[Exception], ...]:
    """Error classes for the scenario's error; its message is Kafka's, ours is our own."""
    return ERRORS[scenario.data["expected_error"]["type"]]


# -- rows -------------------------------------------------------------------------------------------------------


def row_of(output: Row) -> Row:
    """A driver's row in the scenarios' shape; `deleted` says the same as a missing value and must agree with it."""
    output = {"key" if name == "group" else name: value for name, value in output.items()}
    row = {"key": output["key"], "value": output["value"], "timestamp_ms": output["timestamp"]}
    if "window" in output:
        row["window_start_ms"], row["window_end_ms"] = output["window"]
    elif "start" in output:
        row["window_start_ms"], row["window_end_ms"] = output["start"], output["end"]
    known = {"key", "value", "timestamp", "window", "start", "end", "deleted"}
    assert set(output) - known == set(), f"unknown columns in {output}"
    if output.get("deleted"):
        assert output["value"] is None, f"a tombstone with a value: {output}"
    return row


def identity(row: Row) -> tuple[Any, ...]:
    return row["key"], row.get("window_start_ms"), row.get("window_end_ms")


def last_per_key(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    return {identity(row): row for row in rows}


def counted(rows: Iterable[Row]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def check(scenario: Scenario, rows: list[Row]) -> None:
    """Compare emitted rows, in order, with the expected ones, as strictly as the scenario says."""
    expected = scenario.expected
    if expected is None:
        return
    if scenario.order == "exact":
        assert rows == expected
    elif scenario.order == "any":
        assert counted(rows) == counted(expected)
    elif scenario.order == "set":
        assert set(counted(rows)) == set(counted(expected))
    else:
        newest, wanted = last_per_key(rows), last_per_key(expected)
        if not scenario.data.get("exhaustive"):
            newest = {key: row for key, row in newest.items() if key in wanted}
        assert newest == wanted


def check_dropped(scenario: Scenario, dropped: int) -> None:
    if "expected_dropped" in scenario.data:
        assert dropped == scenario.data["expected_dropped"]


def cuts(n: int) -> list[list[int]]:
    """Ways to cut n records into batches, as batch sizes: all for short streams, else every size and every pair."""
    if n == 0:
        return [[]]
    if n <= 6:
        return [_sizes(n, mask) for mask in range(2 ** (n - 1))]
    equal = [[size] * (n // size) + ([n % size] if n % size else []) for size in range(1, n + 1)]
    return equal + [[first, n - first] for first in range(1, n)]


def _sizes(n: int, mask: int) -> list[int]:
    sizes = [1]
    for position in range(n - 1):
        if mask >> position & 1:
            sizes.append(1)
        else:
            sizes[-1] += 1
    return sizes


def batched(records: list[Row], sizes: list[int]) -> list[list[Row]]:
    batches, start = [], 0
    for size in sizes:
        batches.append(records[start : start + size])
        start += size
    return batches
