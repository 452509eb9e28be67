"""The tables that operators declare: numbered partitions of Arrow segments, each with a bound in the index.

A store holds one space of integers (`state.store.Store`). Every table owns a part of it, from `top` on in one
direction. Every identifier in use is declared here. The pages of a table's index lie at the segments -1, -2, ...
of the partition that begins each page (`state.log_index`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TableSpec:
    """A table of an operator.

    name            its name in docs and errors
    top             the integer of its partition 0
    ascending       whether partition n lies at top + n; otherwise at top - n
    partitioned_by  meaning of a partition's number, with its unit
    columns         the columns of its segments (`rows.layout` explains the prefixes)
    bound           meaning of the bound in the index: when the partition must be looked at
    """

    name: str
    top: int
    ascending: bool
    partitioned_by: str
    columns: tuple[str, ...]
    bound: str

    def place(self, number: int) -> int:
        """The integer of a partition in the store."""
        return self.top + number if self.ascending else self.top - number


_STATE = ("k:... (key)", "ts (largest timestamp, ms)", "s:i:j (state column j of aggregate i)")

_RANGE = "upper half of the first hash of a range (state.keyed_runs)"
_VERSION = ("h (hash of the key)", "deleted (whether the version says that there is no row)")
PANES = TableSpec(
    "windows",
    0,
    True,
    "start of the pane (ms)",
    (*_STATE, "open (first window still open to the row, ms; hopping windows)"),
    "the pane's number: a window of the pane closes no earlier than the rule of the window says",
)
WINDOW_TABLES = TableSpec(
    "windows",
    0,
    True,
    "start of the window, or of a stretch of hopping windows (ms)",
    (*_STATE, "start (of the window, ms; in a stretch)", "bytes (of the entry; in front of a bounded buffer)"),
    "start of the first window in it that is open (ms)",
)
WINDOW_RUNS = TableSpec(
    "rows of large windows",
    2**62,
    True,
    f"number of the window in the bits from 32 up, {_RANGE} in those below",
    (*_STATE, *_VERSION),
    "none",
)
KEY_WINDOWS = TableSpec(
    "windows",
    0,
    True,
    "node of a tree over the hash of the key (state.hash_tree)",
    (
        *_STATE,
        "start (ms)",
        "end (ms)",
        "deleted (whether the window has gone again; where windows can go)",
        "bytes (of the entry; in front of a bounded buffer)",
        "tidegate:replaced:... (results that the entry replaced; of sliding windows in front of a bounded buffer)",
    ),
    "smallest end of an open window (ms)",
)
WINDOWS_BY_KEY = TableSpec(
    "windows by key",
    2**62,
    True,
    _RANGE,
    (
        *_STATE,
        "start (ms)",
        "end (ms)",
        "looked_at (its entry among the closing times, ms; of sessions)",
        "h (hash of the key)",
        "deleted (whether the version says that the window has gone)",
    ),
    "none",
)
CLOSING_TIMES = TableSpec(
    "closing times",
    2**61,
    True,
    "time in narrow widths (windows.closing_times)",
    ("h (upper half of the hash of a key)", "at (end of a window, ms)"),
    "earliest end in it (ms)",
)
KEYS = TableSpec("keys", 0, True, _RANGE, (*_STATE, *_VERSION), "none")
RETAINED = TableSpec(
    "retained results",
    -(2**61),
    False,
    "stretch of closing times, a sixteenth of the retention (ms)",
    ("columns of final results",),
    "largest closing time in it (ms): after the retention the partition is dropped",
)
OLD_VALUES = TableSpec(
    "old values",
    -(2**62),
    False,
    _RANGE,
    ("r:... (columns of results)", *_VERSION),
    "none",
)
BUFFERED_OLD_VALUES = TableSpec(
    "buffered old values",
    -(2**62) - 2**40,
    False,
    _RANGE,
    ("r:... (columns of results)", *_VERSION),
    "none",
)
_INDEX_TOP = -1
KEY_INDEX_BASE = TableSpec(
    "key index of the time limit: base",
    _INDEX_TOP,
    False,
    "always 0",
    ("sorted hashes and time buckets, three or four bytes a key (suppress.key_index_table)",),
    "none",
)
KEY_INDEX_RECENT = TableSpec(
    "key index of the time limit: log",
    _INDEX_TOP - 1,
    False,
    "always 0",
    ("hash and time bucket of keys that were added since",),
    "none",
)
TIME_BUCKETS = TableSpec(
    "time buckets of the time limit",
    _INDEX_TOP - 2,
    False,
    "buffer time in narrow widths (suppress.time_buckets)",
    ("columns of results", "buffer time (ms)", "time of the last update (ms; wall clock)"),
    "earliest buffer time in it (ms)",
)

_WAITING = ("k:... (key)", "v:... (values)", "ts (ms)", "h (hash of the key)")
_OPEN = (*_WAITING, "n (number of the record in its stretch; of a side that is preserved)")
OPEN_LEFT = TableSpec(
    "open left records",
    0,
    True,
    "start of a stretch of timestamps (ms)",
    _OPEN,
    "smallest timestamp of a record that is open (ms)",
)
_RIGHT_TOP = -(2**56)
OPEN_RIGHT = TableSpec(
    "open right records",
    _RIGHT_TOP,
    False,
    "start of a stretch of timestamps (ms)",
    _OPEN,
    "smallest timestamp of a record that is open (ms)",
)
CONTENTS_SEGMENT = -1000
"""The segment of a partition of sorted runs that lists the other segments: digest, number of records, and bytes. For a
large window, the segment with its number and the index of its runs (windows.window_runs)."""


def joined_segment(number: int) -> int:
    """The segment of a list of records that have joined, in a partition of open records. Its one column `after` has
    each record's number `n` as the difference from the number before it.
    """
    return CONTENTS_SEGMENT - 1 - number


WAITING = TableSpec(
    "stream records that wait",
    0,
    True,
    "start of a stretch of timestamps (ms)",
    _WAITING,
    "smallest timestamp of a record that waits (ms)",
)
_ROWS = ("k:... (key)", "v:... (values)", "ts (ms)", *_VERSION)
TABLE_LEFT = TableSpec("rows of the left table", 0, True, _RANGE, _ROWS, "none")
TABLE_RIGHT = TableSpec(
    "rows of the right table",
    _RIGHT_TOP,
    False,
    _RANGE,
    _ROWS,
    "none",
)

RETENTION_TABLES = (RETAINED,)
"""Tables of an operator whose results stay readable (Materialized.with_retention)."""

OLD_VALUE_TABLES = (OLD_VALUES, BUFFERED_OLD_VALUES)
"""Tables of an operator whose rows replace other rows: regrouped tables, and buffers whose bytes are counted."""

_LATER_TOP, _LATER_ROOM = -(2**58), 2**50
_OLD_VALUES_ROOM = 2**40


def limit_tables(place: int) -> TableSpec:
    """All tables of the time limit at this place as one: its partition n is integer n of the first limit's tables."""
    top = 0 if place == 0 else _LATER_TOP - _LATER_ROOM * (place - 1)
    return TableSpec("tables of a time limit", top, True, "place of the same table of the first limit", (), "none")


def buffered_old_values(place: int) -> TableSpec:
    """`BUFFERED_OLD_VALUES` of the time limit at this place."""
    return replace(BUFFERED_OLD_VALUES, top=BUFFERED_OLD_VALUES.top - _OLD_VALUES_ROOM * place)


def time_limit_tables(place: int) -> tuple[TableSpec, ...]:
    """The tables of the time limit at this place among those of an operator."""
    tables = (KEY_INDEX_BASE, KEY_INDEX_RECENT, TIME_BUCKETS)
    return tuple(replace(table, top=limit_tables(place).place(table.top)) for table in tables)


def limit_buffer(place: int) -> str:
    """The name of the stored value that describes the buffer of the time limit at this place."""
    return f"buffer {place}" if place else "buffer"


TIME_LIMIT_TABLES = time_limit_tables(0)
"""Tables of an operator behind which `until_time_limit` holds rows back."""
