"""Partition and offset as one number on their way out of Spark, because each column of a million rows takes 0.05 s.

    15 bits partition | 48 bits offset        -1: the partition is null, -2: the offset is null

Only for partitions of an integer type of up to 32 bits, as Kafka's; others travel as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, IntegerType, ShortType

from tidegate.plan import Stream
from tidegate.runtime.spark.frames.names import spelled

PACKED_OFFSET = "order"
_OFFSET_BITS = 48
_PARTITIONS, _OFFSETS = 1 << 15, 1 << _OFFSET_BITS
_NO_PARTITION, _NO_OFFSET = -1, -2


def packs(stream: Stream, frame: DataFrame) -> bool:
    """Whether partition and offset of `stream` travel as one number."""
    if stream.partition is None or stream.offset is None:
        return False
    kind = next(field.dataType for field in frame.schema.fields if field.name == stream.partition)
    return isinstance(kind, ByteType | ShortType | IntegerType)


def packed(partition: Column, offset: Column, names: tuple[str, str]) -> Column:
    """The number. A partition or an offset that is out of its range fails the query, and the error shows it."""
    wide, at = partition.cast("long"), offset.cast("long")
    fits = wide.between(0, _PARTITIONS - 1) & at.between(0, _OFFSETS - 1)
    # A percent sign in a name must be escaped in a format string.
    first, second, written = (name.replace("%", "%%") for name in (*names, spelled(names[0])))
    message = F.format_string(
        f"a record has {first} = %d and {second} = %d: as 32-bit integers partitions are 0 to {_PARTITIONS - 1}, "
        f'offsets 0 to 2^{_OFFSET_BITS} - 1. Use df.withColumn("{first}", F.col({written}).cast("long")), which '
        "takes any.",
        wide,
        at,
    )
    return (
        F.when(fits, wide * F.lit(_OFFSETS) + at)
        .when(wide.isNull(), F.lit(_NO_PARTITION))
        .when(at.isNull(), F.lit(_NO_OFFSET))
        .otherwise(F.raise_error(message).cast("long"))
        .alias(PACKED_OFFSET)
    )


def unpacked(batches: Iterator[pa.RecordBatch], partition_type: pa.DataType) -> Iterator[pa.RecordBatch]:
    """The batches with the columns `partition` and `offset` instead of the number."""
    for batch in batches:
        at = batch.schema.get_field_index(PACKED_OFFSET)
        order = batch.column(at).to_numpy()
        nulls = order < 0
        missing = nulls.any()
        partition = pa.array((order >> _OFFSET_BITS).astype(np.int32), mask=order == _NO_PARTITION if missing else None)
        offset = pa.array(order & (_OFFSETS - 1), mask=order == _NO_OFFSET if missing else None)
        columns = [column for i, column in enumerate(batch.columns) if i != at]
        names = [name for name in batch.schema.names if name != PACKED_OFFSET]
        yield pa.record_batch([*columns, partition.cast(partition_type), offset], [*names, "partition", "offset"])
