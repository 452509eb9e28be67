"""`python -m tidegate advise`: the cost of each grace for a recorded stream."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tidegate as tg
from tidegate.cli.given import add_settings, session, write
from tidegate.cli.recording import FILES, add_columns, columns, listed
from tidegate.errors import DefinitionError, InputError
from tidegate.spec import aggregates
from tidegate.spec.missing import require_pyspark

if TYPE_CHECKING:
    from tidegate.advice.advice import Advice
    from tidegate.advice.keyed import AdvisedWindows

TOO_LATE = 1
_DESCRIPTION = """Reads a recorded stream and computes the cost of each grace: how many records are late, how many rows
would be wrong, how many alerts would change, and how long every result waits. The grace is chosen on the first 80 % of
the records and tested on the last 20 %. The exit code is 0, or 1 if --fail-if-late-share is exceeded, or 2 if the
recording cannot be read."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "compute the cost of each grace for a recorded stream"
    command = commands.add_parser("advise", help=help, description=_DESCRIPTION)
    command.add_argument("path", help=f"{FILES}; or kafka://HOST:PORT/TOPIC, with --value")
    add_columns(command)
    kinds = command.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--window", metavar="DURATION", help='size of the windows ("1 hour")')
    kinds.add_argument(
        "--time-difference", metavar="DURATION", help="instead of --window: the time difference of sliding windows"
    )
    kinds.add_argument(
        "--inactivity-gap", metavar="DURATION", help="instead of --window: the inactivity gap of sessions"
    )
    command.add_argument("--advance", metavar="DURATION", help="the advance of hopping windows")
    command.add_argument("--grace", default="0 seconds", metavar="DURATION", help="today's grace (default: none)")
    command.add_argument(
        "--trigger", metavar="DURATION", help="the trigger interval of micro-batches (default: the shortest)"
    )
    command.add_argument(
        "--graces", metavar="LIST", help='the graces to show, such as "0 s, 1 hour" (default: those that fit the data)'
    )
    command.add_argument(
        "--aggregate",
        action="append",
        default=[],
        metavar="NAME=FUNCTION(COLUMN)",
        help='a column of the results, for --alert: "total=sum(amount)", "n=count()"; may be given several times '
        "(default: count=count())",
    )
    command.add_argument("--alert", metavar="TEXT", help="a predicate over results: \"n < 10 and region == 'EU'\"")
    command.add_argument(
        "--target", type=float, default=0.001, metavar="SHARE", help="the allowed late share (default: 0.001)"
    )
    command.add_argument(
        "--value", metavar="SCHEMA", help='for a topic: the schema of its values, such as "user string, ts timestamp"'
    )
    command.add_argument(
        "--starting",
        default="earliest",
        metavar="OFFSETS",
        help="for a topic: earliest, or offsets as JSON, as in Spark",
    )
    command.add_argument(
        "--ending", default="latest", metavar="OFFSETS", help="for a topic: latest, or offsets as JSON, as in Spark"
    )
    command.add_argument(
        "--spark", action="store_true", help="read and compute with Spark, as is always done for a topic"
    )
    add_settings(command)
    command.add_argument("--html", type=Path, metavar="FILE", help="write the advice as a self-contained page")
    command.add_argument(
        "--fail-if-late-share",
        type=float,
        metavar="SHARE",
        help="exit with 1 if today's grace leaves a larger share of the pairs late",
    )
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the advice. Returns 0, or TOO_LATE if today's grace leaves too large a share late."""
    allowed = parsed.fail_if_late_share
    if allowed is not None and not 0 <= allowed <= 1:
        raise DefinitionError(f"--fail-if-late-share is {allowed}: it is a share, from 0 to 1. Use for example 0.001.")
    advice = _advice(parsed)
    print(advice.json() if parsed.json else advice)
    if parsed.html is not None:
        write(parsed.html, advice.html())
        if not parsed.json:
            print(f"Written: {parsed.html}")
    return TOO_LATE if allowed is not None and advice.cost(advice.today).late_share > allowed else 0


