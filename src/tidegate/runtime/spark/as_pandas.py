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
    return _Frame(table.to_pandas(types_mapper=pd.ArrowDtype))


class _Frame(pd.DataFrame):
    @property
    def _constructor(self) -> type[_Frame]:
        return _Frame

    @property
    def _constructor_sliced(self) -> type[_Column]:
        return _Column


class _Column(pd.Series):
    """A column for which pyspark's conversion of nested values, a function to `apply` to each, has nothing to do."""

    @property
    def _constructor(self) -> type[_Column]:
        return _Column

    def apply(self, *args: Any, **kwargs: Any) -> _Column:  # type: ignore[override]
        return self
