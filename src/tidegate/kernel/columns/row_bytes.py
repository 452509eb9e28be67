"""Tables as bytes of equal length per row, so that some rows can be read without the others.

Copies of tables have this form beside a worker, never in a checkpoint: it has no version, and the format of the rows
lives in the process that made it. Numbers lie in the row as they are. Text lies in the row too if that takes at most
twice its bytes; otherwise it lies behind all rows, with its place and length in the row. The fields of a struct lie in
the row as columns do; lists and maps have no such form.

    row 0    key "a1" | length 2 | value 17 | ts | ...
    row 1    ...
    text that is too long for a row
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns.arrays import Ints, array
from tidegate.kernel.tuning import DEFAULT, Tuning

Bytes = npt.NDArray[np.uint8]

Path = tuple[str, ...]
"""The name of a column, or of a field of a struct behind the names of its structs."""

_LENGTH = np.dtype(np.uint32)
_PLACE = np.dtype(np.int64)


class Readable(Protocol):
    """Bytes that can be read in spans."""

    def read(self, starts: Ints, lengths: Ints) -> bytes:
        """The bytes of all spans (a start and a length each), one after the other."""


@dataclass(frozen=True)
class _Field:
    """A column, or a field of a struct: offsets of its parts in a row (bytes).

    path    its name, behind the names of its structs
    width   bytes of its value in the row, 0 if there are none
    at      offset of its value
    valid   offset of the byte that says whether there is a value; -1 if all rows have one
    length  offset of the length of a text; -1 if it is no text
    place   offset of the place of a text behind the rows; -1 if the text is in the row
    """

    path: Path
    type: pa.DataType
    at: int
    width: int
    valid: int
    length: int
    place: int


class Extent(NamedTuple):
    """Type and sizes of a column, which decide its form in rows; for texts `longest` and `total` value bytes."""

    type: pa.DataType
    rows: int
    nulls: int
    longest: int = 0
    total: int = 0


Extents = dict[Path, Extent]
"""Extents of columns; a struct is followed by its fields."""


@dataclass(frozen=True)
class RowBytes:
    """The format of the rows of one table."""

    fields: tuple[_Field, ...]
    extents: Extents
    rows: int
    width: int
    tuning: Tuning = DEFAULT

    @classmethod
    def of(cls, extents: Extents, rows: int, tuning: Tuning = DEFAULT) -> RowBytes | None:
        """The format of a table with these columns; None if a column has no such form (`has_form`)."""
        if not all(has_form(extent.type) for extent in extents.values()):
            return None
        fields: list[_Field] = []
        width = 0
        for path, (kind, _, nulls, longest, total) in extents.items():
            length, place, valid, size = -1, -1, -1, _width(kind)
            if size < 0:
                length, width, size = width, width + _LENGTH.itemsize, longest
                if longest * rows > 2 * total + 16 * rows:
                    place, width, size = width, width + _PLACE.itemsize, 0
            at, width = width, width + size
            if nulls and not pa.types.is_null(kind):
                valid, width = width, width + 1
            fields.append(_Field(path, kind, at, size, valid, length, place))
        return cls(tuple(fields), extents, rows, width, tuning)

    def bytes_of(self, parts: Iterable[pa.Table]) -> Iterator[Any]:
        """The bytes of a table that comes in parts. Memory holds one part at a time, and all texts behind the rows."""
        end = self.width * self.rows
        behind: list[Any] = []
        for part in parts:
            for low in range(0, part.num_rows, self.tuning.block_rows):
                table = part.slice(low, self.tuning.block_rows)
                rows, columns = np.zeros((table.num_rows, self.width), np.uint8), dict(_flat(table))
                for field in self.fields:
                    column, places = array(columns[field.path]), np.zeros(0, np.int64)
                    if field.place >= 0:
                        lengths, data = _text(column)
                        places = end + np.cumsum(lengths) - lengths
                        end += len(data)
                        behind.append(data)
                    _fill(rows, field, column, places)
                yield rows.reshape(-1).data
        while behind:
            yield behind.pop(0).data

    def read(self, copy: Readable, at: Ints, columns: list[str] | None = None) -> pa.Table:
        """The rows at these ascending places, with these `columns` or all."""
        found = self._rows(copy, at)
        wanted = [each for each in self.fields if len(each.path) == 1 and (columns is None or each.path[0] in columns)]
        return pa.table(
            [self._column(copy, field, found) for field in wanted],
            schema=pa.schema([(field.path[0], field.type) for field in wanted]),
        )

    def _rows(self, copy: Readable, at: Ints) -> Bytes:
        gap = self.tuning.gap_bytes
        first = np.diff(at, prepend=-2 - gap) > 1 + gap // max(self.width, 1)
        starts, ends = at[first], at[np.append(first[1:], True)[: len(at)]] + 1
        counts = ends - starts
        most = 2 * self.tuning.block_rows
        if len(at) < (count := int(counts.sum())) and count > most:
            # Most rows that are read lie between wanted ones. Read in parts, they are not in memory all at once.
            return np.concatenate([self._rows(copy, part) for part in np.array_split(at, -(-count // most))])
        whole = np.frombuffer(copy.read(starts * self.width, counts * self.width), np.uint8)
        rows = whole.reshape(int(counts.sum()), self.width)
        before = np.cumsum(counts) - counts
        places = at - (starts - before)[np.cumsum(first) - 1]
        return rows if len(places) == len(rows) else rows[places]

    def _column(self, copy: Readable, field: _Field, rows: Bytes) -> pa.Array:
        count = len(rows)
        if pa.types.is_null(field.type):
            return pa.nulls(count)
        valid = None if field.valid < 0 else rows[:, field.valid].astype(bool)
        if pa.types.is_struct(field.type):
            inside = [one for one in self.fields if one.path[:-1] == field.path]
            parts = [self._column(copy, one, rows) for one in inside]
            nulls = None if valid is None else pa.array(~valid)
            return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=nulls)
        mask = None if valid is None else pa.array(valid).buffers()[1]
        values = np.ascontiguousarray(rows[:, field.at : field.at + field.width])
        if field.length < 0:
            if pa.types.is_boolean(field.type):
                return pa.array(values.ravel().astype(bool), mask=None if valid is None else ~valid)
            return pa.Array.from_buffers(field.type, count, [mask, pa.py_buffer(values)])
        lengths = _numbers(rows, field.length, _LENGTH)
        data: Any = values
        if field.place >= 0:
            data = _spans(copy, _numbers(rows, field.place, _PLACE), lengths)
        elif count and int(lengths.min()) != field.width:
            data = values[np.arange(field.width) < lengths[:, np.newaxis]]
        return pa.Array.from_buffers(
            field.type, count, [mask, pa.py_buffer(_offsets(field.type, lengths)), pa.py_buffer(data)]
        )


def extents(table: pa.Table) -> Extents:
    """The extents of the columns of a table and of the fields of its structs."""
    found = {}
    for path, column in _flat(table):
        longest = total = 0
        for chunk in column.chunks if _is_text(column.type) else ():
            lengths, data = _text(chunk)
            longest, total = max(longest, int(lengths.max(initial=0))), total + len(data)
        found[path] = Extent(column.type, table.num_rows, column.null_count, longest, total)
    return found


def together(tables: Sequence[Extents]) -> Extents:
    """The extents of several tables as one table; a column that a table lacks is null there."""
    rows = sum(next(iter(each.values())).rows for each in tables)
    found = {}
    for path in dict.fromkeys(path for each in tables for path in each):
        mine = [each[path] for each in tables if path in each]
        # As tables are concatenated: parts of a struct may have the type null in some tables.
        kind = pa.unify_schemas([pa.schema([("x", one.type)]) for one in mine]).field("x").type
        nulls = rows - sum(one.rows - one.nulls for one in mine)
        found[path] = Extent(kind, rows, nulls, max(one.longest for one in mine), sum(one.total for one in mine))
    return found


def _fill(rows: Bytes, field: _Field, column: pa.Array, places: Ints) -> None:
    """Write a column into its part of the rows."""
    if field.valid >= 0:
        rows[:, field.valid] = column.is_valid().to_numpy(zero_copy_only=False)
    if field.length >= 0:
        lengths, data = _text(column)
        rows[:, field.length : field.length + _LENGTH.itemsize] = _as_bytes(lengths.astype(_LENGTH))
        if field.place >= 0:
            rows[:, field.place : field.place + _PLACE.itemsize] = _as_bytes(places)
        elif field.width:
            # The bytes behind a text up to its width are no part of it: the length says so.
            padded = np.concatenate([data, np.zeros(field.width, np.uint8)])
            windows = np.lib.stride_tricks.sliding_window_view(padded, field.width)
            rows[:, field.at : field.at + field.width] = windows[np.cumsum(lengths) - lengths]
    elif pa.types.is_boolean(column.type):
        rows[:, field.at] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    elif field.width:
        raw = np.frombuffer(column.buffers()[1], np.uint8, (column.offset + len(column)) * field.width)
        rows[:, field.at : field.at + field.width] = raw.reshape(-1, field.width)[column.offset :]


def _flat(table: pa.Table) -> Iterator[tuple[Path, pa.ChunkedArray]]:
    """The columns of a table, and behind a struct its fields; a field of a null struct is null."""
    named = zip(table.schema.names, table.columns, strict=True)
    more: list[tuple[Path, pa.ChunkedArray]] = [((name,), column) for name, column in named]
    while more:
        path, column = more.pop(0)
        yield path, column
        if pa.types.is_struct(column.type):
            paths = [(*path, field.name) for field in column.type]
            more = [*zip(paths, column.flatten(), strict=True), *more]


def has_form(kind: pa.DataType) -> bool:
    """Whether values of this type have a form in rows of equal length."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        # Rows of a struct without fields cannot be counted, and fields are found by name.
        return len(names) == len(set(names)) > 0
    return (
        pa.types.is_primitive(kind)
        or pa.types.is_null(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_fixed_size_binary(kind)
        or _is_text(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _width(kind: pa.DataType) -> int:
    """Bytes of a value, -1 for a text."""
    if _is_text(kind):
        return -1
    if pa.types.is_null(kind) or pa.types.is_struct(kind):
        return 0
    return 1 if pa.types.is_boolean(kind) else kind.bit_width // 8


def _is_large(kind: pa.DataType) -> bool:
    return kind in (pa.large_string(), pa.large_binary())


def _text(column: pa.Array) -> tuple[Ints, Bytes]:
    """The length of each value, 0 where there is none, and their bytes one after the other."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    width = np.int64 if _is_large(column.type) else np.int32
    bounds = np.frombuffer(offsets, width, column.offset + len(column) + 1)[column.offset :].astype(np.int64)
    if data is None:
        return np.zeros(len(column), np.int64), np.zeros(0, np.uint8)
    return np.diff(bounds), np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def _offsets(kind: pa.DataType, lengths: Ints) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64 if _is_large(kind) else np.int32)


def _as_bytes(numbers: Any) -> Bytes:
    found: Bytes = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), -1)
    return found


def _numbers(rows: Bytes, at: int, kind: np.dtype[Any]) -> Ints:
    values = np.ascontiguousarray(rows[:, at : at + kind.itemsize])
    found: Ints = values.view(kind).ravel().astype(np.int64)
    return found


def _spans(copy: Readable, starts: Ints, lengths: Ints) -> bytes:
    """The texts at these places; adjacent texts are read at once."""
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    first = np.append(True, starts[1:] != starts[:-1] + lengths[:-1])[: len(starts)]
    begins = starts[first]
    ends = (starts + lengths)[np.append(first[1:], True)[: len(starts)]]
    return copy.read(begins, ends - begins)
