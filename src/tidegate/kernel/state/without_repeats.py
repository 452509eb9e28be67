"""A table without the parts that repeat, for the way through a shuffle, which copies each byte a dozen times.

    column                                stored
    whole numbers, all the same           nothing: the number is in the schema's metadata
    whole numbers, as another column      nothing: the metadata names the other column
    whole numbers with a common step      their distances from the lowest one, in steps
    strings of words that repeat          the places of their words in lists (`columns.words`)
    other strings of one length           their bytes, without the place where each begins

A column with nulls stays as it is. So does the first one if it has whole numbers: it tells the number of rows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import array, ints
from tidegate.kernel.columns.factorize import ROOM
from tidegate.kernel.columns.fixed_length import as_fixed, as_strings, one_length
from tidegate.kernel.columns.steps import in_steps
from tidegate.kernel.columns.words import from_words, in_words

_Form = dict[str, Any]

_MARK = b"tidegate.repeats"
_STRINGS = {str(kind): kind for kind in (pa.string(), pa.binary())}


def without_repeats(table: pa.Table) -> pa.Table:
    """`table` as `with_repeats` reads it."""
    if not table.num_rows:
        return table
    stored: dict[str, pa.Array] = {}
    forms: dict[str, _Form] = {}
    seen: dict[tuple[int, int], str] = {}
    for name in table.schema.names:
        column: pa.Array = array(table[name])
        form: _Form = {}
        if column.null_count:
            pass
        elif str(column.type) in _STRINGS:
            column, form = _shorter(column)
        elif column.type == pa.int64() and stored:
            values = ints(column)
            bounds = int(values.min()), int(values.max())
            same = seen.setdefault(bounds, name)
            if same != name and np.array_equal(ints(table[same]), values):
                form = {"as": same}
            else:
                column, form = _in_steps(column, *bounds)
        if form:
            forms[name] = form
        if not form.keys() & {"all", "as"}:
            stored[name] = column
    if not forms:
        return table
    fields = [table.schema.field(name).with_type(column.type) for name, column in stored.items()]
    described = json.dumps({"names": table.schema.names, "forms": forms})
    return pa.table(list(stored.values()), pa.schema(fields, {_MARK: described}))


def with_repeats(table: pa.Table) -> pa.Table:
    """The table that `without_repeats` was given.

    Raises ValueError, KeyError, TypeError or OverflowError for a table that it did not make.
    """
    if _MARK not in (table.schema.metadata or {}):
        return table
    described = json.loads(table.schema.metadata[_MARK])
    columns: dict[str, Any] = {}
    for name in described["names"]:
        form = described["forms"].get(name, {})
        if "all" in form:
            columns[name] = pa.array(np.full(table.num_rows, form["all"], np.int64))
        elif "as" in form:
            columns[name] = columns[form["as"]]
        elif "step" in form:
            columns[name] = pa.array(ints(table[name]) * np.int64(form["step"]) + np.int64(form["from"]))
        elif "words" in form:
            columns[name] = from_words(array(table[name]), form["length"], _STRINGS[form["words"]])
        elif "strings" in form:
            columns[name] = as_strings(array(table[name]), _STRINGS[form["strings"]])
        else:
            columns[name] = table[name]
    return pa.table(columns)


def _in_steps(column: pa.Array, low: int, high: int) -> tuple[pa.Array, _Form]:
    """Whole numbers from `low` to `high` as they are stored, and their form."""
    if low == high:
        return column, {"all": low}
    if high - low >= ROOM or (found := in_steps(ints(column), low, high)) is None:
        return column, {}
    return pa.array(found[0]), {"from": low, "step": found[1]}


def _shorter(column: pa.Array) -> tuple[pa.Array, _Form]:
    """Strings as they are stored, and their form."""
    kind, length = str(column.type), one_length(column)
    if (words := in_words(column)) is not None:
        return words, {"words": kind, "length": length}
    return (as_fixed(column, length), {"strings": kind}) if length else (column, {})
