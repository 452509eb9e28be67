"""The session that a call is given."""

from __future__ import annotations

from typing import Any

from tidegate.arguments import has
from tidegate.errors import DefinitionTypeError, in_one_line


def check_session(spark: Any) -> None:
    """Raise DefinitionTypeError unless `spark` is a session."""
    # Sessions have two classes: Spark's own, and the one of Spark Connect.
    if not hasattr(type(spark), "readStream"):
        raise no_session(spark)


def streams_of(spark: Any) -> Any:
    """The manager of the session's queries. Raises DefinitionTypeError unless `spark` has one."""
    streams = getattr(spark, "streams", None)
    if not has(streams, "addListener"):
        raise no_session(spark)
    return streams


def no_session(spark: Any) -> DefinitionTypeError:
    """The error for what is no session."""
    return DefinitionTypeError(
        f"`spark` is {in_one_line(spark)}, not a SparkSession. Use SparkSession.builder.getOrCreate()."
    )
