"""TopologyTestDriver: a topology record by record or batch by batch, on the kernel that Spark runs, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tidegate.dsl import KLateRecords, KTable, Result, outputs
from tidegate.errors import CheckpointError, DefinitionError, DefinitionTypeError
from tidegate.instants import Duration, Window, duration_ms, instant_ms, show_ms
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.inspect import pending, stored_rows
from tidegate.kernel.inspect.totals import Totals
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, reasons
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore, Overlay
from tidegate.kernel.upgrade import compatibility, description
from tidegate.kernel.upgrade.drain import DONE, drained
from tidegate.kernel.windows import expected_keys
from tidegate.plan import (
    Operation,
    Plan,
    Stream,
    chain,
    inputs_of,
    operation,
)
from tidegate.spec.columns import END, START, public_name
from tidegate.spec.metrics import LEAVING, combined, numbers, timed
from tidegate.spec.pending import Pending
from tidegate.spec.upgrade import Change, Upgrade, other_operators, refusal
from tidegate.testing.inputs import OWN, Inputs, Record, Types, as_records, schema_of, to_batch

_PARTITION, _OFFSET = OWN


@dataclass
class DriverState:
    """What a driver remembers; a new driver given it goes on as after a restart."""

    store: DictStore
    types: Types
    piped: int
    inputs: Inputs
    wall_clock_ms: int = 0
    behind: tuple[DictStore, ...] = ()
    drained: bool = False


class TopologyTestDriver:
    """Runs a topology in this process.

        driver = TopologyTestDriver(build(tg.stream("events", key="user", timestamp="ts")))
        driver.pipe_input({"user": "A", "ts": 0})
        driver.read_output()

    Timestamps are integer milliseconds or datetimes. Records come in the order piped, as one source partition; a
    stream with partition and offset reads them from the records. `pipe_input` is a micro-batch of one record.

    Several outputs of one aggregation are given by name, `TopologyTestDriver({"raw": counts, "final": final})` or
    `TopologyTestDriver(tg.outputs(raw=counts, final=final))`: each row then says its `output`.

    Where streams were merged, the name of its input goes with a record: `driver.pipe_input(record, "clicks")`.

    Supported: everything the Spark runtime runs. Not supported: tasks and source layouts (`tidegate.testing.layout`).
    """

    def __init__(
        self,
        table: Result | Mapping[str, KTable | KLateRecords],
        state: DriverState | None = None,
        *,
        initial_wall_clock_time: int | datetime = 0,
    ) -> None:
        node, ops = _operators(table)
        self._inputs = Inputs.of(inputs_of(node))
        if state:
            self._inputs.go_on(state.inputs)
        self._op = _in_piped_order(ops[0]) if ops else None
        self._behind = [(op, DictStore()) for op in ops[1:]]
        if state:
            if len(state.behind) != len(self._behind):
                raise CheckpointError(refusal(other_operators(len(state.behind) + 1, len(ops)).changes))
            stores = (store.copy() for store in state.behind)
            self._behind = [(op, store) for (op, _), store in zip(self._behind, stores, strict=True)]
        self._store = state.store.copy() if state else DictStore()
        self._types = self._inputs.types()
        if state:
            self._types.go_on(state.types)
        self._piped = state.piped if state else 0
        self._drained = state.drained if state else False
        self._output: list[dict[str, Any]] = []
        self._wall_clock_ms = state.wall_clock_ms if state else instant_ms(initial_wall_clock_time)
        self._tallies = [Totals(op.stream.name, numbers(op.measured), self._wall_clock_ms) for op in ops]

    def pipe_input(self, record: Record, stream: str | None = None) -> None:
        """Process one record, of the input of this name."""
        self.pipe_batch([record], stream)

    def pipe_batch(self, records: Sequence[Record] | Any, stream: str | None = None) -> None:
        """Process several records as one micro-batch, of the input of this name.

        `records` is a list of dicts, or what Arrow can read as a table: an Arrow table, a pandas or polars frame.

        A step that raises leaves the driver as it was before, as a failed micro-batch does.
        """
        schema, records = schema_of(records), as_records(records)
        if not records:
            return
        types = Types(dict(self._types.columns), self._types.declared)
        inputs = self._inputs.copy()
        if schema is not None:
            inputs.learn(schema, stream)
            if self._op is not None and self._op.stream.as_read:
                types.learn_schema(schema)
        records = inputs.take(records, stream, self._piped)
        if self._drained:
            raise drained()
        if self._op is None or not records:
            self._inputs = inputs
            self._output += records
            return
        records = self._numbered(self._op, records)
        types.learn(records)
        self._step(self._op, types, records)
        self._inputs = inputs

    def drain(self) -> None:
        """Let everything out and end, as `tg.drain` does on Spark: what is piped afterwards is refused.

        A drain that failed goes on where it was. Raises CheckpointError if the driver is drained already.
        """
        if self._drained:
            raise drained()
        while self._op is not None and self._types.columns and not self._drained:
            # It begins, and it ends; where the end failed before, that alone is left.
            self._step(self._op, self._types, [], drains=True)
            state = State.open(self._store)
            self._drained = state is not None and state.drain == DONE
        self._drained = True

    def _step(self, op: Operation, types: Types, records: list[Record], drains: bool = False) -> None:
        layout, batch = _lay_out(op, types, records, self._piped, self._wall_clock_ms)
        # The driver is the only map task, so nobody else reads what is missing between two offsets.
        blobs = [blob for _, blob in pack(layout, [batch], [0], contiguous=True)]
        store = Overlay(self._store)
        keys = None if op.expects is None else expected_keys.pack(layout, op.expects)
        now = self._wall_clock_ms if op.needs_wall_clock else None
        step = Stage(layout, expected=keys, drains=drains).step(store, blobs, wall_clock=now)
        stores = [store]
        steps = [step]
        for op_behind, held in self._behind:
            # Caching works between records: what one record makes is forwarded update by update.
            told = replace(op_behind, caching=op_behind.caching and len(records) > 1)
            layout_behind, blobs = _forwarded(told, steps[-1].rows, types.declared, self._wall_clock_ms)
            stores.append(Overlay(held))
            now = self._wall_clock_ms if told.needs_wall_clock else None
            keys = None if told.expects is None else expected_keys.pack(layout_behind, told.expects)
            steps.append(Stage(layout_behind, expected=keys, drains=drains).step(stores[-1], blobs, wall_clock=now))
        for changed in stores:
            changed.commit()
        self._types, self._piped = types, self._piped + len(records)
        self._output += to_rows(steps[-1].rows)
        for tally, done in zip(self._tallies, steps, strict=True):
            numbers_of_step = done.metrics | timed(done.metrics, self._wall_clock_ms, self._wall_clock_ms)
            tally.add(combined(tally.hows, [numbers_of_step]), self._wall_clock_ms)

    def read_output(self) -> list[dict[str, Any]]:
        """The rows that came out since the last call, in order: keys, `window`, values, `timestamp`.

        `deleted` is there where the plan can produce tombstones; a tombstone's value columns are None.
        """
        rows, self._output = self._output, []
        return rows

    @property
    def drops(self) -> dict[str, int]:
        """Records not taken by any operator, by reason; "late" counts (record, closed window) pairs."""
        told = [tally.values(self._wall_clock_ms) for tally in self._tallies]
        return {reason: sum(int(one.get(reason, 0)) for one in told) for reason in reasons(self._op)}

    @property
    def dropped(self) -> int:
        """The sum of `drops`."""
        return sum(self.drops.values())

    def metrics(self, operator: str | None = None) -> dict[str, float]:
        """Every metric of docs/operations.md by name, as the listener on Spark keeps them; times in ms.

        The counts by reason, `records`, `emitted` and `dropped` are there besides under these names. NaN means that
        there is no sample yet. Rates are per second of the driver's wall clock.

        operator  one of a chain, by its name ("moves", "moves by city"). Left out, what comes in is told by the first
                  operator and what waits and leaves by the last.
        """
        told = {tally.name: tally.values(self._wall_clock_ms) for tally in self._tallies}
        if operator is not None:
            if operator not in told:
                raise DefinitionError(f"`operator` is {operator!r}; there are {', '.join(map(repr, told)) or 'none'}.")
            return told[operator]
        if not told:
            return Totals("", numbers(()), self._wall_clock_ms).values(self._wall_clock_ms)
        first, *_, last = [*told.values()] * 2
        return first | {name: value for name, value in last.items() if name not in first or name in LEAVING}

    def advance_wall_clock(self, by: Duration) -> None:
        """Let time pass on the wall clock, as an empty micro-batch at its end; what is due by it leaves.

        It starts at `initial_wall_clock_time`, 0 if that is not given. Nothing that leaves by stream time
        alone notices. Raises DefinitionError if `by` is negative.
        """
        passed = duration_ms(by, "by")
        if passed < 0:
            raise DefinitionError(
                f"`by` is {show_ms(passed)}: the wall clock does not go back. Use a positive duration."
            )
        self._wall_clock_ms += passed
        ops = [op for op in (self._op, *(op for op, _ in self._behind)) if op is not None]
        if self._op is not None and any(op.uses_timers for op in ops) and self._types.columns:
            self._step(self._op, self._types, [])

    @property
    def wall_clock(self) -> timedelta:
        """What the wall clock shows, since 1970."""
        return timedelta(milliseconds=self._wall_clock_ms)

    def pending(self) -> Pending:
        """What waits, for what stream time, and how far away that is; `tg.explain_pending(driver)` prints it."""
        if self._op is None or not self._types.columns:
            return Pending("stream" if self._op is None else self._op.stream.name, None, (), 0)
        layout, _ = _lay_out(self._op, self._types, [], self._piped, self._wall_clock_ms)
        loaded = compatibility.load(self._store.copy(), layout, 1)
        # As the first batch under a changed plan will find it.
        compatibility.start(loaded)
        return pending.pending(loaded.layout, loaded.state)

    def pending_of_chain(self) -> list[Pending]:
        """`pending` of each operator, where a table was grouped anew or its changes were."""
        stores = [(description.of(store), State.open(store)) for _, store in self._behind]
        behind = [
            pending.pending(compatibility.fitted(state, what.layout), state) for what, state in stores if what and state
        ]
        return [self.pending(), *behind]

    def read_state(
        self,
        store: str | None = None,
        *,
        ended_from: int | datetime | None = None,
        ended_to: int | datetime | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of a store (of the aggregation, if none is named), as `tg.read_state` gives them on Spark."""
        found = [(what, held) for held in (self._store, *self._stores()) if (what := description.of(held)) is not None]
        for what, held in found:
            if (name := stored_rows.named(what, store)) is not None:
                return to_rows(stored_rows.rows(what, held, name, stored_rows.ended(ended_from, ended_to)))
        if not found:
            return []
        raise stored_rows.unknown(store, [name for what, _ in found for name in stored_rows.stores(what)])

    def check_upgrade(self, table: Result | Mapping[str, KTable | KLateRecords]) -> Upgrade:
        """What would become of this driver's state under another topology, as `tg.check_upgrade` says it on Spark."""
        node, ops = _operators(table)
        stores = [self._store, *self._stores()] if self._op is not None else []
        if len(ops) != len(stores):
            return other_operators(len(stores), len(ops))
        types = Inputs.of(inputs_of(node)).types()
        changes: list[Change] = []
        for number, (op, store) in enumerate(zip(ops, stores, strict=True)):
            op = _in_piped_order(op) if number == 0 else op
            typed = types.declared and number == 0
            layout = _lay_out(op, types, [], 0, 0)[0] if typed else None
            found = compatibility.preview(store, op, layout, None)
            changes += (replace(change, operator=op.stream.name) for change in found)
        return Upgrade(tuple(changes))

    def state(self) -> DriverState:
        """What a restart would find: `TopologyTestDriver(table, state=driver.state())` goes on from here."""
        return DriverState(
            self._store.copy(),
            self._types,
            self._piped,
            self._inputs.copy(),
            self._wall_clock_ms,
            self._stores(),
            self._drained,
        )

    def _stores(self) -> tuple[DictStore, ...]:
        return tuple(store.copy() for _, store in self._behind)

    def _numbered(self, op: Operation, records: Sequence[Record]) -> list[Record]:
        if op.stream.partition != _PARTITION:
            return list(records)
        return [{**record, _PARTITION: 0, _OFFSET: self._piped + i} for i, record in enumerate(records)]


