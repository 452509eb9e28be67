"""Arrow tables as pandas frames, which Spark turns back into Arrow without looking at a value.

`transformWithStateInPandas` takes pandas frames alone. pyspark takes every value of a nested column apart in Python and
makes Arrow of it with `pa.Array.from_pandas`, which reads NaN as null; and pandas makes floats of a list of integers
with a null in it. A column that is Arrow's already avoids both.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from tidegate.kernel.columns.arrays import as_type


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """A frame of Arrow's own columns, which pyspark takes as they are."""
    return pd.DataFrame({name: _Column(table.column(name)) for name in table.column_names})


class _Column(pd.arrays.ArrowExtensionArray):
    """A column that pyspark leaves as it is: `map`, which should convert each nested value, returns the column.

    A single value stays Arrow's. pandas looks at the first one behind `map`, which is a list of rows, and Python lacks
    some of Spark's values: days past the year 9999, and text that is not UTF-8.
    """

    def map(self, mapper: Any, na_action: Any = None) -> _Column:
        return self

    def __arrow_array__(self, type: Any = None) -> Any:
        """The column, of the type that pyspark wants: times in maps have the zone of the session there.

        Arrow's own cast makes parts of type null too short.
        """
        column = super().__arrow_array__()
        return column if type is None else as_type(column, type)

    def __getitem__(self, item: Any) -> Any:
        return self.__arrow_array__()[item] if isinstance(item, int) else super().__getitem__(item)
