"""The columns that an operation reads, ships and keeps.

Prefixes keep the user's names apart from each other and from ours:
    k:NAME key columns   v:NAME value columns   r:NAME other columns of a whole record
    s:I:J state column J of aggregate I   and plain names, which are ours:
    ts (ms)  pane / start (ms)  open (ms, first window still open to the row)  n (records)  chunk  offset
    chunk_time (ms, the stream time of the chunk alone)
    wall_clock (ms, the same in all rows of a micro-batch, and only where the plan needs it)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import pyarrow as pa

from tidegate.errors import DefinitionError
from tidegate.kernel.aggregates import Accumulator, accumulator
from tidegate.kernel.rows import map_filter
from tidegate.kernel.time.panes import Panes
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.plan import LATE_COLUMNS, RESULT_COLUMNS, Edge, Operation, Output
from tidegate.plan.identity import identity
from tidegate.spec.aggregates import Aggregate, Cogroup, Fold
from tidegate.spec.columns import (
    DELETED,
    END,
    LATE_BY,
    OURS,
    OUTPUT,
    REASON,
    ROW,
    ROW_ID,
    SIDE,
    START,
    STREAM_TIME,
    TIMESTAMP,
    public_name,
)
from tidegate.spec.joined import SIDES
from tidegate.spec.steps import Step
from tidegate.spec.types import arrow_type, is_atomic
from tidegate.spec.windows import (
    LEFT,
    RIGHT,
    AlignedWindows,
    BatchWindows,
    KeyedWindows,
    SessionWindows,
    TimeWindows,
    UnlimitedWindows,
)

ID_COLUMN = f"v:{ROW_ID}"
"""The id of a record that goes to a join."""

CHANGE_COLUMNS = ("ts", "sign", "silent", "rank", "place")
"""Columns of halves of changes, besides groups and values (kernel.exchange.retract_insert)."""


_CARRIED = ("k:", "v:", "r:")
"""Prefixes of the columns of the records themselves."""


@dataclass(frozen=True)
class Layout:
    """An operation together with the types of its input: `schema` holds k:, v:, ts, partition and offset columns."""

    op: Operation
    schema: pa.Schema
    typed: bool = True
    """Whether the types are settled; the driver may learn them from later records."""
    applied_steps: tuple[Step, ...] = ()
    """Steps that were applied to the result rows."""
    sorts: bool = True
    """Whether rows leave in Kafka's order; where tasks mix the rows afterwards, sorting would be wasted."""
    added_at: tuple[int, ...] = ()
    """`Column.added_at` of each aggregation (`rows.schema_evolution`); empty if all are from the first plan."""
    whole: Layout | None = None
    """The layout of the operator, where this is the layout of one side or one input."""
    tuning: Tuning = DEFAULT
    """Sizes of the work that is done at a time."""

    @classmethod
    def of_join(
        cls,
        op: Operation,
        sides: Sequence[pa.Schema],
        *,
        typed: bool = True,
        sorts: bool = True,
        tuning: Tuning = DEFAULT,
    ) -> Layout:
        """The layout of a join, given the columns of its inputs; its value columns begin with `v:left:` or `v:right:`.

        Raises DefinitionError if a key column has different types on the two sides.
        """
        fields = [_same_key(name, sides) for name in op.key]
        for side, (name, schema) in enumerate(zip(SIDES, (sides[0], sides[-1]), strict=True)):
            values = [f for f in schema if f.name.startswith("v:") and f.name != ID_COLUMN]
            fields += [pa.field(f"v:{name}:{f.name[2:]}", f.type) for f in values]
            if op.identifies(side):
                fields.append(pa.field(f"v:{name}:{ROW_ID}", pa.string()))
        return cls(op, pa.schema(fields), typed=typed, sorts=sorts, tuning=tuning)

    @classmethod
    def of_inputs(
        cls,
        op: Operation,
        inputs: Sequence[tuple[Edge, pa.Schema]],
        *,
        typed: bool = True,
        sorts: bool = True,
        tuning: Tuning = DEFAULT,
    ) -> Layout:
        """The layout of an operator, given the columns that it reads from each input."""
        sides = sorted({edge.side for edge, _ in inputs})
        schemas = [_merged(op, [one for one in inputs if one[0].side == side]) for side in sides]
        if op.joined is not None:
            return cls.of_join(op, schemas, typed=typed, sorts=sorts, tuning=tuning)
        return cls(op, schemas[0], typed=typed, sorts=sorts, tuning=tuning)

    def of_input(self, edge: Edge, schema: pa.Schema) -> Layout:
        """The layout of the map step over one input, whose columns are those of `schema`."""
        made = self if self.op.joined is None else self.of_side(edge.side, schema)
        stream = made.op.stream
        if edge.node is None or not stream.sources:
            return made
        columns = {field.name: field for field in made.schema if field.name[:2] in _CARRIED}
        if self.op.joined is not None:
            columns |= {field.name: field for field in self.of_side(edge.side).schema}
        fields = {field.name: columns.get(field.name, field) for field in schema} | columns
        stream = replace(stream.as_rows, number=edge.stream.number)
        op = replace(made.op, stream=stream)
        return replace(made, op=op, schema=pa.schema(list(fields.values())), whole=made.whole or self)

    def of_limit(self, output: Output, number: int) -> Layout:
        """The layout of the rows that come to a time limit of an output; its operation has that limit alone."""
        limit, made = output.limits[number], self.for_kind[output.kind]
        op = replace(made.op, outputs=(), limits=(limit,), after=(), buffer=None, buffer_name=limit.store)
        return replace(made, op=op, applied_steps=output.steps_before(number))

    def of_side(self, side: int, schema: pa.Schema | None = None) -> Layout:
        """The layout of one input of a join; `schema`: its columns, if more than key and values are read."""
        if schema is None:
            values = [pa.field(f"v:{name}", kind) for name, kind in self.values_of(side).items()]
            ids = [pa.field(ID_COLUMN, pa.string())] if self.has_ids(side) else []
            schema = pa.schema([*(self.schema.field(name) for name in self.keys), *values, *ids])
        return replace(self, op=self.op.of_side(side), schema=schema, applied_steps=(), added_at=(), whole=self)

    @property
    def half_known(self) -> bool:
        """Whether one side of a join has no columns yet: the driver learns them from the records of the side."""
        return self.op.joined is not None and not self.typed and not (self.values_of(LEFT) and self.values_of(RIGHT))

    def values_of(self, side: int) -> dict[str, pa.DataType]:
        """The value columns of one side of a join, by the user's names."""
        prefix = f"v:{SIDES[side]}:"
        names = {f.name.removeprefix(prefix): f.type for f in self.schema if f.name.startswith(prefix)}
        return {name: kind for name, kind in names.items() if name != ROW_ID}

    def has_ids(self, side: int) -> bool:
        """Whether the records of one side of a join have ids (`kernel.rows.row_ids`)."""
        return f"v:{SIDES[side]}:{ROW_ID}" in self.schema.names

    @property
    def has_row_ids(self) -> bool:
        """Whether rows of a join have ids."""
        return self.op.joined is not None and (self.has_ids(LEFT) or self.has_ids(RIGHT))

    @cached_property
    def identity(self) -> dict[str, str]:
        """Properties of the plan, by name, that must equal those of a checkpoint for a query to go on from it."""
        if self.whole is not None:
            return self.whole.identity
        # A cogroup stores nothing of its records, so their columns may change.
        # Ids are stored from the time when they are asked for: earlier records have none.
        values = [name for name in self.values if not name.startswith(f"v:{ROW}") and not name.endswith(f":{ROW_ID}")]
        types = {name: str(self.schema.field(name).type) for name in [*self.keys, *values]}
        typed = {"types": ", ".join(f"{name[2:]} {kind}" for name, kind in types.items())}
        return identity(self.op) | (typed if self.typed else {})

    @cached_property
    def digest(self) -> str:
        """A short text that differs where `identity` does, for the blobs of a batch: there are thousands."""
        return blake2b(json.dumps(self.identity, sort_keys=True).encode(), digest_size=12).hexdigest()

    @property
    def closes(self) -> bool:
        """Whether windows close, so that a later one of the same key begins anew."""
        return self.op.windows is not None and not isinstance(self.op.windows, UnlimitedWindows)

    @cached_property
    def paned(self) -> bool:
        """Whether a record's windows follow from its timestamp alone."""
        return isinstance(self.op.windows, TimeWindows)

    @cached_property
    def keyed(self) -> bool:
        """Whether a record's windows depend on earlier records of its key."""
        return isinstance(self.op.windows, KeyedWindows)

    @property
    def keyed_windows(self) -> KeyedWindows:
        """The windows of an operation whose windows are keyed."""
        assert isinstance(self.op.windows, KeyedWindows)
        return self.op.windows

    @cached_property
    def window_order(self) -> list[str]:
        """The bounds by which windows leave in order, and which tell the windows of a key apart (SEMANTICS 5)."""
        if self.op.windows is None:
            return []
        return [END, START] if isinstance(self.op.windows, SessionWindows) else [START]

    @cached_property
    def panes(self) -> Panes:
        """The panes of time windows."""
        assert isinstance(self.op.windows, TimeWindows)
        return Panes(self.op.windows)

    @cached_property
    def aligned(self) -> AlignedWindows:
        """The windows of an operation whose windows are not keyed."""
        assert isinstance(self.op.windows, TimeWindows | BatchWindows | UnlimitedWindows)
        return self.op.windows

    @cached_property
    def keys(self) -> list[str]:
        """The names of the key columns."""
        return [f"k:{name}" for name in self.op.key]

    @cached_property
    def values(self) -> list[str]:
        """The names of the value columns."""
        return [name for name in self.schema.names if name.startswith("v:")]

    @cached_property
    def passthrough(self) -> list[str]:
        """The names of the columns that records bring only because they are kept whole."""
        return [name for name in self.schema.names if name.startswith("r:")]

    @cached_property
    def accumulators(self) -> list[Accumulator]:
        """One accumulator for each built-in aggregate."""
        return [
            accumulator(a, self.schema.field(f"v:{a.column}").type if a.column else None, self.op.stream.changes)
            for _, a in self.op.aggregations
            if isinstance(a, Aggregate)
        ]

    @cached_property
    def states(self) -> list[list[str]]:
        """The names of the state columns of each accumulator."""
        return [[f"s:{i}:{j}" for j in range(len(a.state_types))] for i, a in enumerate(self.accumulators)]

    @cached_property
    def state(self) -> list[str]:
        """The names of all state columns: of the accumulators, or of the one function."""
        return ["s:0:0"] if self.op.function else [name for names in self.states for name in names]

    @cached_property
    def state_fields(self) -> list[pa.Field]:
        """The state columns with their types."""
        kinds = [self.function_type] if self.op.function else [t for a in self.accumulators for t in a.state_types]
        return [pa.field(name, kind) for name, kind in zip(self.state, kinds, strict=True)]

    @cached_property
    def function_type(self) -> pa.DataType:
        """The type of a function's aggregate."""
        function = self.op.function
        if isinstance(function, Fold):
            return arrow_type(function.type)
        if function is None:
            raise DefinitionError("The operation has no function. This is a bug in tidegate.")
        return self.schema.field(f"v:{function.column}").type

    @cached_property
    def result_types(self) -> dict[str, pa.DataType]:
        """The type of every value column of a result."""
        if self.applied_steps:
            others = {*self.op.key, START, END, TIMESTAMP, DELETED, ROW_ID}
            return {field.name: field.type for field in self.result_schema if field.name not in others}
        if self.op.function:
            return {self.op.aggregations[0][0]: self.function_type}
        if self.op.joined is not None:
            return self._joined_types
        if not self.op.aggregations:
            return self._table_types
        return {name: a.result_type for (name, _), a in zip(self.op.aggregations, self.accumulators, strict=True)}

    @property
    def _table_types(self) -> dict[str, pa.DataType]:
        found = {name[2:]: self.schema.field(name).type for name in self.values}
        for name in RESULT_COLUMNS:
            if name in found:
                raise DefinitionError(
                    f"table: a row would have a value column {name!r}, a name that rows of a result use themselves "
                    f"({', '.join(RESULT_COLUMNS)}). Rename it, for example to {name + '_in'!r}."
                )
        return found

    @property
    def _joined_types(self) -> dict[str, pa.DataType]:
        assert self.op.joined is not None
        left, right = self.values_of(LEFT), self.values_of(RIGHT)
        if self.op.joined.values is not None:
            return {name: pa.struct(list(types.items())) for name, types in zip(SIDES, (left, right), strict=True)}
        names = self.op.joined.names(list(left), list(right))
        found = {names[LEFT][name]: kind for name, kind in left.items()}
        found |= {names[RIGHT][name]: kind for name, kind in right.items()}
        taken = (*RESULT_COLUMNS, *((*LATE_COLUMNS, "side") if self.op.keeps_late else ()), *self.op.key)
        for name in found:
            if name in taken:
                raise DefinitionError(
                    f"join: a row would have a value column {name!r}, a name that rows of a result use themselves "
                    f"({', '.join(taken)}). Rename it with map_values."
                )
        return found

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of rows that leave: key columns, `START` and `END` (ms), value columns, `TIMESTAMP` (ms), and
        `DELETED` where rows can be tombstones.
        """
        if self.applied_steps:
            plain = replace(self, applied_steps=()).result_schema.empty_table()
            return map_filter.on_results(self.applied_steps, plain, self.op.key).schema
        fields = [pa.field(name, self.schema.field(f"k:{name}").type) for name in self.op.key]
        if self.op.windows is not None:
            fields += [pa.field(START, pa.int64()), pa.field(END, pa.int64())]
        fields += [pa.field(name, kind) for name, kind in self.result_types.items()]
        fields += [pa.field(ROW_ID, pa.string())] if self.has_row_ids else []
        fields += [pa.field(TIMESTAMP, pa.int64())]
        fields += [pa.field(DELETED, pa.bool_())] if self.op.deletes else []
        return pa.schema(fields)

    @cached_property
    def for_kind(self) -> dict[str, Layout]:
        """This layout for rows of one kind alone, by the kind: "updates" and "final"."""
        return {
            kind: self if self.op.emits == kind else replace(self, op=replace(self.op, emits=kind))
            for kind in ("updates", "final")
        }

    @property
    def so_far(self) -> Layout:
        """This layout for the current results of open windows, or of keys."""
        return self.for_kind["updates" if self.op.windows is None else "final"]

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The columns of rows that leave the operator, for all outputs; also `OUTPUT` if outputs have names.

        Raises DefinitionError if a column of a late record has the name of another one.
        """
        if self.op.regroup is not None:
            return self._changes if self.op.regroup.changes else self.forwarded
        named = pa.schema([pa.field(OUTPUT, pa.string())] if self.op.named else [])
        outputs = [output for output in self.op.all_outputs if output.kind != "late"]
        shapes = {o.name: replace(self.for_kind[o.kind], applied_steps=o.steps).result_schema for o in outputs}
        _check_types(shapes)
        schema = pa.unify_schemas([named, *shapes.values()])
        if not self.op.keeps_late:
            return schema
        late = self.late_schema
        if self.op.joined is None:
            _check_names(schema, late, self.record)
        return pa.unify_schemas([schema, late])

    def repartitioned_columns(self, available: Sequence[str]) -> dict[str, str]:
        """The columns of rows for the next operator, each with the name of its column in the rows of this one."""
        assert self.op.regroup is not None
        values = self.op.regroup.values
        if values is None:
            left_out = () if self.op.regroup.with_non_values else self.op.regroup.non_values
            values = tuple(name for name in available if not name.startswith(OURS) and name not in left_out)
        for name in (*self.op.regroup.key, *values):
            if name not in available:
                known = ", ".join(n for n in available if not n.startswith(OURS))
                raise DefinitionError(f"The rows that are grouped have no column {name!r}, only {known}.")
        found = {f"k:{name}": name for name in self.op.regroup.key} | {f"v:{name}": name for name in values}
        if self.op.row_ids:
            found[ID_COLUMN] = ROW_ID
        if not self.op.regroup.full_records:
            return found
        others = [name for name in available if name not in found.values() and not name.startswith(OURS)]
        return found | {f"r:{name}": name for name in others}

    @property
    def order_of_forwarded(self) -> dict[str, str]:
        """The columns by which the next operator orders rows at the same time, each with its column of result rows."""
        (output,) = self.op.all_outputs
        if self.op.regroup is not None and self.op.regroup.table:
            return {}
        bounds = self.window_order if output.kind == "final" and not output.limits else []
        return {f"o:{i}": name for i, name in enumerate([*bounds, *self.op.key])}

    @property
    def forwarded(self) -> pa.Schema:
        """The columns of records for the next operator of a chain (kernel.exchange.to_stream)."""
        shape, rows = self._taken
        order = [pa.field(name, rows.field(column).type) for name, column in self.order_of_forwarded.items()]
        ours = [pa.field("ts", pa.int64()), pa.field("empty", pa.bool_()), pa.field("place", pa.int64())]
        if self.op.regroup is not None and self.op.regroup.table:
            # The rank never decreases, so that changes stay in the order in which they left.
            ours = [pa.field("o:rank", pa.int64()), pa.field("deleted", pa.bool_()), *ours]
        if self.op.passes_time:
            ours.append(pa.field("kept", pa.bool_()))
        return pa.schema([*shape, *order, *ours])

    @property
    def _changes(self) -> pa.Schema:
        """The columns of halves of changes for the next operator (kernel.exchange.retract_insert)."""
        taken, _ = self._taken
        return pa.schema([*taken, *(pa.field(n, pa.bool_() if n == "silent" else pa.int64()) for n in CHANGE_COLUMNS)])

    @property
    def _taken(self) -> tuple[list[pa.Field], pa.Schema]:
        """The key, value and record columns that the next operator takes, and all columns of the rows of this one."""
        (output,) = self.op.all_outputs
        rows = replace(self.for_kind[output.kind], applied_steps=output.steps).result_schema
        columns = self.repartitioned_columns(rows.names)
        if self.op.row_ids and ROW_ID not in rows.names:  # final results get ids in `to_stream`
            rows = rows.append(pa.field(ROW_ID, pa.string()))
        check_atomic(rows, self.op.regroup.key if self.op.regroup is not None else ())
        return [pa.field(name, rows.field(column).type) for name, column in columns.items()], rows

    @cached_property
    def record(self) -> dict[str, str]:
        """Every column of a whole record, with the column that carries it. In a join: value columns of its rows."""
        if self.op.joined is not None and self.whole is None:
            return {name: name for name in self._joined_types}
        return {name[2:]: name for name in [*self.passthrough, *self.values, *self.keys]}

    @cached_property
    def late_schema(self) -> pa.Schema:
        """The columns of rows of late and skipped records."""
        why = [pa.field(REASON, pa.string()), pa.field(LATE_BY, pa.int64()), pa.field(STREAM_TIME, pa.int64())]
        if self.op.joined is not None:
            return pa.schema([*self.result_schema, pa.field(SIDE, pa.string()), *why])
        bounds = (START, END) if self.op.windows is not None else ()
        ours = [*(pa.field(name, pa.int64()) for name in (*bounds, TIMESTAMP)), *why]
        record = {name: self.schema.field(column).type for name, column in self.record.items()}
        keys = [pa.field(name, record[name]) for name in self.op.key]
        return pa.schema([*keys, *ours, *(pa.field(n, kind) for n, kind in record.items() if n not in self.op.key)])


