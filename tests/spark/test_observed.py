"""The metrics of a batch have names, whichever client asks for them."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from tidegate.errors import CheckpointError
from tidegate.runtime.spark.checkpoints.pending import observed, pending
from tidegate.runtime.spark.flow import combining
from tidegate.spec.metrics import NUMBERS, formula

FIELDS = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("open_windows", "stream_time")]


def progress(row: Any) -> Any:
    return SimpleNamespace(observedMetrics={"events": row})


def test_a_row_of_classic_spark() -> None:
    assert dict(observed(progress(Row(open_windows=2, stream_time=7)))) == {
        "events": {"open_windows": 2, "stream_time": 7}
    }


def test_values_and_a_schema_of_spark_connect() -> None:
    told = progress(Row(values=[2, 7], schema={"type": "struct", "fields": FIELDS}))
    assert dict(observed(told)) == {"events": {"open_windows": 2, "stream_time": 7}}
    [one] = pending(SimpleNamespace(recentProgress=[told]))
    assert (one.name, one.stream_time, one.open_windows) == ("events", 7, 2)


def test_a_checkpoint_that_is_none_of_the_query_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state would say that nothing waits. Before the first batch of a query its checkpoint has no state either."""
    found = import_module("tidegate.runtime.spark.checkpoints.pending")
    monkeypatch.setattr(found, "of_state", lambda *_: [])
    monkeypatch.setattr(found, "SparkSession", SimpleNamespace(active=lambda: None))
    assert pending(SimpleNamespace(recentProgress=[]), "/checkpoint") == []
    ran = progress(Row(open_windows=2, stream_time=7))
    with pytest.raises(CheckpointError, match=r"^'/elsewhere' has no state that can be read: .* name another"):
        pending(SimpleNamespace(recentProgress=[ran]), "/elsewhere")


def test_spark_computes_each_sum_once() -> None:
    """Every mention of an aggregate costs each task of each batch, even if the same aggregate is mentioned before."""
    aggregates: list[str] = []
    for number in NUMBERS:
        made = formula(number.name, number.how)
        found = re.findall(r"\b(?:sum|max|min|avg|collect_list)\(`\w+`\)", combining(made))
        assert len(found) == sum(term.how != "number" for term in made.terms)
        aggregates += [one for one in found if made.under is None]
    assert sorted(aggregates) == sorted(set(aggregates))
