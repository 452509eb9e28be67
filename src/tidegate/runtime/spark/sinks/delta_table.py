"""Delta tables as sinks, written with the `deltalake` package: no jar, so any Spark will do.

A commit of the table has the number of the batch as a transaction of an application, which Delta's protocol keeps with
the table. Tasks put large batches aside as Parquet files below the table, in a folder that readers of Delta skip.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column
from pyspark.sql.types import ArrayType, BinaryType, DecimalType, MapType, StructType

from tidegate.arguments import location_of, options_of
from tidegate.dsl.checks import check_column
from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateError, in_one_line
from tidegate.kernel.columns.arrays import as_schema
from tidegate.runtime.spark.files.all_rows import all_rows
from tidegate.runtime.spark.frames.arrow import arrow_schema
from tidegate.runtime.spark.sinks.delta_files import Files, at_hand, package, remove
from tidegate.runtime.spark.sinks.exactly_once import Batch, Target, Written
from tidegate.runtime.spark.sinks.outputs import Rows, in_sql, number_of
from tidegate.runtime.spark.sinks.staging import Lane, Staged

FOLDER = "_tidegate"
"""The folder below a table for rows put aside. Readers of Delta skip folders that begin with an underscore."""
_GONE = "tidegate:deleted"
"""The staged column of tombstones; no column of a user begins like this."""
ATTEMPTS = 10
"""Most tries of a commit when other queries write into the same table."""
_EXACT_DIGITS, _EXACT_INTEGER = 15, 2**53
"""Most digits of a decimal, and the largest integer, up to which a double has every one."""
_NO_NAMES = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that a name of a Delta column must not have, unless the table maps its columns."""


@dataclass(frozen=True)
class Delta:
    """A Delta table at `path`.

    Attributes:
        path: A folder, or an address of a store that `deltalake` reaches.
        mode: "append" or "upsert"; left out, append where each row is the last word, upsert for updates.
        name: Tells this query from others that write into the table.
        partition_by: Columns by which a table that is not there yet is partitioned.
        storage_options: As of deltalake: credentials and settings of the store, which the workers get too.

    Examples:
        ```python
        sink = tg.sinks.Delta("/data/visits", partition_by=["user"])
        ```
    """

    path: str | Path
    mode: str | None = None
    name: str | None = None
    partition_by: Sequence[str] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def target(self, rows: Rows) -> Target:
        """The table, made if it is not there.

        Args:
            rows: The rows that go there.

        Returns:
            The target of a query.

        Raises:
            DefinitionError: The table cannot take these rows.
            DefinitionTypeError: A field of the sink is of the wrong kind.

        Examples:
            ```python
            target = tg.sinks.Delta("/data/visits").target(rows)
            ```
        """
        by = [self.partition_by] if isinstance(self.partition_by, str) else self.partition_by
        if not isinstance(by, list | tuple):
            raise DefinitionTypeError(f"`partition_by` is {in_one_line(by)}. Use a list of names of columns.")
        options = options_of(self.storage_options, "storage_options")
        found = DeltaTarget(location_of(self.path, "path"), self.name, rows, options)
        found.make([check_column(each, "partition_by") for each in by])
        return found


