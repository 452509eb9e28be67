"""Names of the columns that tidegate adds to rows inside an operator.

Each begins with OURS. `check_user_name` rejects a user's column with this prefix. So every other name is free, for
example "start", or "__deleted" of a flattened Debezium record.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line

OURS = "tidegate:"
"""The prefix of every column that tidegate adds to the rows of a result."""

START = OURS + "start"
"""The start of the row's window, epoch ms."""

END = OURS + "end"
"""The end of the row's window, epoch ms."""

TIMESTAMP = OURS + "timestamp"
"""The timestamp of the row (SEMANTICS 2.2), epoch ms."""

DELETED = OURS + "deleted"
"""Whether the row is a tombstone."""

OUTPUT = OURS + "output"
"""The name of the output that the row belongs to."""

KIND = OURS + "kind"
"""Whether the row is an update ("updates") or a final result ("final")."""

LIVE = OURS + "live"
"""Whether the row is no tombstone."""

REASON = OURS + "reason"
"""The reason why a record was late or skipped."""

LATE_BY = OURS + "late_by"
"""The lateness of a late record, ms."""

SIDE = OURS + "side"
"""The side of a join that a late record belongs to."""

ROW_ID = OURS + "row_id"
"""The ids of the records that a row of a join was made from, as text; in the input of a join, the id of the record."""

STREAM_TIME = OURS + "stream_time"
"""The stream time that a late record saw, epoch ms."""

STATUS = OURS + "status"
"""Whether the window of a stored row is "open" or "closed"."""

SINCE = OURS + "since"
"""The time from which the limit of a buffered row counts, ms of the limit's clock."""

UNTIL = OURS + "until"
"""The time at which a buffered row leaves, ms of the limit's clock."""


ROW = OURS + "row:"
"""Prefix of a column with a whole record of a cogroup input; the number of the input follows."""

VALUE = OURS + "value"
"""True where a record of a cogroup has a value, else null."""


WINDOW = "window"
"""The name under which users see `START` and `END` as one column."""


def public_name(column: str) -> str:
    """The name under which users see a column: without our prefix."""
    return column.removeprefix(OURS)


def public_key(key: Iterable[str]) -> tuple[str, ...]:
    """The columns of a key under the names that users see: the bounds of a window become one column `window`."""
    return tuple(dict.fromkeys(WINDOW if name in (START, END) else name for name in key))


def check_user_name(name: str, what: str) -> None:
    """Raise DefinitionError if `name` begins with OURS, DefinitionTypeError if it is no text.

    `what` says in the error whose name it is.
    """
    if not isinstance(name, str):
        raise DefinitionTypeError(f'{what} is called {in_one_line(name)}. A name is a text, for example "total".')
    if name.startswith(OURS):
        raise DefinitionError(
            f"{what} is called {name!r}: names that begin with {OURS!r} belong to tidegate's own columns. "
            f"Rename it, for example to {name.removeprefix(OURS) + '_in'!r}."
        )
