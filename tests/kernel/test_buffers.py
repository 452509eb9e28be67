"""Strict buffers: the bytes of an entry, when the bound is passed, and that no cutting changes this."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.errors import BufferFullError
from tidegate.testing import TopologyTestDriver

Record = dict[str, Any]
Make = Callable[[tg.TimeWindowedKStream], tg.KTable]

NAN = float("nan")
TIMES, START = 16, 8
"""Bytes of buffer time and timestamp, and of the window's start in the key (SEMANTICS 6.4)."""


def counting(windowed: tg.TimeWindowedKStream) -> tg.KTable:
    return windowed.count()


def deleting(windowed: tg.TimeWindowedKStream) -> tg.KTable:
    """A sum that a zero deletes."""
    return windowed.reduce(lambda a, b: None if b == 0 else a + b, "v")


def held(
    *, records: int | None = None, size: int | None = None, make: Make = counting, advance: int = 10, grace: int = 0
) -> tg.KTable:
    windows = tg.TimeWindows.of_size_and_grace("10 ms", f"{grace} ms").advance_by(f"{advance} ms")
    table = make(tg.stream("events", key="user", timestamp="ts").group_by_key().windowed_by(windows))
    buffer = tg.BufferConfig.unbounded()
    buffer = buffer if records is None else buffer.with_max_records(records)
    buffer = buffer if size is None else buffer.with_max_bytes(size)
    return table.suppress(tg.Suppressed.until_window_closes(buffer.shut_down_when_full()).with_name("hold"))


def record(user: str, ts: int, value: Any = 1) -> Record:
    return {"user": user, "ts": ts, "v": value}


def largest(make: Callable[[int], tg.KTable], batches: list[list[Record]]) -> int:
    """The smallest bound that is enough for these batches."""

    def is_enough(bound: int) -> bool:
        driver = TopologyTestDriver(make(bound))
        try:
            for batch in batches:
                driver.pipe_batch(batch)
        except BufferFullError:
            return False
        return True

    found = bisect_left(range(2_000), True, lo=1, key=is_enough)
    assert found < 2_000
    return found


def most_records(batches: list[list[Record]], **arguments: Any) -> int:
    return largest(lambda bound: held(records=bound, **arguments), batches)


def most_bytes(batches: list[list[Record]], **arguments: Any) -> int:
    return largest(lambda bound: held(size=bound, **arguments), batches)


def test_records_wait_until_their_window_closes() -> None:
    """Three keys wait in [0, 10); the record at 10 emits them and waits alone.

    time     0   1   2   ...  10
    key      A   B   A        C
    waiting  1   2   2        1
    """
    batches = [[record("A", 0)], [record("B", 1)], [record("A", 2)], [record("C", 10)]]
    assert most_records(batches) == 2


def test_with_grace_they_wait_longer() -> None:
    batches = [[record("A", 0)], [record("B", 1)], [record("C", 10)], [record("D", 15)]]
    assert most_records(batches, grace=5) == 3  # A, B and C at 10; at 15 A and B have left


@pytest.mark.parametrize("cut", [False, True])
def test_a_deleted_entry_takes_room_until_its_window_closes(cut: bool) -> None:
    """It is one entry if its key comes again (SEMANTICS 6.1: tombstones are dropped when they leave, not before).

    key      A   A (deletes)   B   A         C, which closes the window
    waiting  1   1             2   2         1
    """
    records = [record("A", 0), record("A", 1, 0), record("B", 2), record("A", 3), record("C", 10)]
    batches = [[one] for one in records] if cut else [records]
    assert most_records(batches[:3] if cut else [records[:3]], make=deleting) == 2
    assert most_records(batches, make=deleting) == 2
    driver = TopologyTestDriver(held(records=2, make=deleting))
    for batch in (
        [*batches[:-1], [record("B", 4, 0)], batches[-1]] if cut else [[*records[:4], record("B", 4, 0), records[4]]]
    ):
        driver.pipe_batch(batch)
    assert [(row["user"], row["v"], row["timestamp"]) for row in driver.read_output()] == [("A", 1, 3)]


