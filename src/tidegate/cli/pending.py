"""`python -m tidegate pending`: the rows that a query holds back, and the times they wait for."""

from __future__ import annotations

import argparse
import json

from tidegate.cli.given import NO_BATCH, add_settings, is_endpoint, running_operators, session
from tidegate.spec.missing import require_pyspark
from tidegate.spec.pending import Pending

_DESCRIPTION = """Shows the rows that each operator of a query holds back, the stream time they wait for, how far away
that is, and the partition that holds stream time back. For a checkpoint, the command reads the state: every window, and
the keys that time limits hold back. For an endpoint, it shows the last micro-batch: only the next window. The command
changes neither of them."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "show the rows that wait, and the time they wait for"
    command = commands.add_parser("pending", help=help, description=_DESCRIPTION)
    command.add_argument("source", help="a checkpointLocation, or the address of tg.metrics.serve (http://...)")
    command.add_argument("--query", metavar="NAME", help="with an endpoint: only this query")
    command.add_argument("--json", action="store_true", help="print JSON")
    add_settings(command)
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the waiting rows. Raises CheckpointError if there is no state, TidegateError if no endpoint answers."""
    if is_endpoint(parsed.source):
        operators = running_operators(parsed.source, parsed.query)
        found = [(one["query"], Pending.from_dict(one["pending"])) for one in operators]
    else:
        require_pyspark("pending")
        from tidegate.runtime.spark.checkpoints.reading import nothing, pending

        found = [("", one) for one in pending(session(parsed.conf, parsed.source), parsed.source)]
        if not found:
            raise nothing(parsed.source)
    if parsed.json:
        print(json.dumps([({"query": query} if query else {}) | one.to_dict() for query, one in found]))
        return 0
    queries = {query for query, _ in found}
    for query in dict.fromkeys(query for query, _ in found):
        if len(queries) > 1:
            print(f"Query {query}")
        print("\n".join(str(one) for mine, one in found if mine == query))
    if not found:
        print(NO_BATCH)
    return 0
