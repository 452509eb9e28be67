"""The stateful step: Spark calls it in a worker, once per task and micro-batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.kernel.stage import Stage, Step
from tidegate.runtime.spark.tasks import place_of
from tidegate.runtime.spark.worker import text_of_times as times
from tidegate.runtime.spark.worker.gc_freeze import spare_modules
from tidegate.runtime.spark.worker.memory import MOST_BYTES, MOST_JOIN_BYTES, give_back, keep
from tidegate.spec.metrics import at_place, of_store, timed


@dataclass(frozen=True)
class SparkStage:
    """The step of an operator with its metrics on Spark. `text`: whether times of rows leave as text."""

    stage: Stage
    text: bool = False

    @property
    def output_schema(self) -> pa.Schema:
        schema = self.stage.layout.output_schema
        return times.with_text(schema) if self.text else schema

    @property
    def metrics(self) -> Mapping[str, str]:
        op = self.stage.layout.op
        if len(op.all_limits) == 1:
            return op.numbers | {f"next_due_{op.limit.clock}": "min", "limit_clock": "max"}
        limited = {}
        for limit in op.all_limits:
            for name, how in ((f"next_due_{limit.how.clock}", "min"), ("limit_clock", "max")):
                limited[of_store(name, limit.store)] = f"{how}({at_place(name, limit.place)})"
        return op.numbers | limited

    def begin(
        self,
        store: Any,
        blobs: Iterable[bytes],
        end_of_input: bool = False,
        wall_clock: int | None = None,
        number: int | None = None,
    ) -> Step:
        task = 0 if number is None else place_of(number, self.stage.tasks)
        step = self.stage.begin(store, blobs, end_of_input, wall_clock, task)
        step.parts = self._measured(step, step.parts)
        return step

    def refuse(self, store: Any) -> bool:
        return self.stage.refuse(store)

    def _measured(self, step: Step, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        spare_modules()
        keep(MOST_JOIN_BYTES if self.stage.layout.op.joins_streams else MOST_BYTES)
        began = time.monotonic()  # the machine's clock may be set in between
        try:
            yield from times.as_text(parts) if self.text else parts
        finally:
            if any(not limit.how.buffer.bounded for limit in self.stage.layout.op.all_limits):
                give_back()
        # The worker's clock is for metrics alone: no row depends on it. Rows avoid Spark's current_timestamp() too if
        # they can: it is a constant in the generated code, which Spark then compiles anew in every batch.
        step.metrics.update(timed(step.metrics, (time.monotonic() - began) * 1000, time.time() * 1000))
