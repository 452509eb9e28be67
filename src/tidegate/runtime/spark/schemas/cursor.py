"""Many records read at once: a cursor stands in each, and a read moves all of them.

A record whose bytes cannot be read gets a fault: its cursor goes to its end, and its values are zeros, so that the
other records can be read on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.columns.arrays import Flags, Ints, Words

PAD = 16
"""Zero bytes behind the last record: a number may be read as eight bytes wherever it begins."""


_STOPS = np.uint64(0x8080808080808080)
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
# Seven-bit groups move together in three steps: pairs, then pairs of pairs.
_MOVES = tuple(
    (np.uint64(keep), np.uint64(move), np.uint64(shift))
    for keep, move, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
LONGEST = 10
"""Bytes of a varint: seven bits of 64 in each."""


class Records:
    """The bytes that all cursors share, and the reasons why records cannot be read.

    data   all records, one behind the other
    codes  number of the first reason by record, 0 for none
    """

    def __init__(self, data: npt.NDArray[np.uint8], records: int) -> None:
        self.data = data
        self.codes = np.zeros(records, np.int32)
        self.reasons = [""]

    @cached_property
    def stops(self) -> Ints:
        """Places of the bytes that may be the last one of a varint."""
        return np.flatnonzero(self.data < 0x80)

    def add(self, records: Ints, reason: str) -> None:
        """Give a reason to each of `records` that has none."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        new = records[self.codes[records] == 0]
        self.codes[new] = self.reasons.index(reason)


