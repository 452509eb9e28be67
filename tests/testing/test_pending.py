"""Why no row is emitted: what waits, until which stream time, how far away it is, and which partition holds it back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tidegate.kernel.inspect import pending as waits
from tidegate.kernel.state.state import State
from tidegate.kernel.upgrade import description
from tidegate.spec.pending import together
from tidegate.testing import TopologyTestDriver, Window

FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
TUMBLING = tg.TimeWindows.of_size_and_grace("10 seconds", "5 seconds")


def driver(windows: Any = TUMBLING, final: bool = True, **stream: Any) -> TopologyTestDriver:
    events = tg.stream("events", key="k", timestamp="ts", **stream)
    counts = events.group_by_key().windowed_by(windows).count()
    return TopologyTestDriver(counts.suppress(FINAL) if final else counts)


def test_windows_that_wait_for_stream_time(capsys: pytest.CaptureFixture[str]) -> None:
    running = driver()
    running.pipe_batch([{"k": "A", "ts": 4_000}, {"k": "B", "ts": 12_000}])
    [pending] = tg.explain_pending(running)
    assert pending == tg.Pending(
        "events",
        12_000,
        (tg.Waiting(Window(0, 10_000), 15_000, 3_000), tg.Waiting(Window(10_000, 20_000), 25_000, 13_000)),
        2,
    )
    assert capsys.readouterr().out == (
        "events: stream time is 12000 (1970-01-01T00:00:12.000+00:00).\n"
        "  window 0 to 10000 ms waits for stream time 15000 (1970-01-01T00:00:15.000+00:00): 3 seconds to go\n"
        "  window 10000 to 20000 ms waits for stream time 25000 (1970-01-01T00:00:25.000+00:00): 13 seconds to go\n"
        "  A record with a later timestamp, of any key and partition, moves stream time on.\n"
    )
    assert running.read_output() == []  # asking changes nothing
    running.pipe_input({"k": "A", "ts": pending.waiting[0].leaves_at})
    assert [row["window"] for row in running.read_output()] == [Window(0, 10_000)]


@pytest.mark.parametrize(
    "windows",
    [
        TUMBLING,
        TUMBLING.advance_by("3 seconds"),
        tg.BatchWindows.of_size("7 seconds"),
        tg.SessionWindows.of_inactivity_gap_and_grace("4 seconds", "2 seconds"),
        tg.SlidingWindows.of_time_difference_and_grace("6 seconds", "1 second"),
    ],
    ids=str,
)
def test_what_it_says_is_what_happens(windows: Any) -> None:
    """Every window leaves exactly at the announced instant, and none a millisecond earlier."""
    for ahead in (-1, 0):
        running = driver(windows)
        running.pipe_batch([{"k": "A", "ts": 4_000}, {"k": "B", "ts": 9_000}, {"k": "A", "ts": 5_500}])
        running.read_output()
        first = running.pending().waiting[0]
        assert first.missing_ms == first.leaves_at - running.metrics()["stream_time"] > 0
        due = [one.window for one in running.pending().waiting if one.leaves_at == first.leaves_at]
        running.pipe_input({"k": "Z", "ts": first.leaves_at + ahead})
        assert sorted({row["window"] for row in running.read_output()}) == ([] if ahead else sorted(due))


def test_the_partition_that_holds_it_back() -> None:
    running = driver(partition="p", offset="o", stream_time="min_partition")
    running.pipe_batch([{"k": "A", "ts": 60_000, "p": "fast", "o": 0}, {"k": "A", "ts": 4_000, "p": "slow", "o": 0}])
    pending = running.pending()
    assert pending.held_by == ("slow", 4_000)
    assert "Partition 'slow' holds stream time back: it has come to 4000 (" in str(pending)


def test_an_idle_partition_holds_nothing_back_in_a_checkpoint_either() -> None:
    """A checkpoint is read by its description alone."""
    running = driver(partition="p", offset="o", stream_time="min_partition", idle_after="1 second")
    running.pipe_batch([{"k": "A", "ts": 4_000, "p": "silent", "o": 0}, {"k": "A", "ts": 5_000, "p": "next", "o": 0}])
    running.advance_wall_clock("2 seconds")
    running.pipe_input({"k": "A", "ts": 9_000, "p": "next", "o": 1})
    (store,) = running.state().stores
    what, state = description.of(store), State.open(store)
    assert what is not None
    assert state is not None
    assert waits.pending(what.layout, state).held_by == running.pending().held_by == ("next", 9_000)


def test_under_another_clock_no_partition_holds_it_back() -> None:
    """Also when the first clock comes back: it knows the partitions whose records come under it."""
    order = {"partition": "p", "offset": "o"}

    def restarted(rule: str, state: Any) -> TopologyTestDriver:
        events = tg.stream("events", key="k", timestamp="ts", stream_time=rule, **order)
        return TopologyTestDriver(events.group_by_key().windowed_by(TUMBLING).count().suppress(FINAL), state=state)

    running = restarted("min_partition", None)
    running.pipe_batch([{"k": "A", "ts": 60_000, "p": "fast", "o": 0}, {"k": "A", "ts": 4_000, "p": "slow", "o": 0}])
    running = restarted("max", running.state())
    running.pipe_input({"k": "A", "ts": 61_000, "p": "fast", "o": 1})
    assert (running.pending().stream_time, running.pending().held_by) == (61_000, None)
    running = restarted("min_partition", running.state())
    running.pipe_input({"k": "A", "ts": 62_000, "p": "fast", "o": 2})
    assert (running.pending().stream_time, running.pending().held_by) == (62_000, ("fast", 62_000))


def test_nothing_waits() -> None:
    assert str(driver().pending()).startswith("events: no record has been accepted yet, so nothing waits.")


def test_records_that_are_all_skipped_are_not_called_none(capsys: pytest.CaptureFixture[str]) -> None:
    """The wall clock of the driver begins in 1970, so each record of today is ahead of it."""
    guarded = tg.stream("events", key="user", timestamp="ts", max_future_skew="5 minutes").group_by_key().count()
    skipping = TopologyTestDriver(guarded)
    skipping.pipe_input({"user": "A", "ts": 1_767_225_600_000})
    tg.explain_pending(skipping)
    assert "Skipped records are counted by reason: in the drops" in capsys.readouterr().out
    assert skipping.drops["future"] == 1
    updating = driver(final=False)
    updating.pipe_input({"k": "A", "ts": 0})
    assert str(updating.pending()) == (
        "events: stream time is 0 (1970-01-01T00:00:00.000+00:00). Nothing waits for it. "
        "Of 1 open windows updates leave as they come."
    )
    never = TopologyTestDriver(tg.stream("events", key="k", timestamp="ts").group_by_key().count())
    never.pipe_input({"k": "A", "ts": 0})
    assert never.pending().waiting == ()


def limited(clock: str, **more: Any) -> TopologyTestDriver:
    how = tg.Suppressed.until_time_limit("10 seconds", tg.BufferConfig.unbounded(), clock=clock, **more)
    return TopologyTestDriver(tg.table("prices", key="k", timestamp="ts").suppress(how))


def test_keys_that_wait_for_a_time_limit() -> None:
    running = limited("stream")
    running.pipe_batch(
        [{"k": "A", "ts": 4_000, "v": 1}, {"k": "B", "ts": 6_000, "v": 1}, {"k": "A", "ts": 7_000, "v": 2}]
    )
    pending = running.pending()
    assert pending.buffered == tg.Buffered("stream", 14_000, 7_000, 2)
    assert "  2 keys wait for a time limit; the first leaves when stream time is 14000 (" in str(pending)
    running.pipe_input({"k": "C", "ts": 13_999, "v": 1})
    assert running.read_output() == []
    running.pipe_input({"k": "C", "ts": 14_000, "v": 1})
    assert [row["k"] for row in running.read_output()] == ["A"]


def test_keys_that_wait_by_the_wall_clock() -> None:
    running = limited("wall")
    running.advance_wall_clock("1 second")
    running.pipe_input({"k": "A", "ts": 4_000, "v": 1})
    running.advance_wall_clock("3 seconds")
    pending = running.pending()
    assert pending.buffered == tg.Buffered("wall", 11_000, 7_000, 1)
    [_, line, key] = str(pending).splitlines()
    assert key == "    k 'A': 11000 (1970-01-01T00:00:11.000+00:00)"
    assert line == (
        "  1 key waits for a time limit; the first leaves when the wall clock is 11000 "
        "(1970-01-01T00:00:11.000+00:00): 7 seconds to go"
    )
    running.advance_wall_clock("7 seconds")
    assert running.pending().buffered is None


def test_many_windows_are_counted() -> None:
    running = driver(tg.TimeWindows.of_size_and_grace("10 seconds", "1 hour"))
    running.pipe_batch([{"k": "A", "ts": ts} for ts in range(0, 90_000, 10_000)])
    assert str(running.pending()).splitlines()[6] == "  and 4 more after them."


def test_a_query_is_asked_for_its_last_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """A stand-in for pyspark's query; tests/spark/test_time.py asks a real one."""

    def row(**told: Any) -> Any:
        return SimpleNamespace(asDict=lambda: told)

    first = SimpleNamespace(observedMetrics={"events": row(stream_time=1, open_windows=1, next_close=15)})
    last = SimpleNamespace(
        observedMetrics={
            "events": row(stream_time=12, open_windows=3, next_close=15, slowest_partition=4, slowest_time=12),
            "other": row(rows=1),
            "limits": row(stream_time=12, open_windows=0, next_due_wall=90, limit_clock=50),
        }
    )
    pending, limits = tg.explain_pending(SimpleNamespace(recentProgress=[first, last]))
    assert limits == tg.Pending("limits", 12, (), 0, None, (tg.Buffered("wall", 90, 40),))
    assert pending == tg.Pending("events", 12, (tg.Waiting(None, 15, 3),), 3, (4, 12))
    assert capsys.readouterr().out == (
        "events: stream time is 12 (1970-01-01T00:00:00.012+00:00).\n"
        "  the next result waits for stream time 15 (1970-01-01T00:00:00.015+00:00): 3 milliseconds to go\n"
        "  and 2 more after it.\n"
        "  Partition 4 holds stream time back: it has come to 12 (1970-01-01T00:00:00.012+00:00).\n"
        "limits: stream time is 12 (1970-01-01T00:00:00.012+00:00).\n"
        "  keys wait for a time limit; the first leaves when the wall clock is 90 (1970-01-01T00:00:00.090+00:00): "
        "40 milliseconds to go\n"
    )
    assert tg.explain_pending(SimpleNamespace(recentProgress=[])) == []
    assert capsys.readouterr().out == "No micro-batch has finished yet: call it again after the first one.\n"