def check_atomic(rows: pa.Schema, key: Iterable[str]) -> None:
    """Raise DefinitionError for a key column whose type is not atomic."""
    for name in key:
        kind = rows.field(name).type
        if not is_atomic(kind):
            raise DefinitionError(
                f"The key column {name!r} is {kind}: a key must be of an atomic type. Give its parts as several key "
                "columns."
            )


def _merged(op: Operation, inputs: Sequence[tuple[Edge, pa.Schema]]) -> pa.Schema:
    """The columns of merged inputs. Rows of operators add only key, value and record columns to those of a source."""
    schemas = [schema for _, schema in inputs]
    if isinstance(op.function, Cogroup):  # each input has a column of its own
        return pa.unify_schemas(schemas)
    if len(inputs) == 1 or all(edge.node is None for edge, _ in inputs):
        return schemas[0]
    first = next((schema for edge, schema in inputs if edge.node is None), schemas[0])
    carried = [pa.schema([field for field in schema if field.name[:2] in _CARRIED]) for schema in schemas]
    return pa.unify_schemas([first, *carried])


def _same_key(name: str, sides: Sequence[pa.Schema]) -> pa.Field:
    """A key column, which must have one type on both sides; on a side without records so far it has the type null."""
    kinds = [schema.field(f"k:{name}").type for schema in sides]
    known = list(dict.fromkeys(kind for kind in kinds if not pa.types.is_null(kind)))
    if len(known) > 1:
        raise DefinitionError(
            f"join: the key column {name!r} is {kinds[0]} on the left and {kinds[-1]} on the right. Cast one of them: "
            "equal keys of two types would never meet."
        )
    return pa.field(f"k:{name}", known[0] if known else pa.null())


