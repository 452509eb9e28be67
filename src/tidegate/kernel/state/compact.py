"""A table in few bytes, for rows that cannot be combined before the shuffle.

Rows lie in the order of their offsets, so offsets and times grow steadily and keys repeat. A column of whole numbers is
stored as differences, in the form that compresses best; strings are dictionary-encoded; the frame is compressed.

    form       a value is stored as its difference from
    constant   nothing: it is in the metadata
    least      the smallest value of the column
    before     the value in the row before
    line       a line over another column, through the first and the last row
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Ints, Words, array, plain

_MARK = b"tidegate.compact"
_BASE = "offset"
"""The column over which lines are drawn. It is always stored."""
_SAMPLE = 16_384
"""Rows that are compressed to compare the forms."""
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)
_FURTHEST = 2.0**62
"""Largest prediction of a line: also for a far offset it must be an integer of 64 bits."""


def compacted(table: pa.Table) -> pa.Table:
    """`table` encoded for `restored`. It has an int64 column `offset` without nulls."""
    table = table.combine_chunks()
    base = _long(table[_BASE])
    columns: dict[str, Any] = {}
    forms: list[dict[str, Any]] = []
    # The lines of the other columns need this one.
    for name in [_BASE, *(name for name in table.schema.names if name != _BASE)]:
        column = table[name]
        form: dict[str, Any] = {"name": name, "form": ""}
        if column.type == pa.int64() and not column.null_count and len(column):
            form, stored = _numbers(name, _long(column), base, stays=name == _BASE)
        else:
            stored = _by_number(column)
        forms.append(form)
        if stored is not None:
            columns[name] = stored
    meta = {"rows": table.num_rows, "order": table.schema.names, "along": _BASE, "forms": forms}
    return pa.table(columns).replace_schema_metadata({_MARK: json.dumps(meta)})


def is_compact(table: pa.Table) -> bool:
    """Whether `compacted` made the table."""
    return _MARK in (table.schema.metadata or {})


def restored(table: pa.Table) -> pa.Table:
    """The table that `compacted` encoded. Raises ValueError, KeyError or TypeError for a table that it did not make."""
    meta = json.loads(table.schema.metadata[_MARK])
    rows = meta["rows"]
    if table.num_rows != rows:
        raise ValueError(f"{table.num_rows} rows where {rows} were stored")
    columns: dict[str, Any] = {}
    for form in meta["forms"]:
        name = form["name"]
        if not form["form"]:
            columns[name] = plain(table[name])
            continue
        stored = None if form["form"] == "constant" else table[name]
        base = _long(columns[meta["along"]]) if form["form"] == "line" else None
        columns[name] = pa.array(_values(form, stored, base, rows))
    return pa.table({name: columns[name] for name in meta["order"]})


def _long(column: Any) -> Ints:
    values: Ints = column.to_numpy()
    return values


def _numbers(name: str, values: Ints, base: Ints, stays: bool) -> tuple[dict[str, Any], pa.Array | None]:
    """The form of a column and its stored values, None for a constant. `stays`: neither a constant nor a line."""
    if values.min() == values.max() and not stays:
        return {"name": name, "form": "constant", "first": int(values[0])}, None
    # Differences wrap around at 64 bits, and so do the sums that undo them.
    bits = values.view(np.uint64)
    candidates: list[tuple[dict[str, Any], Words]] = [({"name": name, "form": "least"}, bits)]
    candidates.append(({"name": name, "form": "before", "first": int(values[0])}, np.diff(bits, prepend=bits[:1])))
    if not stays and base[-1] > base[0]:
        slope = (int(values[-1]) - int(values[0])) / (int(base[-1]) - int(base[0]))
        line = {"name": name, "form": "line", "first": int(values[0]), "slope": slope}
        candidates.append((line, bits - _predicted(line, base)))
    narrow = [_narrow(form, differences) for form, differences in candidates]
    return min(narrow, key=lambda one: _size(one[1]))


def _predicted(form: dict[str, Any], base: Ints) -> Words:
    if not np.isfinite(form["slope"]):
        raise ValueError(f"the column {form['name']!r} lies along a line of slope {form['slope']!r}")
    along = (base - base[0]).astype(np.float64) * float(form["slope"])
    steps = np.clip(np.rint(along), -_FURTHEST, _FURTHEST).astype(np.int64)
    return steps.view(np.uint64) + _bits(form["first"])


def _bits(number: int) -> np.uint64:
    return np.uint64(int(number) % 2**64)


def _narrow(form: dict[str, Any], differences: Words) -> tuple[dict[str, Any], pa.Array]:
    low = int(differences.view(np.int64).min())
    above = differences - _bits(low)
    width = next(w for w in _WIDTHS if int(above.max()) <= np.iinfo(w).max)
    return form | {"low": low}, pa.array(above.astype(width))


def _size(stored: pa.Array) -> int:
    sample = stored[:_SAMPLE].to_numpy().tobytes()
    return len(pa.compress(sample, codec="zstd", asbytes=True)) * len(stored) // min(len(stored), _SAMPLE)


def _values(form: dict[str, Any], stored: Any, base: Ints | None, rows: int) -> Ints:
    if stored is None:
        return np.full(rows, int(form["first"]), np.int64)
    if not pa.types.is_unsigned_integer(stored.type) or stored.null_count:
        raise ValueError(f"the column {form['name']!r} is {stored.type}, not differences")
    differences = stored.to_numpy().astype(np.uint64) + _bits(form["low"])
    if form["form"] == "before":
        differences = np.cumsum(differences, dtype=np.uint64) + _bits(form["first"])
    elif form["form"] == "line":
        if base is None:
            raise ValueError(f"the column {form['name']!r} lies along none")
        differences = differences + _predicted(form, base)
    elif form["form"] != "least":
        raise ValueError(f"the column {form['name']!r} has the form {form['form']!r}")
    return differences.view(np.int64)


def _by_number(column: pa.ChunkedArray) -> Any:
    """Dictionary-encoded strings, if that is smaller; any other column unchanged."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column
    found = array(column).dictionary_encode()
    distinct = len(found.dictionary)
    width = pa.uint8() if distinct <= 2**8 else pa.uint16() if distinct <= 2**16 else pa.int32()
    small = pa.DictionaryArray.from_arrays(found.indices.cast(width), found.dictionary)
    return small if small.nbytes < column.nbytes else column
