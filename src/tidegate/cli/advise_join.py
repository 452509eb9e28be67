"""`python -m tidegate advise-join`: the partners that join windows find in two recorded streams."""

from __future__ import annotations

import argparse

from tidegate import advise_join
from tidegate.cli.recording import FILES, add_columns, columns

_DESCRIPTION = """Reads two recorded streams and says how far apart records of the same key are: which join windows find
how many partners, and how many rows they make. With --arrival it says too which grace the pairs need."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "say which join windows find how many partners"
    command = commands.add_parser("advise-join", help=help, description=_DESCRIPTION)
    command.add_argument("left", help=FILES)
    command.add_argument("right", help="the other side")
    add_columns(command)
    command.add_argument("--right-timestamp", metavar="COLUMN", help="of the right side, if it has another name there")
    command.add_argument("--target", type=float, default=0.01, metavar="SHARE", help="may stay without partner (0.01)")
    command.add_argument("--trigger", metavar="DURATION", help="with --arrival: the interval of batches (the shortest)")
    command.add_argument(
        "--stream-time",
        choices=["min_partition", "max"],
        default="min_partition",
        help="with --arrival: that of the join (min_partition)",
    )
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the advice. Raises InputError for recordings that cannot be read, DefinitionError for missing columns."""
    found = advise_join(
        parsed.left,
        parsed.right,
        **columns(parsed),
        right_timestamp=parsed.right_timestamp,
        trigger=parsed.trigger,
        stream_time=parsed.stream_time,
        target=parsed.target,
        format=parsed.format,
    )
    print(found.json() if parsed.json else found)
    return 0
