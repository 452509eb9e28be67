"""A value as its declared type stores it, written from the rule alone: a value that the type keeps fits, others raise.

Numbers may come in any numeric type as long as they are whole for a whole type; a double for a float is rounded; a
struct has its fields and no others; a map is a list of pairs; a list comes from any sequence.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa


class Misfit(Exception):  # noqa: N818 - what happens to a value
    """A value that its type cannot hold."""


def stored(value: Any, kind: pa.DataType) -> Any:  # noqa: C901 - one branch per family of types
    """The value in this type, as a new object. Raises Misfit."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if value is None:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if pa.types.is_integer(kind):
        return _whole(value, kind.bit_width)
    if pa.types.is_floating(kind):
        return _float(value, kind)
    if pa.types.is_decimal(kind):
        return _decimal(value, kind)
    if pa.types.is_boolean(kind):
        return _only(value, bool)
    if pa.types.is_string(kind):
        return _only(value, str)
    if pa.types.is_binary(kind):
        return _only(value, bytes)
    if pa.types.is_temporal(kind):
        return _time(value, kind)
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(stored(k, kind.key_type), stored(v, kind.item_type)) for k, v in pairs]
    if pa.types.is_list(kind):
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
            raise Misfit(f"{value!r} is no list")
        return [stored(element, kind.value_type) for element in value]
    return _struct(value, kind)


def _only(value: Any, what: type) -> Any:
    if not isinstance(value, what):
        raise Misfit(f"{value!r} is no {what.__name__}")
    return value


def _time(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return _only(value, date)
    if pa.types.is_duration(kind):
        return _only(value, timedelta)
    zone = None if kind.tz is None else UTC
    return _only(value, datetime).astimezone(zone) if value.tzinfo else value.replace(tzinfo=zone)


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, bool | str) or not math.isfinite(value) or value != int(value):
        raise Misfit(f"{value!r} is not whole")
    if not -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1):
        raise Misfit(f"{value!r} has more than {bits} bits")
    return int(value)


def _float(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, bool | str):
        raise Misfit(f"{value!r} is no number")
    value = float(value)
    try:
        return struct.unpack("f", struct.pack("f", value))[0] if kind == pa.float32() else value
    except OverflowError:
        raise Misfit(f"{value!r} is no float") from None


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise Misfit(f"{value!r} is no decimal")
    scaled = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    if scaled != value or abs(scaled) >= Decimal(10) ** (kind.precision - kind.scale):
        raise Misfit(f"{value!r} is no {kind}")
    return scaled


def _struct(value: Any, kind: pa.DataType) -> dict[str, Any]:
    names = [kind.field(i).name for i in range(kind.num_fields)]
    if isinstance(value, tuple):
        value = dict(zip(names, value, strict=True))
    if not isinstance(value, Mapping):
        raise Misfit(f"{value!r} is no struct")
    return {name: stored(value.get(name), kind.field(name).type) for name in names}


def own(value: Any) -> Any:
    """A copy that shares no objects, as if the value had been serialized."""
    return copy.deepcopy(value)
