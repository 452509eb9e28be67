"""Strict buffers of sliding windows and sessions are full at the same record, for any cutting.

A driver without a suppression gives the rows that the aggregation forwards, record by record. The entries that must
be buffered, and their bytes, are computed here from SEMANTICS 6 and 14.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import TopologyTestDriver

Row = dict[str, Any]

WINDOWS = {
    "sessions": (tg.SessionWindows.of_inactivity_gap_and_grace("5 ms", "3 ms"), 8),
    "sessions without grace": (tg.SessionWindows.of_inactivity_gap_with_no_grace("4 ms"), 4),
    "sliding": (tg.SlidingWindows.of_time_difference_and_grace("5 ms", "4 ms"), 4),
    "sliding without grace": (tg.SlidingWindows.of_time_difference_with_no_grace("6 ms"), 0),
}
"""Windows, and how far stream time must be past their end."""

VALUES = st.integers(0, 3).map(float)
"""Of another type than a count."""

RECORDS = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["a", "bb"]), "ts": st.integers(0, 60), "x": VALUES}),
    max_size=20,
)


def counted(windowed: Any, materialized: Any) -> Any:
    return windowed.agg(n=tg.count(), last=tg.last("x"), materialized=materialized)


def text(windowed: Any, materialized: Any) -> Any:
    """One "+" per record; a record with 0 deletes it."""

    def add(key: str, row: Row, told: str) -> str | None:
        return told + "+" if row["x"] else None

    arguments: Row = {"merger": lambda key, a, b: a + b} if "Session" in type(windowed).__name__ else {}
    return windowed.aggregate(str, add, type="string", materialized=materialized, **arguments)


INITIAL = {counted: (0, None), text: ("",)}


def turned(windowed: Any, materialized: Any) -> Any:
    """`counted` in another order."""
    return windowed.agg(last=tg.last("x"), n=tg.count(), materialized=materialized)


ORDERS = {counted: (counted, turned), text: (text,)}
"""Plans that go on from each other's states."""


def table(windows: Any, aggregate: Any) -> Any:
    stream = tg.stream("events", key="key", timestamp="ts")
    materialized = tg.Materialized.as_("store").with_caching_disabled()
    return aggregate(stream.group_by_key().windowed_by(windows), materialized)


def bytes_of(values: tuple[Any, ...] | None) -> int:
    return sum(len(v) if isinstance(v, str) else 8 for v in values or () if v is not None)


@dataclass
class Waiting:
    """The entries of the buffer: bytes by key and window; `most`: largest number of records and of bytes so far."""

    sessions: bool
    past_end: int
    initial: tuple[Any, ...]
    difference: int
    now: int = -1
    values: dict[Any, Any] = field(default_factory=dict)
    began: dict[Any, Any] = field(default_factory=dict)
    stamps: dict[Any, int] = field(default_factory=dict)
    sizes: dict[Any, int] = field(default_factory=dict)
    most: tuple[int, int] = (0, 0)

    def take(self, record: Row, forwarded: list[Row]) -> None:
        self.now = max(self.now, record["ts"])
        made = []
        for row in forwarded:
            place = (row["key"], *row["window"])
            new = tuple(v for name, v in row.items() if name not in ("key", "window", "timestamp", "deleted"))
            new = None if row.get("deleted") else new
            if self.values.get(place) is None:
                begins = None if self.sessions else self._begins(place, record["ts"])
            else:
                begins = None
            prior = self.began.setdefault(place, begins)
            old = self.values.get(place) if not self.sessions or new is None else None
            old = begins if old is None else old
            if place in made and not self.sessions:
                # The right window of the previous record is also this record's left window, and begins once more.
                old = self.initial
            made.append(place)
            key = len(row["key"]) + (16 if self.sessions else 8)
            self.values[place], self.stamps[place] = new, row["timestamp"]
            self.sizes[place] = 16 + key + bytes_of(prior) + (0 if old == prior else bytes_of(old)) + bytes_of(new)
            self.sizes = {at: size for at, size in self.sizes.items() if at[2] + self.past_end >= self.now}
            self.most = max(self.most[0], len(self.sizes)), max(self.most[1], sum(self.sizes.values()))

    def _begins(self, place: Any, at: int) -> Any:
        """Old value of a new sliding window (SEMANTICS 3.1 and 3.2).

        None if the window begins behind its record; the value of the window before if the new one ends at the record
        and that window reaches it; else the initial value.
        """
        key, start, end = place
        if start == at + 1:
            return None
        earlier = [p for p, held in self.values.items() if p[0] == key and p[2] < at and held is not None]
        newest = max(earlier, key=lambda p: p[2], default=None)
        made = end == at and newest is not None and self.stamps[newest] >= at - self.difference
        return self.values[newest] if made else self.initial


