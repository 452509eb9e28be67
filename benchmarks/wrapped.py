"""A contestant of tidegate with wrappers around its two steps. The package itself has no hook for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contestant import Contestant
from tidegate.runtime.spark import flow, to_spark
from tidegate.runtime.spark.map_step import Packer


def wrapped(contestant: Contestant, pack: Callable[[Packer], Any], processor: Callable[..., Any]) -> Contestant:
    """`contestant` with `pack(packer)` as its map step and `processor` instead of `StageProcessor`."""

    def wrapped_flow(inputs: Sequence[flow.Input], **more: Any) -> DataFrame:
        return flow.flow([replace(each, pack=pack(cast("Packer", each.pack))) for each in inputs], **more)

    def frame(spark: SparkSession, files: Path) -> DataFrame:
        # The plan keeps the functions that these names have while it is made.
        with patch.object(to_spark, "flow", wrapped_flow), patch.object(flow, "StageProcessor", processor):
            return contestant.frame(spark, files)

    return replace(contestant, frame=frame)
