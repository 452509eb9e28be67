"""Stores of an operator's state: a few named values, and a log of segments for each window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Protocol

from tidegate.kernel.columns.arrays import Ints
from tidegate.kernel.state.tables import TableSpec
from tidegate.kernel.tuning import DEFAULT, Tuning


class Copy(Protocol):
    """Bytes beside the worker, derived from the store: they may be lost at any time, with the worker at the latest.

    memory     bytes of the process that the copy takes
    described  whether it has a description, which `Store.share` has put behind it
    """

    @property
    def memory(self) -> int: ...
    @property
    def described(self) -> bool: ...
    def about(self) -> bytes:
        """The description."""

    def read(self, starts: Ints, lengths: Ints) -> bytes:
        """The bytes of all spans (a start and a length each), one after the other."""


@dataclass(frozen=True)
class InMemory:
    """A copy in memory. It has no description."""

    value: bytes
    described: ClassVar[bool] = False

    def about(self) -> bytes:
        return b""

    @property
    def memory(self) -> int:
        return len(self.value)

    def read(self, starts: Ints, lengths: Ints) -> bytes:
        return b"".join(
            [self.value[at : at + length] for at, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
        )


class Store(Protocol):
    """State of one task. Values are bytes that `frames` wrote; nothing is visible elsewhere before the batch ends."""

    @property
    def tuning(self) -> Tuning:
        """The sizes that stored objects may reach."""

    @property
    def task(self) -> str:
        """A name of the task that has this state: another one than that of other tasks whose steps this process runs.

        Two tasks of one name are correct, and slower: each drops copies of the other (`kernel.state.copies`).
        """

    def get(self, name: str) -> bytes | None:
        """The named value, None if it was never put."""

    def put(self, name: str, value: bytes) -> None:
        """Replace the named value."""

    def read(self, window: int, segment: int) -> bytes:
        """A segment of the log of the window (or pane) that starts at `window` ms.

        Segments below 0 are pages of the index of the logs (`kernel.state.log_index`).
        """

    def write(self, window: int, segment: int, value: bytes) -> None:
        """Add or replace a segment."""

    def remove(self, window: int, segment: int) -> None:
        """Forget a segment."""

    def beside(self, parts: Iterable[Any]) -> Copy | None:
        """Keep bytes beside the worker, not in the store; None if there is no room for them."""

    def share(self, digest: str, copy: Copy, about: Sequence[Any]) -> None:
        """Put a description behind a copy in a file, and let other workers of this machine find it by this digest."""

    def shared(self, digest: str) -> Copy | None:
        """A copy that a worker of this machine shares; None if there is none."""


_numbers = count()


@dataclass
class DictStore:
    """A store in memory, for the test driver and for static input."""

    values: dict[str, bytes] = field(default_factory=dict)
    log: dict[tuple[int, int], bytes] = field(default_factory=dict)
    tuning: Tuning = DEFAULT
    task: str = field(default_factory=lambda: f"store {next(_numbers)}", compare=False)

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def read(self, window: int, segment: int) -> bytes:
        return self.log[window, segment]

    def write(self, window: int, segment: int, value: bytes) -> None:
        self.log[window, segment] = value

    def remove(self, window: int, segment: int) -> None:
        del self.log[window, segment]

    def beside(self, parts: Iterable[Any]) -> Copy | None:
        return InMemory(b"".join(parts))

    def share(self, digest: str, copy: Copy, about: Sequence[Any]) -> None:
        pass  # nobody else runs the steps of this task

    def shared(self, digest: str) -> Copy | None:
        return None

    def copy(self) -> DictStore:
        """A store with the same content."""
        return DictStore(dict(self.values), dict(self.log), self.tuning)


@dataclass
class Overlay:
    """Changes of a store in memory, invisible there until `commit`: a step that raises leaves the store as it was."""

    below: DictStore
    values: dict[str, bytes] = field(default_factory=dict)
    log: dict[tuple[int, int], bytes | None] = field(default_factory=dict)

    @property
    def tuning(self) -> Tuning:
        return self.below.tuning

    @property
    def task(self) -> str:
        return self.below.task

    def get(self, name: str) -> bytes | None:
        return self.values.get(name, self.below.get(name))

    def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def read(self, window: int, segment: int) -> bytes:
        place = window, segment
        value = self.log[place] if place in self.log else self.below.log[place]
        if value is None:
            raise KeyError(place)
        return value

    def write(self, window: int, segment: int, value: bytes) -> None:
        self.log[window, segment] = value

    def remove(self, window: int, segment: int) -> None:
        self.read(window, segment)
        self.log[window, segment] = None

    def beside(self, parts: Iterable[Any]) -> Copy | None:
        return self.below.beside(parts)

    def share(self, digest: str, copy: Copy, about: Sequence[Any]) -> None:
        self.below.share(digest, copy, about)

    def shared(self, digest: str) -> Copy | None:
        return self.below.shared(digest)

    def commit(self) -> None:
        """Apply the changes to the store below."""
        self.below.values |= self.values
        for place, value in self.log.items():
            if value is None:
                self.below.log.pop(place, None)
            else:
                self.below.log[place] = value
        self.values, self.log = {}, {}


@dataclass(frozen=True)
class Section:
    """The part of a store that a table owns: `TableSpec.place` maps partition n to the store (`state.tables`)."""

    store: Store
    table: TableSpec

    @property
    def tuning(self) -> Tuning:
        return self.store.tuning

    @property
    def task(self) -> str:
        return f"{self.store.task}, from {self.table.place(0)}"

    def get(self, name: str) -> bytes | None:
        return self.store.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.store.put(name, value)

    def read(self, window: int, segment: int) -> bytes:
        return self.store.read(self.table.place(window), segment)

    def write(self, window: int, segment: int, value: bytes) -> None:
        self.store.write(self.table.place(window), segment, value)

    def remove(self, window: int, segment: int) -> None:
        self.store.remove(self.table.place(window), segment)

    def beside(self, parts: Iterable[Any]) -> Copy | None:
        return self.store.beside(parts)

    def share(self, digest: str, copy: Copy, about: Sequence[Any]) -> None:
        self.store.share(digest, copy, about)

    def shared(self, digest: str) -> Copy | None:
        return self.store.shared(digest)
