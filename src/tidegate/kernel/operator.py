"""What an operator is: one micro-batch in, rows out, and an answer to every question about what it stores.

`stage` drives a micro-batch of any operator. Looking inside, upgrades and metrics ask the operator as well, so that
nobody has to know which kind it is. `choice.operator_of` chooses the kind, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa

from tidegate.instants import Window, show_ms
from tidegate.kernel.exchange import stream_clock
from tidegate.kernel.exchange.batch import Batch
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import TableSpec
from tidegate.kernel.suppress.suppression_metrics import Held
from tidegate.kernel.time.stream_time import NEVER
from tidegate.plan import Operation


class OpenWindows(NamedTuple):
    """How many windows are open, and the stream time (ms) at which the first of them closes; None if none does."""

    windows: int
    next_close: int | None


@dataclass(frozen=True)
class Operator(ABC):
    """The stateful operator of a layout.

    `tables` are the tables that it declares; `table` is the one that holds its windows or keys.
    """

    layout: Layout

    tables: ClassVar[tuple[TableSpec, ...]] = ()

    def move_time(self, state: State, batch: Batch) -> None:
        """Set what the records of a batch see (`batch.fold`), and how far stream time has come with it."""
        clock, inputs = self.layout.op.stream.clock, len(self.layout.op.sides)
        batch.fold = stream_clock.fold(clock, batch.chunks, state, state.stream_time, inputs)
        state.stream_time = stream_clock.advanced(clock, batch.chunks, batch.came, state, batch.fold.stream_time)

    def shown_time(self, state: State) -> int:
        """Stream time as people are shown it (ms): what partitions hold back."""
        return state.stream_time

    def time_of_rows(self, state: State) -> int:
        """The stream time (ms) by which an operator behind goes, if the rows say it (`to_stream.with_time`)."""
        return state.stream_time

    @abstractmethod
    def process(self, state: State, batch: Batch, closes_at: int) -> tuple[Iterable[pa.Table], int]:
        """One micro-batch: the rows that the aggregation makes, in at least one part, and the records dropped late.

        `closes_at` is the stream time (ms) up to which windows close. The state is stored when the last part is taken.
        """

    def open_windows(self, state: State) -> list[tuple[Window, int]]:
        """Every window that is open to some key, and the stream time (ms) at which it closes."""
        return []

    def count_open(self, state: State) -> OpenWindows:
        """The number of open windows and the next close, from the index alone: no row is read."""
        return OpenWindows(0, None)

    def next_close(self, state: State) -> int | None:
        """The stream time (ms) at which the next record of a join closes that may leave then; None elsewhere."""
        return None

    def next_lookup(self, state: State) -> tuple[int, int] | None:
        """When the first record that waits for a table is looked up, and what its clock shows (ms); None elsewhere."""
        return None

    def lookups(self, state: State) -> pa.Table | None:
        """The records that wait for a table: key columns, and `UNTIL`, the time at which each is looked up (ms)."""
        return None

    def counts(self, state: State) -> dict[str, float]:
        """What the operator tells besides of what it holds, by the names of `spec.metrics`."""
        return {}

    @property
    def own_stores(self) -> tuple[str, ...]:
        """The names of stores that have rows of other columns than results; `read_state` reads them as they are."""
        return ()

    def own_schema(self, store: str) -> pa.Schema:
        """The columns of one of `own_stores`."""
        raise NotImplementedError

    def own_rows(self, state: State, store: str) -> list[pa.Table]:
        """The rows of one of `own_stores`."""
        raise NotImplementedError

    def buffered(self, state: State) -> Held:
        """What waits for its window to close: rows, bytes, and bytes on disk alone."""
        totals = state.logs.totals()
        if self.layout.op.buffer is not None:
            # A buffer with a bound keeps its bytes, as the bound counts them, beside each window.
            return Held(totals.rows, totals.counts, totals.size)
        return Held(totals.rows, totals.size, totals.size)

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        """The stored rows of open windows with the bounds of each one's window, table by table."""
        return ()

    def results_so_far(self, state: State) -> list[pa.Table]:
        """Rows of the layout's result schema: what each open window or key holds. The state stays as it is."""
        return []

    def windows_stored(self, state: State) -> dict[int, pa.Table]:
        """A table of state rows for each open window, by its start (ms); what `rewrite_from` of another kind reads."""
        return {}

    def effect_of_grace(self, longer_ms: int) -> str:
        """What it means for a query that goes on that its grace is so much longer, or shorter if it is negative."""
        if longer_ms > 0:
            return f"windows that closed stay closed; those that are open take records {show_ms(longer_ms)} longer"
        return "windows that the shorter grace has closed leave with the next batch, and take no record any more"

    def effect_of_table(self, old: Operation) -> str | None:
        """What it means that the plan `old` kept the rows of a joined table in another way; None if it cannot go on."""
        return None

    def rewrite_times(self, old: Operation, state: State) -> None:
        """Change the times in a state that the plan `old` wrote to those of this plan."""
        if state.stream_time != NEVER:
            state.closed_to += self.layout.op.grace_ms - old.grace_ms

    def rewrite_from(self, old: Operator, state: State, *, bounded: bool) -> None:  # noqa: B027 - most need not
        """Store what the operator `old` stored in the form that this operator needs, where the forms differ.

        `bounded`: whether `old` stored the entries of a buffer with a bound. Both operators have the layout of now.
        """
