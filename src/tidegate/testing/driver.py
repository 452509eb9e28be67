"""TopologyTestDriver: a topology record by record or batch by batch, on the kernel that Spark runs, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tidegate.dsl import KLateRecords, KTable, Result, outputs
from tidegate.errors import CheckpointError, DefinitionError, DefinitionTypeError, InputError, in_one_line
from tidegate.instants import Duration, Window, duration_ms, instant_ms, show_ms
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.inspect import pending, stored_rows
from tidegate.kernel.inspect.totals import Totals
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, Step, reasons
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore, Overlay
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import compatibility, description
from tidegate.kernel.upgrade.drain import DONE, drained
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Edge, Node, Operation, Plan, Stream, check_records_alone, graph, inputs_of, operation
from tidegate.spec.columns import END, START, public_name
from tidegate.spec.metrics import LEAVING, combined, numbers, store_of, timed
from tidegate.spec.pending import Pending
from tidegate.spec.upgrade import Change, Upgrade, other_operators, refusal
from tidegate.testing.inputs import INPUT, OWN, Inputs, Record, Types, as_records, as_table, check_columns, to_batch

_PARTITION, _OFFSET = OWN


@dataclass
class Entry:
    """An input of an operator: the streams that records are piped into, and the types of their columns behind steps.

    place, side  the operator, among all upstream first; and the side of a join
    """

    place: int
    side: int
    inputs: Inputs
    types: Types

    def copy(self) -> Entry:
        """The same, learning on its own."""
        return Entry(self.place, self.side, self.inputs.copy(), self.types.copy())


@dataclass
class DriverState:
    """What a driver remembers; a new driver given it goes on as after a restart. `stores`: of the operators in order,
    upstream first.
    """

    stores: tuple[DictStore, ...]
    entries: tuple[Entry, ...]
    piped: int
    wall_clock_ms: int = 0
    drained: bool = False


class TopologyTestDriver:
    """Runs a topology in this process, without Spark and without Java.

    Timestamps are integer milliseconds or datetimes. Records come in the order piped, as one source partition; a
    stream with partition and offset reads them from the records. `pipe_input` is a micro-batch of one record.

    Several outputs of one aggregation are given by name, `TopologyTestDriver({"raw": counts, "final": final})` or
    `TopologyTestDriver(tg.outputs(raw=counts, final=final))`: each row then says its `output`. Where streams were
    merged or joined, the name of its input goes with a record.

    Supported: everything the Spark runtime runs. Not supported: tasks and source layouts (`tidegate.testing.layout`).

    Args:
        table: A table, a stream, or several outputs.
        state: What another driver remembers (`driver.state()`); this driver goes on as after a restart.
        initial_wall_clock_time: Where the wall clock begins: epoch milliseconds or a datetime.
        tuning: Makes sizes of the kernel small, for tests of tidegate itself.

    Raises:
        DefinitionTypeError: `state` is not what a driver remembers.
        CheckpointError: The state is of a plan with another number of operators.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().count())
        >>> driver.pipe_input({"user": "A", "ts": 0})
        >>> driver.read_output()
        [{'user': 'A', 'count': 1, 'timestamp': 0}]
    """

    def __init__(
        self,
        table: Result | Mapping[str, KTable | KLateRecords],
        state: DriverState | None = None,
        *,
        initial_wall_clock_time: int | datetime = 0,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._tuning = tuning
        self._plan, self._nodes = _operators(table)
        self._entries = _entries(self._plan, self._nodes)
        _check_names(self._entries)
        if state:
            if not isinstance(state, DriverState):
                raise DefinitionTypeError(
                    f"`state` is {in_one_line(state)}, not what a driver remembers. Give another driver's "
                    "driver.state(), or leave it out."
                )
            if self._nodes and len(state.stores) != len(self._nodes):
                raise CheckpointError(refusal(other_operators(len(state.stores), len(self._nodes)).changes))
            before = {(entry.place, entry.side): entry for entry in state.entries}
            for entry in self._entries:
                if (known := before.get((entry.place, entry.side))) is not None:
                    entry.inputs.go_on(known.inputs)
                    entry.types.go_on(known.types)
        stores = [store.copy() for store in state.stores] if state else [DictStore() for _ in self._nodes]
        self._stores = [replace(store, tuning=tuning) for store in stores]
        self._piped = state.piped if state else 0
        self._drained = state.drained if state else False
        self._output: list[dict[str, Any]] = []
        self._wall_clock_ms = state.wall_clock_ms if state else instant_ms(initial_wall_clock_time)
        self._tallies = [Totals(node.op.stream.name, node.op.numbers, self._wall_clock_ms) for node in self._nodes]

    def pipe_input(self, record: Record | Any, stream: str | None = None) -> None:
        """Process one record; of a table or frame its rows, one after the other.

        Args:
            record: A dict of the columns; or an Arrow table, a pandas or polars frame.
            stream: The name of the input, where there are several.

        Raises:
            InputError: The record cannot be read as the plan says.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": datetime(2026, 1, 1, tzinfo=UTC)})
            >>> driver.read_output()[0]["timestamp"]
            1767225600000
        """
        if (rows := as_table(record)) is None:
            self.pipe_batch([record], stream)
            return
        for i in range(rows.num_rows):
            self.pipe_batch(rows.slice(i, 1), stream)

    def pipe_batch(self, records: Sequence[Record] | Any, stream: str | None = None) -> None:
        """Process several records as one micro-batch.

        A step that raises leaves the driver as it was before, as a failed micro-batch does.

        Args:
            records: A list of dicts, or what Arrow can read as a table: an Arrow table, a pandas or polars frame.
            stream: The name of the input, where there are several.

        Raises:
            InputError: A record cannot be read as the plan says.
            CheckpointError: The driver is drained.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 2}])
            >>> driver.read_output()
            [{'user': 'A', 'count': 2, 'timestamp': 2}]
        """
        table = as_table(records)
        schema, records = (None, as_records(records)) if table is None else (table.schema, table.to_pylist())
        if not records:
            return
        _check_input(self._entries, stream)
        entries = [entry.copy() for entry in self._entries]
        taken: list[list[Record]] = []
        for entry in entries:
            if schema is not None:
                entry.inputs.learn(schema, stream)
                if self._nodes and entry.inputs.reads(stream) and all(b.as_read for b in entry.inputs.branches):
                    entry.types.learn_schema(schema)
            taken.append(entry.inputs.take(records, stream, self._piped) if entry.inputs.reads(stream) else [])
        if self._drained:
            raise drained()
        if not self._nodes or not any(taken):
            for found in [] if self._nodes else taken:
                check_columns(entries[0].inputs.branches[0].kept, found, self._piped)
            self._entries = entries
            self._output += [{name: value for name, value in row.items() if name != INPUT} for row in taken[0]]
            return
        numbered = [self._numbered(entry, found) for entry, found in zip(entries, taken, strict=True)]
        for entry, found in zip(entries, numbered, strict=True):
            entry.types.learn(found)
        self._step(entries, numbered, len(records))

    def drain(self) -> None:
        """Let everything out and end, as `tg.drain` does on Spark: what is piped afterwards is refused.

        A drain that failed goes on where it was.

        Raises:
            CheckpointError: The driver is drained already.

        Examples:
            >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
            >>> driver = TopologyTestDriver(
            ...     counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
            ... )
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.drain()
            >>> [(tuple(row["window"]), row["count"]) for row in driver.read_output()]
            [((0, 10), 1)]
        """
        if self._drained:
            raise drained()
        while self._nodes and self._heard and not self._drained:
            # It begins, and it ends; where the end failed before, that alone is left.
            self._step(self._entries, [[] for _ in self._entries], 0, drains=True)
            state = State.open(self._stores[0])
            self._drained = state is not None and state.drain == DONE
        self._drained = True

    @property
    def _heard(self) -> bool:
        """Whether the columns of any input are known."""
        return any(entry.types.columns for entry in self._entries)

    def _step(self, entries: list[Entry], records: list[list[Record]], count: int, drains: bool = False) -> None:
        """A micro-batch through all operators: `records` of each entry, `count` of them piped."""
        stores = [Overlay(store) for store in self._stores]
        steps: list[Step] = []
        declared = all(entry.types.declared for entry in entries)

        def step(node: Node, rows: list[pa.Table | None]) -> pa.Table:
            place = len(steps)
            mine = [(entry, found) for entry, found in zip(entries, records, strict=True) if entry.place == place]
            # Caching works between records: what one record makes is forwarded update by update. What leaves in a
            # drain, or because time passed, is of many.
            behind = any(table is not None for table in rows)
            op = replace(node.op, caching=node.op.caching and count != 1) if behind else node.op
            inputs = [self._input(node, entry, found) for entry, found in mine]
            inputs += [
                (edge, self._with_clock(node.op, table))
                for edge, table in zip(node.edges, rows, strict=True)
                if table is not None
            ]
            layout, blobs = _packed(op, inputs, declared, self._tuning)
            keys = None if op.expects is None else expected_keys.pack(layout, op.expects)
            now = self._wall_clock_ms if op.needs_wall_clock else None
            steps.append(Stage(layout, expected=keys, drains=drains).step(stores[place], blobs, wall_clock=now))
            return steps[-1].rows

        rows = self._nodes[-1].walk(step)
        for changed in stores:
            changed.commit()
        self._entries, self._piped = entries, self._piped + count
        self._output += to_rows(rows)
        for tally, done in zip(self._tallies, steps, strict=True):
            numbers_of_step = done.metrics | timed(done.metrics, self._wall_clock_ms, self._wall_clock_ms)
            tally.add(combined(tally.hows, [numbers_of_step]), self._wall_clock_ms)

    def _input(self, node: Node, entry: Entry, records: list[Record]) -> tuple[Edge, pa.Table]:
        """The columns that an operator reads of records, all those of a side together."""
        op = _of_entry(node.op, entry.side)
        edge = next(edge for edge in node.sources if edge.side == entry.side)
        return edge, self._with_clock(op, _read(op, entry.types, records, self._piped))

    def _with_clock(self, op: Operation, rows: pa.Table) -> pa.Table:
        if not op.needs_wall_clock:
            return rows
        return rows.append_column("wall_clock", pa.array([self._wall_clock_ms] * rows.num_rows, pa.int64()))

    def read_output(self) -> list[dict[str, Any]]:
        """The rows that came out since the last call, in order.

        Returns:
            A dict for each row: keys, `window`, values, `timestamp`. `deleted` is there where the plan can produce
            tombstones;
            a tombstone's value columns are None.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> len(driver.read_output()), len(driver.read_output())
            (1, 0)
        """
        rows, self._output = self._output, []
        return rows

    @property
    def drops(self) -> dict[str, int]:
        """Records not taken by any operator, by reason; "late" counts (record, closed window) pairs."""
        told = [tally.values(self._wall_clock_ms) for tally in self._tallies]
        known = dict.fromkeys(reason for node in self._nodes for reason in reasons(node.op)) or reasons(None)
        return {reason: sum(int(one.get(reason, 0)) for one in told) for reason in known}

    @property
    def dropped(self) -> int:
        """The sum of `drops`."""
        return sum(self.drops.values())

    def metrics(self, operator: str | None = None) -> dict[str, float]:
        """Every metric of docs/operations.md by name, as the listener on Spark keeps them; times in ms.

        The counts by reason, `records`, `emitted` and `dropped` are there besides under these names. NaN means that
        there is no sample yet. Rates are per second of the driver's wall clock.

        Args:
            operator: One of a chain, by its name ("moves", "moves by city"). Left out, what comes in is told by the
                first operator and what waits and leaves by the last.

        Returns:
            The numbers by name.

        Raises:
            DefinitionError: There is no operator of this name.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.metrics()["records"]
            1
        """
        told = {tally.name: tally.values(self._wall_clock_ms) for tally in self._tallies}
        if operator is not None:
            if operator not in told:
                raise DefinitionError(f"`operator` is {operator!r}; there are {', '.join(map(repr, told)) or 'none'}.")
            return told[operator]
        if not told:
            return Totals("", numbers(()), self._wall_clock_ms).values(self._wall_clock_ms)
        first, *_, last = [*told.values()] * 2
        return first | {
            name: value for name, value in last.items() if name not in first or store_of(name)[0] in LEAVING
        }

    def advance_wall_clock(self, by: Duration) -> None:
        """Let time pass on the wall clock, as an empty micro-batch at its end; what is due by it leaves.

        The clock starts at `initial_wall_clock_time`, 0 if that is not given. Nothing that leaves by stream time
        alone notices. A step that raises leaves the driver as it was before.

        Args:
            by: How long.

        Raises:
            DefinitionError: `by` is negative.

        Examples:
            >>> calm = tg.Suppressed.until_time_limit("1 minute", tg.BufferConfig.unbounded(), clock="wall")
            >>> driver = TopologyTestDriver(events.group_by_key().count().suppress(calm))
            >>> driver.pipe_input({"user": "A", "ts": 1})
            >>> driver.advance_wall_clock("1 minute")
            >>> driver.read_output()[0]["count"]
            1
        """
        passed = duration_ms(by, "by")
        if passed < 0:
            raise DefinitionError(
                f"`by` is {show_ms(passed)}: the wall clock does not go back. Use a positive duration."
            )
        before = self._wall_clock_ms
        self._wall_clock_ms += passed
        if self._heard and any(node.op.uses_timers for node in self._nodes):
            try:
                self._step(self._entries, [[] for _ in self._entries], 0)
            except Exception:
                self._wall_clock_ms = before
                raise

    @property
    def wall_clock(self) -> timedelta:
        """What the wall clock shows, since 1970."""
        return timedelta(milliseconds=self._wall_clock_ms)

    def pending(self) -> Pending:
        """The rows that wait, the stream time they wait for, and how far away it is.

        `tg.explain_pending(driver)` prints the same.

        Returns:
            What the first operator holds back.

        Examples:
            >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")).count()
            >>> driver = TopologyTestDriver(
            ...     counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
            ... )
            >>> driver.pipe_input({"user": "A", "ts": 3})
            >>> driver.pending().waiting[0].missing_ms
            12
        """
        if not self._nodes or not self._heard:
            return Pending(self._nodes[0].op.stream.name if self._nodes else "stream", None, (), 0)
        layout = self._layout(self._nodes[0], 0)
        if layout is None:
            return self._pending(self._stores[0]) or Pending(self._nodes[0].op.stream.name, None, (), 0)
        loaded = compatibility.load(self._stores[0].copy(), layout, 1)
        # As the first batch under a changed plan will find it.
        compatibility.start(loaded)
        return pending.pending(loaded.layout, loaded.state)

    def pending_of_chain(self) -> list[Pending]:
        """`pending` of each operator, where a table was grouped anew or its changes were.

        Returns:
            What each operator holds back, upstream first.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count().group_by("count").count("users"))
            >>> driver.pipe_input({"user": "A", "ts": 3})
            >>> len(driver.pending_of_chain())
            2
        """
        behind = [found for store in self._stores[1:] if (found := self._pending(store)) is not None]
        return [self.pending(), *behind]

    def _pending(self, store: DictStore) -> Pending | None:
        """What waits in a store, as it says itself."""
        what, state = description.of(store), State.open(store)
        if what is None or state is None:
            return None
        return pending.pending(compatibility.fitted(state, what.layout), state)

    def _layout(self, node: Node, place: int) -> Layout | None:
        """The layout of an operator that reads sources alone, as far as its columns are known."""
        if len(node.sources) < len(node.edges):
            return None
        mine = [entry for entry in self._entries if entry.place == place]
        inputs = [self._input(node, entry, []) for entry in mine]
        declared = all(entry.types.declared for entry in self._entries)
        return _packed(node.op, inputs, declared, self._tuning)[0]

    def read_state(
        self,
        store: str | None = None,
        *,
        ended_from: int | datetime | None = None,
        ended_to: int | datetime | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of a store, as `tg.read_state` gives them on Spark.

        Args:
            store: The name of the store; left out, that of the aggregation.
            ended_from: Only windows that ended then or later; epoch milliseconds or a datetime.
            ended_to: Only windows that ended then or earlier.

        Returns:
            A dict for each row.

        Raises:
            DefinitionError: There is no store of this name.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 3})
            >>> [(row["user"], row["count"], row["status"]) for row in driver.read_state()]
            [('A', 1, 'open')]
        """
        found = [(what, held) for held in self._stores if (what := description.of(held)) is not None]
        for what, held in found:
            if (name := stored_rows.named(what, store)) is not None:
                return to_rows(stored_rows.rows(what, held, name, stored_rows.ended(ended_from, ended_to)))
        if not found:
            return []
        raise stored_rows.unknown(store, [name for what, _ in found for name in stored_rows.stores(what)])

    def check_upgrade(self, table: Result | Mapping[str, KTable | KLateRecords]) -> Upgrade:
        """What would become of this driver's state under another topology, as `tg.check_upgrade` says it on Spark.

        Args:
            table: The other topology.

        Returns:
            The changes, and whether the topology goes on.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 3})
            >>> driver.check_upgrade(events.group_by_key().count()).goes_on
            True
        """
        plan, nodes = _operators(table)
        stores = self._stores
        if len(nodes) != len(stores):
            return other_operators(len(stores), len(nodes))
        other = TopologyTestDriver(table)
        changes: list[Change] = []
        for place, (node, store) in enumerate(zip(nodes, stores, strict=True)):
            mine = [entry for entry in _entries(plan, nodes) if entry.place == place]
            typed = bool(mine) and all(entry.types.declared for entry in mine)
            layout = other._layout(node, place) if typed else None
            found = compatibility.preview(store, node.op, layout, None)
            changes += (replace(change, operator=node.op.stream.name) for change in found)
        return Upgrade(tuple(changes))

    def state(self) -> DriverState:
        """What a restart would find.

        Returns:
            The state, for `TopologyTestDriver(table, state=driver.state())`, which goes on from here.

        Examples:
            >>> first = TopologyTestDriver(events.group_by_key().count())
            >>> first.pipe_input({"user": "A", "ts": 3})
            >>> second = TopologyTestDriver(events.group_by_key().count(), state=first.state())
            >>> second.pipe_input({"user": "A", "ts": 4})
            >>> second.read_output()[0]["count"]
            2
        """
        stores = tuple(store.copy() for store in self._stores)
        entries = tuple(entry.copy() for entry in self._entries)
        return DriverState(stores, entries, self._piped, self._wall_clock_ms, self._drained)

    def _numbered(self, entry: Entry, records: list[Record]) -> list[Record]:
        """Records of a stream without partition and offset, as one partition in the order piped."""
        if not self._nodes or _of_entry(self._nodes[entry.place].op, entry.side).stream.partition != _PARTITION:
            return records
        return [{**record, _PARTITION: 0, _OFFSET: self._piped + i} for i, record in enumerate(records)]


