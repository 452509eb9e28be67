"""TopologyTestDriver: runs a topology by record or by batch, on the same kernel as Spark, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tidegate.arguments import is_one_of
from tidegate.dsl import KLateRecords, KStream, KTable, Result
from tidegate.errors import CheckpointError, DefinitionError, DefinitionTypeError, InputError, in_one_line
from tidegate.instants import Duration, duration_ms, given_instant_ms, show_ms
from tidegate.kernel.inspect import pending, stored_rows
from tidegate.kernel.inspect.totals import Totals
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage, Step, reasons
from tidegate.kernel.state.state import DRAINED, State
from tidegate.kernel.state.store import DictStore, Overlay
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.kernel.upgrade import compatibility, description, drain
from tidegate.kernel.windows import expected_keys
from tidegate.plan import Edge, Node
from tidegate.spec.metrics import LEAVING, combined, numbers, store_of, timed
from tidegate.spec.pending import Pending
from tidegate.spec.upgrade import DRAIN, Change, Upgrade, other_operators, refusal
from tidegate.testing.columns import check_columns
from tidegate.testing.entries import Entry, check_input, check_names, entries_of, order_at
from tidegate.testing.operators import operators
from tidegate.testing.packing import columns_read, packed, with_clock
from tidegate.testing.piped_order import numbered
from tidegate.testing.records import INPUT, Record, as_dicts, as_records, as_table
from tidegate.testing.rows import to_rows
from tidegate.testing.silent_inputs import named_columns, with_named_columns


@dataclass
class DriverState:
    """The state of a driver, from which a new driver goes on as after a restart. `stores`: one per operator, upstream
    first.
    """

    stores: tuple[DictStore, ...]
    entries: tuple[Entry, ...]
    piped: int
    wall_clock_ms: int = 0
    drained: bool = False


class TopologyTestDriver:
    """Runs a topology in this process, without Spark and without Java.

    Timestamps are integer milliseconds or datetimes. Records are read in the order piped, as one source partition; a
    stream with partition and offset reads them from the records. `pipe_input` is a micro-batch of one record.

    For several outputs of one aggregation, use `TopologyTestDriver({"raw": counts, "final": final})` or
    `TopologyTestDriver(tg.outputs(raw=counts, final=final))`: each row then has the name of its `output`. If the
    topology has several inputs (a merge, a join), pass the name of the input with a record.

    Supported: everything the Spark runtime runs. Not supported: tasks and source layouts (`tidegate.testing.layout`).

    Args:
        table: A table, a stream, or several outputs.
        state: The state of another driver (`driver.state()`); this driver goes on as after a restart.
        initial_wall_clock_time: The start of the wall clock: epoch milliseconds or a datetime. With `state` the wall
            clock continues from there, or from this time if it is later.
        tuning: Small sizes inside the kernel, for tests of tidegate itself.

    Raises:
        DefinitionTypeError: `state` is not the state of a driver, or `initial_wall_clock_time` is no instant.
        DefinitionError: 64 bits do not hold the milliseconds of `initial_wall_clock_time`.
        CheckpointError: The state has another number of operators, or its records were in another order.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().count())
        >>> driver.pipe_input({"user": "A", "ts": 0})
        >>> driver.read_output()
        [{'user': 'A', 'count': 1, 'timestamp': 0}]
    """

    def __init__(
        self,
        table: Result | Mapping[str, KTable | KStream | KLateRecords],
        state: DriverState | None = None,
        *,
        initial_wall_clock_time: int | datetime = 0,
        tuning: Tuning = DEFAULT,
    ) -> None:
        wall_clock_ms = given_instant_ms(initial_wall_clock_time, "initial_wall_clock_time")
        self._tuning = tuning
        self._plan, self._nodes = operators(table)
        self._entries = entries_of(self._plan, self._nodes)
        self._named = named_columns(self._nodes)
        check_names(self._entries)
        if state is not None:
            self._check(state)
            before = {(entry.place, entry.side): entry for entry in state.entries}
            for entry in self._entries:
                if (known := before.get((entry.place, entry.side))) is not None:
                    entry.go_on(known)
        stores = [store.copy() for store in state.stores] if state else [DictStore() for _ in self._nodes]
        self._stores = [replace(store, tuning=tuning) for store in stores]
        self._piped = state.piped if state else 0
        self._drained = state.drained if state else False
        self._output: list[dict[str, Any]] = []
        self._wall_clock_ms = max(wall_clock_ms, state.wall_clock_ms) if state else wall_clock_ms
        self._tallies = [Totals(node.op.stream.name, node.op.numbers, self._wall_clock_ms) for node in self._nodes]

    def _check(self, state: Any) -> None:
        """Raise DefinitionTypeError or CheckpointError if the driver cannot go on from a state."""
        if not isinstance(state, DriverState):
            raise DefinitionTypeError(
                f"`state` is {in_one_line(state)}, not what a driver remembers. Give another driver's "
                "driver.state(), or leave it out."
            )
        if self._nodes and len(state.stores) != len(self._nodes):
            raise CheckpointError(refusal(other_operators(len(state.stores), len(self._nodes)).changes))
        if reordered := _reordered(state.stores, state.entries, self._entries):
            raise CheckpointError(refusal(reordered.values()))

    def pipe_input(self, record: Record | Any, stream: str | None = None) -> None:
        """Process one record, or the rows of a table or frame one by one.

        Args:
            record: A dict of the columns, or a Row of PySpark; or an Arrow table, a frame of pandas, polars or Spark.
            stream: The name of the input, if there are several.

        Raises:
            InputError: The record does not fit the plan.
            DefinitionTypeError: The name of a column is no text.

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

        If a step raises, the driver does not change, as after a failed micro-batch.

        Args:
            records: A list of dicts or of Rows of PySpark, or a table: an Arrow table, a frame of pandas or polars, a
                static DataFrame of Spark.
            stream: The name of the input, if there are several.

        Raises:
            InputError: A record does not fit the plan.
            CheckpointError: The driver is drained.
            DefinitionTypeError: The name of a column is no text.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 2}])
            >>> driver.read_output()
            [{'user': 'A', 'count': 2, 'timestamp': 2}]
        """
        table = as_table(records)
        schema, records = (
            (None, as_records(records)) if table is None else (table.schema, as_dicts(table, "batch", InputError))
        )
        if not records:
            return
        check_input(self._entries, stream)
        entries = [entry.copy() for entry in self._entries]
        taken: list[list[Record]] = []
        for entry in entries:
            for stepped in entry.inputs.learn(schema, stream):
                entry.types.learn_schema(stepped)
            taken.append(entry.inputs.take(records, stream, self._piped) if entry.inputs.reads(stream) else [])
        if self._drained:
            raise drain.drained()
        if not self._nodes or not any(taken):
            for found in [] if self._nodes else taken:
                check_columns(entries[0].inputs.branches[0].kept, found, self._piped)
            self._entries = entries
            self._output += [{name: value for name, value in row.items() if name != INPUT} for row in taken[0]]
            return
        sides = [self._nodes[entry.place].op.of_side(entry.side) for entry in entries]
        taken = [numbered(side, found, self._piped) for side, found in zip(sides, taken, strict=True)]
        for entry, found in zip(entries, taken, strict=True):
            entry.types.learn(found, entry.inputs.declared(stream))
        self._step(entries, taken, len(records))

    def drain(self) -> None:
        """Emit everything and end, as `tg.drain` does on Spark. Records piped afterwards are rejected.

        If a drain fails, call it again: it goes on where it stopped.

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
            raise drain.drained()
        while self._nodes and self._heard and not self._drained:
            # A drain has two steps: it begins, and it ends. If the end failed before, only the end is left.
            self._step(self._entries, [[] for _ in self._entries], 0, drains=True)
            state = State.open(self._stores[0])
            self._drained = state is not None and state.drained
        self._drained = True

    @property
    def _heard(self) -> bool:
        """Whether the columns of any input are known."""
        return any(entry.types.columns for entry in self._entries)

    def _step(self, entries: list[Entry], records: list[list[Record]], count: int, drains: bool = False) -> None:
        """Run a micro-batch through all operators: `records` of each entry; `count` records were piped."""
        stores = [Overlay(store) for store in self._stores]
        steps: list[Step] = []
        declared = all(entry.types.declared for entry in entries)

        def step(node: Node, rows: list[pa.Table | None]) -> pa.Table:
            place = len(steps)
            # Caching works between records: all updates of a single record are forwarded. Rows that leave in a drain,
            # or because time passed, come from many records.
            behind = any(table is not None for table in rows)
            op = node.op.uncached if behind and count == 1 else node.op
            inputs = self._inputs(node, place, zip(entries, records, strict=True), rows)
            layout, blobs = packed(op, inputs, declared, self._tuning)
            keys = None if op.expects is None else expected_keys.pack(layout, op.expects)
            now = self._wall_clock_ms if op.needs_wall_clock else None
            steps.append(Stage(layout, expected=keys, drains=drains).step(stores[place], blobs, wall_clock=now))
            return steps[-1].rows

        rows = to_rows(self._nodes[-1].walk(step))
        for changed in stores:
            changed.commit()
        self._entries, self._piped = entries, self._piped + count
        self._output += rows
        for tally, done in zip(self._tallies, steps, strict=True):
            numbers_of_step = done.metrics | timed(done.metrics, 0, self._wall_clock_ms)
            tally.add(combined(tally.hows, [numbers_of_step]), self._wall_clock_ms)

    def _inputs(
        self, node: Node, place: int, records: Iterable[tuple[Entry, list[Record]]], rows: Sequence[pa.Table | None]
    ) -> list[tuple[Edge, pa.Table]]:
        """The columns that an operator reads: of the `records` of its sides, and of the rows of each edge."""
        inputs, mine = [], [(entry, found) for entry, found in records if entry.place == place]
        for entry, found in mine:
            op = node.op.of_side(entry.side)
            read = columns_read(op, entry.types, found, self._piped)
            inputs.append((entry.edge_of(node), with_clock(op, read, self._wall_clock_ms)))
        for edge, table in zip(node.edges, rows, strict=True):
            if table is not None:
                inputs.append((edge, with_clock(node.op, table, self._wall_clock_ms)))
        return with_named_columns(node.op, self._named[place], inputs, [entry.silent for entry, _ in mine])

    def read_output(self) -> list[dict[str, Any]]:
        """The rows emitted since the last call, in order.

        Returns:
            A dict for each row: keys, `window`, values, `timestamp`. If the plan can produce tombstones, also
            `deleted`; the value columns of a tombstone are None.

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
        """Late and skipped records of all operators, by reason; "late" counts (record, closed window) pairs."""
        values = [tally.values(self._wall_clock_ms) for tally in self._tallies]
        known = dict.fromkeys(reason for node in self._nodes for reason in reasons(node.op)) or reasons(None)
        return {reason: sum(int(one.get(reason, 0)) for one in values) for reason in known}

    @property
    def dropped(self) -> int:
        """The sum of `drops`."""
        return sum(self.drops.values())

    def metrics(self, operator: str | None = None) -> dict[str, float]:
        """Every metric of docs/operations.md by name, as the listener on Spark keeps them; times in ms.

        There are also the counts by reason, and `records`, `emitted` and `dropped`. NaN means that there is no sample
        yet. Rates are per second of the driver's wall clock.

        Args:
            operator: The name of one operator of a chain ("moves", "moves by city"). Left out, numbers of the input
                come from the first operator, numbers of waiting and emitted rows from the last.

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
        by_operator = {tally.name: tally.values(self._wall_clock_ms) for tally in self._tallies}
        if operator is not None:
            if not is_one_of(operator, by_operator):
                raise DefinitionError(
                    f"`operator` is {in_one_line(operator)}; there are {', '.join(map(repr, by_operator)) or 'none'}."
                )
            return by_operator[operator]
        if not by_operator:
            return Totals("", numbers(()), self._wall_clock_ms).values(self._wall_clock_ms)
        first, *_, last = [*by_operator.values()] * 2
        return first | {
            name: value for name, value in last.items() if name not in first or store_of(name)[0] in LEAVING
        }

    def advance_wall_clock(self, by: Duration) -> None:
        """Advance the wall clock, then run an empty micro-batch: rows that are due by the wall clock leave.

        The clock starts at `initial_wall_clock_time`, by default 0. It does not affect rows that leave by stream time
        alone. If a step raises, the driver does not change.

        Args:
            by: The duration.

        Raises:
            DefinitionError: `by` is negative.
            DefinitionTypeError: `by` is no duration.

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
            except BaseException:  # Ctrl-C and sys.exit() too
                self._wall_clock_ms = before
                raise

    @property
    def wall_clock(self) -> timedelta:
        """The time of the wall clock, since 1970."""
        return timedelta(milliseconds=self._wall_clock_ms)

    def pending(self) -> Pending:
        """The rows that wait, and the stream time they wait for.

        `tg.explain_pending(driver)` prints this for every operator.

        Returns:
            The rows that the first operator holds back.

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
        # The state as the first batch under a changed plan will find it.
        compatibility.start(loaded)
        return pending.pending(loaded.layout, loaded.state)

    def pending_of_chain(self) -> list[Pending]:
        """`pending` of each operator, in a topology with several.

        Returns:
            The rows that each operator holds back, upstream first.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count().group_by("count").count("users"))
            >>> driver.pipe_input({"user": "A", "ts": 3})
            >>> len(driver.pending_of_chain())
            2
        """
        behind = [found for store in self._stores[1:] if (found := self._pending(store)) is not None]
        return [self.pending(), *behind]

    def _pending(self, store: DictStore) -> Pending | None:
        """The waiting rows of a store, by the layout that the store describes; None if it is empty."""
        described, state = description.of(store), State.open(store)
        if described is None or state is None:
            return None
        return pending.pending(compatibility.evolved(state, described.layout), state)

    def _layout(self, node: Node, place: int) -> Layout | None:
        """The layout of an operator from the columns known so far; None if it reads rows of other operators."""
        if len(node.sources) < len(node.edges):
            return None
        inputs = self._inputs(node, place, ((entry, []) for entry in self._entries), [None] * len(node.edges))
        declared = all(entry.types.declared for entry in self._entries)
        return packed(node.op, inputs, declared, self._tuning)[0]

    def _declared_layouts(self) -> list[Layout]:
        """The layouts of all operators, upstream first, if all inputs have declared types."""
        found: list[Layout] = []

        def step(node: Node, rows: list[pa.Table | None]) -> pa.Table:
            inputs = self._inputs(node, len(found), ((entry, []) for entry in self._entries), rows)
            found.append(packed(node.op, inputs, True, self._tuning)[0])
            return found[-1].output_schema.empty_table()

        self._nodes[-1].walk(step)
        return found

    def read_state(
        self,
        store: str | None = None,
        *,
        ended_from: int | datetime | None = None,
        ended_to: int | datetime | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of a store, as `tg.read_state` reads them on Spark.

        Args:
            store: The name of the store; left out, the store of the last aggregation.
            ended_from: Only windows that ended at this time or later; epoch milliseconds or a datetime.
            ended_to: Only windows that ended at this time or earlier.

        Returns:
            A dict for each row.

        Raises:
            DefinitionError: There is no store of this name.
            DefinitionTypeError: `ended_from` or `ended_to` is no instant.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 3})
            >>> [(row["user"], row["count"], row["status"]) for row in driver.read_state()]
            [('A', 1, 'open')]
        """
        # The last operator first, as Spark numbers operators from the sink.
        found = [
            (described, held) for held in reversed(self._stores) if (described := description.of(held)) is not None
        ]
        if not found:
            return []
        place, name = stored_rows.chosen([described for described, _ in found], store)
        return to_rows(stored_rows.rows(*found[place], name, stored_rows.ended(ended_from, ended_to)))

    def check_upgrade(self, table: Result | Mapping[str, KTable | KStream | KLateRecords]) -> Upgrade:
        """Compare another topology with this driver's state, as `tg.check_upgrade` does on Spark.

        Args:
            table: The other topology.

        Returns:
            The changes, and whether the topology can go on from the state.

        Raises:
            DefinitionTypeError: `table` is no topology.

        Examples:
            >>> driver = TopologyTestDriver(events.group_by_key().count())
            >>> driver.pipe_input({"user": "A", "ts": 3})
            >>> driver.check_upgrade(events.group_by_key().count()).goes_on
            True
        """
        nodes, stores = operators(table)[1], self._stores
        if len(nodes) != len(stores):
            return other_operators(len(stores), len(nodes))
        other = TopologyTestDriver(table)
        changes: list[Change] = []
        reordered = _reordered(stores, self._entries, other._entries)
        typed = bool(nodes) and all(entry.types.declared for entry in other._entries)
        layouts = other._declared_layouts() if typed else [None] * len(nodes)
        for place, (node, store, layout) in enumerate(zip(nodes, stores, layouts, strict=True)):
            found = compatibility.preview(store, node.op, layout, None)
            if place in reordered:
                found.append(reordered[place])
            changes += (replace(change, operator=node.op.stream.name) for change in found)
        if self._drained and not any(change.what == DRAIN for change in changes):  # no operator has a state
            changes.append(drain.change(DRAINED))
        return Upgrade(tuple(changes))

    def state(self) -> DriverState:
        """The state that a restart would find.

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


def _reordered(stores: Sequence[DictStore], before: Sequence[Entry], after: Sequence[Entry]) -> dict[int, Change]:
    """The changes of the order of records, by the place of an operator that has a state.

    No layout tells them, because the driver gives partition and offset to records that have none.
    """
    orders = {place: (order_at(place, before), order_at(place, after)) for place in range(len(stores))}
    return {
        place: compatibility.other_order(was, now)
        for place, (was, now) in orders.items()
        if was != now and State.open(stores[place]) is not None
    }
