"""`python -m tidegate state`: the rows of a store in a checkpoint."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Hashable, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

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
    table = frame.toArrow()
    rows = zip(*([_python(value) for value in column] for column in table.columns), strict=True)
    return [dict(zip(table.schema.names, row, strict=True)) for row in rows]


def _python(scalar: pa.Scalar) -> Any:
    """The value in Python. Spark has more of some types: text of other bytes, and instants of other years, as text."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _python(scalar[place]) for place, field in enumerate(kind)}
    if pa.types.is_list(kind):
        return [_python(one) for one in scalar.values]
    if pa.types.is_map(kind):
        entries = [(_python(one[0]), _python(one[1])) for one in scalar.values]
        return {name if isinstance(name, Hashable) else str(name): one for name, one in entries}
    if pa.types.is_timestamp(kind):
        return _time(scalar.value, datetime(1970, 1, 1), timedelta(microseconds=1), "us")  # noqa: DTZ001 - in UTC
    if pa.types.is_date(kind):
        return _time(scalar.value, date(1970, 1, 1), timedelta(days=1), "D")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace")
    return scalar.as_py()


def _time(number: int, since: date, unit: timedelta, name: Literal["us", "D"]) -> date | str:
    """The time so many units behind `since`; text with its year, where Python has no such year."""
    try:
        return since + number * unit
    except OverflowError:
        text = str(np.datetime64(number, name)).removesuffix(".000000")
        return text if number < 0 else f"+{text}"