def _operators(table: Result | Mapping[str, KTable | KLateRecords]) -> tuple[Plan, list[Node]]:
    if not isinstance(table, Result | Mapping):
        raise DefinitionTypeError(
            f"A driver runs a topology, not {in_one_line(table)}. Give what a query is made of, for example "
            'TopologyTestDriver(tg.stream("events", key="user", timestamp="ts").group_by_key().count()).'
        )
    node = (table if isinstance(table, Result) else outputs(**table)).node
    if isinstance(node, Stream) and node.table is None:
        check_records_alone(node)
    return node, [] if isinstance(node, Stream) and node.table is None else _piped(
        graph(operation(node))
    ).upstream_first


def _piped(node: Node) -> Node:
    """The operators, with records in the order piped where a stream does not say its own."""
    edges = tuple(edge if edge.node is None else replace(edge, node=_piped(edge.node)) for edge in node.edges)
    op = node.op
    if op.joined is not None:
        op = replace(op, sides=tuple(side if side.behind else _in_piped_order(side) for side in op.sides))
    elif not op.stream.behind:
        op = replace(op, stream=_in_piped_order(op.stream))
    return Node(op, edges)


def _in_piped_order(stream: Stream) -> Stream:
    return stream if stream.ordered else replace(stream, partition=_PARTITION, offset=_OFFSET)