def cut(records: list[Row], data: Any) -> list[list[Row]]:
    batches, rest = [], records
    while rest:
        size = data.draw(st.integers(1, 8), label="batch")
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def run(plans: list[Any], batches: list[list[Row]], data: Any) -> list[Row]:
    driver, rows = TopologyTestDriver(plans[0]), []
    for batch in batches:
        driver.pipe_batch(batch)
        rows += driver.read_output()
        if data.draw(st.booleans(), label="restart"):
            driver = TopologyTestDriver(data.draw(st.sampled_from(plans), label="plan"), state=driver.state())
    return rows


@pytest.mark.parametrize("aggregate", [counted, text])
@pytest.mark.parametrize("kind", WINDOWS)
@given(records=RECORDS, data=st.data())
def test_full_where_it_must_be_in_any_cutting(kind: str, aggregate: Any, records: list[Row], data: Any) -> None:
    windows, past_end = WINDOWS[kind]
    updates = table(windows, aggregate)
    driver = TopologyTestDriver(updates)
    waiting = Waiting("sessions" in kind, past_end, INITIAL[aggregate], 5 if kind == "sliding" else 6)
    for record in records:
        driver.pipe_input(record)
        waiting.take(record, driver.read_output())

    def held(buffer: Any) -> list[Any]:
        final = tg.Suppressed.until_window_closes(buffer.shut_down_when_full())
        return [table(windows, one).suppress(final) for one in ORDERS[aggregate]]

    batches = cut(records, data)
    expected = run(held(tg.BufferConfig.unbounded()), batches, data)
    for bound, most in zip((tg.BufferConfig.max_records, tg.BufferConfig.max_bytes), waiting.most, strict=True):
        assert run(held(bound(most)), batches, data) == expected
        if most:
            with pytest.raises(tg.BufferFullError):
                run(held(bound(most - 1)), batches, data)


OTHERS = {
    "tumbling": (tg.TimeWindows.of_size_and_grace("6 ms", "3 ms"), 2),
    "hopping": (tg.TimeWindows.of_size_and_grace("6 ms", "3 ms").advance_by("4 ms"), 2),
    "batch": (tg.BatchWindows.of_size("7 ms"), 0),
}


def summed(windowed: Any, materialized: Any) -> Any:
    """Its result does not depend on the order, so without a bound it is stored in logs."""
    return windowed.agg(n=tg.count(), total=tg.sum("x"), materialized=materialized)


@pytest.mark.parametrize("aggregate", [summed, counted, text])
@pytest.mark.parametrize("kind", WINDOWS | OTHERS)
@given(records=RECORDS, data=st.data())
def test_a_bound_turned_on_and_off_changes_no_result(kind: str, aggregate: Any, records: list[Row], data: Any) -> None:
    windows, _ = (WINDOWS | OTHERS)[kind]
    updates = table(windows, aggregate)
    buffers = [tg.BufferConfig.unbounded(), tg.BufferConfig.max_records(999).with_max_bytes(10**6)]
    plans = [updates.suppress(tg.Suppressed.until_window_closes(b.shut_down_when_full())) for b in buffers]
    records = [*records, {"key": "z", "ts": 10_000, "x": 1}]
    reference, driver = (TopologyTestDriver(plans[0]) for _ in range(2))
    rows, late, expected = [], 0, []
    for batch in cut(records, data):
        reference.pipe_batch(batch)
        expected += reference.read_output()
        driver = TopologyTestDriver(data.draw(st.sampled_from(plans), label="plan"), state=driver.state())
        driver.pipe_batch(batch)
        rows += driver.read_output()
        late += driver.dropped
    assert rows == expected
    assert late == reference.dropped


