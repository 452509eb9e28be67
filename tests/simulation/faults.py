"""The adversary: faults of a case, decided by its seed alone.

Every decision has a name that tells its place ("batch 2, task 1, attempt 0"). It depends on the seed and the name, not
on earlier decisions: leaving out a fault moves no other fault, and so a failing case can be made smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import TypeVar

T = TypeVar("T")

KINDS = {
    "map dies": 0.08,
    "map runs twice": 0.08,
    "blobs out of order": 0.5,
    "fetch fails": 0.08,
    "state fails": 0.1,
    "task dies in its rows": 0.1,
    "task dies before its commit": 0.07,
    "task dies after its commit": 0.08,
    "task runs twice": 0.1,
    "worker is lost": 0.1,
    "batch fails": 0.08,
    "driver dies before the sink": 0.1,
    "driver dies behind the sink": 0.15,
    "batch is read in other parts": 0.5,
    "restart": 0.2,
    "upgrade": 0.5,
    "drain dies": 0.2,
    "drain takes a planned batch": 0.3,
    "stranger on a drained checkpoint": 0.5,
}
"""Probability of each kind of fault, at each place where it can happen."""


@dataclass
class Adversary:
    """Decides by the seed; `history` has the events in order.

    enabled  the kinds of fault of this case
    without  names of faults that are left out, for a smaller case
    """

    seed: int
    enabled: frozenset[str] = frozenset(KINDS)
    without: frozenset[str] = frozenset()
    history: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, seed: int, without: frozenset[str] = frozenset()) -> Adversary:
        """Some cases meet every kind of fault, some a few kinds, some none."""
        random = Random(f"faults {seed}")
        share = random.choice([0.0, 0.3, 0.6, 1.0, 1.0])
        return cls(seed, frozenset(kind for kind in KINDS if random.random() < share), without)

    def strikes(self, kind: str, where: str) -> bool:
        """Whether this fault happens here; only `happened` counts it."""
        name = f"{kind}: {where}"
        return kind in self.enabled and name not in self.without and self._number(name) < KINDS[kind] * 2**32

    def happened(self, kind: str, where: str, how: str = "") -> None:
        """Note a fault."""
        self.counts[kind] += 1
        self.struck.append(f"{kind}: {where}")
        self.tell(f"{where}: {kind.upper()}{how and f', {how}'}")

    def tell(self, what: str) -> None:
        """Note an event."""
        self.history.append(what)

    def choose(self, what: str, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[self._number(what) % len(choices)]

    def shuffled(self, what: str, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        mixed = list(items)
        Random(self._number(what)).shuffle(mixed)
        return mixed

    def _number(self, name: str) -> int:
        return int.from_bytes(blake2b(f"{self.seed} {name}".encode(), digest_size=4).digest(), "big")