def test_the_metrics_of_a_query_have_no_names_that_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"stream_time": 12, "open_windows": 3, "next_close": 15, "slowest_time": 12, "slowest_partition": None}
    progress = SimpleNamespace(observedMetrics={"events": SimpleNamespace(asDict=lambda: told)})
    (pending,) = tg.explain_pending(SimpleNamespace(recentProgress=[progress]))
    assert pending.held_by == (None, 12)
    assert tg.Pending.from_dict(pending.to_dict()) == pending
    assert capsys.readouterr().out.splitlines()[-1] == (
        "  A partition holds stream time back: it has come to 12 (1970-01-01T00:00:00.012+00:00). The state in the "
        "checkpoint has its name."
    )


def test_something_else() -> None:
    with pytest.raises(tg.DefinitionTypeError, match="`of` is 3, neither a StreamingQuery nor a TopologyTestDriver"):
        tg.explain_pending(3)


def test_what_waits_behind_both_operators_of_a_chain() -> None:
    held = tg.Suppressed.until_time_limit("10 seconds", tg.BufferConfig.unbounded(), clock="stream")
    counts = tg.stream("clicks", key="user", timestamp="ts").group_by_key().count()
    driver = TopologyTestDriver(counts.group_by("count").count("users").suppress(held))
    driver.pipe_input({"user": "A", "ts": 4_000})
    driver.pipe_input({"user": "B", "ts": 5_000})
    driver.pipe_input({"user": "A", "ts": 6_000})
    first, second = tg.explain_pending(driver)
    assert (first.name, first.buffered) == ("clicks", None)
    assert (second.name, second.stream_time) == ("clicks by count", 6_000)
    assert second.buffered == tg.Buffered("stream", 14_000, 8_000, 2)
    assert second.buffered.first == (("count 1", 14_000), ("count 2", 16_000))


