"""Files as streams: Parquet and ORC, which workers read by columns, and lines of JSON, CSV and text.

`tg.files.source(...)` is a stream, `tg.files.ordered(...)` a DataFrame with partition and offset.
"""

from __future__ import annotations

from tidegate.runtime.spark.files.source import FileStream, ordered, source

__all__ = ["FileStream", "ordered", "source"]
