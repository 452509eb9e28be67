"""Resolves arguments of commands: functions of modules, a Spark session that fits a checkpoint, endpoints."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidegate import configure
from tidegate.dsl import Result, outputs_by_name
from tidegate.errors import TidegateError

PATIENCE_SECONDS = 10
NO_BATCH = (
    "No micro-batch has finished yet. Run the command again after the first one. An endpoint shows only queries that "
    "started after tg.metrics.serve(spark)."
)
"""The output of commands that find no operator."""
_FORMAT = 1


def write(path: Path, text: str) -> None:
    """Write a file that an argument names. Raises TidegateError if it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TidegateError(
            f"{str(path)!r} cannot be written: {error.strerror or error}. Name a file in a folder that exists."
        ) from error


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the argument for settings of the Spark session."""
    help = "a setting of Spark; may be given several times"
    command.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help=help)


def named(text: str, what: str = "plan", gives: str = "the table") -> Any:
    """The object with the name "module:name". Raises TidegateError if there is none."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise TidegateError(f'the {what} is {text!r}. Write "module:function", where the function gives {gives}.')
    # Find modules in the current folder, as `python -m` does.
    sys.path.insert(0, str(Path.cwd()))
    missing = f"the {what} {text!r} cannot be found: "
    if module.startswith(".") or "/" in module:
        raise TidegateError(f"{missing}{module!r} is no name of a module. Run from its folder, and give that name.")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports another one that is not
        raise TidegateError(f"{missing}{error}. Run from the folder of the module.") from error
    if not hasattr(found, name):
        raise TidegateError(f"{missing}the module {found.__name__!r} has no {name!r}. Correct the name.")
    return getattr(found, name)


def made(plan: str, session: Any) -> Result:
    """The table or the outputs with the name `plan`; if the name is a function, its result.

    session  called for a SparkSession if the function takes an argument

    Raises TidegateError if the result is not a table.
    """
    found = named(plan)
    if callable(found):
        found = found(session()) if inspect.signature(found).parameters else found()
    if isinstance(found, dict):
        found = outputs_by_name(found)
    if not isinstance(found, Result):
        raise TidegateError(f"the plan {plan!r} is {found!r}, not a table or outputs of tidegate. Name what you run.")
    return found


def session(settings: Sequence[str], checkpoint: str | None = None) -> Any:
    """The active Spark session, or a new one with `settings` ("name=value") and the partitions of the checkpoint."""
    from pyspark.sql import SparkSession

    from tidegate.runtime.spark.checkpoints.reading import partitions
    from tidegate.runtime.spark.session.config import PARTITIONS

    started = SparkSession.getActiveSession()
    if started is not None:
        return started
    given = dict(_setting(text) for text in settings)
    builder: Any = SparkSession.builder
    for name, value in {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **given}.items():
        builder = builder.config(name, value)
    spark = configure(builder).getOrCreate()
    if checkpoint is not None and PARTITIONS not in given:
        spark.conf.set(PARTITIONS, partitions(spark, checkpoint))
    return spark


def is_endpoint(source: str) -> bool:
    """Whether `source` is the address of an endpoint, not a checkpoint."""
    return source.partition("://")[0].lower() in ("http", "https")


def running_operators(source: str, query: str | None) -> list[dict[str, Any]]:
    """Read the operators of all queries, or of one `query`, from the endpoint of running queries, as JSON values.

    Raises TidegateError if no endpoint answers, its answer cannot be read, or there is no such query.
    """
    url = source
    try:
        address = urlsplit(source)
        url = f"{address.scheme}://{address.netloc}/queries.json"
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - http or https
            text = answer.read()
    except (OSError, HTTPException, OverflowError, ValueError) as error:  # the last two: no address, or no port
        raise TidegateError(
            f"{url} does not answer: {error}. Give the address of tg.metrics.serve(spark), whose query runs."
        ) from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise TidegateError(
            f"{url} answers with something else than queries of tidegate: {error}. Give the address of "
            "tg.metrics.serve(spark)."
        ) from error
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise TidegateError(
            f"{url} is of another version of tidegate (format {_FORMAT} is read here). Use the version of the query."
        )
    operators = [one for one in found["operators"] if query in (None, one["query"])]
    if query is not None and not operators:
        names = ", ".join(sorted({repr(one["query"]) for one in found["operators"]})) or "none yet"
        raise TidegateError(f"--query is {query!r}, and {url} knows of {names}. Use one of these names.")
    return operators


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise TidegateError(f"--conf is {text!r}. Write name=value.")
    return name, value
