"""Tables and frames of users, of any library that gives its columns to Arrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

REFUSALS = (pa.ArrowException, TypeError, ValueError)
"""Errors of a table or frame that Arrow cannot read."""

_INDEX = re.compile(r"__index_level_\d+__")


def as_arrow(given: Any) -> pa.Table:
    """The columns of `given`, which has `__arrow_c_stream__`. An unnamed index of pandas is none.

    Raises one of `REFUSALS` if Arrow cannot read it.
    """
    table = pa.table(given)
    return table.select([place for place, name in enumerate(table.schema.names) if not _INDEX.fullmatch(name)])
