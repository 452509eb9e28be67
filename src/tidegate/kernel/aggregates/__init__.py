"""The built-in aggregates over Arrow columns: one state row per record or group, merged by whole columns."""

from __future__ import annotations

import pyarrow as pa

from tidegate.errors import DefinitionError
from tidegate.kernel.aggregates.base import Accumulator, Overflow, Unseen
from tidegate.kernel.aggregates.distinct import ApproxCountDistinct
from tidegate.kernel.aggregates.extremes import Extreme, ordered
from tidegate.kernel.aggregates.ordered import CollectList, First, Last
from tidegate.kernel.aggregates.sums import ChangingFloats, Count, CountedSum, Mean, Sum
from tidegate.spec.aggregates import Aggregate
from tidegate.spec.types import is_atomic

__all__ = ["Accumulator", "Overflow", "accumulator"]


def accumulator(aggregate: Aggregate, input_type: pa.DataType | None, invertible: bool = False) -> Accumulator:
    """Return the accumulator of an aggregate over a column of this type (None for `count()`).

    The type null stands for a column without values so far; its states merge with states of the type that comes
    later. `invertible`: values are retracted again, as negated state. Raises DefinitionError for a type that the
    function does not take.
    """
    if aggregate.function == "count":
        return Count()
    if input_type is None:
        raise DefinitionError(f"`{aggregate}` needs the type of a column: only count() does without one.")
    unseen = pa.types.is_null(input_type)
    match aggregate.function:
        case "sum" | "mean" | "min" | "max" as function if unseen:
            return Unseen(counts=4 if invertible else 1 if function == "mean" else 0)
        case "sum" | "mean" as function:
            _check_numeric(aggregate, input_type)
            return _total(function == "mean", input_type, invertible)
        case "min" | "max" as function:
            _check_ordered(aggregate, input_type)
            return Extreme(function, input_type)
        case "first":
            return First(input_type)
        case "last":
            return Last(input_type)
        case "collect_list":
            return CollectList(input_type)
        case "approx_count_distinct":
            _check_atomic(aggregate, input_type)
            return ApproxCountDistinct(input_type)
    raise DefinitionError(f"`{aggregate}` is not a built-in aggregate; use .aggregate() for your own.")


def _total(mean: bool, kind: pa.DataType, invertible: bool) -> Accumulator:
    if invertible and pa.types.is_floating(kind):
        return ChangingFloats(mean)
    if mean:
        return Mean(kind)
    return CountedSum(kind) if invertible else Sum(kind)


def _check_numeric(aggregate: Aggregate, kind: pa.DataType) -> None:
    decimal = pa.types.is_decimal(kind) and kind.bit_width <= 128
    floating = pa.types.is_floating(kind) and kind.bit_width >= 32
    if decimal or floating or (pa.types.is_integer(kind) and kind != pa.uint64()):
        return
    raise DefinitionError(
        f"`{aggregate}` adds up values, but column `{aggregate.column}` is of type {kind}. "
        "Cast it to long, double or decimal(p,s) with p up to 38 before tg.stream, or name another column."
    )


def _check_ordered(aggregate: Aggregate, kind: pa.DataType) -> None:
    if ordered(kind):
        return
    raise DefinitionError(
        f"`{aggregate}` compares values, but column `{aggregate.column}` is of type {kind}, "
        "which has no order here. Take one of its fields as a column of its own before tg.stream and name that."
    )


def _check_atomic(aggregate: Aggregate, kind: pa.DataType) -> None:
    if is_atomic(kind):
        return
    raise DefinitionError(
        f"`{aggregate}` hashes values, but column `{aggregate.column}` is of type {kind}. "
        "Take one of its fields, or to_json of it, as a column of its own before tg.stream and name that."
    )