def _of_entry(op: Operation, side: int) -> Operation:
    """What is done with the records of an entry."""
    return op if op.joined is None else op.of_side(side)


def _entries(plan: Plan, nodes: list[Node]) -> list[Entry]:
    """The inputs of all operators; of stateless steps alone, the one that there is."""
    if not nodes:
        inputs = Inputs.of(inputs_of(plan))
        return [Entry(0, 0, inputs, inputs.types())]
    entries = []
    for place, node in enumerate(nodes):
        for side in dict.fromkeys(edge.side for edge in node.sources):
            inputs = Inputs.of(tuple(edge.stream for edge in node.sources if edge.side == side))
            entries.append(Entry(place, side, inputs, inputs.types()))
    return entries


def _check_names(entries: list[Entry]) -> None:
    """Raise DefinitionError where two inputs that are not one have the same name."""
    named: dict[str, Stream] = {}
    for entry in entries:
        for branch in entry.inputs.branches:
            first = named.setdefault(branch.name, branch)
            if (first.frame, first.schema) != (branch.frame, branch.schema):
                raise DefinitionError(
                    f"Two inputs are called {branch.name!r}, so nobody can say whose a record is. "
                    "Name them: tg.stream(..., name=...)."
                )


def _check_input(entries: list[Entry], stream: str | None) -> None:
    """Raise InputError unless it is clear which input records are of."""
    names = list(dict.fromkeys(branch.name for entry in entries for branch in entry.inputs.branches))
    if stream is None and len(names) > 1:
        raise InputError(
            f"This topology has the inputs {', '.join(names)}. Say which: pipe_input(record, {names[0]!r})."
        )
    if stream is not None and stream not in names:
        raise InputError(f"There is no input {stream!r}, only {', '.join(map(repr, names))}.")


