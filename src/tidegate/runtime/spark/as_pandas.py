"""Arrow tables as the pandas frames that Spark turns back into Arrow, with every value still in them.

`transformWithStateInPandas` takes frames alone. pyspark makes Arrow of them with `pa.Array.from_pandas`, for which a
NaN is a null, also deep in a list; and pandas makes floats of a list of integers with a null in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """A frame of Arrow's own columns, which cost least; objects for nested ones: Spark fails on pandas' NA in those."""
    frame = table.to_pandas(types_mapper=_pandas_type)
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_nested(column.type) and any(_would_change(chunk) for chunk in column.chunks):
            import pandas as pd

            cells = [_cell(value) for value in column]
            frame[name] = pd.Series(cells, index=frame.index, dtype=object)
    return frame


def _pandas_type(type_: pa.DataType) -> Any:
    import pandas as pd

    return None if pa.types.is_nested(type_) else pd.ArrowDtype(type_)


def _would_change(array: pa.Array) -> bool:
    """Whether a value within the lists or structs of `array` is null or NaN."""
    if pa.types.is_nested(array.type):
        inner = array.flatten()
        return any(
            each.null_count > 0 or _would_change(each) for each in (inner if isinstance(inner, list) else [inner])
        )
    return pa.types.is_floating(array.type) and bool(pc.any(pc.is_nan(array)).as_py())


def _cell(value: pa.Scalar) -> Any:
    """Lists and structs as Python's, with Arrow's own scalars in them, which are taken as they are."""
    if not value.is_valid:
        return None
    if pa.types.is_struct(value.type):
        return {name: _cell(inner) for name, inner in value.items()}
    if pa.types.is_nested(value.type):
        return [_cell(inner) for inner in value]
    return value