class DeltaTarget(Target):
    """A table and the rows that go there."""

    def __init__(self, path: str, name: str | None, rows: Rows, options: dict[str, str]) -> None:
        self._path, self._options = _located(path), options
        super().__init__(rows, f"the Delta table {path!r}", name, f"DeltaTable({self._path!r}).delete()")

    @cached_property
    def _schema(self) -> pa.Schema:
        """The columns of the rows."""
        return arrow_schema(StructType(list(self.rows.fields)))

    @cached_property
    def _fields(self) -> list[Any]:
        """The columns of the rows, as Delta has them."""
        try:
            return package().Schema.from_arrow(self._schema).fields
        except Exception as error:  # the class depends on the version of the package
            raise DefinitionError(
                f"The rows cannot be those of a Delta table: {error}. Cast the column. The columns are {self._columns}."
            ) from error

    @property
    def _columns(self) -> str:
        """The columns of the rows, for errors."""
        return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in self.rows.fields)

    def make(self, partition_by: list[str]) -> None:
        deltalake = package()
        try:
            if not deltalake.DeltaTable.is_deltatable(self._path, self._options):
                self._check_names()
                self._check_partitions(partition_by)
                deltalake.DeltaTable.create(
                    self._path,
                    schema=deltalake.Schema(self._fields),
                    mode="ignore",
                    partition_by=partition_by or None,
                    storage_options=self._options,
                )
        except (deltalake.exceptions.TableNotFoundError, OSError) as error:
            raise TidegateError(
                f"{self.place} is not there and cannot be made: {error}. See that this process may write there and "
                "that the disk has room, or give another `path`."
            ) from error
        except deltalake.exceptions.DeltaError as error:
            # deltalake 1.6 does not notice times of a wall clock in maps, and then refuses them.
            raise DefinitionError(
                f"deltalake cannot make {self.place}: {error}. Cast the column that it does not take, or make the "
                f"table in another way. The columns are {self._columns}."
            ) from error
        self._check(self._table())

    def _check_names(self) -> None:
        for name in self._schema.names:
            if _NO_NAMES.search(name):
                raise DefinitionError(
                    f"The column {name!r} cannot be one of a Delta table: its name has one of ' ,;{{}}()=', a tab or a "
                    "line break. Rename it with map_values, or make a table that maps its columns."
                )
        lower = [name.lower() for name in self._schema.names]
        for name in self._schema.names:
            if lower.count(name.lower()) > 1:
                raise DefinitionError(
                    f"Two columns have the name {name!r} but for upper and lower case, and Delta takes them for one. "
                    "Rename one of them."
                )

    def _check_partitions(self, names: list[str]) -> None:
        """Raise DefinitionError for columns by which a table cannot be partitioned."""
        for name in names:
            if name not in self._schema.names:
                raise DefinitionError(
                    f"`partition_by` has {name!r}, but the rows have no such column. They have "
                    f"{', '.join(self._schema.names)}."
                )
            if names.count(name) > 1:
                raise DefinitionError(f"`partition_by` names the column {name!r} twice.")
            kind = self.rows.kind(name)
            if isinstance(kind, StructType | ArrayType | MapType | DecimalType | BinaryType):
                # Of a negative decimal deltalake 1.6 writes a value that nobody can read: "-3.-33". Of bytes it writes
                # "\\u0061", which it reads as these six characters, so an update finds no row.
                raise DefinitionError(
                    f"`partition_by` has {name!r}, which is {kind.simpleString()}: a table cannot be partitioned by "
                    "such values here. Use a column of texts, whole numbers or days."
                )
        if len(names) == len(self._schema.names):
            raise DefinitionError(
                f"`partition_by` has all columns of the rows, {', '.join(names)}, so that nothing is left for the "
                "files of the table. Leave one out."
            )

    def _check(self, table: Any) -> None:
        """Raise DefinitionError if a column is missing, has another type, or must not be null."""
        there = {each.name: each for each in table.schema().fields}
        ours = {each.name: each for each in self._fields}
        for name, mine in ours.items():
            theirs = there.get(name)
            if theirs is None:
                raise DefinitionError(
                    f"{self.place} has no column {name!r}. Its columns are {', '.join(there)}. Add it, for example "
                    f"DeltaTable({self._path!r}).alter.add_columns([Field({name!r}, ...)]), or leave it out of the "
                    "rows."
                )
            if not _takes(theirs.type, mine.type):
                raise DefinitionError(
                    f"{self.place} has the column {name!r} as {_type_name(theirs.type)}, and the rows have it as "
                    f"{_type_name(mine.type)}. Cast the one or the other."
                )
        for name, theirs in there.items():
            if name not in ours and not theirs.nullable:
                raise DefinitionError(
                    f"{self.place} has a column {name!r} that must not be null, and the rows do not have it. Make it "
                    "nullable, or add it to the rows."
                )

        if self.rows.upserts and table.metadata().configuration.get("delta.appendOnly") == "true":
            raise DefinitionError(
                f"{self.place} is append-only (delta.appendOnly), and an upsert replaces rows. Set the property to "
                'false, or use mode="append".'
            )

    def _table(self) -> Any:
        return package().DeltaTable(self._path, storage_options=self._options)

    def lane(self, frame_columns: Sequence[str], batch: Batch) -> tuple[list[Column], Lane]:
        columns: list[Column] = [self.rows.column(each.name) for each in self.rows.fields]
        schema, key = self._schema, tuple[str, ...]()
        if self.rows.upserts:
            columns.append(self.rows.deleted(frame_columns))
            schema, key = self._staged_schema, self.rows.key
        folder = f"{self._folder(batch.query)}/{uuid.uuid4().hex}"
        place = Files(self._path, folder, tuple(self._options.items()), schema)
        return columns, Lane(self.rows.output, schema, key, place, self.place)

    @property
    def _staged_schema(self) -> pa.Schema:
        return self._schema.append(pa.field(_GONE, pa.bool_()))

    def _folder(self, query: str) -> str:
        return f"{FOLDER}/{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.identity}/{query}').hex}"

    def begin(self, query: str) -> None:
        table = self._table()
        if not self.rows.upserts and self._is_of_another(table, query):
            if _has_rows(table):
                raise self.refuse_another()
            # A commit without rows: it fails if the other query commits at the same time, which is refused from now on.
            properties = _properties({self._newest_query: number_of(query)})
            package().write_deltalake(table, _no_rows(table), mode="append", commit_properties=properties)
        self._clean(query)

    def _is_of_another(self, table: Any, query: str) -> bool:
        """Whether the newest query of this name is another one."""
        newest = table.transaction_version(self._newest_query)
        if newest is not None:
            return bool(newest != number_of(query))
        # The last commit is of a version of tidegate that did not store the newest query.
        own, of_any = (table.transaction_version(self._application(*which)) for which in ((query,), ()))
        return own is None and of_any is not None

    @property
    def _newest_query(self) -> str:
        """The name under which the table remembers, as a number, the only query of this name that may append."""
        return f"tidegate:query/{self.identity}"

    def _application(self, query: str = "", what: str = "") -> str:
        """The name under which the table remembers a batch of a query, or of any query of this name."""
        return "/".join(("tidegate", self.identity, *filter(None, (query, what))))

    def written(self, query: str) -> Written | None:
        table = self._table()
        number = table.transaction_version(self._application(query))
        plan = table.transaction_version(self._application(query, "plan"))
        return None if number is None else Written(number, plan or 0)

    def commit(self, batch: Batch, rows: Staged) -> None:
        deltalake = package()
        for attempt in range(ATTEMPTS):
            table = self._table()
            # Another writer of the same batch makes one of the two fail: both commits have the same application.
            if _newest(table, self._application(batch.query)) >= batch.number:
                break
            if not self.rows.upserts and self._is_of_another(table, batch.query):
                raise self.refuse_another()
            self._check(table)  # somebody may have changed its columns since
            try:
                with at_hand(self._path, self._options, rows.aside) as files:
                    self._commit(table, batch, rows, files)
            except deltalake.exceptions.CommitFailedError:
                # Another query has changed the table in between.
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            break
        if rows.aside:
            # Not those of other batches: another driver of this query may have come further.
            remove(self._path, self._options, rows.aside[0].rpartition("/")[0])

    def _commit(self, table: Any, batch: Batch, rows: Staged, files: list[Path]) -> None:
        deltalake = package()
        remembered = {
            self._application(batch.query): batch.number,
            self._application(batch.query, "plan"): batch.plan,
        }
        if not self.rows.upserts:
            remembered[self._application()] = batch.number
            remembered[self._newest_query] = number_of(batch.query)
        properties = _properties(remembered)
        if self.rows.upserts:
            self._merge(table, _reader(rows, files) if files else rows.table, properties)
        else:
            filled = _filled(_reader(rows, files), pa.schema(table.schema().to_arrow()))
            deltalake.write_deltalake(table, filled, mode="append", commit_properties=properties)

    def _merge(self, table: Any, data: Any, properties: Any) -> None:
        names = self._schema.names
        same = " AND ".join(f"t.{in_sql(name)} = s.{in_sql(name)}" for name in self.rows.key)
        gone, values = f"s.{in_sql(_GONE)}", {in_sql(name): f"s.{in_sql(name)}" for name in names}
        # With a table as the source, and no stream, deltalake knows which files of the target can hold its keys: it
        # compares the keys with the statistics of the files.
        merge = table.merge(
            data,
            predicate=same,
            source_alias="s",
            target_alias="t",
            streamed_exec=not isinstance(data, pa.Table) or not all(map(_as_in_statistics, data.select(self.rows.key))),
            commit_properties=properties,
        )
        merge = merge.when_matched_delete(predicate=gone).when_matched_update(values)
        merge.when_not_matched_insert(values, predicate=f"NOT {gone}").execute()

    def _clean(self, query: str) -> None:
        """Remove rows that tasks of this query put aside; an attempt that still writes there is in no receipt."""
        remove(self._path, self._options, self._folder(query))