class Cursor:
    """A place in each of some records.

    at      places at which the next read begins, in the data of `records`
    end     places behind the last bytes
    record  numbers of the records
    """

    def __init__(self, records: Records, at: Ints, end: Ints, record: Ints) -> None:
        self.records, self.at, self.end, self.record = records, at, end, record

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes of all records."""
        return self.records.data

    @staticmethod
    def over(values: pa.Array) -> Cursor:
        """A cursor at the beginning of each of `values`, binary without nulls."""
        _, offsets, bytes_ = values.buffers()
        places = np.zeros(1, np.int64)
        if len(values):
            places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        first, last = int(places[0]), int(places[-1])
        data = np.zeros(last - first + PAD, np.uint8)
        if last > first:
            data[: last - first] = np.frombuffer(bytes_, np.uint8)[first:last]
        places -= first
        n = len(values)
        return Cursor(Records(data, n), places[:-1].copy(), places[1:], np.arange(n))

    def __len__(self) -> int:
        return len(self.at)

    def part(self, which: Ints) -> Cursor:
        """A cursor over some of the records; `join` takes its places back."""
        return Cursor(self.records, self.at[which], self.end[which], self.record[which])

    def join(self, which: Ints, part: Cursor) -> None:
        """Go on at the places of `part`, in the records `which`."""
        self.at[which] = part.at

    def within(self, at: Ints, end: Ints, which: Ints) -> Cursor:
        """A cursor over pieces of the records `which`, from `at` to `end`."""
        return Cursor(self.records, at, end, self.record[which])

    def fault(self, bad: Flags, reason: str) -> None:
        """Give a fault to the records that are bad; they are read no further."""
        which = np.flatnonzero(bad)
        if len(which):
            self.records.add(self.record[which], reason)
            self.at[which] = self.end[which]

    def faulty(self) -> Flags:
        """A mask of the records that have a fault."""
        found: Flags = self.records.codes[self.record] != 0
        return found

    def left(self) -> Ints:
        """Numbers of bytes that are left."""
        return self.end - self.at

    def varint(self, what: str) -> Words:
        """Numbers in groups of seven bits, the lowest first."""
        first = self.data[self.at]
        if not len(first) or first.max() < 0x80:
            values = first.astype(np.uint64)
            self._move(np.int64(1), values, what)
            return values
        words: Words = self._gather("<u8")
        stops = ~words & _STOPS
        long = np.flatnonzero(stops == 0)
        # The top bit of the lowest byte that ends a number; as a double, its exponent is the place of that bit.
        last = stops & (~stops + np.uint64(1))
        sizes = ((last.astype(np.float64).view(np.int64) >> 52) - 1015) >> 3
        values = words & (last | (last - np.uint64(1))) & _SEVENS
        for keep, move, shift in _MOVES:
            values = (values & keep) | ((values & move) >> shift)
        if len(long):
            values[long], sizes[long] = self._long(long)
        self._move(sizes, values, what)
        return values

    def _long(self, which: Ints) -> tuple[Words, Ints]:
        """Numbers of nine bytes and more."""
        at, values, sizes = self.at[which], np.zeros(len(which), np.uint64), np.zeros(len(which), np.int64)
        going = np.arange(len(which))
        for size in range(LONGEST):
            byte = self.data[np.minimum(at[going] + size, len(self.data) - 1)]
            values[going] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * size)
            sizes[going] = size + 1
            going = going[byte >= 0x80]
        if len(going):
            bad = np.zeros(len(self), bool)
            bad[which[going]] = True
            self.fault(bad, f"a number has more than {LONGEST} bytes")
            values[going], sizes[going] = 0, 0
        return values, sizes

    def zigzag(self, what: str) -> Ints:
        """Signed numbers, as Avro writes int and long."""
        return signed(self.varint(what))

    def fixed(self, dtype: str, what: str) -> npt.NDArray[Any]:
        """Numbers of a fixed size, such as "<f8"."""
        values: npt.NDArray[Any] = self._gather(dtype)
        self._move(np.int64(values.dtype.itemsize), values, what)
        return values

    def slices(self, sizes: Ints, what: str) -> tuple[Ints, Ints]:
        """The starts and ends of pieces of these sizes; moves the cursor behind them."""
        bad = (sizes < 0) | (sizes > self.left())
        if bad.any():
            self.fault(bad, _ends(what))
            sizes = np.where(bad, 0, sizes)
        start = self.at
        self.at = start + sizes
        return start, self.at.copy()

    def spread(self, counts: Ints, size: int, what: str) -> tuple[Cursor, Ints]:
        """A cursor over each of `counts` numbers, of `size` bytes or, for 0, varints; and the record of each number."""
        stops = self.records.stops
        if size:
            behind = self.at + counts * size
        else:
            first = np.searchsorted(stops, self.at)
            behind = np.where(counts > 0, stops[np.minimum(first + counts, len(stops)) - 1] + 1, self.at)
            behind = np.where(first + counts > len(stops), self.end + 1, behind)
        bad = behind > self.end
        counts = np.where(bad, 0, counts)
        owners = np.repeat(np.arange(len(self)), counts)
        turn = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        if size:
            start = self.at[owners] + turn * size
            end = start + size
        else:
            places = first[owners] + turn
            start, end = np.where(turn == 0, self.at[owners], stops[places - 1] + 1), stops[places] + 1
        self.at = behind
        self.fault(bad, _ends(what))
        return self.within(start, end, owners), owners

    def _gather(self, dtype: str) -> Any:
        kind = np.dtype(dtype)
        anywhere = np.ndarray((len(self.data) - kind.itemsize + 1,), kind, self.data, 0, (1,))
        return anywhere[self.at]

    def _move(self, sizes: Ints | np.int64, values: npt.NDArray[Any], what: str) -> None:
        self.at = self.at + sizes
        bad = self.at > self.end
        if bad.any():
            self.fault(bad, _ends(what))
            values[bad] = 0


def _ends(what: str) -> str:
    return f"the bytes end within {what}"


def signed(words: Words) -> Ints:
    """The numbers that a zigzag encoding has as these: 0, -1, 1, -2 as 0, 1, 2, 3."""
    numbers: Ints = ((words >> np.uint64(1)) ^ (~(words & np.uint64(1)) + np.uint64(1))).view(np.int64)
    return numbers


def field_of(what: str, name: str) -> str:
    """The name of a field in reasons; `what`: the name of its record there, "it" for the outermost one."""
    return f"`{name}`" if what == "it" else f"{what[:-1]}.{name}`"


def structs(columns: Sequence[pa.Array], rows: int, kind: pa.DataType) -> pa.Array:
    """Structs of these columns. Without columns Arrow would not know how many there are."""
    return pa.StructArray.from_arrays(columns, fields=list(kind)) if columns else pa.array([{}] * rows, kind)


def pieces(data: npt.NDArray[np.uint8], start: Ints, end: Ints) -> pa.Array:
    """Pieces of `data`, in any order, as a column of bytes."""
    if not len(start):
        return pa.array([], pa.binary())
    order = None
    if (start[1:] < end[:-1]).any():
        order = np.lexsort((end, start))
        start, end = start[order], end[order]
    # A column of pieces and of the gaps between them, in turns; the pieces are taken from it.
    offsets = np.empty(2 * len(start), np.int32)
    offsets[0::2], offsets[1::2] = start, end
    turns = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    which = np.arange(0, len(offsets) - 1, 2)
    if order is not None:
        placed = np.empty_like(which)
        placed[order] = which
        which = placed
    return turns.take(pa.array(which))


def texts(column: pa.Array, cursor: Cursor, what: str) -> pa.Array:
    """Bytes of the records as text; records with bytes that are not UTF-8 have a fault."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        found = [decoded(each) for each in column.to_pylist()]
        cursor.fault(np.array([each is None for each in found]), f"{what} is not UTF-8")
        return pa.array(["" if each is None else each for each in found], pa.string())


def decoded(data: bytes) -> str | None:
    """The text of the bytes; None if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def placed(parts: Sequence[tuple[Ints, pa.Array]], rows: int, kind: pa.DataType) -> pa.Array:
    """One column of several parts, each with the rows of its values; rows of no part are null."""
    if not parts:
        return pa.nulls(rows, kind)
    if len(parts) == 1 and len(parts[0][0]) == rows:
        return parts[0][1]
    where = np.full(rows, -1, np.int64)
    count = 0
    for which, column in parts:
        where[which] = np.arange(count, count + len(column))
        count += len(column)
    found = pa.concat_arrays([column for _, column in parts])
    return found.take(pa.array(where, mask=where < 0))


def listed(owners: Ints, elements: pa.Array, rows: int, kind: pa.DataType) -> pa.Array:
    """Lists or maps of elements, which are in order within each of their owners, the rows."""
    if len(owners) and (owners[1:] < owners[:-1]).any():
        elements = elements.take(pa.array(np.argsort(owners, kind="stable")))
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=rows), out=offsets[1:])
    if pa.types.is_map(kind):
        keys, values = elements.flatten()
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values, kind)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, kind)