def test_overlapping_windows_are_entries_of_their_own() -> None:
    assert most_records([[record("A", 5)]], advance=5) == 2


def test_what_leaves_with_a_record_makes_room_for_it() -> None:
    # One batch: put, emit closed windows, then compare (SEMANTICS 6.2).
    assert most_records([[record("A", 0), record("B", 10), record("C", 20)]]) == 1


def test_a_late_record_takes_no_room() -> None:
    assert most_records([[record("A", 10)], [record("B", 0)], [record("C", 5)]]) == 1


def test_no_room_for_a_single_entry() -> None:
    with pytest.raises(BufferFullError):
        TopologyTestDriver(held(size=1)).pipe_input(record("A", 0))


@pytest.mark.parametrize(
    ("make", "values", "bytes_of"),
    [
        pytest.param(counting, [1], 8 + 8, id="count: prior 0, new"),
        # The old value of the second update is not the prior one, so it is counted too.
        pytest.param(counting, [1, 1], 8 + 8 + 8, id="count: prior 0, old 1, new 2"),
        pytest.param(lambda w: w.agg(x=tg.sum("v")), [1], 8, id="sum: no prior"),
        pytest.param(lambda w: w.agg(x=tg.sum("v")), [1, 1], 8 + 8, id="sum: no prior, old, new"),
        pytest.param(lambda w: w.agg(x=tg.max("v")), [None], 0, id="null: nothing"),
        pytest.param(lambda w: w.agg(n=tg.count(), x=tg.max("v")), ["abc"], 8 + 8 + 3, id="two aggregates"),
        pytest.param(lambda w: w.agg(x=tg.last("v")), ["abc", "z"], 1 + 3, id="strings by their length"),
        pytest.param(lambda w: w.agg(x=tg.collect_list("v")), ["ab", "c"], 3 + 2, id="lists by what they hold"),
        pytest.param(
            lambda w: w.aggregate(lambda: 7, lambda _, row, total: total + row["v"], type="int"),
            [0, 0],
            4 + 4,
            id="aggregate: prior is the initializer's, and an old value equal to it is not counted",
        ),
        pytest.param(
            lambda w: w.aggregate(list, lambda _, row, held: [*held, row["v"]], type="array<long>"),
            [1, 2],
            8 + 16,
            id="aggregate: lists, the first one empty",
        ),
        pytest.param(
            lambda w: w.aggregate(lambda: NAN, lambda _, row, held: row["v"], type="double"),
            [-NAN, NAN],
            8 + 8,
            id="aggregate: a NaN is itself, so the old value is the prior one",
        ),
        pytest.param(
            lambda w: w.aggregate(lambda: [NAN], lambda _, row, held: [row["v"]], type="array<double>"),
            [NAN, NAN],
            8 + 8,
            id="aggregate: so is a list of NaN",
        ),
        pytest.param(
            lambda w: w.aggregate(lambda: 0.0, lambda _, row, held: row["v"], type="double"),
            [-0.0, 1.0],
            8 + 8 + 8,
            id="aggregate: -0.0 is not the prior 0.0",
        ),
        pytest.param(lambda w: w.reduce(lambda a, b: a + b, "v"), ["a", "b"], 1 + 2, id="reduce"),
    ],
)
def test_the_bytes_of_an_entry(make: Make, values: list[Any], bytes_of: int) -> None:
    batch = [record("key", n, value) for n, value in enumerate(values)]
    assert most_bytes([batch], make=make) == TIMES + START + len("key") + bytes_of
    assert most_bytes([[one] for one in batch], make=make) == TIMES + START + len("key") + bytes_of


def test_the_bytes_of_several_entries_add_up_and_go() -> None:
    one = TIMES + START + len("A") + 8 + 8
    assert most_bytes([[record("A", 0), record("B", 1)]]) == 2 * one
    assert most_bytes([[record("A", 0)], [record("B", 1)], [record("C", 10)], [record("D", 11)]]) == 2 * one


def test_both_bounds_hold() -> None:
    for bounds in ({"records": 1, "size": 1_000}, {"records": 9, "size": 50}):
        driver = TopologyTestDriver(held(**bounds))
        driver.pipe_input(record("A", 0))
        with pytest.raises(BufferFullError):
            driver.pipe_input(record("B", 0))


