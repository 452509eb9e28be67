"""A name that another step has is refused with the step that comes first; any other name as Python does."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

import tidegate as tg

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame

EVENTS = tg.stream("events", key="user", timestamp="ts")
GROUPS = EVENTS.group_by_key()
WINDOWED = GROUPS.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
VALUES = (EVENTS, GROUPS, WINDOWED, WINDOWED.count(), WINDOWED.count().group_by("count"))


@pytest.mark.parametrize(
    ("value", "name", "way"),
    [
        (EVENTS, "windowed_by", "Group the stream first: stream.group_by_key().windowed_by(...)."),
        (EVENTS, "count", "Group the stream first: stream.group_by_key().count(...)."),
        (EVENTS, "suppress", "Aggregate the stream first: stream.group_by_key().count().suppress(...)."),
        (GROUPS, "emit_strategy", "Window the groups first: groups.windowed_by(...).emit_strategy(...)."),
        (EVENTS, "writeStream", "Take the rows as a DataFrame first: to_df().writeStream."),
        (WINDOWED, "to_df", "Aggregate the groups first, for example groups.count()."),
        (
            WINDOWED.count(),
            "select_key",
            "Take the changes of the table as records: table.to_stream().select_key(...).",
        ),
    ],
)
def test_the_step_that_comes_first_is_said(value: Any, name: str, way: str) -> None:
    said = f"'{type(value).__name__}' object has no attribute '{name}'. {way}"
    with pytest.raises(tg.DefinitionError, match=f"^{re.escape(said)}$"):
        getattr(value, name)
    assert not hasattr(value, name)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_way_is_to_a_name_that_another_step_has(value: Any) -> None:
    assert value._ways
    for name in value._ways:
        assert name not in dir(value)
        assert any(name in dir(other) for other in VALUES) or hasattr(DataFrame, name)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_other_names_are_those_that_python_knows(value: Any) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'groupByKey'") as refused:
        value.groupByKey()
    assert not isinstance(refused.value, tg.TidegateError)
    assert (refused.value.name, refused.value.obj) == ("groupByKey", value)  # Python suggests names by these two


def test_values_are_copied_and_pickled() -> None:
    assert copy.deepcopy(EVENTS) == EVENTS
    assert pickle.loads(pickle.dumps(WINDOWED)) == WINDOWED
