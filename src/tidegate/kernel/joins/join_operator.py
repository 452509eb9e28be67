"""What all joins tell of the two sides that they keep: how much it is, and the stores that `read_state` reads."""

from __future__ import annotations

import pyarrow as pa

from tidegate.kernel.joins.table_rows import shown_schema
from tidegate.kernel.operator import Operator
from tidegate.kernel.state.state import State
from tidegate.spec.joined import SIDES


class JoinOperator(Operator):
    """An operator with two sides: `state.logs` has what is kept of the left one, `state.right` of the right one."""

    def counts(self, state: State) -> dict[str, float]:
        # Of a stretch of open records that closes, those that have closed already are among them.
        kept = zip(SIDES, (state.logs, state.right), strict=True)
        return {f"open_{name}_records": index.totals().rows for name, index in kept}

    @property
    def own_stores(self) -> tuple[str, ...]:
        return tuple(f"{self.layout.op.name}-{name}" for name in SIDES)

    def own_schema(self, store: str) -> pa.Schema:
        return shown_schema(self.layout, self.own_stores.index(store))
