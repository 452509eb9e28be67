"""`python -m tidegate late`: the late and skipped records of running queries."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from tidegate.cli.given import NO_BATCH, is_endpoint, running_operators
from tidegate.cli.state import shown
from tidegate.errors import DefinitionError
from tidegate.instants import show_ms
from tidegate.kernel.inspect.graces import Graces
from tidegate.spec.metrics import SKIPPED

_DESCRIPTION = """Shows for each operator of each query, since the endpoint was started, how many records were dropped
late, how many were skipped for each reason, and how late records are. It also shows the late share of other graces in
the last 24 hours (for sessions an upper bound). late_records() of a table gives the records themselves."""
_COLUMNS = ("query", "operator", "records", "late", "share", *SKIPPED, "average lateness", "largest lateness")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "show how many records were late or skipped, and why"
    command = commands.add_parser("late", help=help, description=_DESCRIPTION)
    command.add_argument("source", metavar="endpoint", help="the address of tg.metrics.serve (http://...)")
    command.add_argument("--query", metavar="NAME", help="only this query")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the counts. Raises TidegateError if no endpoint answers."""
    if not is_endpoint(parsed.source):
        raise DefinitionError(
            f"late takes the address of an endpoint, not {parsed.source!r}: a checkpoint does not count the records "
            "that were not taken. Serve the metrics of the query (tg.metrics.serve(spark)) and give http://127.0.0.1:9464."
        )
    found = [_of(one) for one in running_operators(parsed.source, parsed.query)]
    if parsed.json:
        print(json.dumps(found))
        return 0
    if not found:
        print(NO_BATCH)
        return 0
    print(shown(_COLUMNS, [_row(one) for one in found]))
    for one in found:
        if one["graces"] is not None and one["graces"]["total"]:
            print(f"\nWhat each grace would have cost {one['query']}, {one['operator']}, in the last 24 hours:")
            print(graces_table(one["graces"]))
    return 0


def graces_table(reported: Mapping[str, Any]) -> str:
    """A table of graces and their late shares, from the graces that an endpoint reports."""
    graces = Graces(reported["today"], reported["total"], dict(reported["needed"]), reported["windows"])
    enough = graces.enough()
    listed = sorted({0, graces.today, enough, *map(graces.enough, _SHARES)})
    rows = [
        [
            show_ms(grace),
            _at_most(graces, grace) + f"{graces.late(grace):,}",
            _at_most(graces, grace) + f"{graces.share(grace):.3%}",
            ", ".join(word for word, one in (("today", graces.today), ("enough", enough)) if one == grace),
        ]
        for grace in listed
    ]
    return shown(("grace", f"late {graces.unit}", "share", ""), rows)


def _at_most(graces: Graces, grace: int) -> str:
    return "at most " if graces.at_most and grace != graces.today and graces.late(grace) else ""


_SHARES = (0.1, 0.03, 0.01, 0.003, 0.0)
"""The table has graces that would have left these shares late."""


def _of(one: Mapping[str, Any]) -> dict[str, Any]:
    metrics = one["metrics"]
    return {
        "query": one["query"],
        "operator": one["operator"],
        "records": metrics.get("records"),
        "late": metrics.get("late"),
        "skipped": {reason: metrics[reason] for reason in SKIPPED if reason in metrics},
        "record_lateness_avg": metrics.get("record_lateness_avg"),
        "record_lateness_max": metrics.get("record_lateness_max"),
        "graces": one["graces"],
    }


def _row(one: Mapping[str, Any]) -> list[str]:
    late, records = one["late"] or 0, one["records"] or 0
    return [
        one["query"],
        one["operator"],
        f"{records:,}",
        f"{late:,}",
        f"{late / records:.3%}" if records else "-",
        *(f"{one['skipped'].get(reason, 0):,}" for reason in SKIPPED),
        *("-" if one[name] is None else show_ms(round(one[name])) for name in _LATENESS),
    ]


_LATENESS = ("record_lateness_avg", "record_lateness_max")
