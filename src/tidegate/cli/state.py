"""`python -m tidegate state`: the rows of a store in a checkpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from tidegate import read_state
from tidegate.cli.given import add_settings, is_endpoint, session
from tidegate.errors import DefinitionError
from tidegate.spec.missing import require_pyspark

SHOWN = 20
_DESCRIPTION = """Prints the rows of a store in a checkpoint, as of the last committed micro-batch: the results so far
of open windows and the retained results of closed windows, or the rows that a suppression holds back. The command reads
the checkpoint and does not change it."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its arguments."""
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
    require_pyspark("state")
    frame = read_state(session(parsed.conf, parsed.checkpoint), parsed.checkpoint, parsed.store, **bounds)
    if parsed.json:
        rows = [row.asDict(True) for row in (frame if parsed.limit is None else frame.limit(parsed.limit)).collect()]
        print(json.dumps(_as_json(rows)))
        return 0
    most = SHOWN if parsed.limit is None else parsed.limit
    rows = [row.asDict(True) for row in frame.limit(most + 1).collect()]
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


def _as_json(value: Any) -> Any:
    """A value as JSON has it. A number without digits, and a key of a map, is text; so is a value without a type."""
    if isinstance(value, dict):
        return {_as_key(name): _as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | int) else _plain(value)


def _as_key(value: Any) -> str:
    found = _as_json(value)
    return found if isinstance(found, str) else json.dumps(found)


def _plain(value: Any) -> Any:
    """A value without a JSON type, as text."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return str(value) if isinstance(value, Decimal | timedelta) else repr(value)