def _packed(
    op: Operation, inputs: list[tuple[Edge, pa.Table]], typed: bool, tuning: Tuning
) -> tuple[Layout, list[bytes]]:
    """The layout of an operator and the blobs of its inputs."""
    layout = Layout.of_inputs(op, [(edge, rows.schema) for edge, rows in inputs], typed=typed, tuning=tuning)
    # The driver is the only map task, so nobody else reads what is missing between two offsets.
    contiguous = not op.stream.behind
    return layout, [
        blob
        for edge, rows in inputs
        for _, blob in pack(
            layout.of_input(edge, rows.schema), rows.combine_chunks().to_batches(), [0], contiguous=contiguous
        )
    ]


def _read(op: Operation, types: Types, records: list[Record], start: int) -> pa.Table:
    known = {name: kind for name, kind in types.columns.items() if name not in (_PARTITION, _OFFSET)}
    batch = to_batch(op, types, records, start)
    shown = [f"v:{name}" for name in op.input_columns(tuple(known))]
    shown += [f"r:{name}" for name in op.other_columns(tuple(known))]
    kept = [*(f"k:{name}" for name in op.key), *shown, "empty", "deleted", "ts", "partition", "offset"]
    return pa.Table.from_batches([batch.select([name for name in kept if name in batch.schema.names])])


def to_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Result rows as dicts in the public shape."""
    return [dict(_public(row)) for row in rows.to_pylist()]


def _public(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if name == START:
            yield "window", None if value is None else Window(value, row[END])
        elif name != END:
            yield public_name(name), value
