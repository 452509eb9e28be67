"""The base of all joins: the records of a batch in order, dropped records, and the logs of each side."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.exchange.join_batch import JoinBatch
from tidegate.kernel.joins.arrivals import Arrived, Progress, arrived, with_progress
from tidegate.kernel.joins.table_rows import shown_schema
from tidegate.kernel.operator import Operator
from tidegate.kernel.state.log_index import LogIndex
from tidegate.kernel.state.state import State
from tidegate.kernel.time.stream_time import NEVER
from tidegate.spec.joined import SIDES, stores_of_sides
from tidegate.spec.windows import LEFT, RIGHT


class JoinOperator(Operator):
    """An operator with two sides: `state.logs` has the stored rows of the left side, `state.right` of the right one."""

    def receive(
        self, state: State, batch: JoinBatch, first: int = LEFT
    ) -> tuple[tuple[Arrived, Arrived], tuple[Progress, Progress]]:
        """Take the records of both sides in order (`arrivals.arrived`); the time of each side moves in the state.

        Returns the records and the time progress of each side. A join that does not use the time of its sides has no
        progress.
        """
        joined = self.layout.op.joined
        assert joined is not None
        if not joined.needs_time_progress:
            if batch.streams_time is not None:
                state.input_times = [batch.streams_time.after, state.input_times[RIGHT]]
            nothing = np.zeros(0, np.int64)
            still = Progress(NEVER, nothing, nothing)
            return arrived(self.layout, batch, first), (still, still)
        before = (state.input_times[LEFT], state.input_times[RIGHT])
        records, progress = with_progress(self.layout, batch, first, before)
        state.input_times = [one.after for one in progress]
        return records, progress

    def report_late(
        self, batch: JoinBatch, side: int, records: Arrived, late: Flags, times: Ints | None = None
    ) -> None:
        """Report the `late` records of a side: the batch counts them, and gets them if they leave as rows.

        times  the time that each record saw and is late by, if it is not the stream time
        """
        if self.layout.op.keeps_late and late.any():
            assert records.rows is not None
            found = records.rows.filter(pa.array(late))
            if times is not None:
                shown = [name for name in ("closing_time", "arrival_time") if name in found.schema.names]
                found = found.drop_columns(shown).append_column("arrival_time", pa.array(times[late]))
            batch.dropped[side] = found
        batch.dropped_late += int(late.sum())

    def counts(self, state: State) -> dict[str, float]:
        # The counts include the closed records of a stretch that still has open ones.
        kept = zip(SIDES, self.logs(state), strict=True)
        return {f"open_{name}_records": index.totals().rows for name, index in kept}

    def logs(self, state: State) -> tuple[LogIndex, LogIndex]:
        """The logs of the left and of the right side."""
        return state.logs, state.right

    @property
    def own_stores(self) -> tuple[str, ...]:
        return stores_of_sides(self.layout.op.name)

    def own_schema(self, store: str) -> pa.Schema:
        return shown_schema(self.layout, self.own_stores.index(store))
