"""Updates into a buffer with a bound, in front of a time limit: one by one, since each may push others out.

Where the bound is one of bytes, an entry counts what its key held before it came to wait (SEMANTICS 6.4): rows then
come with what each of them replaces, and an entry keeps that of its first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.instants import MAX_MS
from tidegate.kernel import buffers, grouping, measuring, names, previous, priors
from tidegate.kernel.batch import unite
from tidegate.kernel.bounded import Bounded, Entry, Waited
from tidegate.kernel.grouping import array, ints
from tidegate.kernel.groups import Groups
from tidegate.kernel.layout import Layout
from tidegate.kernel.measuring import SIZE, Left
from tidegate.kernel.panes import Ints
from tidegate.kernel.shelves import SINCE, waiting_since
from tidegate.kernel.state import State
from tidegate.spec.windows import SessionWindows

PRIOR = "__prior:"
"""Of an entry whose bytes are counted: what its key held before it waited, by the names of the value columns."""


def take_in(
    layout: Layout, state: State, held: pa.Table, rows: pa.Table, clocks: Ints, made: pa.Table | None
) -> tuple[Left, pa.Table]:
    """Take rows into a buffer with a bound; gives those that leave, in order, and the entries that stay.

    held    what waits, in the order in which it leaves
    clocks  what the clock of the limit shows before and after each row, one behind the other, and at the end
    made    what windows that were made of others began with (`priors.made`)
    """
    if _counts_bytes(layout):
        rows = _with_prior(layout, state, rows, made)
    elif state.came:
        previous.forget(state, state.came, previous.HELD)
    both = unite([held, rows])
    buffer = Updates(layout, state, both, held.num_rows)
    leaving: list[int] = []
    times = zip(map(int, clocks[:-1:2]), map(int, clocks[1::2]), strict=True)
    for row, (before, now) in enumerate(times, held.num_rows):
        leaving += buffer.advance(before)
        leaving += buffer.take(row, now)
    leaving += buffer.advance(int(clocks[-1]))
    measuring.tell_peaks(state, buffer.how.buffer, *buffer.waiting.most)
    at, prior, since, sizes = buffer.waiting.entries()
    stay = waiting_since(both.take(pa.array(at)), since).drop_columns([SIZE]).append_column(SIZE, pa.array(sizes))
    for name in prior_names(stay):
        column = both[name].take(pa.array(prior))
        stay = stay.set_column(stay.schema.get_field_index(name), name, column)
    since, shown = np.array(buffer.left, np.int64).reshape(-1, 2).T
    return Left(both.take(pa.array(leaving, pa.int64())), since, shown), stay


class Updates:
    """Updates one by one into a buffer with a bound. Rows are numbered: first what waited, then what came."""

    def __init__(self, layout: Layout, state: State, rows: pa.Table, waited: int) -> None:
        assert layout.op.limit is not None
        self.how = layout.op.limit
        self.layout = layout
        self.state = state
        self.since = ints(rows[SINCE])
        self.names = names.Names(layout, rows)
        self.keys = _first_of(names.codes(layout, rows))
        self.key_sizes = _key_sizes(layout, rows)
        self.value_sizes = _value_sizes(layout, rows)
        self.priors = _Priors(layout, rows)
        sizes = ints(rows[SIZE].slice(0, waited))
        bound = self.how.buffer.share(state.task, state.tasks)
        self.left: list[tuple[int, int]] = []
        """Of each row that has left, since when it waited and what the clock of the limit showed."""
        self.waiting = Bounded(bound, Waited(self.since[:waited], sizes, self.names.of))

    def take(self, row: int, now: int) -> Iterator[int]:
        """Take an update in that came when the clock of the limit had reached `now`; gives the rows that leave."""
        self.put(row)
        yield from self.advance(now)
        yield from self._shrink(now)

    def put(self, row: int) -> None:
        """Let a row be what waits for its key."""
        key, time, prior = int(self.keys[row]), int(self.since[row]), row
        waits = self.waiting.get(key)
        if waits is not None:
            prior = waits.prior
            time = time if self.how.measured_from == "latest_update" else waits.time
        replaced = self.priors.replaced(row, prior, None if waits is None else int(self.value_sizes[waits.row]))
        key_size, value_size = int(self.key_sizes[row]), int(self.value_sizes[row])
        size = buffers.entry_bytes(key_size, self.priors.size(prior), replaced, value_size)
        self.waiting.put(key, self.names.of(row), Entry(time, row, prior, size))

    def advance(self, now: int) -> Iterator[int]:
        """The rows whose time limit is reached when the clock of the limit shows `now`, oldest first."""
        until = MAX_MS if now == MAX_MS else now - self.how.limit_ms
        while (oldest := self.waiting.oldest()) is not None and oldest[1] <= until:
            yield self._pop(oldest[0], now)

    def _shrink(self, now: int) -> Iterator[int]:
        while self.waiting.over:
            if self.waiting.bound.strategy == "shut_down":
                remedy = "a larger bound, a shorter limit or emit_early_when_full()"
                raise buffers.full(self.layout, self.state, self.waiting.records, self.waiting.size, remedy)
            oldest = self.waiting.oldest()
            assert oldest is not None
            yield self._pop(oldest[0], now)

    def _pop(self, key: int, now: int) -> int:
        entry = self.waiting.pop(key)
        self.left.append((entry.time, now))
        return entry.row


def entries(layout: Layout, waiting: list[pa.Table]) -> list[pa.Table]:
    """Rows that waited without a bound (one per key) as entries; what their keys held before is not known."""
    initial = _initial_bytes(layout)
    return [
        rows.append_column(
            SIZE,
            pa.array(buffers.entry_bytes(_key_sizes(layout, rows), initial, 0, _value_sizes(layout, rows))),
        )
        for rows in waiting
    ]


def as_they_leave(layout: Layout, held: pa.Table) -> pa.Table:
    """Entries in the order in which they leave."""
    name, since = names.Names(layout, held), ints(held[SINCE]).tolist()
    order = sorted(range(held.num_rows), key=lambda row: (since[row], name.of(row)))
    return held.take(pa.array(order, pa.int64()))


def _first_of(codes: Ints) -> Ints:
    """For each row the first row with the same code."""
    groups = Groups.of(codes)
    return groups.first[groups.number]


class _Priors:
    """What keys held before their updates, where rows have that, else what is known without."""

    def __init__(self, layout: Layout, rows: pa.Table) -> None:
        held = prior_names(rows) if _counts_bytes(layout) else []
        self._codes = _value_codes([rows[name] for name in held]) if held else None
        self._sizes = _widths(rows, held)
        self._initial = _initial_bytes(layout)

    def size(self, row: int) -> int:
        """The bytes of what the key of `row` held before it."""
        return self._initial if self._codes is None else int(self._sizes[row])

    def replaced(self, row: int, prior: int, waited: int | None) -> int:
        """The bytes of what `row` replaces, 0 if that is what `prior` replaced; `waited`: of what waited until now."""
        if self._codes is None:
            return waited or 0
        return 0 if self._codes[row] == self._codes[prior] else int(self._sizes[row])


def _counts_bytes(layout: Layout) -> bool:
    """Whether the bytes of entries matter, so that it must be known what a key held before it came to wait."""
    how = layout.op.limit
    return how is not None and how.buffer.bounded and how.buffer.max_bytes is not None


def _with_prior(layout: Layout, state: State, rows: pa.Table, made: pa.Table | None) -> pa.Table:
    """The rows with what each replaces, as columns of its own: the old value of the change (SEMANTICS 1 and 6.4)."""
    if layout.op.emits == "final":
        # A window has one final result, which replaces nothing.
        before, has = np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, bool)
        old = rows
    else:
        told = rows.select(layout.result_schema.names)
        found = previous.replaced(layout, state, state.came, previous.HELD, told, later=False)
        old, before, has = found.rows, found.before, found.has
        if isinstance(layout.op.windows, SessionWindows):
            # A session takes no old value with it; only its tombstone does (SEMANTICS 4).
            has = has & pc.fill_null(array(rows["__deleted"]), False).to_numpy(zero_copy_only=False)
    began = [pa.repeat(first[0], rows.num_rows) for first in _initial(layout)]
    if made is not None and layout.op.emits != "final" and not layout.shape:
        bounds = {"__start": "start", "__end": "end"} | dict(zip(layout.op.key, layout.keys, strict=True))
        began = priors.of(layout, rows.select(list(bounds)).rename_columns(list(bounds.values())), made)
    for name, first in zip(layout.result_types, began, strict=True):
        column = array(old[name]).take(pa.array(before)) if old.num_rows else array(rows[name])
        rows = rows.append_column(PRIOR + name, pc.if_else(pa.array(has), column, first))
    return rows


def _initial(layout: Layout) -> list[pa.Array]:
    """What a row replaces where its key had nothing: Kafka Streams emits final results without an old value."""
    if layout.op.emits == "final":
        return [pa.nulls(1, kind) for kind in layout.result_types.values()]
    return buffers.initial(layout)


def _initial_bytes(layout: Layout) -> int:
    return sum(int(buffers.byte_sizes(column)[0]) for column in _initial(layout))


def prior_names(rows: pa.Table) -> list[str]:
    return [name for name in rows.schema.names if name.startswith(PRIOR)]


def _value_codes(columns: list[pa.ChunkedArray]) -> Ints:
    """One number per row, the same for rows with the same values; null is a value like any other."""
    numbers = []
    for column in map(array, columns):
        # Arrow compares no lists and structs.
        flat = pa.array(map(repr, column.to_pylist()), pa.string()) if pa.types.is_nested(column.type) else column
        encoded = flat.dictionary_encode(null_encoding="encode")
        numbers.append(pa.chunked_array([encoded.indices.cast(pa.int64())]))
    return grouping.codes(numbers)


def _key_sizes(layout: Layout, rows: pa.Table) -> Ints:
    return _widths(rows, layout.op.key) + buffers.bounds_bytes(layout)


def _value_sizes(layout: Layout, rows: pa.Table) -> Ints:
    return _widths(rows, layout.result_types)


def _widths(rows: pa.Table, columns: Iterable[str]) -> Ints:
    total = np.zeros(rows.num_rows, np.int64)
    for name in columns:
        total = total + buffers.byte_sizes(array(rows[name]))
    return total
