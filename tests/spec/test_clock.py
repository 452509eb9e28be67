"""Settings of stream time, as specifications."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tidegate.errors import DefinitionError

ORDER = {"partition": "partition", "offset": "offset"}


def stream(**arguments: Any) -> tg.KStream:
    return tg.stream("events", **({"key": "user", "timestamp": "ts"} | arguments))


def refused(**arguments: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        stream(**arguments)
    return str(caught.value)


def described(**arguments: Any) -> list[str]:
    table = stream(**arguments).group_by_key().windowed_by(tg.UnlimitedWindows.start_on(0)).count()
    return [line.split("clock    ")[1] for line in table.describe().splitlines() if "clock    " in line]


def test_the_rules_there_are() -> None:
    assert refused(stream_time="min") == "`stream_time` is 'min'. Use 'max' or 'min_partition'."


def test_the_slowest_partition_needs_partitions() -> None:
    assert refused(stream_time="min_partition") == (
        "`stream_time` is 'min_partition', but the stream has no partitions to compare. "
        'Give partition="partition", offset="offset".'
    )


def test_a_description_says_what_is_not_usual() -> None:
    assert described(**ORDER) == []
    assert described(stream_time="max") == []
    assert described(stream_time="min_partition", **ORDER) == ["time of the slowest partition"]
    assert described(stream_time="min_partition", idle_after="5 minutes", **ORDER) == [
        "time of the slowest partition, but for partitions idle for 5 minutes"
    ]
    assert described(idle_advance="1 minute", max_future_skew="5 minutes") == [
        "goes on with the wall clock after 1 minute without a record",
        "keeps records out that are more than 5 minutes ahead",
    ]


def test_idle_after_belongs_to_the_slowest_partition() -> None:
    refusal = (
        "`idle_after` is '5 minutes', but with stream_time='max' no partition ever holds stream time back. "
        "Leave it out, or use stream_time='min_partition'."
    )
    assert refused(stream_time="max", idle_after="5 minutes", **ORDER) == refusal
    # A join of streams without a rule goes by the slower side, so only an aggregation must refuse it.
    stream = tg.stream("events", key="user", timestamp="ts", idle_after="5 minutes", **ORDER)
    with pytest.raises(tg.DefinitionError) as raised:
        stream.group_by_key().count()
    assert str(raised.value) == refusal


@pytest.mark.parametrize("argument", ["idle_advance", "max_future_skew"])
def test_durations_that_go_back(argument: str) -> None:
    assert refused(**{argument: "-1 minute"}).startswith(f"`{argument}` is -1 minute: it must ")


def test_no_time_at_all() -> None:
    assert refused(idle_advance="0 seconds") == (
        '`idle_advance` is 0 milliseconds: it must be larger than zero. Use for example "5 minutes".'
    )
    assert refused(stream_time="min_partition", idle_after="0 seconds", **ORDER).startswith("`idle_after` is 0 milli")
    stream(max_future_skew="0 seconds")


def test_batch_windows_go_by_the_largest_timestamp() -> None:
    grouped = stream(stream_time="min_partition", **ORDER).group_by_key()
    with pytest.raises(DefinitionError) as caught:
        grouped.windowed_by(tg.BatchWindows.of_size("5 minutes"))
    assert str(caught.value) == (
        "BatchWindows of 5 minutes put every record into the window of the stream time it sees, and with "
        'stream_time="min_partition" that is the time of another partition. Use TimeWindows, or stream_time="max".'
    )