def _advice(parsed: argparse.Namespace) -> Advice:
    topic = parsed.path.partition("://")[0].lower() == "kafka"
    if topic:
        parsed.partition, parsed.offset = parsed.partition or "partition", parsed.offset or "offset"
    on_spark = topic or parsed.spark
    return tg.advise(
        _topic(parsed) if topic else _frame(parsed) if on_spark else parsed.path,
        **columns(parsed),
        windows=_windows(parsed),
        trigger=parsed.trigger,
        graces=None if parsed.graces is None else listed(parsed.graces),
        aggregates=dict(map(_aggregate, parsed.aggregate)) or None,
        alert=parsed.alert,
        target=parsed.target,
        format=None if on_spark else parsed.format,
    )


def _windows(parsed: argparse.Namespace) -> AdvisedWindows:
    """The windows of the arguments, with today's grace."""
    if parsed.window is not None:
        windows = tg.TimeWindows.of_size_and_grace(parsed.window, parsed.grace)
        return windows if parsed.advance is None else windows.advance_by(parsed.advance)
    if parsed.advance is not None:
        raise DefinitionError("`--advance` is of hopping windows: give it with --window.")
    if parsed.time_difference is not None:
        return tg.SlidingWindows.of_time_difference_and_grace(parsed.time_difference, parsed.grace)
    return tg.SessionWindows.of_inactivity_gap_and_grace(parsed.inactivity_gap, parsed.grace)


def _aggregate(text: str) -> tuple[str, aggregates.Aggregate]:
    """The name and the aggregate of a text such as "total=sum(amount)"."""
    name, _, call = text.partition("=")
    function, _, column = call.strip().removesuffix(")").partition("(")
    known = ("count", "sum", "min", "max", "mean", "approx_count_distinct")
    if not name or function not in known or not call.strip().endswith(")"):
        raise DefinitionError(f"--aggregate is {text!r}. Write name=function(column), with one of {', '.join(known)}.")
    if function == "count":
        return name.strip(), aggregates.Aggregate(function, column.strip() or None)
    return name.strip(), getattr(aggregates, function)(column.strip())


def _frame(parsed: argparse.Namespace) -> object:
    """The recording as a static DataFrame; starts a Spark session if none is active."""
    require_pyspark("advise --spark")
    from pyspark.errors import AnalysisException

    from tidegate.advice.files import format_of

    format = parsed.format or format_of(parsed.path) or "parquet"
    spark = session(parsed.conf)
    reader = spark.read.option("header", "true").option("inferSchema", "true") if format == "csv" else spark.read
    try:
        return reader.format(format).load(parsed.path)
    except AnalysisException as error:
        why = " ".join(str(error).split())
        raise InputError(
            f"Spark cannot read {parsed.path!r} as {format}: {why} Give a path that Spark reaches, and --format."
        ) from error


def _topic(parsed: argparse.Namespace) -> object:
    """The decoded records of a topic between two offsets, as a static DataFrame; prints how many cannot be decoded."""
    servers, _, topic = parsed.path.partition("://")[2].strip("/").partition("/")
    if not servers or not topic:
        raise DefinitionError(f"the path is {parsed.path!r}. Write kafka://HOST:PORT/TOPIC.")
    if parsed.value is None:
        raise DefinitionError('a topic needs --value, the schema of its values: --value "user string, ts timestamp".')
    require_pyspark("advise kafka://...")
    import pyspark

    from tidegate.runtime.spark.kafka.reading import META
    from tidegate.runtime.spark.session.installed import PACKAGES, connector

    given = [setting for setting in parsed.conf if setting.startswith("spark.jars")]
    with_connector = [] if given else [f"{PACKAGES}={connector(pyspark.__version__)}"]
    found = tg.kafka.source(
        session([*with_connector, *parsed.conf]),
        servers,
        topic,
        key=key[0] if len(key := listed(parsed.key)) == 1 else key,
        value=parsed.value,
        timestamp=parsed.timestamp,
        starting=parsed.starting,
        streaming=False,
        options={"endingOffsets": parsed.ending},
    )
    # A field with the name of a column of Kafka's or of results is another column in the frame.
    parsed.key, parsed.timestamp = ",".join(found.node.key), found.node.timestamp
    if unreadable := found.dead_letters.count():
        print(f"tidegate: {unreadable:,} records of {topic!r} cannot be read and are left out.", file=sys.stderr)
    aggregated = (_aggregate(text)[1].column for text in parsed.aggregate)
    used = {*listed(parsed.key), parsed.timestamp, parsed.partition, parsed.offset, parsed.arrival, *aggregated}
    # Each record has its place and time in Kafka: these columns are no values, which a record may lack.
    return found.frame.drop(*({*META, "headers"} - used))
