"""The metrics of a batch have names, whichever client asks for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from tidegate.runtime.spark.checkpoints.pending import observed, pending

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
