"""The source streams of an operator, in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.kernel.rows import map_filter
from tidegate.plan import Stream
from tidegate.spec.steps import MapValues
from tidegate.testing.column_types import Types
from tidegate.testing.records import INPUT, Record


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

    def learn(self, schema: pa.Schema, name: str | None) -> None:
        """Learn the column types of a table that is piped into `name`."""
        for stream, types in self.types_of.items():
            if name in (None, stream):
                types.learn_schema(schema)

    def types(self) -> Types:
        """The types after the steps, if schemas and steps declare them."""
        columns: dict[str, pa.DataType] = {}
        declared = [branch for branch in self.branches if branch.schema is not None and _typed(branch)]
        for branch in declared:
            assert branch.schema is not None
            found = map_filter.apply_steps(branch.steps, branch.schema.empty_table()).schema
            columns = {field.name: field.type for field in found} | columns
        return Types(columns, declared=self.branches[0] in declared, numbered=any(map(_numbered, self.branches)))

    def take(self, records: Sequence[Record], name: str | None, start: int) -> list[Record]:
        """The records piped into `name` after the steps of each stream with this source, in order."""
        mine = [branch for branch in self.branches if name in (None, branch.name)]
        taken = [entry for branch in mine for entry in self._through(branch, records, start)]
        return [record for _, record in sorted(taken, key=lambda entry: entry[0])]

    def _through(self, stream: Stream, records: Sequence[Record], start: int) -> list[tuple[int, Record]]:
        done = list(enumerate(records))
        if stream.steps:
            types = self.types_of[stream.name]
            types.learn(records)
            columns = {name: types.array(name, records, start) for name in types.columns}
            rows = pa.table(columns | {map_filter.PLACE: pa.array(range(len(records)), pa.int64())})
            # Types learned from values must not depend on the other records of the batch.
            alone = any(isinstance(step, MapValues) and not step.typed for step in stream.steps)
            parts = [rows.slice(i, 1) for i in range(len(records))] if alone else [rows]
            stepped = (row for part in parts for row in map_filter.apply_steps(stream.steps, part).to_pylist())
            done = [(row.pop(map_filter.PLACE), row) for row in stepped]
        if _numbered(stream):
            done = [(at, {**row, INPUT: stream.number}) for at, row in done]
        return done


def _numbered(stream: Stream) -> bool:
    return stream.number is not None and stream.partition is not None


def _typed(stream: Stream) -> bool:
    return all(step.typed for step in stream.steps if isinstance(step, MapValues))
