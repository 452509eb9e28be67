"""The state variable of an operator: its name and its schema, which are part of every checkpoint.

The process in which Spark starts a stateful operator needs this module alone, and neither Arrow nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

LOG = "log"

# As objects: a DDL string costs one more round trip to the JVM per task and batch.
_KEY = StructType(
    [StructField("window", LongType()), StructField("segment", IntegerType()), StructField("part", IntegerType())]
)
_VALUE = StructType([StructField("parts", IntegerType()), StructField("value", BinaryType())])


def opened(handle: StatefulProcessorHandle) -> Any:
    """The variable: one MapState per operator, because each takes 7 to 14 ms to open per task and batch."""
    return handle.getMapState(LOG, _KEY, _VALUE)
