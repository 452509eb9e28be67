"""`python -m tidegate drain`: emits everything that a stopped query holds."""

from __future__ import annotations

import argparse
import json

from tidegate import drain
from tidegate.cli.given import add_settings, is_endpoint, made, named, session
from tidegate.errors import DefinitionError
from tidegate.spec.missing import require_pyspark

_DESCRIPTION = """Emits all rows that a stopped query still holds, in its last micro-batches: windows close, and buffers
become empty. Afterwards no query starts on the checkpoint. Draining the checkpoint again does nothing. After a failure,
run the command again."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "emit all rows that a stopped query still holds, and end it"
    command = commands.add_parser("drain", help=help, description=_DESCRIPTION)
    command.add_argument("checkpoint", help="the checkpointLocation of the query, which must not run")
    command.add_argument(
        "plan",
        metavar="module:table",
        help="a table of streaming DataFrames, or a function that returns it and may take a SparkSession",
    )
    command.add_argument(
        "write",
        metavar="module:write",
        help="a function that takes the rows and returns their DataStreamWriter, without trigger and checkpoint",
    )
    command.add_argument(
        "--row-ids", action="store_true", help="give rows their ids: for a join whose rows go to tg.kafka.sink"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_settings(command)
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Drain the query. Raises CheckpointError if there is no state, TidegateError if a function cannot be found."""
    if is_endpoint(parsed.checkpoint):
        raise DefinitionError(
            f"drain takes a checkpoint, not an endpoint ({parsed.checkpoint}). Stop the query, and give its "
            "checkpointLocation."
        )
    require_pyspark("drain")
    write = named(parsed.write, "writer", "a DataStreamWriter of the rows")
    if not callable(write):
        raise DefinitionError(f"the writer {parsed.write!r} is {write!r}, not a function of the rows.")
    spark = session(parsed.conf, parsed.checkpoint)
    drain(made(parsed.plan, lambda: spark), parsed.checkpoint, write, row_ids=parsed.row_ids)
    if parsed.json:
        print(json.dumps({"checkpoint": parsed.checkpoint, "drained": True}))
    else:
        print(f"Drained: {parsed.checkpoint}. All its rows have been written; no query starts on it any more.")
    return 0
