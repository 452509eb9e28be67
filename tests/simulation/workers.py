"""Python workers: processes that run one task attempt after the other, and their memory in between."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Memory = dict[str, Any]
_OF_SESSIONS = "tidegate.runtime.spark.session."


def remembered() -> dict[str, dict[Any, Any] | list[Any] | set[Any]]:
    """Containers of tidegate's modules that a process keeps from one task to the next, by the name of the variable.

    Counts containers under lower-case names; constants have upper-case ones. The modules that make a session run in
    its process alone, where no task runs.
    """
    return {
        f"{module}.{name}": value
        for module, loaded in sorted(sys.modules.items())
        if module.startswith(("tidegate.kernel", "tidegate.runtime")) and not module.startswith(_OF_SESSIONS)
        for name, value in vars(loaded).items()
        if isinstance(value, dict | list | set) and name == name.lower() and not name.startswith("__")
    }


# Call only when all modules are loaded.
_containers = cache(remembered)


@dataclass
class Worker:
    """A process: its memory, and the plans it has unpickled. All workers share this process in turns."""

    name: int
    memory: Memory = field(default_factory=dict)
    plans: dict[int, Any] = field(default_factory=dict)

    def plan(self, number: int, pickled: bytes) -> Any:
        """The plan of a query as this worker has unpickled it."""
        if number not in self.plans:
            self.plans = {number: pickle.loads(pickled)}
        return self.plans[number]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this process the worker's, with the worker's memory."""
        _be(self.memory)
        try:
            yield
        finally:
            self.memory = {name: container.copy() for name, container in _containers().items()}


def _be(memory: Memory) -> None:
    for name, container in _containers().items():
        container.clear()
        if (known := memory.get(name)) and isinstance(container, dict | set):
            container.update(known)
        elif known:
            container.extend(known)
