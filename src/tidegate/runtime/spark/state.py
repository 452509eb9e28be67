"""The kernel's store over Spark's state handles: one ValueState and one MapState per operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from tidegate.errors import CheckpointError

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

META = "meta"
LOG = "log"

# Schemas as objects: a DDL string costs one more round trip to the JVM per variable and batch.
_VALUE = StructType([StructField("value", BinaryType())])
_LOG_KEY = StructType([StructField("window", LongType()), StructField("segment", IntegerType())])


class SparkStore:
    """`Store` over the state of one task; every call is one round trip to the JVM, so make few, large ones.

    The names `meta` and `log` and both schemas are part of every checkpoint.
    """

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._meta = handle.getValueState(META, _VALUE)
        self._log = handle.getMapState(LOG, _LOG_KEY, _VALUE)

    def get(self, name: str) -> bytes | None:
        self._only_meta(name)
        row = self._meta.get()
        return None if row is None else bytes(row[0])

    def put(self, name: str, value: bytes) -> None:
        self._only_meta(name)
        self._meta.update((value,))

    def read(self, window: int, segment: int) -> bytes:
        row = self._log.getValue((window, segment))
        if row is None:
            raise CheckpointError(
                f"the state has no segment {segment} of the window at {window} ms, though its index names it: "
                "the checkpoint is damaged. Start from a new checkpoint, or restore a copy of this one."
            )
        return bytes(row[0])

    def write(self, window: int, segment: int, value: bytes) -> None:
        self._log.updateValue((window, segment), (value,))

    def remove(self, window: int, segment: int) -> None:
        self._log.removeKey((window, segment))

    @staticmethod
    def _only_meta(name: str) -> None:
        if name != META:
            raise KeyError(f"Spark's store keeps one named value, {META!r}, not {name!r}")
