"""Upgrade: the differences between a plan and a checkpoint, and whether the plan can go on; as data and as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CHOICES = (
    "Restart with the old plan, or give this one a new checkpointLocation, perhaps after the old one has let "
    "everything out (tg.drain)."
)

DRAIN = "drain"
"""The change for a checkpoint that takes no other plan, nor the old one, because a drain has begun or is over."""


@dataclass(frozen=True)
class Change:
    """A difference between the plan that wrote a checkpoint and another plan.

    Attributes:
        what: The part of the plan that differs.
        before: The value in the checkpoint.
        after: The value in the new plan.
        loses: What would be lost, which is why the plan cannot go on; empty if it can.
        effect: The effect of the change, if the plan can go on.
        operator: The name of the operator, in a plan with several.

    Examples:
        >>> grouped = events.group_by_key()
        >>> driver = TopologyTestDriver(grouped.windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "0 ms")).count())
        >>> driver.pipe_input({"user": "A", "ts": 3})
        >>> longer = grouped.windowed_by(tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")).count()
        >>> print(driver.check_upgrade(longer).changes[0])
        grace: '0 milliseconds' -> '5 milliseconds'
    """

    what: str
    before: str | None
    after: str | None
    loses: str = ""
    effect: str = ""
    operator: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.before!r} -> {self.after!r}"


@dataclass(frozen=True)
class Upgrade:
    """Whether a plan can go on from a checkpoint, and the differences. It prints as text, like the error of a query.

    Attributes:
        changes: The differences; empty if this plan wrote the checkpoint.

    Examples:
        >>> driver = TopologyTestDriver(events.group_by_key().count())
        >>> driver.pipe_input({"user": "A", "ts": 3})
        >>> print(driver.check_upgrade(events.group_by_key().count()))
        This plan goes on: it is the one that wrote the checkpoint.
    """

    changes: tuple[Change, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether the plan can go on from the checkpoint."""
        return not any(change.loses for change in self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return "This plan goes on: it is the one that wrote the checkpoint."
        lines = list(_lines(self.changes))
        if self.goes_on:
            return "\n".join(["This plan goes on from the checkpoint, with these changes:", *lines])
        if not any(change.what == DRAIN for change in self.changes):
            lines.append("Choices: " + CHOICES)
        return "\n".join(["This plan cannot go on from the checkpoint:", *lines])


def _lines(changes: Iterable[Change]) -> Iterable[str]:
    for change in changes:
        yield f"  {change.operator + ': ' if change.operator else ''}{change}"
        if change.loses:
            yield f"    would lose: {change.loses}"
        elif change.effect:
            yield f"    goes on: {change.effect}"


def other_operators(before: int, after: int) -> Upgrade:
    """The upgrade to a plan with another number of stateful operators than the checkpoint: it cannot go on."""
    loses = "what operators hold that are gone; Spark itself starts no other number of them on a checkpoint"
    return Upgrade((Change("operators", str(before), str(after), loses),))


def refusal(changes: Iterable[Change]) -> str:
    """The error text of an operator that cannot go on from its checkpoint."""
    found = list(changes)
    lost = "; ".join(f"{change.what}: {change.loses}" for change in found if change.loses)
    return (
        f"The checkpoint was written by another plan ({'; '.join(map(str, found))}). Nothing was changed: the old "
        f"plan can go on from it. {CHOICES} Going on would lose: {lost}."
    )
