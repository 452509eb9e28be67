"""The numbers of a batch that say what waits, and until when: literal values, as a dashboard shows them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing.layout import Tasks

ORDER: dict[str, Any] = {"partition": "p", "offset": "o"}
SCHEMA = pa.schema({"k": pa.string(), "ts": pa.int64(), "p": pa.int64(), "o": pa.int64()})
TUMBLING = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
NAMES = ("open_windows", "next_close", "slowest", "follows", "next_due", "limit_clock")


def events(name: str = "events", **clock: Any) -> tg.KStream:
    return tg.stream(name, key="k", timestamp="ts", schema=SCHEMA, **ORDER, **clock)


def waiting(table: tg.KTable | tg.KStream, *records: tuple[int, int], wall: int | None = None) -> dict[str, Any]:
    """The numbers of the last operator that say what waits, after (partition, timestamp) records of one batch."""
    rows: list[dict[str, Any]] = [{"k": f"k{o}", "ts": ts, "p": p, "o": o} for o, (p, ts) in enumerate(records)]
    plan = Tasks(table.node, 1)
    plan.batch([(None, [row for row in rows if row["p"] == p]) for p in sorted({row["p"] for row in rows})], wall)
    (numbers,) = plan.numbers[-1]
    return {name: value for name, value in numbers.items() if name.startswith(NAMES)}


def counts(windows: Any = TUMBLING, **clock: Any) -> tg.KTable:
    return events(**clock).group_by_key().windowed_by(windows).count()


def test_open_windows_and_the_first_close() -> None:
    found = waiting(counts(stream_time="max").suppress(FINAL), (0, 3), (0, 12))
    assert found == {"open_windows": 2, "next_close": 15}


def test_updates_wait_for_no_close() -> None:
    assert waiting(counts(stream_time="max"), (0, 3), (0, 12)) == {"open_windows": 2}


def test_windows_without_an_end_never_close() -> None:
    """The end of time is no close that a dashboard could wait for."""
    table = events(stream_time="max").group_by_key().windowed_by(tg.UnlimitedWindows.start_on(0)).count()
    assert waiting(table, (0, 3)) == {"open_windows": 1}
    far = tg.TimeWindows.of_size_and_grace("10 ms", f"{2**63 - 1} ms")
    assert waiting(counts(far, stream_time="max").suppress(FINAL), (0, 3)) == {"open_windows": 1}


def test_a_table_without_windows_has_none_open() -> None:
    assert waiting(events(stream_time="max").group_by_key().count(), (0, 3)) == {"open_windows": 0}


def test_the_slowest_partition_by_number() -> None:
    found = waiting(counts(stream_time="min_partition").suppress(FINAL), (4, 3), (7, 12))
    assert found == {"open_windows": 2, "next_close": 15, "slowest_time": 3, "slowest_partition": 4}


def test_a_partition_that_is_no_number_has_no_name_among_numbers() -> None:
    schema = SCHEMA.set(2, pa.field("p", pa.string()))
    stream = tg.stream("events", key="k", timestamp="ts", schema=schema, **ORDER, stream_time="min_partition")
    plan = Tasks(stream.group_by_key().windowed_by(TUMBLING).count().suppress(FINAL).node, 1)
    plan.batch([(None, [{"k": "a", "ts": ts, "p": p, "o": 0}]) for p, ts in (("a", 3), ("b", 12))])
    (numbers,) = plan.numbers[0]
    assert numbers["slowest_time"] == 3
    assert "slowest_partition" not in numbers


def test_by_the_newest_record_no_partition_is_the_slowest() -> None:
    found = waiting(counts(stream_time="max").suppress(FINAL), (4, 3), (7, 12))
    assert found == {"open_windows": 2, "next_close": 15}


@pytest.mark.filterwarnings("ignore::tidegate.TidegateWarning")
def test_the_slower_side_of_a_join_and_what_follows_the_join() -> None:
    windows = tg.JoinWindows.of_time_difference_and_grace("10 ms", "5 ms")
    joined = events("left").left_join(events("right"), windows, suffixes=("_left", "_right"))
    plan = Tasks(joined.group_by_key().windowed_by(TUMBLING).count().suppress(FINAL).node, 1)
    plan.batch([("left", [{"k": "a", "ts": 40, "p": 2, "o": 0}]), ("right", [{"k": "a", "ts": 10, "p": 3, "o": 0}])])
    join, behind = (one[0] for one in plan.numbers)
    assert (join["slowest_side"], join["slowest_time"]) == (1, 10)
    assert "slowest_partition" not in join
    assert "follows_join" not in join
    assert behind["follows_join"] == 1


@pytest.mark.parametrize(("clock", "first", "now"), [("stream", 23, 12), ("wall", 120, 100)])
def test_the_first_key_of_a_time_limit(clock: Any, first: int, now: int) -> None:
    limit = tg.Suppressed.until_time_limit("20 ms", tg.BufferConfig.unbounded(), clock=clock)
    table = events(stream_time="max").group_by_key().count().suppress(limit)
    assert waiting(table, (0, 3), (0, 12), wall=100) == {
        "open_windows": 0,
        f"next_due_{clock}": first,
        "limit_clock": now,
    }


def test_several_time_limits_have_places() -> None:
    """The clock of the second one is the time of the row that left the first one."""
    once, twice = (
        tg.Suppressed.until_time_limit(f"{ms} ms", tg.BufferConfig.unbounded(), clock="stream") for ms in (5, 20)
    )
    table = events(stream_time="max").group_by_key().count().suppress(once).suppress(twice)
    found = waiting(table, (0, 3), (0, 12), (0, 14))
    assert found == {
        "open_windows": 0,
        "next_due_stream_0": 17,
        "limit_clock_0": 14,
        "next_due_stream_1": 23,
        "limit_clock_1": 3,
    }
