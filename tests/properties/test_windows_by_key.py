"""Sliding windows and sessions stored by key: emitted rows and public state are the same as with buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from properties.test_keyed_windows import CLOSING, WINDOWS, built_in, history, history_in_place
from sizes import SMALL
from tidegate.kernel.inspect import pending
from tidegate.kernel.state.state import State
from tidegate.kernel.tuning import DEFAULT
from tidegate.kernel.upgrade import description
from tidegate.kernel.windows import window_forms
from tidegate.kernel.windows.window_buckets import WindowBuckets
from tidegate.testing import TopologyTestDriver

KINDS = [name for name in WINDOWS if name.startswith(("sessions", "sliding"))]

RECORDS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("abcdef"), "ts": st.integers(0, 60), "x": st.one_of(st.none(), st.integers(0, 9))}
    ),
    max_size=40,
)


def numbers(windowed: Any) -> Any:
    """Aggregates whose rows have copies."""
    return windowed.agg(n=tg.count(), total=tg.sum("x"), mean=tg.mean("x"))


def deleting(windowed: Any) -> Any:
    """A function that deletes what it has at a 0."""

    def add(key: str, row: dict[str, Any], told: str) -> str | None:
        return None if row["x"] == 0 else f"{told}{row['x']}"

    return windowed.aggregate(lambda: "", add, type="string", merger=lambda key, a, b: f"{a}|{b}")


AGGREGATES = [built_in, numbers, history, history_in_place, deleting]
LARGE = replace(DEFAULT, whole_rows=0)
"""Windows stay by key as long as there are any."""
SIZES = {
    "as ever": LARGE,
    "small": SMALL,
    "narrow": replace(LARGE, buckets_per_level=2, bucket_segments=1, part_rows=1, part_records=1, block_rows=2),
}


@contextmanager
def always_by_key() -> Iterator[None]:
    """After each batch all stored windows are by key."""
    with (
        patch.object(WindowBuckets, "writes_much", property(lambda self: self.written > 0)),
        patch.object(window_forms, "_needs_most", lambda *_: False),
    ):
        yield


@contextmanager
def never_by_key() -> Iterator[None]:
    """All windows stay in buckets."""
    with patch.object(WindowBuckets, "writes_much", False):
        yield


@contextmanager
def as_it_falls() -> Iterator[None]:
    """The sizes decide the form."""
    yield


def result(windows: Any, aggregate: Any, kind: str) -> Any:
    grouped = tg.stream("events", key="key", timestamp="ts").group_by_key()
    table = aggregate(grouped.windowed_by(windows))
    closing = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    if kind == "final":
        return table.suppress(closing)
    return table if kind == "updates" else tg.outputs(updates=table, final=table.suppress(closing))


def rows(driver: TopologyTestDriver, ordered: bool = True) -> list[Any]:
    """The emitted rows."""
    found = driver.read_output()
    return found if ordered else sorted(map(repr, found))


def seen(driver: TopologyTestDriver, ordered: bool = True) -> dict[str, Any]:
    """Public view of a driver, without bytes and without the next close, of which windows by key know a lower bound.

    ordered  whether rows have an order: results so far, which leave when final results are removed, have none
             between keys
    """
    metrics = driver.metrics()
    store = driver.read_state()
    return {
        "rows": rows(driver, ordered),
        "drops": driver.drops,
        "open": metrics["open_windows"],
        "waiting": driver.pending().waiting,
        "state": sorted(map(repr, store.to_pylist() if hasattr(store, "to_pylist") else store)),
    }


def next_close(driver: TopologyTestDriver) -> float | None:
    """The time at which the first window closes, as the metrics have it."""
    [store] = driver.state().stores
    what, state = description.of(store), State.open(store)
    assert what is not None
    assert state is not None
    return pending.metrics(what.layout, state).get("next_close")


@pytest.mark.parametrize("emits", ["final", "updates", "both"])
@pytest.mark.parametrize("kind", KINDS)
@given(records=RECORDS, data=st.data())
def test_as_in_buckets(kind: str, emits: str, records: list[Any], data: st.DataObject) -> None:
    aggregate = data.draw(st.sampled_from(AGGREGATES), label="aggregate")
    form = data.draw(st.sampled_from([always_by_key, always_by_key, as_it_falls]), label="form")
    tuning = SIZES[data.draw(st.sampled_from(sorted(SIZES)), label="sizes")]
    table = result(WINDOWS[kind], aggregate, emits)
    bucketed, by_key = TopologyTestDriver(table), TopologyTestDriver(table, tuning=tuning)
    rest = [*records, CLOSING] if data.draw(st.booleans(), label="closes") else records
    while rest:
        size = data.draw(st.integers(1, 8), label="batch")
        with never_by_key():
            bucketed.pipe_batch(rest[:size])
            wanted = seen(bucketed)
        with form():
            by_key.pipe_batch(rest[:size])
            assert seen(by_key) == wanted
        lower, exact = next_close(by_key), next_close(bucketed)
        assert (lower is None) == (exact is None) == (emits == "updates" or not wanted["open"])
        assert lower is None or exact is None or by_key.metrics()["stream_time"] < lower <= exact
        rest = rest[size:]
        if data.draw(st.booleans(), label="restart"):
            by_key = TopologyTestDriver(table, state=by_key.state(), tuning=tuning)
            bucketed = TopologyTestDriver(table, state=bucketed.state())
    drain(bucketed, by_key, form)


def drain(bucketed: TopologyTestDriver, by_key: TopologyTestDriver, form: Any, ordered: bool = True) -> None:
    """Drain both: the rows are equal, and no state is left by key."""
    with never_by_key():
        bucketed.drain()
    with form():
        by_key.drain()
    assert rows(by_key, ordered) == rows(bucketed, ordered)
    for store in by_key.state().stores:
        state = State.open(store)
        assert state is None or not (state.by_key or state.closing or state.open_windows or state.outlived)
        assert form is not always_by_key or not store.log


def test_a_session_that_begins_again_where_a_deleted_one_did() -> None:
    table = result(WINDOWS["sessions without grace"], deleting, "final")
    batches = [[("a", 10, 1), ("a", 14, 1)], [("a", 12, 0), ("a", 10, 2)], [("b", 15, 1)]]
    driver = TopologyTestDriver(table, tuning=LARGE)
    with always_by_key():
        for batch in batches:
            driver.pipe_batch([dict(zip(("key", "ts", "x"), record, strict=True)) for record in batch])
    assert [(tuple(row["window"]), row["aggregate"]) for row in driver.read_output()] == [((10, 10), "2")]


@dataclass(frozen=True)
class Plan:
    """A plan that may change between batches."""

    windows: Any
    function: bool
    emits: str = "final"
    more: bool = False

    @property
    def table(self) -> Any:
        store = tg.Materialized.as_("store")
        windowed = tg.stream("events", key="key", timestamp="ts").group_by_key().windowed_by(self.windows)
        if self.function:
            table = windowed.reduce(
                lambda one, other: ((one or 0) * 3 + (other or 0)) % 1_009, "x", "total", materialized=store
            )
        else:
            added = {"low": tg.min("x"), "all": tg.collect_list("x")} if self.more else {}
            table = windowed.agg(store, **added, n=tg.count(), total=tg.sum("x"))
        if self.emits == "updates":
            return table
        bounded = tg.BufferConfig.max_records(1_000).shut_down_when_full()
        buffer = bounded if self.emits == "bounded" else tg.BufferConfig.unbounded()
        return table.suppress(tg.Suppressed.until_window_closes(buffer))

    def changed(self, data: st.DataObject) -> Plan:
        """Another plan that can go on."""
        match data.draw(st.sampled_from(["grace", "emits", "more"]), label="change"):
            case "grace":
                return replace(self, windows=replace(self.windows, grace_ms=data.draw(st.integers(0, 9))))
            case "emits":
                return replace(self, emits=data.draw(st.sampled_from(["final", "updates", "bounded"])))
        return self if self.emits == "bounded" else replace(self, more=True)


@pytest.mark.parametrize("function", [False, True], ids=["built-in", "function"])
@pytest.mark.parametrize("kind", KINDS)
@given(records=RECORDS, data=st.data())
def test_plans_that_change_as_in_buckets(kind: str, function: bool, records: list[Any], data: st.DataObject) -> None:
    form = data.draw(st.sampled_from([always_by_key, always_by_key, as_it_falls]), label="form")
    tuning = SIZES[data.draw(st.sampled_from(sorted(SIZES)), label="sizes")]
    plan = Plan(WINDOWS[kind], function)
    bucketed, by_key = TopologyTestDriver(plan.table), TopologyTestDriver(plan.table, tuning=tuning)
    rest = records
    while rest:
        size = data.draw(st.integers(1, 8), label="batch")
        with never_by_key():
            bucketed.pipe_batch(rest[:size])
            wanted = seen(bucketed, ordered=False)
        with form():
            by_key.pipe_batch(rest[:size])
            assert seen(by_key, ordered=False) == wanted
        rest = rest[size:]
        if data.draw(st.booleans(), label="restart"):
            plan = plan.changed(data)
            by_key = TopologyTestDriver(plan.table, state=by_key.state(), tuning=tuning)
            bucketed = TopologyTestDriver(plan.table, state=bucketed.state())
    drain(bucketed, by_key, form, ordered=False)
