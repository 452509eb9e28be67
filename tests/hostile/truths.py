"""What must come out of a case, of whatever family."""

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
        """The rows of a batch. Raises Stopped, and is as before the batch."""

    def drain(self) -> list[Row]:
        """What is left. Raises Stopped if it does not fit through a buffer."""

    def readable(self) -> list[Row] | None:
        """What the store can be read for, None if that is not compared."""

    @property
    def drops(self) -> Counter[str]:
        """Why records were dropped."""


def truth_of(what: Case, ticks: bool = False) -> AnyTruth:
    """The truth of a case; `ticks`: in tasks that wake by the wall clock."""
    if isinstance(what, Joining):
        return JoinedTruth(what, ticks)
    if isinstance(what, Chained):
        return ChainedTruth(what, ticks)
    if isinstance(what, Changes):
        return TableTruth(what, ticks)
    assert isinstance(what, Scenario)
    return Truth(what, ticks)