def _check_types(outputs: Mapping[str, pa.Schema]) -> None:
    """Raise DefinitionError if a column has different types in two outputs."""
    first: dict[str, tuple[str, pa.DataType]] = {}
    for output, schema in outputs.items():
        for field in schema:
            other, kind = first.setdefault(field.name, (output, field.type))
            if field.type != kind and not pa.types.is_null(kind) and not pa.types.is_null(field.type):
                raise DefinitionError(
                    f"The column {public_name(field.name)!r} is {kind} in the output {other!r} and {field.type} in "
                    f"{output!r}: the outputs leave as one table. Give the columns different names, or one type by "
                    "map_values."
                )


def _check_names(results: pa.Schema, late: pa.Schema, record: Iterable[str]) -> None:
    for name in {*record, *LATE_COLUMNS}:
        ours = name in (*RESULT_COLUMNS, *LATE_COLUMNS) and (name in record or name in results.names)
        kinds = {table.field(name).type for table in (results, late) if name in table.names} - {pa.null()}
        if ours or len(kinds) > 1:
            raise DefinitionError(
                f"Late records are whole records, and {name!r} is a column of theirs and of another row or meaning "
                f"({', '.join(map(str, kinds)) or 'a name of tidegate'}). Rename the column before tg.stream, or name "
                f"the aggregate otherwise, for example {name}_value=..."
            )
