"""The pages in which tasks take Spark's memory: smaller ones for a session with much memory (decision 0065).

A sort takes at least one page, however few its rows are. Spark makes pages larger the more memory a core has, up to
64 MB. A stateful task of tidegate sorts a few MB, so most of the time for such a page is lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

PAGE = "spark.buffer.pageSize"
MB = 8
SMALLER = {PAGE: f"{MB}m"}
"""Only before Spark starts."""

_LARGEST_MB = 64
_RESERVED_MB = 300
_OF_EXECUTION = 0.3
"""The part of the heap, less what Spark reserves, that is memory of tasks at first."""
_PAGES = 16
"""The least number of pages in a core's part of that memory."""


def wanted(options: Mapping[str, Any], master: str) -> dict[str, str]:
    """SMALLER if Spark's own pages would be larger with these options of a builder, otherwise nothing.

    Memory that the options do not name may be little: there smaller pages than Spark's own cannot be promised.
    """
    own = default_mb(options, master)
    return SMALLER if own is not None and own > MB else {}


def default_mb(options: Mapping[str, Any], master: str) -> int | None:
    """The size of Spark's own pages; None if the options do not say it."""
    if any(name.startswith("spark.memory.") for name in options):
        return None
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    cores = (local[1] or "1") if local else str(options.get("spark.executor.cores", ""))
    memory = str(options.get("spark.driver.memory" if local else "spark.executor.memory", ""))
    heap = re.fullmatch(r"(\d+)([mg]?)b?", memory.strip().lower())
    if heap is None or not re.fullmatch(r"[1-9]\d*|\*", cores):
        return None
    usable = int(heap[1]) * (1024 if heap[2] == "g" else 1) - _RESERVED_MB
    share = _OF_EXECUTION * usable / ((os.cpu_count() or 1) if cores == "*" else int(cores)) / _PAGES
    size = 1
    while size < min(share, _LARGEST_MB):
        size *= 2
    return size
