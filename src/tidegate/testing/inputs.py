"""The source streams of an operator, in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.errors import AggregationError
from tidegate.kernel.columns.arrays import plain_columns
from tidegate.kernel.rows import map_filter
from tidegate.plan import Stream
from tidegate.spec.columns import ROW
from tidegate.spec.steps import Filter, MapValues, OneColumn, SelectKey
from tidegate.spec.types import arrow_type
from tidegate.testing.column_types import Types
from tidegate.testing.records import INPUT, Record, as_dicts


@dataclass
class Inputs:
    """Source streams (`branches`), with the types of their columns before the steps, by name of the stream."""

    branches: tuple[Stream, ...]
    types_of: dict[str, Types] = field(default_factory=dict)

    @classmethod
    def of(cls, branches: tuple[Stream, ...]) -> Inputs:
        """The inputs, with the types of declared schemas."""
        return cls(branches, {branch.name: Types.of(branch.schema) for branch in branches})

    def copy(self) -> Inputs:
        """A copy that learns independently."""
        return Inputs(self.branches, {name: types.copy() for name, types in self.types_of.items()})

    def go_on(self, before: Inputs) -> None:
        """Add the types of inputs of the same name from before a restart."""
        for name in self.types_of.keys() & before.types_of.keys():
            self.types_of[name].go_on(before.types_of[name])

    def reads(self, name: str | None) -> bool:
        """Whether an input has this name; True if `name` is None."""
        return name is None or any(branch.name == name for branch in self.branches)

    def learn(self, schema: pa.Schema | None, name: str | None) -> list[pa.Schema]:
        """Learn the column types of a table that is piped into `name`; `schema` is None for records without types.

        Returns columns after the steps that `types` does not have: of the table, and of a declared schema in front of a
        function without types.
        """
        for stream, types in self.types_of.items():
            if schema is not None and name in (None, stream):
                types.learn_schema(schema)
        return [
            _after_steps(branch, self.types_of[branch.name])
            for branch in self._named(name)
            if schema is not None or (branch.schema is not None and not _typed(branch))
        ]

    def types(self) -> Types:
        """The types after the steps, if schemas and steps declare them."""
        columns: dict[str, pa.DataType] = {}
        declared = [branch for branch in self.branches if branch.schema is not None and _typed(branch)]
        for branch in declared:
            assert branch.schema is not None
            found = map_filter.apply_steps(branch.steps, plain_columns(branch.schema.empty_table())).schema
            columns = {field.name: field.type for field in found} | columns
        numbered = any(map(_numbered, self.branches))
        return Types(columns, self.branches[0] in declared, numbered, frozenset(columns))

    def declared(self, name: str | None) -> dict[str, pa.DataType]:
        """The types that steps declare of the columns behind all steps, for the streams with this source."""
        found: dict[str, pa.DataType] = {}
        for branch in self._named(name):
            found = _declared(branch) | found
        return {field.name: field.type for field in plain_columns(pa.schema(list(found.items())).empty_table()).schema}

    def take(self, records: Sequence[Record], name: str | None, start: int) -> list[Record]:
        """The records piped into `name` after the steps of each stream with this source, in order."""
        taken = [entry for branch in self._named(name) for entry in self._through(branch, records, start)]
        return [record for _, record in sorted(taken, key=lambda entry: entry[0])]

    def _named(self, name: str | None) -> list[Stream]:
        """The streams with this source; all of them if `name` is None."""
        return [branch for branch in self.branches if name in (None, branch.name)]

    def _through(self, stream: Stream, records: Sequence[Record], start: int) -> list[tuple[int, Record]]:
        done = list(enumerate(records))
        if stream.steps:
            types = self.types_of[stream.name]
            types.learn(records)
            columns = {
                name: types.array(name, records, start, instants=name == stream.timestamp) for name in types.columns
            }
            rows = pa.table(columns | {map_filter.PLACE: pa.array(range(len(records)), pa.int64())})
            # Types learned from values must not depend on the other records of the batch.
            alone = any(isinstance(step, MapValues) and not step.typed for step in stream.steps)
            parts = [rows.slice(i, 1) for i in range(len(records))] if alone else [rows]
            stepped = (map_filter.apply_steps(stream.steps, part) for part in parts)
            made = (row for part in stepped for row in as_dicts(part, "rows of a step", AggregationError))
            done = [(row.pop(map_filter.PLACE), row) for row in made]
        if _numbered(stream):
            done = [(at, {**row, INPUT: stream.number}) for at, row in done]
        return done


def _numbered(stream: Stream) -> bool:
    return stream.number is not None and stream.partition is not None


def _after_steps(stream: Stream, types: Types) -> pa.Schema:
    """The columns after the steps whose types do not depend on values."""
    rows = pa.schema(list(types.columns.items())).empty_table()
    known = types.known
    for step in stream.steps:
        if isinstance(step, MapValues) and not (known := known and step.typed):
            # Types of new columns depend on what a function returns, or on a column that had no value yet.
            rows = rows.select([name for name in rows.schema.names if name in step.kept])
        elif not isinstance(step, Filter):
            rows = map_filter.apply_steps([step], rows)
    return rows.schema


def _declared(stream: Stream) -> dict[str, pa.DataType]:
    """The columns behind the steps whose types a step declares."""
    columns: dict[str, pa.DataType] = {}
    for step in stream.steps:
        if isinstance(step, MapValues):
            kept = {name: kind for name, kind in columns.items() if name in step.kept}
            columns = kept | {name: arrow_type(kind) for name, kind in step.types}
        elif isinstance(step, SelectKey):
            columns[step.name] = arrow_type(step.type)
        elif isinstance(step, OneColumn):
            kept = {name: kind for name, kind in columns.items() if name in step.kept}
            columns = kept | {f"{ROW}{step.number}": pa.struct(list(columns.items()))}
    return columns


def _typed(stream: Stream) -> bool:
    return all(step.typed for step in stream.steps if isinstance(step, MapValues))
