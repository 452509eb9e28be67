"""Two functions about DataFrames that the DSL calls. The package sets them on import: the DSL does not import Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

to_spark: Callable[[Plan, bool, bool], DataFrame]
"""Applies a plan to the DataFrames its streams are bound to, and returns the DataFrame of its rows.

The flags: whether rows have ids, and whether their times are text.
"""

check_frame: Callable[..., Any]
"""Returns the DataFrame of a stream, after checking that its columns exist and have the right types."""
