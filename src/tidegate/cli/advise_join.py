"""`python -m tidegate advise-join`: which join windows find how many partners in two recorded streams."""

from __future__ import annotations

import argparse

from tidegate import advise_join

_DESCRIPTION = """Reads two recorded streams and says how far apart records of the same key are: which join windows find
how many partners, and how many rows they make. Lateness plays no part; advise tells the grace."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its arguments."""
    help = "say which join windows find how many partners"
    command = commands.add_parser("advise-join", help=help, description=_DESCRIPTION)
    command.add_argument("left", help="a Parquet, CSV or JSON lines file, or a folder of them")
    command.add_argument("right", help="the other side")
    command.add_argument("--key", required=True, metavar="COLUMNS", help="the key; several columns with commas")
    command.add_argument("--timestamp", required=True, metavar="COLUMN", help="event time: timestamp, ISO 8601 or ms")
    command.add_argument("--right-timestamp", metavar="COLUMN", help="of the right side, if it has another name there")
    command.add_argument("--target", type=float, default=0.01, metavar="SHARE", help="may stay without partner (0.01)")
    command.add_argument("--format", choices=["csv", "json", "parquet"], help="of the files (by their names)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print it. Raises InputError for recordings that cannot be read, DefinitionError for columns they do not have."""
    found = advise_join(
        parsed.left,
        parsed.right,
        key=[name.strip() for name in parsed.key.split(",")],
        timestamp=parsed.timestamp,
        right_timestamp=parsed.right_timestamp,
        target=parsed.target,
        format=parsed.format,
    )
    print(found.json() if parsed.json else found)
    return 0
