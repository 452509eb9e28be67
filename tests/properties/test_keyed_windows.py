"""Sliding, session and batch windows: the same results for any cutting, with a restart between any two batches.

The record-by-record run is the reference; the scenarios show that it gives Kafka's rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.kernel.tuning import Tuning
from tidegate.testing import TopologyTestDriver

WINDOWS = {
    "sessions": tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms"),
    "sessions without grace": tg.SessionWindows.of_inactivity_gap_with_no_grace("4 ms"),
    "sliding": tg.SlidingWindows.of_time_difference_and_grace("5 ms", "4 ms"),
    "sliding without grace": tg.SlidingWindows.of_time_difference_with_no_grace("6 ms"),
    "batch": tg.BatchWindows.of_size("7 ms"),
    "hopping": tg.TimeWindows.of_size_and_grace("6 ms", "3 ms").advance_by("4 ms"),
}

RECORDS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("ab"), "ts": st.integers(0, 60), "x": st.one_of(st.none(), st.integers(0, 9))}
    ),
    max_size=25,
)
CLOSING = {"key": "z", "ts": 1_000, "x": 1}


def built_in(windowed: Any) -> Any:
    return windowed.agg(n=tg.count(), total=tg.sum("x"), xs=tg.collect_list("x"), top=tg.max("x"), one=tg.first("x"))


def history(windowed: Any) -> Any:
    def add(key: str, row: dict[str, Any], told: str) -> str:
        return f"{told}+{row['x']}"

    return windowed.aggregate(lambda: "0", add, type="string", merger=lambda key, a, b: f"{a}|{b}")


def history_in_place(windowed: Any) -> Any:
    """Lists that the functions change, and records that they empty."""

    def add(key: str, row: dict[str, Any], seen: list[Any]) -> list[Any]:
        seen.append(row.pop("x"))
        row["x"] = "changed"
        return seen

    def merge(key: str, a: list[Any], b: list[Any]) -> list[Any]:
        a += [None, *b]
        b.clear()
        return a

    return windowed.aggregate(list, add, type="array<long>", merger=merge)


def final(windows: Any, aggregate: Any) -> Any:
    grouped = tg.stream("events", key="key", timestamp="ts").group_by_key()
    return aggregate(grouped.windowed_by(windows)).suppress(
        tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
    )


@pytest.mark.parametrize("aggregate", [built_in, history, history_in_place])
@pytest.mark.parametrize("kind", WINDOWS)
@given(records=RECORDS, data=st.data())
def test_final_results_do_not_depend_on_cuts_and_restarts(
    kind: str, aggregate: Any, records: list[Any], data: st.DataObject
) -> None:
    table = final(WINDOWS[kind], aggregate)
    records = [*records, CLOSING]
    single = TopologyTestDriver(table)
    for record in records:
        single.pipe_input(record)
    expected = single.read_output()

    rows, late = [], 0
    driver = TopologyTestDriver(table)
    rest = records
    while rest:
        size = data.draw(st.integers(1, 8), label="batch")
        driver.pipe_batch(rest[:size])
        rest = rest[size:]
        if data.draw(st.booleans(), label="restart"):
            rows, late = rows + driver.read_output(), late + driver.dropped
            driver = TopologyTestDriver(table, state=driver.state())
    assert rows + driver.read_output() == expected
    assert late + driver.dropped == single.dropped


@pytest.mark.parametrize("kind", ["sessions", "sessions without grace", "sliding", "sliding without grace"])
@given(records=RECORDS)
def test_updates_end_where_final_results_are(kind: str, records: list[Any]) -> None:
    """The last update of every window is its final result; a tombstone says that there is none."""
    grouped = tg.stream("events", key="key", timestamp="ts").group_by_key().windowed_by(WINDOWS[kind])
    updating, closing = TopologyTestDriver(built_in(grouped)), TopologyTestDriver(final(WINDOWS[kind], built_in))
    for record in [*records, CLOSING]:
        updating.pipe_input(record)
        closing.pipe_input(record)
    newest = {(row["key"], row["window"]): row for row in updating.read_output() if row["key"] != "z"}
    alive = {name: row for name, row in newest.items() if not row.pop("deleted", False)}
    assert alive == {(row["key"], row["window"]): row for row in closing.read_output()}


BUCKETS = Tuning(page_logs=2, fanout=2, root_entries=2, key_windows=(3, 3), whole_rows=1 << 60)
"""Windows stay in buckets, and few of them fill a bucket and a page of its index."""

KEYS = [f"k{number:02}" for number in range(40)]
SOME_KEYS = st.one_of(st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS)).map(set(KEYS).difference))
"""Few or most keys."""


def batch(keys: Iterable[str], ts: int) -> list[dict[str, Any]]:
    return [{"key": key, "ts": ts, "x": 1} for key in sorted(keys)]


def bounded(windows: Any, aggregate: Any) -> Any:
    """A bounded buffer, in front of which windows always lie in buckets."""
    grouped = tg.stream("events", key="key", timestamp="ts").group_by_key()
    buffer = tg.BufferConfig.max_records(10_000).shut_down_when_full()
    return aggregate(grouped.windowed_by(windows)).suppress(tg.Suppressed.until_window_closes(buffer))


def updates(windows: Any, aggregate: Any) -> Any:
    return aggregate(tg.stream("events", key="key", timestamp="ts").group_by_key().windowed_by(windows))


@pytest.mark.parametrize("kind", ["sessions", "sessions without grace", "sliding", "sliding without grace"])
@given(emits=st.sampled_from([updates, bounded]), batches=st.lists(st.tuples(SOME_KEYS, st.integers(0, 9)), max_size=4))
def test_buckets_split_and_merge_as_keys_come_and_go(kind: str, emits: Any, batches: list[Any]) -> None:
    table = emits(WINDOWS[kind], lambda windowed: windowed.agg(n=tg.count(), total=tg.sum("x")))
    large, small, ts = TopologyTestDriver(table), TopologyTestDriver(table, tuning=BUCKETS), 0
    for keys, later in [*batches, ({"z"}, 1_000)]:
        ts += later
        for driver in (large, small):
            driver.pipe_batch(batch(keys, ts))
        assert small.read_output() == large.read_output()
        small = TopologyTestDriver(table, state=small.state(), tuning=BUCKETS)


def test_a_record_finds_the_open_session_of_its_key_after_buckets_merged() -> None:
    table = updates(tg.SessionWindows.of_inactivity_gap_with_no_grace("10 ms"), lambda windowed: windowed.count())
    keys = [f"k{number:03}" for number in range(200)]
    stay = keys[::3]
    driver = TopologyTestDriver(table, tuning=BUCKETS)
    driver.pipe_batch(batch(keys, 0))
    driver = TopologyTestDriver(table, state=driver.state(), tuning=BUCKETS)
    # At 12 all other sessions have closed: the batch writes every bucket, and small ones merge.
    driver.pipe_batch([*batch(stay, 5), *batch(stay[:1], 12)])
    state, counts = driver.state(), dict[str, list[int]]()
    for key in stay[1:]:
        # A batch of this key alone touches no other bucket.
        one = TopologyTestDriver(table, state=state, tuning=BUCKETS)
        one.pipe_batch(batch([key], 13))
        counts[key] = [row["count"] for row in one.read_output() if not row.get("deleted")]
    assert counts == {key: [3] for key in stay[1:]}
