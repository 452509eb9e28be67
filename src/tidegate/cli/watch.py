"""`python -m tidegate watch`: opens the page of running queries, or prints its content."""

from __future__ import annotations

import argparse
import json
import webbrowser
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from tidegate.cli.given import NO_BATCH, is_endpoint, running_operators
from tidegate.cli.late import graces_table
from tidegate.cli.state import shown
from tidegate.errors import DefinitionError
from tidegate.instants import show_instant, show_ms
from tidegate.spec.metrics import SKIPPED

DEFAULT = "http://127.0.0.1:9464"
MOST_PARTITIONS = 16
_DESCRIPTION = """Opens the page that tg.metrics.serve(spark) shows beside the metrics. For each operator the page shows
stream time, open windows, the next window to close and the time it waits for, buffers, late and skipped records, the
graces that records needed, partitions, and the duration of micro-batches. With --once the command prints the present
content instead. The page is read-only."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "watch running queries, in a browser or in the terminal"
    command = commands.add_parser("watch", help=help, description=_DESCRIPTION)
    command.add_argument("endpoint", nargs="?", default=DEFAULT, help=f"the address of tg.metrics.serve ({DEFAULT})")
    command.add_argument("--once", action="store_true", help="print the content once and open no browser")
    command.add_argument("--query", metavar="NAME", help="with --once: only this query")
    command.add_argument("--json", action="store_true", help="print JSON, once")
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Open the page or print its content. Raises TidegateError if no endpoint answers."""
    if not is_endpoint(parsed.endpoint):
        raise DefinitionError(
            f"watch takes the address of an endpoint, not {parsed.endpoint!r}. Serve the metrics of the query "
            f"(tg.metrics.serve(spark)) and give {DEFAULT}; `tidegate pending` looks at a checkpoint."
        )
    found = running_operators(parsed.endpoint, parsed.query)
    if parsed.json:
        print(json.dumps(found))
    elif parsed.once:
        print("\n\n".join("\n".join(_lines(one)) for one in found) or NO_BATCH)
    else:
        page = f"{urlsplit(parsed.endpoint).scheme}://{urlsplit(parsed.endpoint).netloc}/"
        print(f"Watch: {page}" if webbrowser.open(page) else f"No browser opens here. Open {page}")
    return 0


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    metrics = one["metrics"]
    yield f"Query {one['query']}, operator {one['operator']}{'' if one['active'] else ' (ended)'}"
    yield one["text"]
    records, late = metrics.get("records") or 0, metrics.get("late") or 0
    share = f" ({late / records:.3%})" if records else ""
    skipped = [f"{metrics[reason]:,} {reason}" for reason in SKIPPED if metrics.get(reason)]
    yield f"  {records:,} records in, {metrics.get('emitted') or 0:,} rows out; {late:,} late{share}" + (
        f"; skipped: {', '.join(skipped)}" if skipped else ""
    )
    if (lag := metrics.get("stream_time_lag")) is not None:
        yield f"  Stream time is {show_ms(round(lag / 1000) * 1000)} behind the wall clock."
    if (left := metrics.get("open_left_records")) is not None:
        yield f"  {left:,.0f} left and {metrics['open_right_records']:,.0f} right records are open."
    if (rows := metrics.get("suppression_buffer_count_current")) is not None:
        fill = metrics.get("suppression_buffer_fill")
        yield f"  {rows:,.0f} rows wait" + ("." if fill is None else f"; the buffer is {fill:.0%} full.")
    if len(one["partitions"]) > 1:
        yield from _partitions(one["partitions"])
    if one["graces"] is not None and one["graces"]["total"]:
        yield "  Graces, in the last 24 hours:"
        yield from (f"    {line}" for line in graces_table(one["graces"]).splitlines())


def _partitions(partitions: list[tuple[str, int, float]]) -> Iterator[str]:
    listed = sorted(partitions, key=lambda one: one[1])
    first, latest = listed[-1][1], max(heard for *_, heard in listed)
    rows = [
        [str(name), show_instant(reached), show_ms(first - reached), show_ms(round(latest - heard))]
        for name, reached, heard in listed[:MOST_PARTITIONS]
    ]
    head = ("partition", "has come to", "behind the first", "silent before the last batch")
    yield from (f"  {line}" for line in shown(head, rows).splitlines())
    if len(listed) > MOST_PARTITIONS:
        yield f"  {len(listed) - MOST_PARTITIONS} more partitions are further."
