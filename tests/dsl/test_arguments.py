"""Any argument may be anything: a call takes it, or refuses it with an error that says what to give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from anything import Column, bare_errors, errors_of
from tidegate.testing import TopologyTestDriver

WINDOWS = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
MEET = tg.JoinWindows.of_time_difference_and_grace("10 ms", "5 ms")
UNBOUNDED = tg.BufferConfig.unbounded()


def stream(name: str = "events") -> tg.KStream:
    return tg.stream(name, key="k", timestamp="ts", stream_time="max")


def table(name: str = "users") -> tg.KTable:
    return tg.table(name, key="k", timestamp="ts", history="1 hour")


WINDOWED = stream().group_by_key().windowed_by(WINDOWS)
COUNTS = WINDOWED.count()
RECORDED = pa.table(
    {"k": ["A"] * 6, "ts": [10, 11, 13, 11, 14, 10], "o": list(range(6)), "at": [10, 11, 13, 14, 15, 16]}
)
SOURCE = {
    "source": "events",
    "key": "k",
    "timestamp": "ts",
    "partition": "p",
    "offset": "o",
    "name": "n",
    "schema": None,
}
ROLES = {"key": "k", "timestamp": "ts", "partition": "k", "offset": "o", "arrival": "at"}
JOIN = {"how": "inner", "value_joiner": None, "suffixes": None, "types": None, "materialized": None}


DRIVER = TopologyTestDriver(COUNTS)
DRIVER.pipe_input({"k": "A", "ts": 1})


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "stream": (tg.stream, SOURCE | {"stream_time": "max", "late_records": "drop", "idle_advance": None}),
    "table": (tg.table, SOURCE | {"deleted": None, "history": None}),
    "windows": (tg.TimeWindows.of_size_and_grace, {"size": "10 ms", "grace": "5 ms"}),
    "advance": (WINDOWS.advance_by, {"advance": "5 ms"}),
    "unlimited": (tg.UnlimitedWindows.start_on, {"start": 0}),
    "max_records": (tg.BufferConfig.max_records, {"records": 5}),
    "max_bytes": (UNBOUNDED.with_max_bytes, {"size": 5}),
    "until": (
        tg.Suppressed.until_time_limit,
        {"limit": "1 s", "buffer": UNBOUNDED, "clock": "stream", "measured_from": "first_update"},
    ),
    "until_window_closes": (tg.Suppressed.until_window_closes, {"buffer": UNBOUNDED}),
    "materialized": (tg.Materialized.as_, {"name": "x"}),
    "retention": (tg.Materialized.as_("x").with_retention, {"retention": "1 s"}),
    "sum": (tg.sum, {"column": "x"}),
    "filter": (stream().filter, {"predicate": lambda row: True}),
    "map_values": (stream().map_values, {"mapper": {"a": "x"}, "types": None}),
    "join of streams": (stream().join, JOIN | {"right": stream("b"), "windows": MEET}),
    "join with a table": (stream().join, JOIN | {"right": table(), "grace": "1 ms"}),
    "join of tables": (table().join, JOIN | {"other": table("pets")}),
    "group_by": (lambda columns: stream().group_by(columns), {"columns": "x"}),
    "windowed_by": (stream().group_by_key().windowed_by, {"windows": WINDOWS}),
    "count": (WINDOWED.count, {"name": "n", "materialized": None, "expect_keys": None, "late_records": None}),
    "agg": (lambda n: WINDOWED.agg(n=n), {"n": tg.count()}),
    "aggregate": (
        WINDOWED.aggregate,
        {"initializer": int, "aggregator": lambda key, row, n: n, "type": "long", "name": "y", "vectorized": False},
    ),
    "reduce": (WINDOWED.reduce, {"fn": max, "column": "x", "name": "y"}),
    "reduce of a table": (
        table().group_by("c").reduce,
        {"adder": max, "subtractor": max, "column": "x", "name": "y"},
    ),
    "suppress": (COUNTS.suppress, {"suppressed": tg.Suppressed.until_window_closes(UNBOUNDED)}),
    "describe": (COUNTS.describe, {"format": "text"}),
    "outputs": (lambda final: tg.outputs(final=final), {"final": COUNTS}),
    "driver": (TopologyTestDriver, {"table": COUNTS, "state": None, "initial_wall_clock_time": 0}),
    "metrics": (DRIVER.metrics, {"operator": "events"}),
    "read_state": (DRIVER.read_state, {"store": None, "ended_from": None, "ended_to": None}),
    "advance_wall_clock": (DRIVER.advance_wall_clock, {"by": "1 ms"}),
    "pipe_input": (DRIVER.pipe_input, {"record": {"k": "A", "ts": 1}, "stream": "events"}),
    "pipe_batch": (DRIVER.pipe_batch, {"records": [{"k": "A", "ts": 1}]}),
    "time of a record": (lambda ts: DRIVER.pipe_input({"k": "A", "ts": ts}), {"ts": 1}),
    "key of a record": (lambda k: DRIVER.pipe_input({"k": k, "ts": 1}), {"k": "A"}),
    "explain_pending": (tg.explain_pending, {"of": DRIVER}),
    "advise": (
        tg.advise,
        ROLES
        | {"records": RECORDED, "windows": WINDOWS, "trigger": None, "graces": None, "aggregates": None, "alert": None}
        | {"target": 0.001},
    ),
    "advise_join": (
        tg.advise_join,
        ROLES | {"left": RECORDED, "right": RECORDED, "stream_time": "max", "target": 0.01},
    ),
    "advise_limit": (
        tg.advise_limit,
        ROLES | {"records": RECORDED, "windows": None, "limits": None, "max_records": None},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_anything_may_be_given(name: str) -> None:
    assert bare_errors(*CALLS[name]) == {}


@pytest.mark.parametrize("name", [5, None, ("a", "b")])
def test_an_output_is_called_by_a_text(name: Any) -> None:
    """In a dict, as the driver, an upgrade and the shell take several outputs."""
    for made in (lambda: TopologyTestDriver({name: COUNTS}), lambda: DRIVER.check_upgrade({name: COUNTS})):
        with pytest.raises(tg.DefinitionTypeError, match=r"^An output is called .*\. A name is a text, for example"):
            made()


def test_expected_keys_and_a_recording_are_no_columns_of_spark() -> None:
    """A column has every attribute: also those by which a DataFrame and a query are told."""
    with pytest.raises(tg.DefinitionTypeError, match=r"^`expect_keys` is Column<'city'>\. Use a static DataFrame"):
        WINDOWED.count(expect_keys=Column())
    with pytest.raises(tg.InputError, match=r"^The recording is Column<'city'>, which is no table\."):
        tg.advise(Column(), key="k", timestamp="ts", windows=WINDOWS)
    with pytest.raises(tg.DefinitionTypeError, match=r"^`of` is Column<'city'>, neither a StreamingQuery nor"):
        tg.explain_pending(Column())  # type: ignore[arg-type]
    with pytest.raises(tg.DefinitionTypeError, match=r"^`of` is <class .*TopologyTestDriver'>, neither .* Give the qu"):
        tg.explain_pending(TopologyTestDriver)  # type: ignore[arg-type]


def test_the_operator_of_metrics_is_named_by_a_text() -> None:
    with pytest.raises(tg.DefinitionError, match=r"^`operator` is \['events'\]; there are 'events'\.$"):
        DRIVER.metrics(["events"])  # type: ignore[arg-type]


DOCUMENTED = [name for name, (call, _) in CALLS.items() if "Raises:" in (inspect.getdoc(call) or "")]
"""The calls that are public names; others call one with an argument by place."""


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_reference_says_which_errors_anything_gives(name: str) -> None:
    call, valid = CALLS[name]
    said = re.findall(r"^    (\w+): ", (inspect.getdoc(call) or "").partition("Raises:")[2], re.MULTILINE)
    assert errors_of(call, valid) <= {*said}
