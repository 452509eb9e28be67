"""The Arrow types of Spark's columns, with any version of pyspark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""The largest timestamp of Spark (ms): Spark counts microseconds in 64 bits."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of Spark columns; timestamps are in UTC whatever the session's time zone is."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # pyspark before 4.2 has no such argument, and takes UTC
        return to_arrow_schema(schema)
