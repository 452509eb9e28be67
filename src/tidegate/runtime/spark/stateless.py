"""Plans of stateless steps alone, run on a DataFrame. Spark must know the types of their columns before a row comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, NullType, NumericType

from tidegate.errors import DefinitionError
from tidegate.kernel.columns.arrays import as_schema
from tidegate.kernel.rows import map_filter
from tidegate.plan import Stream, check_records_alone
from tidegate.runtime.spark.frames.arrow import arrow_schema, check_known, schema_as_spark_reads, spark_schema
from tidegate.runtime.spark.frames.carried import check_carried
from tidegate.runtime.spark.frames.declared import in_pipeline, known_by_name
from tidegate.runtime.spark.frames.names import check_apart, numbered, numbers, renamed
from tidegate.runtime.spark.session.installed import use_driver_python
from tidegate.spec.steps import MapValues, Step


def stepped(stream: Stream) -> DataFrame:
    """The records of a stream after its steps."""
    check_records_alone(stream)
    check_typed(step for branch in stream.branches for step in branch.steps)
    for branch in stream.branches:
        use_driver_python(branch.frame.sparkSession)
    frames = [_of_one(branch) for branch in stream.branches]
    if not in_pipeline():
        _check_alike(stream.branches, frames)
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


def _check_alike(branches: Iterable[Stream], frames: Iterable[DataFrame]) -> None:
    """Raise DefinitionError for a column of two types: a union would cast one of them. Numbers may become wider."""
    first: dict[str, tuple[str, DataType]] = {}
    for branch, frame in zip(branches, frames, strict=True):
        for field in frame.schema.fields:
            name, kind = first.setdefault(field.name, (branch.name, field.dataType))
            both = (kind, field.dataType)
            alike = kind.simpleString() == field.dataType.simpleString()
            if (
                alike
                or any(isinstance(one, NullType) for one in both)
                or all(isinstance(one, NumericType) for one in both)
            ):
                continue
            raise DefinitionError(
                f"merge: the column {field.name!r} is {kind.simpleString()} in {name!r} and "
                f"{field.dataType.simpleString()} in {branch.name!r}. Cast one of them."
            )


def _of_one(stream: Stream) -> DataFrame:
    frame: DataFrame = stream.frame
    if not stream.steps:
        return frame
    check_carried(frame, frame.columns)
    arrived = arrow_schema(frame.schema)
    schema = map_filter.apply_steps(stream.steps, arrived.empty_table()).schema
    check_apart(schema.names, frame.sparkSession, "A record behind the steps has")
    check_known(schema, "A record behind the steps has a column", "Let the step give another type.")
    schema = schema_as_spark_reads(schema)
    given, names = numbered(frame)
    given = known_by_name(given, numbers(names))
    stepper = _Stepper(stream.steps, arrived, schema)
    pickled(stepper, stream.name)
    return given.mapInArrow(stepper, spark_schema(stepper.out)).toDF(*schema.names)


@dataclass(frozen=True)
class _Stepper:
    """The steps. Spark calls them once per input partition.

    arrived  the columns of a record, with timestamps in UTC
    schema   the columns behind the steps
    """

    steps: tuple[Step, ...]
    arrived: pa.Schema
    schema: pa.Schema

    @property
    def out(self) -> pa.Schema:
        """The columns of the result, under numbered names."""
        names = numbers(self.schema.names)
        return pa.schema([field.with_name(name) for name, field in zip(names, self.schema, strict=True)])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbered_names = self.out.names
        for batch in renamed(batches, self.arrived.names):
            # Spark's rows are in the time zone of the session.
            records = as_schema(pa.Table.from_batches([batch]), self.arrived)
            rows = map_filter.apply_steps(self.steps, records)
            done = as_schema(rows.select(self.schema.names), self.schema)
            yield from renamed(done.to_batches(), numbered_names)


def pickled(what: object, name: str) -> bytes:
    """`what` as it travels to the workers, with the functions of a plan over the stream `name`.

    Raises DefinitionError if a function refers to a value that cannot travel.
    """
    try:
        made: bytes = cloudpickle.dumps(what)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever the value raises, Spark's session and DataFrames among them
        raise DefinitionError(
            f"A function of the plan over {name!r} refers to a value that cannot be pickled for the workers: {error}. "
            "Let it refer to no session, DataFrame, lock, open file or connection: make such a value inside the "
            "function, or import it there from a module."
        ) from error
    return made


def check_typed(given: Iterable[Step]) -> None:
    """Raise DefinitionError for a step without declared types: Spark must know its columns before there is a row."""
    for step in given:
        if isinstance(step, MapValues) and not step.typed:
            raise DefinitionError(
                f"{step}: Spark must know the types of columns before there is a row. Give "
                'map_values(..., types={"column": "long"}), or expressions instead of functions.'
            )
