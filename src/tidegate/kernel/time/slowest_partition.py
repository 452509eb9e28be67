"""Stream time of the slowest partition: a query catches up on a backlog and drops nothing of a partition behind.

The time of a partition is the largest timestamp of its records. The stream time at the end of a batch is the smallest
time of a partition. A record sees the smaller of two times: the time of its own partition up to and including it, and
the smallest time that any other partition had reached when the previous batch ended (a new partition: nothing). It sees
at least the stream time at that end, which never goes back. So with one partition this is the plain rule, and the
distribution of partitions over map tasks does not matter.

        times before the batch    a 10, b 14, c 12 (idle)       stream time 10
        a's records 11, 16, 13    see 11, 14, 14                b holds a's back
        b's record  15            sees 10                       a had come to 10
        times after the batch     a 16, b 15, c 12 (idle)       stream time 15
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.time.stream_time import NEVER, Chunk, Fold, Partition


@dataclass(frozen=True)
class Reached:
    """The event time that a partition has reached, and the wall clock of the batch with its last record; both ms.

    The wall clock is NEVER where the plan does not ask for it.
    """

    time: int
    last_input: int


class SlowestFold(Fold):
    """`Fold` by the rule above. `partitions` becomes `reached` of the next batch."""

    def __init__(
        self,
        chunks: list[Chunk],
        stream_time: int,
        reached: dict[Partition, Reached],
        wall_clock: int,
        idle_after_ms: int | None,
    ) -> None:
        super().__init__(chunks, stream_time)
        self._reached = reached
        self.partitions = dict(reached)
        for name, at in reached.items() if wall_clock != NEVER else ():
            if at.last_input == NEVER:
                # A plan that asks for the wall clock for the first time counts silence from now on.
                self.partitions[name] = replace(at, last_input=wall_clock)
        for chunk in chunks:
            # A join that has not begun holds back the inputs with which its rows are merged.
            if chunk.reaches > NEVER or chunk.reported is not None:
                name = partition_of(chunk)
                before = self.partitions.get(name, Reached(NEVER, wall_clock))
                last_input = wall_clock if chunk.rows or chunk.reaches > before.time else before.last_input
                self.partitions[name] = Reached(max(before.time, chunk.reaches), last_input)
                silent = self.partitions.get(str(chunk.source))
                if chunk.partition is not None and silent is not None and silent.time == NEVER:
                    # The input is not silent any more (`with_inputs`). A partition may have the same name.
                    del self.partitions[str(chunk.source)]
        awake = [p for p, at in self.partitions.items() if not is_idle(at, wall_clock, idle_after_ms)]
        self.stream_time = max(stream_time, min((self.partitions[p].time for p in awake), default=stream_time))
        self._awake = awake

    def before(self, chunk: Chunk) -> int:
        return self.floor(partition_of(chunk)) if chunk.partition is None else super().before(chunk)

    def floor(self, partition: Partition) -> int:
        """The time of the partition itself when the previous batch ended."""
        return self._reached[partition].time if partition in self._reached else NEVER

    def _most(self, chunk: Chunk) -> int:
        """The latest time that records of a chunk see of their own partition; no limit unless a time is `reported`."""
        return MAX_MS if chunk.reported is None else self.floor(partition_of(chunk))

    @cached_property
    def ceilings(self) -> Ints:
        """Per chunk, the smallest time of another partition when the previous batch ended."""
        others = sorted((self.floor(p), str(p)) for p in self._awake)
        return np.array(
            [min(_first_other(others, str(partition_of(chunk))), self._most(chunk)) for chunk in self._chunks], np.int64
        )


def partition_of(chunk: Chunk) -> Partition:
    """The partition of a chunk; where the source names none, its input is one."""
    return str(chunk.source) if chunk.partition is None else chunk.partition


def reports_more(chunk: Chunk, reached: dict[Partition, Reached]) -> bool:
    """Whether an operator reports its stream time with the chunk for the first time, or a later one than before."""
    before = reached.get(partition_of(chunk))
    return chunk.reported is not None and (before is None or chunk.reported > before.time)


def with_inputs(reached: dict[Partition, Reached], inputs: Iterable[str], wall_clock: int) -> dict[Partition, Reached]:
    """`reached`, with a partition that has reached no time for each of these inputs that was not heard of yet.

    So the input that comes first waits for the others, until they count as idle. An input has the partition of its own
    name, or partitions whose names begin with it and a colon.
    """
    found = dict(reached)
    for name in inputs:
        if not any(str(known) == name or str(known).startswith(f"{name}:") for known in found):
            found[name] = Reached(NEVER, wall_clock)
    return found


def is_idle(at: Reached, wall_clock: int, idle_after_ms: int | None) -> bool:
    """Whether a partition holds nothing back, because it was silent for so long by the wall clock."""
    return idle_after_ms is not None and wall_clock - at.last_input >= idle_after_ms


def _first_other(times: list[tuple[int, str]], partition: str) -> int:
    return next((time for time, name in times if name != partition), MAX_MS)
