"""`python -m tidegate advise-limit`: the updates of a recorded stream that a time limit saves."""

from __future__ import annotations

import argparse

import tidegate as tg
from tidegate.cli.recording import FILES, add_columns, columns, listed

_DESCRIPTION = """Reads a recorded stream and says what until_time_limit saves of its updates, and how long rows then
wait: for several limits, and for several bounds of the buffer."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "say what a time limit saves of the updates of a recorded stream"
    command = commands.add_parser("advise-limit", help=help, description=_DESCRIPTION)
    command.add_argument("path", help=FILES)
    add_columns(command)
    command.add_argument("--window", metavar="DURATION", help="size of the windows (groups without windows)")
    command.add_argument("--grace", default="0 seconds", metavar="DURATION", help="the grace of the windows (none)")
    command.add_argument("--limits", metavar="LIST", help='time limits ("10 s, 1 minute"; those that matter)')
    command.add_argument("--max-records", metavar="LIST", help='bounds of the buffer, besides none ("1000, 10000")')
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the advice. Raises InputError for recordings that cannot be read, DefinitionError for wrong arguments."""
    found = tg.advise_limit(
        parsed.path,
        **columns(parsed),
        windows=None if parsed.window is None else tg.TimeWindows.of_size_and_grace(parsed.window, parsed.grace),
        limits=None if parsed.limits is None else listed(parsed.limits),
        max_records=None if parsed.max_records is None else list(map(_whole, listed(parsed.max_records))),
        format=parsed.format,
    )
    print(found.json() if parsed.json else found)
    return 0


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise tg.DefinitionError(f"`--max-records` has {text!r}, not a whole number. Write 1000, 10000.") from None
