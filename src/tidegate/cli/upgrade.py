"""`python -m tidegate check-upgrade`: what a changed plan would mean for a checkpoint, before it is started."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate import check_upgrade, configure, outputs
from tidegate.errors import TidegateError

REFUSED = 1


def run(checkpoint: str, plan: str, settings: Sequence[str]) -> int:
    """Print what becomes of the checkpoint; 0 if the plan goes on from it, 1 if it is refused.

    plan      "module:name" of a table, of outputs or of a function that makes one, given the session if it asks for it
    settings  "name=value" of the Spark session that reads the checkpoint

    Raises TidegateError for a plan that cannot be found or made, CheckpointError if there is nothing to read.
    """
    made = _named(plan)
    if callable(made) and not inspect.signature(made).parameters:
        made = made()
    spark = _session(settings, checkpoint)
    if callable(made):
        made = made(spark)
    told = check_upgrade(spark, checkpoint, outputs(**made) if isinstance(made, Mapping) else made)
    print(told)
    return 0 if told.goes_on else REFUSED


def _named(plan: str) -> Any:
    module, _, name = plan.partition(":")
    if not module or not name:
        raise TidegateError(f'the plan is {plan!r}. Write "module:function", where the function gives the table.')
    # As `python -m` itself finds modules: from the folder that it runs in.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TidegateError(
            f"the plan {plan!r} cannot be found: {error}. Run from the folder of the module."
        ) from error


def _session(settings: Sequence[str], checkpoint: str) -> Any:
    from pyspark.sql import SparkSession

    from tidegate.runtime.spark.config import PARTITIONS
    from tidegate.runtime.spark.reading import partitions

    started = SparkSession.getActiveSession()
    if started is not None:
        return started
    given = dict(_setting(text) for text in settings)
    builder: Any = SparkSession.builder
    for name, value in {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **given}.items():
        builder = builder.config(name, value)
    spark = configure(builder).getOrCreate()
    if PARTITIONS not in given:
        spark.conf.set(PARTITIONS, partitions(spark, checkpoint))
    return spark


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise TidegateError(f"--conf is {text!r}. Write name=value.")
    return name, value