def test_what_several_tasks_hold_back() -> None:
    one = tg.Pending(
        "s", 9, (tg.Waiting(Window(0, 10), 12, 3),), 1, (1, 9), (tg.Buffered("wall", 20, 5, 2, (("b", 20),)),)
    )
    two = tg.Pending("s", 10, (tg.Waiting(Window(0, 10), 12, 2), tg.Waiting(Window(5, 15), 17, 7)), 2, None, ())
    three = tg.Pending("s", None, (), 0, None, (tg.Buffered("wall", 19, 4, 1, (("a", 19),)),))
    both = together([one, two, three], 2)
    assert both.waiting == (tg.Waiting(Window(0, 10), 12, 2), tg.Waiting(Window(5, 15), 17, 7))
    assert (both.stream_time, both.open_windows, both.held_by) == (10, 2, (1, 9))
    assert both.buffered == tg.Buffered("wall", 19, 4, 3)
    assert both.buffered.first == (("a", 19), ("b", 20))


def behind_a_join(stream_time: str) -> TopologyTestDriver:
    left, right = (
        tg.stream(name, key="k", timestamp="ts", partition="p", offset="o", stream_time=stream_time, schema=None)
        for name in ("clicks", "views")
    )
    joined = left.join(right, tg.JoinWindows.of_time_difference_and_grace("5 seconds", "1 second"))
    counts = joined.group_by_key().windowed_by(TUMBLING).count().suppress(FINAL)
    return TopologyTestDriver(counts)


@pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
@pytest.mark.parametrize("stream_time", ["max", "min_partition"])
def test_behind_a_join_that_goes_by_its_slowest_partition_the_join_is_named(stream_time: str) -> None:
    """The join tells what holds it back; by the largest timestamp a later record of the join moves time."""
    running = behind_a_join(stream_time)
    for o, (side, ts) in enumerate([("clicks", 4_000), ("views", 5_000), ("clicks", 6_000)]):
        running.pipe_batch([{"k": "A", "ts": ts, "p": 0, "o": o}], side)
    join, counts = tg.explain_pending(running)
    lines = str(counts).splitlines()
    if stream_time == "max":
        assert join.follows is counts.follows is None
        assert lines[-1] == "  A record with a later timestamp, of any key and partition, moves stream time on."
    else:
        assert (join.follows, counts.follows) == (None, "clicks join views")
        assert lines[-1] == (
            "  Its stream time is that of the join 'clicks join views', which goes by its slowest partition and says "
            "what holds it back."
        )
        assert "The right side, partition 0 holds stream time back" in str(join)
