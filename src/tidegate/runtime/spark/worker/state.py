"""The kernel's store over the state variable of an operator (`state_variable`), on which a call takes 0.1 ms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.errors import CheckpointError
from tidegate.kernel.state.store import Copy
from tidegate.kernel.state.tables import limit_buffer
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.runtime.spark.worker import beside, seven_bit

# The named values live in the same map, under a window that cannot exist.
NAMED = -(2**63)
NAMES = ("meta", "buffer", "layout")
"""Behind them come the buffers of later time limits, in the order of their places (`state.tables.limit_buffer`)."""


class SparkStore:
    """`Store` over the state of one task; every call is at least one round trip to the JVM.

    Values are cut into parts of 1 MB. Each part has the number of parts, negative if the part is in seven bits, as this
    version writes all. The variable's name, its schema and the place of each named value are part of every checkpoint.
    """

    def __init__(self, variable: Any, tuning: Tuning = DEFAULT, task: str = "") -> None:
        self.tuning = tuning
        self.task = task
        self._log = variable

    def get(self, name: str) -> bytes | None:
        return self._read(NAMED, _place(name))

    def put(self, name: str, value: bytes) -> None:
        self.write(NAMED, _place(name), value)

    def read(self, window: int, segment: int) -> bytes:
        value = self._read(window, segment)
        if value is None:
            raise _missing(window, segment)
        return value

    def write(self, window: int, segment: int, value: bytes) -> None:
        most = self.tuning.part_bytes
        parts = max(1, -(-len(value) // most))
        for part in range(parts):
            piece = value[part * most : (part + 1) * most]
            self._log.updateValue((window, segment, part), (-parts, seven_bit.pack(piece)))
        self._remove_from(window, segment, parts)  # parts that a longer value before this one had

    def remove(self, window: int, segment: int) -> None:
        self._log.removeKey((window, segment, 0))
        self._remove_from(window, segment, 1)

    def beside(self, parts: Iterable[Any]) -> Copy | None:
        return beside.beside(parts, self.tuning.file_bytes)

    def share(self, digest: str, copy: Copy, about: Sequence[Any]) -> None:
        beside.share(digest, copy, about)

    def shared(self, digest: str) -> Copy | None:
        return beside.shared(digest)

    def _remove_from(self, window: int, segment: int, part: int) -> None:
        # Asks for one key more than there is: asking costs 0.1 ms, reading the number from part 0 costs 11 ms a MB.
        while self._log.containsKey((window, segment, part)):
            self._log.removeKey((window, segment, part))
            part += 1

    def _read(self, window: int, segment: int) -> bytes | None:
        first = self._log.getValue((window, segment, 0))
        if first is None:
            return None
        rest = (self._part(window, segment, part) for part in range(1, abs(first[0])))
        return b"".join((part_of(*first), *rest))

    def _part(self, window: int, segment: int, part: int) -> bytes:
        row = self._log.getValue((window, segment, part))
        if row is None:
            raise _missing(window, segment)
        return part_of(*row)


def part_of(parts: int, value: bytes) -> bytes:
    """The bytes of a part of a value as `SparkStore` was given them."""
    return seven_bit.unpack(value) if parts < 0 else bytes(value)


def name_at(place: int) -> str:
    """The name of the value at a place."""
    return NAMES[place] if place < len(NAMES) else limit_buffer(place - len(NAMES) + 1)


def _place(name: str) -> int:
    if name in NAMES:
        return NAMES.index(name)
    limit = name.removeprefix(limit_buffer(0)).strip()
    if not limit.isdecimal() or name != limit_buffer(int(limit)):
        raise KeyError(f"Spark's store has no place for a value named {name!r}, only for {', '.join(NAMES)}")
    return len(NAMES) + int(limit) - 1


def _missing(window: int, segment: int) -> CheckpointError:
    return CheckpointError(
        f"the state has no segment {segment} of the window at {window} ms, though its index names it: the checkpoint "
        "is damaged. Start from a new checkpoint, or restore a copy of this one."
    )
