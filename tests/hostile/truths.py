"""Expected output of a case of any family."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from hostile.case import Case, Row
from hostile.chained import Chained
from hostile.chained_truth import ChainedTruth
from hostile.joined import Joining
from hostile.joined_truth import JoinedTruth
from hostile.scenario import Scenario
from hostile.tables import Changes
from hostile.tables_truth import TableTruth
from hostile.truth import Truth


class AnyTruth(Protocol):
    """Takes the batches of a case in order."""

    def batch(self, number: int) -> list[Row]:
        """Rows of a batch. Raises Stopped after a rollback to the state before the batch."""

    def drain(self) -> list[Row]:
        """Rows of a drain. Raises Stopped if a strict buffer is too small for them."""

    def readable(self) -> list[Row] | None:
        """Expected rows of the store, None if the store is not compared."""

    @property
    def drops(self) -> Counter[str]:
        """Dropped records, counted by reason."""


def truth_of(what: Case, ticks: bool = False) -> AnyTruth:
    """The expected output of a case; `ticks`: in tasks that wake by the wall clock."""
    if isinstance(what, Joining):
        return JoinedTruth(what, ticks)
    if isinstance(what, Chained):
        return ChainedTruth(what, ticks)
    if isinstance(what, Changes):
        return TableTruth(what, ticks)
    assert isinstance(what, Scenario)
    return Truth(what, ticks)
