"""Files of Parquet or ORC, which the workers read with Arrow.

Rows of such files never pass through the JVM (decision 0009). A task gets the paths of files, either as Spark's own
source of binary files lists them, or in the order of a catalog (`listed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidegate.errors import InputError
from tidegate.kernel.rows.map_filter import WALL_CLOCK
from tidegate.runtime.spark.files import deletion_vector, dictionary_pages, place
from tidegate.runtime.spark.files.all_rows import all_rows
from tidegate.runtime.spark.files.deletion_vector import DELETED
from tidegate.runtime.spark.files.listed import NUMBER, PATH, VALUES, folder_values, typed, value_in
from tidegate.runtime.spark.files.stores import Root, located, too_large
from tidegate.runtime.spark.files.times import FIRST_YEAR, OldTimeError, Times
from tidegate.runtime.spark.row_decoder import Counts, RowDecoder

_BATCH_ROWS = 1 << 17

# What Spark writes into a file of Parquet: its version, and marks of old days and times in the way of Spark 2.
_VERSION = b"org.apache.spark.version"
_OLD_DAYS, _OLD_96_BITS = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"


@dataclass(frozen=True)
class Columns:
    """Reads a file of a format as rows with the columns of `schema`.

    names  name of a column in a file, if it is not the one in the row
    zone   zone of times without a zone; for ORC, which has times of a wall clock
    sparse whether a file may lack columns, which are null then (a table may get columns later)
    ids    number of each column by its name in a file, if files have columns by number
    kept   columns that stay dictionary-encoded where a file has them so (`dictionary_pages`)
    """

    schema: pa.Schema
    format: str = "parquet"
    names: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    sparse: bool = False
    ids: Mapping[str, int] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()

    def rows(self, opened: Callable[[], Any], path: str) -> Iterator[pa.RecordBatch]:
        """The rows of the file that `opened` gives; raises an InputError that names the file `path`."""
        read = {"parquet": self._parquet, "orc": self._orc}[self.format]
        try:
            with opened() as file:
                for rows, times in read(file, path):
                    if rows.num_rows:
                        yield self._typed(path, rows, times)
        except MemoryError as error:  # Arrow's too
            raise too_large(path, error) from error
        except (OSError, pa.ArrowException) as error:
            if self.sparse and isinstance(error, FileNotFoundError):
                raise InputError(
                    f"The file {path} of the table is not there any more. VACUUM removes files that later versions "
                    "have replaced; delta.deletedFileRetentionDuration says how long they stay. If there is a copy of "
                    "the file, put it back and start the query again; otherwise begin with a new checkpoint."
                ) from error
            kind = {"parquet": "Parquet", "orc": "ORC"}[self.format]
            raise InputError(
                f"The file {path} cannot be read as {kind}: {error}. Put a good one in its place, under the same "
                "name, and start the query again: it goes on with this batch."
            ) from error

    def _parquet(self, source: Any, path: str) -> Iterator[tuple[pa.RecordBatch, Times]]:
        kept = {self.names.get(name, name) for name in self.kept}
        with dictionary_pages.opened(source) as file:
            times = _as_written(file, Times(self.zone))
            fields = {self._by_id(each): each.name for each in file.schema_arrow}
            found = {name: each for name, each in fields.items() if name is not None}
            there = self._there(path, found if self.ids else {each: each for each in file.schema_arrow.names})
            read, kept = list(there.values()), {there[name] for name in kept if name in there}
            batches = dictionary_pages.batches(file, source, read, _BATCH_ROWS, kept)
            for batch in all_rows(batches, file.metadata.num_rows, path):
                # Without any of the columns a batch still has its number of rows.
                yield batch.select(read).rename_columns(list(there)), times

    def _by_id(self, found: pa.Field) -> str | None:
        """The name in `ids` of a file's column, by its number; None for a column that is not in `ids`."""
        number = int((found.metadata or {}).get(b"PARQUET:field_id", -1))
        return next((name for name, id_ in self.ids.items() if id_ == number), None)

    def _orc(self, source: Any, path: str) -> Iterator[tuple[pa.RecordBatch, Times]]:
        from pyarrow import orc

        file = orc.ORCFile(source)
        there = self._there(path, {each: each for each in file.schema.names})
        read = list(there.values())
        stripes = (file.read_stripe(stripe, columns=read) for stripe in range(file.nstripes))
        times = Times(self.zone, julian=True, numbers=True)
        for rows in all_rows(stripes, file.nrows, path):
            yield rows.select(read).rename_columns(list(there)), times

    def _there(self, path: str, found: Mapping[str, str]) -> dict[str, str]:
        """The columns to read, with their names in the file, which has the columns `found`.

        To Spark the case of a name is nothing. Raises InputError for a column that is missing.
        """
        there = {}
        for wanted in self.schema.names:
            name = self.names.get(wanted, wanted)
            alike = [name] if name in found else [each for each in found if each.lower() == name.lower()]
            if len(alike) == 1:
                there[name] = found[alike[0]]
            elif not self.sparse:
                raise InputError(
                    f"The file {path} has no column {name!r}, only {', '.join(found)}. Write it with that one; "
                    f"tg.stream(spark.readStream.{self.format}(...)) would take nulls for it, or the values in names "
                    "of folders such as day=2026-01-01."
                )
        return there

    def _typed(self, path: str, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch:
        there = rows.schema.names
        rows_of = {name: self.names.get(name, name) for name in self.schema.names}
        same = there == list(rows_of.values()) and rows.schema.types == self.schema.types
        if same and all(map(times.as_they_are, self.schema.types)):
            return pa.record_batch(rows.columns, schema=self.schema)
        columns = []
        for field_ in self.schema:
            if (name := rows_of[field_.name]) not in there:
                columns.append(pa.nulls(rows.num_rows, field_.type))
                continue
            column = _called(rows.column(name), field_.type)
            if field_.name in self.kept and _encodes(column.type, field_.type):
                columns.append(column)
                continue
            try:
                columns.append(times.cast(column, field_.type))
            except OldTimeError as error:
                raise InputError(
                    f"The file {path} has a column {name!r} with a time before {FIRST_YEAR} as Spark 2 counted it, by "
                    "the Julian calendar and the clocks of a zone. Read the files with Spark, by tg.stream over "
                    "spark.readStream, which needs a new checkpoint; or write this one anew with Spark 3 or later, "
                    "under the same name, and start the query again: it goes on with this batch."
                ) from error
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    f"The file {path} has a column {name!r} that is {column.type}, and the stream's is "
                    f"{field_.type}: {error}. Write it with that type, or give `schema` with one that all files fit."
                ) from error
        return _of_columns(columns, self.schema)


