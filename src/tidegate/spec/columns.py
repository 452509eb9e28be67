"""Names of the columns that tidegate adds to rows inside an operator.

Each begins with OURS, and no column of a user may: `check_user_name` refuses one that does. So every other name is
free, "__deleted" of a flattened Debezium record as well as "start".
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
"""Why a record was not taken."""

LATE_BY = OURS + "late_by"
"""By how many ms a record was late."""

SIDE = OURS + "side"
"""Of which side of a join a late record is."""

ROW_ID = OURS + "row_id"
"""Of which records a row of a join was made, as text; of a record that goes to a join, which one it is."""

STREAM_TIME = OURS + "stream_time"
"""The stream time that a late record saw, epoch ms."""

STATUS = OURS + "status"
"""Whether the window of a stored row is "open" or "closed"."""

SINCE = OURS + "since"
"""The time from which the limit of a buffered row counts, ms of the limit's clock."""

UNTIL = OURS + "until"
"""The time at which a buffered row leaves, ms of the limit's clock."""


ROW = OURS + "row:"
"""The record of an input of a cogroup as one column, by the number of the input."""

VALUE = OURS + "value"
"""True where a record of a cogroup has a value, else null."""


WINDOW = "window"
"""The name under which users see `START` and `END` as one column."""


def public_name(column: str) -> str:
    """The name under which users see a column: ours without the prefix, theirs as it is."""
    return column.removeprefix(OURS)


def public_key(key: Iterable[str]) -> tuple[str, ...]:
    """The columns of a key under the names that users see: the bounds of a window are one column."""
    return tuple(dict.fromkeys(WINDOW if name in (START, END) else name for name in key))


def check_user_name(name: str, what: str) -> None:
    """Raise DefinitionError if `name`, which `what` gives, begins as tidegate's own columns do.

    Raises DefinitionTypeError if it is no text.
    """
    if not isinstance(name, str):
        raise DefinitionTypeError(f'{what} is called {in_one_line(name)}. A name is a text, for example "total".')
    if name.startswith(OURS):
        raise DefinitionError(
            f"{what} is called {name!r}: names that begin with {OURS!r} belong to tidegate's own columns. "
            f"Rename it, for example to {name.removeprefix(OURS) + '_in'!r}."
        )