def _located(path: str) -> str:
    """The path for processes with other current folders: the workers, and this one if it changes its folder."""
    # deltalake takes Hadoop's "file:/tables" for an address, which Arrow does not.
    path = re.sub("^file:/(?!/)", "file:///", path)
    return path if "://" in path else str(Path(path).absolute())


def _reader(rows: Staged, files: list[Path]) -> pa.RecordBatchReader:
    """All rows of the batch, file by file."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.table.to_batches()
        for file in files:
            with pq.ParquetFile(file) as source:
                for batch in all_rows(source.iter_batches(), source.metadata.num_rows, str(file)):
                    yield from as_schema(pa.Table.from_batches([batch]), rows.schema).to_batches()

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def _filled(rows: pa.RecordBatchReader, columns: pa.Schema) -> pa.RecordBatchReader:
    """The rows with the table's columns, in their order; columns that the rows lack are null."""
    theirs = [field if field.name not in rows.schema.names else rows.schema.field(field.name) for field in columns]
    schema = pa.schema(theirs)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            filled = [
                batch[field.name] if field.name in rows.schema.names else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(filled, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _as_in_statistics(keys: pa.ChunkedArray) -> bool:
    """Whether the statistics of a file have these keys exactly: deltalake reads decimals and times there as doubles.

    They leave out NaN, and a file whose other keys are all equal seems to have this key alone: deltalake 1.6 would
    replace the row of NaN by that of the other key.
    """
    if pa.types.is_floating(keys.type):
        return False
    if pa.types.is_decimal(keys.type):
        return bool(keys.type.precision <= _EXACT_DIGITS)
    if not pa.types.is_timestamp(keys.type):
        return True
    bounds = pc.min_max(keys.cast(pa.int64())).as_py()
    return all(abs(bound) <= _EXACT_INTEGER for bound in bounds.values() if bound is not None)


def _properties(remembered: Mapping[str, int]) -> Any:
    """The properties of a commit that remembers these numbers, by the names of applications."""
    deltalake = package()
    return deltalake.CommitProperties(
        app_transactions=[deltalake.Transaction(name, number) for name, number in remembered.items()]
    )


def _has_rows(table: Any) -> bool:
    """Whether a file of the table has rows, or does not say how many."""
    return any(count != 0 for count in table.get_add_actions().column("num_records").to_pylist())


def _no_rows(table: Any) -> pa.Table:
    return pa.schema(table.schema().to_arrow()).empty_table()


def _newest(table: Any, application: str) -> int:
    number = table.transaction_version(application)
    return -1 if number is None else int(number)


def _takes(theirs: Any, mine: Any) -> bool:
    """Whether a column of one type of Delta takes all values of another: the same, but it may take more nulls."""
    if theirs == mine:
        return True
    if type(theirs) is not type(mine) or mine.type not in ("array", "map", "struct"):
        return False
    if mine.type == "array":
        return theirs.contains_null >= mine.contains_null and _takes(theirs.element_type, mine.element_type)
    if mine.type == "map":
        values = theirs.value_contains_null >= mine.value_contains_null and _takes(theirs.value_type, mine.value_type)
        return values and _takes(theirs.key_type, mine.key_type)
    if [each.name for each in theirs.fields] != [each.name for each in mine.fields]:
        return False
    pairs = zip(theirs.fields, mine.fields, strict=True)
    return all(one.nullable >= other.nullable and _takes(one.type, other.type) for one, other in pairs)


def _type_name(kind: Any) -> str:
    """The type as text: of a nested one all of it, because the difference may be inside."""
    return str(kind.type) if type(kind).__name__ == "PrimitiveType" else str(kind)
