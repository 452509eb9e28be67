"""`python -m tidegate check-upgrade`: checks whether a changed plan can go on from a checkpoint."""

from __future__ import annotations

import argparse

from tidegate import check_upgrade
from tidegate.cli.given import add_settings, is_endpoint, made, session
from tidegate.errors import DefinitionError
from tidegate.spec.missing import require_pyspark

REFUSED = 1
_DESCRIPTION = """Says what starting a changed plan on a checkpoint would do: what has changed, what it means, and if it
would be refused, what it would lose. The checkpoint is read and not touched. Exits with 0 if the plan goes on, 1 if it
is refused, 2 if that cannot be said."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "say whether a changed plan goes on from a checkpoint"
    command = commands.add_parser("check-upgrade", help=help, description=_DESCRIPTION)
    command.add_argument("checkpoint", help="the checkpointLocation of the query")
    command.add_argument("plan", metavar="module:function", help="what gives the table; it may take a SparkSession")
    add_settings(command)
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the changes. Returns 0 if the plan can go on from the checkpoint, 1 if not.

    Raises TidegateError if the plan cannot be found or built, CheckpointError if there is no state to read.
    """
    if is_endpoint(parsed.checkpoint):
        raise DefinitionError(
            f"check-upgrade takes a checkpoint, not an endpoint ({parsed.checkpoint}), which knows metrics alone. Give "
            "the checkpointLocation of the query."
        )
    require_pyspark("check-upgrade")
    table = made(parsed.plan, lambda: session(parsed.conf, parsed.checkpoint))
    found = check_upgrade(session(parsed.conf, parsed.checkpoint), parsed.checkpoint, table)
    print(found)
    return 0 if found.goes_on else REFUSED