@pytest.mark.parametrize("kind", WINDOWS | OTHERS)
@given(records=RECORDS, data=st.data())
def test_a_bound_counts_what_waited_before_it(kind: str, records: list[Row], data: Any) -> None:
    """After the change as many entries wait as if the bound had always been there: a bound of one less is too small."""
    windows, _ = (WINDOWS | OTHERS)[kind]
    updates = table(windows, summed)

    def plan(most: int | None) -> Any:
        buffer = tg.BufferConfig.unbounded() if most is None else tg.BufferConfig.max_records(most)
        return updates.suppress(tg.Suppressed.until_window_closes(buffer.shut_down_when_full()))

    driver = TopologyTestDriver(plan(None))
    for batch in cut(records, data):
        driver.pipe_batch(batch)
    last = {"key": "z", "ts": max([0, *(record["ts"] for record in records)]), "x": 1}
    after = TopologyTestDriver(plan(None), state=driver.state())
    after.pipe_input(last)
    waiting = len(after.read_state())
    TopologyTestDriver(plan(waiting), state=driver.state()).pipe_input(last)
    if waiting:
        with pytest.raises(tg.BufferFullError):
            TopologyTestDriver(plan(waiting - 1), state=driver.state()).pipe_input(last)


def test_a_session_that_went_into_another_takes_room_until_it_closes() -> None:
    """Gap 5, no grace: a@0 and a@5 are [0, 0], a tombstone for it, and [0, 5]; at 11 the first has closed.

    time     0   5   11
    waiting  1   2   2 ([0, 5] and [11, 11])
    """
    windows = tg.SessionWindows.of_inactivity_gap_with_no_grace("5 ms")
    counts = tg.stream("events", key="key", timestamp="ts").group_by_key().windowed_by(windows).count()
    for bound in (1, 2):
        buffer = tg.BufferConfig.max_records(bound).shut_down_when_full()
        held = counts.suppress(tg.Suppressed.until_window_closes(buffer).with_name("hold"))
        driver = TopologyTestDriver(held)
        driver.pipe_input({"key": "a", "ts": 0})
        if bound == 1:
            with pytest.raises(tg.BufferFullError, match=r"Currently \[2/1\] records"):
                driver.pipe_input({"key": "a", "ts": 5})
            continue
        driver.pipe_input({"key": "a", "ts": 5})
        assert [row["window"] for row in driver.read_state()] == [(0, 5)]
        assert [one.window for one in driver.pending().waiting] == [(0, 5)]
        assert driver.metrics()["open_windows"] == 1
        assert driver.metrics()["suppression_buffer_count_current"] == 2
        # Times, key and bounds of both; the count of [0, 0] that its tombstone replaced, and that of [0, 5].
        assert driver.metrics()["suppression_buffer_size_current"] == 2 * (16 + len("a") + 16 + 8)
        with pytest.raises(tg.BufferFullError, match=r"Currently \[3/2\] records"):
            TopologyTestDriver(held, state=driver.state()).pipe_input({"key": "b", "ts": 5})
        driver.pipe_batch([{"key": "a", "ts": 11}, {"key": "b", "ts": 30}])
        assert [(row["key"], row["window"], row["count"]) for row in driver.read_output()] == [
            ("a", (0, 5), 2),
            ("a", (11, 11), 1),
        ]
