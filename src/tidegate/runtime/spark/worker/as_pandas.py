"""Arrow tables as the pandas frames that Spark turns back into Arrow, without a value being looked at.

`transformWithStateInPandas` takes frames alone. Of a nested column pyspark takes every value apart in Python, and makes
Arrow of it with `pa.Array.from_pandas`, for which a NaN is a null; and pandas makes floats of a list of integers with a
null in it. A column that is Arrow's already needs none of it.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """A frame of Arrow's own columns, which pyspark takes as they are."""
    return pd.DataFrame({name: _Column(table.column(name)) for name in table.column_names})


class _Column(pd.arrays.ArrowExtensionArray):
    """A column for which pyspark's conversion of nested values, a function to `apply` to each, has nothing to do."""

    def map(self, mapper: Any, na_action: Any = None) -> _Column:
        return self