def _operators(table: Result | Mapping[str, KTable | KLateRecords]) -> tuple[Plan, list[Operation]]:
    if not isinstance(table, Result | Mapping):
        raise DefinitionTypeError(
            f"A driver runs a topology, not {table!r}. Give what a query is made of, for example "
            'TopologyTestDriver(tg.stream("events", key="user", timestamp="ts").group_by_key().count()).'
        )
    node = (table if isinstance(table, Result) else outputs(**table)).node
    return node, [] if isinstance(node, Stream) and node.table is None else chain(operation(node))


def _in_piped_order(op: Operation) -> Operation:
    if op.stream.ordered:
        return op
    return replace(op, stream=replace(op.stream, partition=_PARTITION, offset=_OFFSET))


def _forwarded(op: Operation, rows: pa.Table, typed: bool, wall_clock_ms: int) -> tuple[Layout, list[bytes]]:
    """What an operator gets of the one before it."""
    if op.needs_wall_clock:
        rows = rows.append_column("wall_clock", pa.array([wall_clock_ms] * rows.num_rows, pa.int64()))
    layout = Layout(op, rows.schema, typed=typed)
    return layout, [blob for _, blob in pack(layout, rows.combine_chunks().to_batches(), [0])]


def _lay_out(
    op: Operation, types: Types, records: list[Record], start: int, wall_clock_ms: int
) -> tuple[Layout, pa.RecordBatch]:
    known = {name: kind for name, kind in types.columns.items() if name not in (_PARTITION, _OFFSET)}
    batch = to_batch(op, types, records, start)
    shown = [f"v:{name}" for name in op.input_columns(tuple(known))]
    shown += [f"r:{name}" for name in op.other_columns(tuple(known))]
    kept = [*(f"k:{name}" for name in op.key), *shown, "empty", "deleted", "ts", "partition", "offset"]
    batch = batch.select([name for name in kept if name in batch.schema.names])
    if op.needs_wall_clock:
        batch = batch.append_column("wall_clock", pa.array([wall_clock_ms] * len(records), pa.int64()))
    return Layout(op, batch.schema, typed=types.declared), batch


def to_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Result rows as dicts in the public shape."""
    return [dict(_public(row)) for row in rows.to_pylist()]


def _public(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if name == START:
            yield "window", None if value is None else Window(value, row[END])
        elif name != END:
            yield public_name(name), value
