"""The protocol of operators: one micro-batch in, rows out, and queries about the stored state.

`stage` runs a micro-batch of any operator. Inspection, upgrades and metrics ask the operator too, so that no caller
needs to know its class. `choice.operator_of` chooses the class, once.
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
from tidegate.kernel.exchange.slices import rows_of_joins
from tidegate.kernel.rows import results
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.state import State
from tidegate.kernel.state.tables import TableSpec
from tidegate.kernel.suppress.suppression_metrics import Buffered
from tidegate.kernel.time.stream_time import NEVER
from tidegate.plan import Operation


class OpenWindows(NamedTuple):
    """The number of open windows, and the stream time (ms) at which the first of them closes; None if none does."""

    windows: int
    next_close: int | None


@dataclass(frozen=True)
class Operator(ABC):
    """The stateful operator of a layout; `tables` are the tables that the operator declares."""

    layout: Layout

    tables: ClassVar[tuple[TableSpec, ...]] = ()

    def move_time(self, state: State, batch: Batch) -> None:
        """Set the stream times that the records of a batch see (`batch.fold`), and advance `state.stream_time`."""
        clock = self.layout.op.stream.clock
        batch.fold = stream_clock.fold(clock, batch.chunks, batch.has_records, state, state.stream_time, self._inputs)
        state.stream_time = stream_clock.advanced(clock, batch.chunks, batch.has_records, state, batch.fold.stream_time)

    @property
    def _inputs(self) -> list[str]:
        """Joins whose rows are merged with records, and the sides of a join: each holds the others back."""
        op = self.layout.op
        if not op.sides:
            return rows_of_joins(op.stream)
        return [name for side, stream in enumerate(op.sides) for name in (*rows_of_joins(stream, side), str(side))]

    def shown_time(self, state: State) -> int:
        """Stream time (ms) as metrics and `pending` show it: the clock that slow partitions hold back."""
        return state.stream_time

    def time_of_rows(self, state: State) -> int:
        """The stream time (ms) that emitted rows tell the next operator (`to_stream.with_time`)."""
        return state.stream_time

    @abstractmethod
    def process(self, state: State, batch: Batch, closes_at: int) -> Iterable[pa.Table]:
        """Process one micro-batch. Returns the rows, in at least one part.

        `closes_at` is the stream time (ms) up to which windows close. When the last part is taken, the state is stored
        and `batch.dropped_late` is complete.
        """

    def open_windows(self, state: State) -> list[tuple[Window, int]]:
        """Every window that is open for some key, and the stream time (ms) at which it closes."""
        return []

    def newest_record(self, state: State) -> int:
        """The newest record of open windows (ms), about: a window that begins later has none. NEVER if none is open."""
        return max((window.start for window, _ in self.open_windows(state)), default=NEVER)

    def count_open(self, state: State) -> OpenWindows:
        """The number of open windows and the next close, from the index alone, without reading rows."""
        return OpenWindows(0, None)

    def next_close(self, state: State) -> int | None:
        """The stream time (ms) at which the first open record of a preserved join side closes; None if none is open."""
        return None

    def next_lookup(self, state: State) -> tuple[int, int] | None:
        """The time of the first pending table lookup, and the current time of its clock (ms); None if none waits."""
        return None

    def lookups(self, state: State) -> pa.Table | None:
        """Records that wait for a table lookup: key columns, and `UNTIL`, the time of the lookup (ms); else None."""
        return None

    def counts(self, state: State) -> dict[str, float]:
        """Further metrics of the operator's state, by the names of `spec.metrics`."""
        return {}

    @property
    def own_stores(self) -> tuple[str, ...]:
        """The names of stores whose rows are not results; `read_state` reads them by `own_rows`."""
        return ()

    def own_schema(self, store: str) -> pa.Schema:
        """The columns of one of `own_stores`."""
        raise NotImplementedError

    def own_rows(self, state: State, store: str) -> list[pa.Table]:
        """The rows of one of `own_stores`."""
        raise NotImplementedError

    def buffered(self, state: State) -> Buffered:
        """Rows that wait for their window to close: their number, their bytes, and the bytes of those only on disk."""
        totals = state.logs.totals()
        if self.layout.op.buffer is not None:
            # The index of a bounded buffer has the bytes of each window, as the bound counts them.
            return Buffered(totals.rows, totals.counts, totals.size)
        return Buffered(totals.rows, totals.size, totals.size)

    def stored_rows(self, state: State) -> Iterable[pa.Table]:
        """The stored rows of open windows, with the bounds of their windows, table by table."""
        return ()

    def results_so_far(self, state: State) -> list[pa.Table]:
        """The current results of open windows or keys: rows of the layout's result schema. Reads the state only."""
        shape = self.layout.so_far
        return [results.finish(shape, results.live_rows(self.layout, rows)) for rows in self.stored_rows(state)]

    def windows_stored(self, state: State) -> dict[int, pa.Table]:
        """The state rows of each open window, by its start (ms); `rewrite_from` of another class reads them."""
        return {}

    def effect_of_grace(self, longer_ms: int) -> str:
        """Text for the user: the effect on a restarted query of a grace `longer_ms` longer (shorter if negative)."""
        if longer_ms > 0:
            return f"windows that closed stay closed; those that are open take records {show_ms(longer_ms)} longer"
        return "windows that the shorter grace has closed leave with the next batch, and take no record any more"

    def effect_of_table(self, old: Operation) -> str | None:
        """Text for the user: the effect of another history of a joined table than in `old`; None if it is refused."""
        return None

    def rewrite_times(self, old: Operation, state: State) -> None:
        """Convert the times in a state that the plan `old` wrote to this plan.

        Sizes of windows and reaches of joins never change (`plan.identity`). A grace may: the time up to which windows
        and records of a join have closed moves by the difference of both graces.
        """
        if state.stream_time != NEVER:
            # A much shorter grace gives a time before every close time. It stays far enough from the first instant.
            state.closed_through = max(state.closed_through + self.layout.op.grace_ms - old.grace_ms, -(2**62))

    def rewrite_from(self, old: Operator, state: State, *, bounded: bool) -> None:  # noqa: B027 - most need not
        """Rewrite the rows that the operator `old` stored into this operator's form, where the forms differ.

        `bounded`: whether `old` stored the entries of a bounded buffer. Both operators have the current layout.
        """
