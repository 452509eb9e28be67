"""stream_time="min_partition", computed slowly: see the docstring of tidegate.kernel.time.slowest_partition.

It shares no code with the code it judges. A partition that has had no record for `idle_after` ms of wall clock holds
nothing back; only batches with records check this.

`SlowOracle` is for aggregations, `StreamsTime` for a stream that is joined with a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from oracle import Oracle, Row


@dataclass
class SlowOracle(Oracle):
    """`times` are the times of partitions, `heard` the wall clock of their last records, `clock` that of the batch."""

    times: dict[Any, int] = field(default_factory=dict)
    heard: dict[Any, int] = field(default_factory=dict)
    clock: int = 0
    idle_after: int | None = None
    came: bool = False

    def batch(self, records: Iterable[Row]) -> list[Row]:
        records = list(records)
        self.came = bool(records)
        return super().batch(records)

    def _seen(self, records: list[Row]) -> list[tuple[int, Row]]:
        partition, timestamp = self.topology.partition, self.topology.timestamp
        before = self.times
        self.times = dict(before)
        self.heard |= {record[partition]: self.clock for record in records}
        awake = {name for name in {*before, *self.heard} if not self._idle(name)}
        seen = []
        for i, record in enumerate(records):
            mine = record[partition]
            own = [r[timestamp] for r in records[: i + 1] if r[partition] == mine]
            self.times[mine] = max([*own, before.get(mine, -1)])
            held = [before.get(other, -1) for other in awake - {mine}]
            seen.append((max(self.stream_time, min([self.times[mine], *held])), mine, len(own), record))
        seen.sort(key=lambda item: item[:3])
        return [(stream_time, record) for stream_time, _, _, record in seen]

    def _idle(self, partition: Any) -> bool:
        return self.idle_after is not None and self.clock - self.heard[partition] >= self.idle_after

    def _close(self) -> list[Row]:
        awake = [time for name, time in self.times.items() if not self._idle(name)]
        if self.came and awake:
            self.stream_time = max(self.stream_time, min(awake))
        return super()._close()


@dataclass
class StreamsTime:
    """The time of one stream by its slowest partition: `now` after each batch, and the times that its records see."""

    idle_after: int | None = None
    now: int = -1
    times: dict[Any, int] = field(default_factory=dict)
    heard: dict[Any, int] = field(default_factory=dict)

    def batch(self, records: list[tuple[Any, int]], clock: int = 0) -> list[int]:
        """Stream time seen by each (partition, timestamp), in the order of each partition; -1: a skipped record."""
        if not records:
            return []
        before, own, seen = dict(self.times), dict(self.times), []
        self.heard |= {name: clock for name, time in records if time >= 0}
        awake = {name for name, at in self.heard.items() if self.idle_after is None or clock - at < self.idle_after}
        for name, time in records:
            own[name] = max(own.get(name, -1), time)
            others = [before.get(other, -1) for other in awake - {name}]
            seen.append(max(self.now, min([own[name], *others])))
        self.times = {name: own[name] for name in self.heard}
        self.now = max([self.now, *([min(self.times[name] for name in awake)] if awake else [])])
        return seen

    def told(self, time: int, clock: int = 0) -> None:
        """The operator in front reports its stream time: its rows are a partition with this time."""
        self.times["rows"] = max(self.times.get("rows", -1), time)
        self.heard["rows"] = clock
        self.now = max(self.now, self.times["rows"])
