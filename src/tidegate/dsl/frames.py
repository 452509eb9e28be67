"""What the DSL asks of whoever knows DataFrames: two functions, which the package sets when it is imported.

Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

attach: Callable[[Plan, bool], DataFrame]
"""Puts a plan on the DataFrame its stream is bound to."""

check_frame: Callable[..., Any]
"""Gives the DataFrame that a stream is bound to, whose columns exist and have the right types."""
