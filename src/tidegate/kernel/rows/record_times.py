"""The times of records, for rows that leave."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.time.stream_time import NEVER


def arrival_times(records: pa.Table) -> pa.ChunkedArray:
    """The stream time (ms) when each record arrived: `arrival_time` where records have it, else `closing_time`."""
    return records["arrival_time" if "arrival_time" in records.schema.names else "closing_time"]


def known_times(times: Any) -> Any:
    """Times with nulls for no instant: a timestamp that could not be read, stream time before the first record."""
    return pc.if_else(pc.greater(times, NEVER), times, None)