def _as_written(file: Any, times: Times) -> Times:
    """`times`, and what a file of Parquet says of old days and times, by the marks of Spark."""
    said = file.metadata.metadata or {}
    version = said.get(_VERSION)
    if version is None:  # another program, or no rows of Spark's
        return times
    days = version < b"3.0.0" or _OLD_DAYS in said
    of_96_bits = "INT96" in (file.schema.column(at).physical_type for at in range(file.metadata.num_columns))
    return replace(times, julian=days, old=(version < b"3.1.0" or _OLD_96_BITS in said) if of_96_bits else days)


def _called(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """`column` with the names that `wanted` has for fields of structs: to Spark the case of a name is nothing."""
    kind = _named_as(column.type, wanted)
    return column if kind == column.type else column.view(kind)


def _named_as(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """`found` with the names of `wanted`. Arrow would be without a field of another name, and give nulls for it."""
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        there = {each.name for each in found}
        others = {each.name.lower(): each for each in wanted if each.name not in there}
        same = {each.name: each for each in wanted}
        fields = [(each, same.get(each.name) or others.get(each.name.lower(), each)) for each in found]
        return pa.struct([each.with_name(of.name).with_type(_named_as(each.type, of.type)) for each, of in fields])
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        key, item = _named_as(found.key_type, wanted.key_type), _named_as(found.item_type, wanted.item_type)
        return pa.map_(found.key_field.with_type(key), found.item_field.with_type(item))
    if pa.types.is_list(wanted) and (pa.types.is_list(found) or pa.types.is_large_list(found)):
        made = pa.list_ if pa.types.is_list(found) else pa.large_list
        return made(found.value_field.with_type(_named_as(found.value_type, wanted.value_type)))
    return found


def _encodes(kind: pa.DataType, values: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and kind.value_type == values)


def _of_columns(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, of which some may be dictionary-encoded."""
    fields = [
        field_.with_type(column.type) if _encodes(column.type, field_.type) else field_
        for field_, column in zip(schema, columns, strict=True)
    ]
    return pa.record_batch(columns, schema=pa.schema(fields))


@dataclass(frozen=True)
class Files(RowDecoder):
    """Opens the Parquet files whose paths come in; rows go out with the columns of `schema`.

    kept  columns that may stay dictionary-encoded
    """

    schema: pa.Schema
    kept: frozenset[str] = frozenset()

    def keeping_dictionaries(self, names: frozenset[str]) -> RowDecoder:
        return replace(self, kept=names)

    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        """The rows of all files, and in each the wall clock that came with its path, if one did."""
        columns = Columns(self.schema, kept=self.kept)
        for batch in batches:
            clocks = batch.column(WALL_CLOCK) if WALL_CLOCK in batch.schema.names else None
            for at, path in enumerate(batch.column(PATH).to_pylist()):
                for rows in columns.rows(lambda path=path: _opened(path), path):  # type: ignore[misc]
                    yield _clocked(rows, clocks, at)


@dataclass(frozen=True)
class OrderedFiles(RowDecoder):
    """Opens the files of a listing (`listed.LISTING`); rows go out with the columns of `schema`.

    Among these may be `partition` and `offset` (`place`), and values in names of folders.

    columns  reads the columns of a file
    folders  the folder of each column that is a value in names of folders
    zone     zone of times without a zone in names of folders
    """

    root: Root
    schema: pa.Schema
    columns: Columns
    folders: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"

    def keeping_dictionaries(self, names: frozenset[str]) -> RowDecoder:
        return replace(self, columns=replace(self.columns, kept=names.intersection(self.columns.schema.names)))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, uncounted: Spark calls this if a DataFrame of rows is wanted."""
        return self.rows(batches, Counts())

    def rows(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        """The rows of all files, and in each the wall clock that came with its path, if one did."""
        for batch in batches:
            clocks = batch.column(WALL_CLOCK) if WALL_CLOCK in batch.schema.names else None
            for at, file in enumerate(batch.select([PATH, NUMBER, VALUES]).to_pylist()):
                for rows in self._of_file(file[PATH], file[NUMBER], folder_values(file[VALUES])):
                    yield _clocked(rows, clocks, at)

    def _of_file(self, path: str, number: int, folders: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
        name = self.root.named(path)
        values = {
            each: typed(value_in(folders, folder, name), folder, self.schema.field(each).type, name, self.zone)
            for each, folder in self.folders.items()
        }
        row, read = 0, 0
        gone = deletion_vector.deleted(vector, self.root, name) if (vector := folders.get(DELETED)) else None
        for rows in self.columns.rows(lambda: self.root.opened(path), name):
            if gone is not None:
                there = deletion_vector.kept(gone, read, rows.num_rows)
                read += rows.num_rows
                rows = rows.filter(pa.array(there))
            made = place.order(number, row, rows.num_rows)
            made |= dict(zip(rows.schema.names, rows.columns, strict=True))
            made |= {each: pa.repeat(value, rows.num_rows) for each, value in values.items()}
            row += rows.num_rows
            yield _of_columns([made[each] for each in self.schema.names], self.schema)


def _clocked(rows: pa.RecordBatch, clocks: pa.Array | None, at: int) -> pa.RecordBatch:
    return rows if clocks is None else rows.append_column(WALL_CLOCK, pa.repeat(clocks[at], rows.num_rows))


def _opened(path: str) -> Any:
    """The file at a path as Spark writes it, for random access."""
    store, inside = located(path)
    return store.open_input_file(inside)