@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        ({"records": 1}, "[2/1] records and [82/no bound] bytes"),
        ({"size": 50}, "[2/no bound] records and [82/50] bytes"),
        ({"records": 1, "size": 50}, "[2/1] records and [82/50] bytes"),
    ],
)
def test_the_message_says_how_full_and_what_to_do(bounds: Any, shown: str) -> None:
    driver = TopologyTestDriver(held(**bounds))
    driver.pipe_input(record("A", 0))
    with pytest.raises(BufferFullError) as caught:
        driver.pipe_input(record("B", 0))
    assert str(caught.value) == (
        f"hold buffer exceeded its max capacity. Currently {shown}. Nothing of this batch was emitted or stored. "
        "Restart from the same checkpoint with a larger bound; nothing is lost."
    )


def test_a_restart_with_a_larger_buffer_goes_on_without_loss() -> None:
    batches = [
        [record("A", 0), record("B", 1)],
        [record("C", 2), record("A", 3), record("D", 10)],
        [record("E", 20)],
    ]
    small = TopologyTestDriver(held(records=2))
    small.pipe_batch(batches[0])
    with pytest.raises(BufferFullError):
        small.pipe_batch(batches[1])
    assert small.read_output() == []
    large = TopologyTestDriver(held(records=3), state=small.state())
    never = TopologyTestDriver(held(records=1_000))
    never.pipe_batch(batches[0])
    for batch in batches[1:]:
        large.pipe_batch(batch)
        never.pipe_batch(batch)
    out = large.read_output()
    assert out == never.read_output()
    assert [(row["user"], row["count"]) for row in out] == [("A", 2), ("B", 1), ("C", 1), ("D", 1)]


def test_a_restart_knows_the_bytes_that_wait() -> None:
    small = TopologyTestDriver(held(size=90))
    small.pipe_batch([record("A", 0), record("B", 1)])
    again = TopologyTestDriver(held(size=90), state=small.state())
    with pytest.raises(BufferFullError, match=r"\[3/no bound\] records and \[123/90\] bytes"):
        again.pipe_input(record("C", 2))


@pytest.mark.parametrize(
    "buffer", [tg.BufferConfig.max_records(1).spill_to_disk_when_full(), tg.BufferConfig.unbounded()]
)
def test_a_buffer_that_may_grow_never_stops(buffer: tg.StrictBuffer) -> None:
    windowed = tg.stream("events", key="user", timestamp="ts").group_by_key()
    table = windowed.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
    driver = TopologyTestDriver(table.suppress(tg.Suppressed.until_window_closes(buffer)))
    driver.pipe_batch([record(user, 0) for user in "ABCDE"])
    driver.pipe_input(record("F", 10))
    assert len(driver.read_output()) == 5


records = st.lists(
    st.builds(record, st.sampled_from("ABC"), st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=12
)


@given(records, st.sets(st.integers(1, 11)), st.sampled_from([(10, 0), (5, 0), (5, 7), (4, 3)]), st.data())
def test_no_cutting_changes_when_it_is_full(
    drawn: list[Record], cuts: set[int], shape: tuple[int, int], data: st.DataObject
) -> None:
    """A batch fails at the same record as record by record, and with the same fill."""
    bounds = data.draw(st.sampled_from([{"records": 1}, {"records": 3}, {"size": 90}, {"records": 4, "size": 150}]))
    make = data.draw(st.sampled_from([counting, lambda w: w.reduce(lambda a, b: a + b, "v"), deleting]))

    def run(batches: list[list[Record]]) -> str | list[Record]:
        driver = TopologyTestDriver(held(**bounds, make=make, advance=shape[0], grace=shape[1]))
        try:
            for batch in batches:
                driver.pipe_batch(batch)
        except BufferFullError as full:
            return str(full)
        return driver.read_output()

    edges = [0, *sorted(at for at in cuts if at < len(drawn)), len(drawn)]
    in_batches = [drawn[low:high] for low, high in zip(edges, edges[1:], strict=False)]
    assert run(in_batches) == run([[one] for one in drawn])
