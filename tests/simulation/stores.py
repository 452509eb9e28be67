"""State of a task with versions: an attempt takes version i, and its commit makes version i + 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidegate.kernel.state.store import DictStore, Store
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.runtime.spark.worker import state_variable
from tidegate.runtime.spark.worker.state import SparkStore


class Died(Exception):  # noqa: N818 - what an attempt does
    """An attempt ends before its commit."""


class Wrong(AssertionError):  # noqa: N818 - says what
    """The cluster saw an event that is wrong for any results."""


@dataclass(frozen=True)
class Version:
    """Stored entries of a task, and its timers (ms)."""

    data: dict[Any, Any] = field(default_factory=dict)
    timers: frozenset[int] = frozenset()


@dataclass
class Calls:
    """Counts the calls of a store, and fails at one of them."""

    fail_at: int | None = None
    made: int = 0

    def one(self) -> None:
        """Count a call; raises Died."""
        if self.made == self.fail_at:
            raise Died
        self.made += 1


class KernelStore(DictStore):
    """The store of the test driver."""

    def __init__(self, version: Version, calls: Calls, tuning: Tuning = DEFAULT) -> None:
        super().__init__(dict(version.data.get("values", {})), dict(version.data.get("log", {})), tuning)
        self._calls = calls
        self.timers = set(version.timers)

    def get(self, name: str) -> bytes | None:
        self._calls.one()
        return super().get(name)

    def put(self, name: str, value: bytes) -> None:
        self._calls.one()
        super().put(name, value)

    def read(self, window: int, segment: int) -> bytes:
        self._calls.one()
        return super().read(window, segment)

    def write(self, window: int, segment: int, value: bytes) -> None:
        self._calls.one()
        super().write(window, segment, value)

    def remove(self, window: int, segment: int) -> None:
        self._calls.one()
        super().remove(window, segment)

    def version(self) -> Version:
        """The stored entries and timers."""
        return Version({"values": self.values, "log": self.log}, frozenset(self.timers))


@dataclass
class MapState:
    """A MapState of Spark: keys and values are tuples, as they come back from the JVM."""

    data: dict[Any, Any]
    calls: Calls

    def getValue(self, key: Any) -> Any:
        self.calls.one()
        return self.data.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self.calls.one()
        self.data[key] = tuple(value)

    def containsKey(self, key: Any) -> bool:
        self.calls.one()
        return key in self.data

    def removeKey(self, key: Any) -> None:
        self.calls.one()
        self.data.pop(key, None)


class Handle:
    """A StatefulProcessorHandle over a version."""

    def __init__(self, version: Version, calls: Calls) -> None:
        self._state = MapState(dict(version.data), calls)
        self._timers = set(version.timers)

    def getMapState(self, name: str, key: Any, value: Any) -> MapState:
        return self._state

    def listTimers(self) -> Iterator[int]:
        return iter(sorted(self._timers))

    def registerTimer(self, at: int) -> None:
        self._timers.add(at)

    def deleteTimer(self, at: int) -> None:
        self._timers.discard(at)

    def version(self) -> Version:
        """The stored entries and timers."""
        return Version(self._state.data, frozenset(self._timers))


def opened(version: Version, on_spark: bool) -> Store:
    """A store over a version, for reading."""
    return SparkStore(state_variable.opened(Handle(version, Calls()))) if on_spark else KernelStore(version, Calls())  # type: ignore[arg-type]
