"""`python -m tidegate state`: the rows of a store in a checkpoint."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from tidegate import read_state
from tidegate.cli.given import add_settings, is_endpoint, session
from tidegate.errors import DefinitionError
from tidegate.spec.missing import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 20
MOST = 2**31 - 2
"""The most rows to ask for: Spark counts them, and the one that says that there are more, in 32 bits."""
_DESCRIPTION = """Prints the rows of a store in a checkpoint, as of the last committed micro-batch: the results so far
of open windows and the retained results of closed windows, or the rows that a suppression holds back. Times are in UTC.
The command reads the checkpoint and does not change it."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("state", help="print the rows of a store in a checkpoint", description=_DESCRIPTION)
    command.add_argument("checkpoint", help="the checkpointLocation of the query")
    command.add_argument(
        "--store", metavar="NAME", help="the name of the store (default: the store of the last aggregation)"
    )
    command.add_argument("--ended-from", metavar="INSTANT", help="windows that ended then or later; ISO 8601 or ms")
    command.add_argument("--ended-to", metavar="INSTANT", help="windows that ended then or earlier")
    command.add_argument(
        "--limit", type=int, metavar="N", help=f"the number of rows to print (default: {SHOWN}, with --json all)"
    )
    command.add_argument("--json", action="store_true", help="print a JSON array of all rows")
    add_settings(command)
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the rows. Raises CheckpointError if there is no state to read, DefinitionError for an unknown store."""
    if is_endpoint(parsed.checkpoint):
        raise DefinitionError(
            f"state takes a checkpoint, not an endpoint ({parsed.checkpoint}), which has no rows. Give the "
            "checkpointLocation of the query; it may run."
        )
    bounds = {name: _instant(getattr(parsed, name), name) for name in ("ended_from", "ended_to")}
    if parsed.limit is not None and parsed.limit < 0:
        raise DefinitionError(f"--limit is {parsed.limit}: it is a number of rows, 0 or more.")
    limit = None if parsed.limit is None else min(parsed.limit, MOST)
    require_pyspark("state")
    frame = read_state(session(parsed.conf, parsed.checkpoint), parsed.checkpoint, parsed.store, **bounds)
    if parsed.json:
        rows = _collected(frame if limit is None else frame.limit(limit))
        print(json.dumps([_plain(row) for row in rows], allow_nan=False))
        return 0
    most = SHOWN if limit is None else limit
    rows = _collected(frame.limit(most + 1))
    print(shown(frame.columns, [[_short(row[name]) for name in frame.columns] for row in rows[:most]]))
    if len(rows) > most:
        print(f"and more; --limit N shows more than {most}.")
    return 0


def shown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, with the names of the columns in the first line."""
    widths = [max(len(row[place]) for row in (columns, *rows)) for place in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (columns, *rows)]
    return "\n".join(line.rstrip() for line in lines)


def _instant(text: str | None, name: str) -> int | datetime | None:
    if text is None:
        return None
    try:
        return int(text) if text.lstrip("-").isdecimal() else datetime.fromisoformat(text)
    except ValueError as error:
        argument = f"--{name.replace('_', '-')}"
        raise DefinitionError(
            f"{argument} is {text!r}, no instant. Write ISO 8601 (2026-01-31T12:00) or milliseconds since 1970."
        ) from error


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict) and set(value) == {"start", "end"}:
        return f"{_short(value['start'])} to {_short(value['end'])}"
    return str(value)


def _plain(value: Any) -> Any:
    """A value as JSON has it. Those without a type in JSON are text, NaN and infinities too, as Spark writes them."""
    if isinstance(value, dict):
        names = [name if isinstance(name := _plain(one), str) else json.dumps(name) for one in value]
        return dict(zip(names, map(_plain, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, date | datetime):
        return value.isoformat()
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)


def _collected(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows as dicts, with times in UTC."""
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

    def in_utc(value: Any, kind: DataType) -> Any:
        if value is None:
            return None
        if isinstance(kind, TimestampType):  # Spark gives it without a zone, in that of this machine
            return value.astimezone(UTC).replace(tzinfo=None)
        if isinstance(kind, StructType):
            return {field.name: in_utc(value[field.name], field.dataType) for field in kind.fields}
        if isinstance(kind, ArrayType):
            return [in_utc(one, kind.elementType) for one in value]
        if isinstance(kind, MapType):
            return {in_utc(name, kind.keyType): in_utc(one, kind.valueType) for name, one in value.items()}
        return value

    return [in_utc(row.asDict(True), frame.schema) for row in frame.collect()]
