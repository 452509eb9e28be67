"""What moves stream time, as it is written."""

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
