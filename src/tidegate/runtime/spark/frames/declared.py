"""Frames whose columns are declared: `tg.stream(frame, schema=...)`; and schemas of records, as Spark takes them.

A declarative pipeline (`pyspark.pipelines`) may not analyse a frame while it is being defined, so the columns of the
frame, and whether it is streaming, are unknown. There tidegate trusts the declaration: it casts the columns to the
declared types, and Spark reports a misfit when it plans the query. Everywhere else tidegate compares the declaration
with the frame.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import NullType, StructField, StructType

from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.runtime.spark.frames.arrow import check_known, spark_schema
from tidegate.runtime.spark.frames.names import check_apart, col

_REGISTRY = "pyspark.pipelines.graph_element_registry"


def in_pipeline() -> bool:
    """Whether a declarative pipeline is being defined, so that no frame can be analysed."""
    registry = getattr(sys.modules.get(_REGISTRY), "_graph_element_registry_context_var", None)
    return registry is not None and registry.get() is not None


def bound(frame: Any, schema: Any) -> Any:
    """`frame` with the columns of `schema`, if one is declared.

    Raises DefinitionError if the frame lacks one of these columns, has another type there, or has a column that Spark
    cannot tell from it, and in a pipeline if no schema is declared.
    """
    if not isinstance(frame, DataFrame):
        return frame  # refused where its columns are checked
    if schema is None:
        if in_pipeline():
            raise DefinitionError(
                "A declarative pipeline does not tell the columns of a DataFrame while it is being defined. Declare "
                'them: tg.stream(frame, schema=pyarrow.schema([("user", pyarrow.string()), ...]), ...).'
            )
        return frame
    fields = _struct(schema)
    if in_pipeline():
        cast = [col(field.name).cast(field.dataType).alias(field.name) for field in fields]
        return known(frame.select(*cast), fields)
    given = {field.name: field.dataType.simpleString() for field in frame.schema}
    for field in fields:
        declared = field.dataType.simpleString()
        if field.name not in given:
            raise DefinitionError(
                f"`schema` has a column {field.name!r}, which the DataFrame does not have. Its columns are "
                f"{', '.join(given)}."
            )
        if given[field.name] != declared:
            raise DefinitionError(
                f"`schema` has {field.name!r} as {declared}, and the DataFrame has it as {given[field.name]}. Correct "
                "the schema, or cast the column."
            )
    wanted = {field.name.lower() for field in fields}
    check_apart([name for name in frame.columns if name.lower() in wanted], frame.sparkSession, "The DataFrame has")
    return frame.select(*(col(field.name) for field in fields))


def fields_of(spark: SparkSession, schema: Any) -> StructType:
    """The columns of a schema of records: a StructType, or a text such as "user string, ts timestamp".

    Raises DefinitionTypeError for anything else, DefinitionError for a text that Spark does not read.
    """
    if isinstance(schema, StructType):
        return schema
    like = 'a text like "user string, ts timestamp"'
    if not isinstance(schema, str):
        raise DefinitionTypeError(f"The schema is {in_one_line(schema)}. Use {like} or a StructType.")
    try:
        return spark.createDataFrame([], schema).schema
    except PySparkException as error:
        why = " ".join(str(error).partition("== SQL ==")[0].split())
        raise DefinitionError(
            f"The schema {in_one_line(schema)} is no list of columns with types of Spark's: {why}. Use {like}."
        ) from None


def known(frame: DataFrame, fields: StructType) -> DataFrame:
    """`frame` with `fields` as its known schema; in a pipeline pyspark would otherwise ask the server for it."""
    if in_pipeline():
        frame._cached_schema = fields  # type: ignore[attr-defined]  # noqa: SLF001 - where pyspark keeps its answer
    return frame


def known_by_name(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """`known` where names alone matter, as in a frame that goes to a Python function."""
    return known(frame, StructType([StructField(name, NullType()) for name in names]))


def is_streaming(frame: DataFrame) -> bool:
    """Whether `frame` is streaming; in a pipeline its plan says so."""
    if not in_pipeline():
        return frame.isStreaming
    plan: Any = frame
    return "is_streaming: true" in str(plan._plan.to_proto(plan.sparkSession.client))  # noqa: SLF001


def _struct(schema: Any) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if not isinstance(schema, pa.Schema):
        raise DefinitionTypeError(
            f"`schema` is {in_one_line(schema)}, not a pyarrow.Schema. Use pyarrow.schema([...])."
        )
    check_known(schema, "`schema` has a column", "Use a type that Spark has, and cast the column to it.")
    return spark_schema(schema)
