"""Delta tables as streams: the log says which files are new, and the Python workers read them.

`tg.delta.source(...)` is a stream.
"""

from __future__ import annotations

from tidegate.runtime.spark.delta.source import source

__all__ = ["source"]
