"""Settings with which a new session of this process begins, because an earlier session had them.

Spark's launcher makes the settings of the session that starts Java system properties of Java. They stay when the
session stops, and every later session of the process begins with them. So the settings of a session on this machine
would reach one on a cluster, whose executors may have neither tidegate's classes for files nor its module that forks
workers, nor a Python at the place of this one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext

_ours: dict[str, str] = {}
"""Settings that `tg.configure` has given to builders of this process."""
_ours_in_environment: dict[str, str] = {}
"""Variables that it has set in this process."""


def note(settings: Mapping[str, str]) -> None:
    """Remember settings that a builder gets from tidegate, and not from its user."""
    _ours.update(settings)


def set_variable(name: str, value: str) -> None:
    """Set a variable of the environment for the next session."""
    os.environ[name] = _ours_in_environment[name] = value


def forget() -> None:
    """Let the next session begin without noted settings and variables, unless a session runs."""
    if SparkContext._active_spark_context is not None:  # noqa: SLF001
        return
    for name, value in _ours_in_environment.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _ours_in_environment.clear()
    system = _system()
    for name, value in _ours.items():
        if system is not None and system.getProperty(name) == value:
            system.clearProperty(name)


def setting(name: str) -> str | None:
    """The value with which the next session begins; None if it has none, or if a session runs."""
    system = _system()
    return None if system is None else system.getProperty(name)


def _system() -> Any:
    """Java's class `System`; None if no Java runs here, or if a session goes on in it."""
    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark does not say otherwise whether its JVM runs
    runs = SparkContext._active_spark_context is not None  # noqa: SLF001
    return None if gateway is None or runs else gateway.jvm.java.lang.System
