"""Clock: the rule by which the stream time of a stream advances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidegate.arguments import is_one_of
from tidegate.errors import DefinitionError, in_one_line
from tidegate.instants import Duration, duration_ms, show_ms

LARGEST, SLOWEST = "max", "min_partition"


@dataclass(frozen=True)
class Clock:
    """The rule by which stream time advances. A query may change it and go on from its checkpoint.

    rule           "max": the largest timestamp seen; "min_partition": the smallest of the partitions' times
    idle_after_ms  with "min_partition": a partition without a record for this long (wall clock) holds nothing back
    idle_advance_ms     without a record for this long (wall clock), stream time advances with the wall clock
    max_future_skew_ms  a record further ahead of the wall clock than this is skipped
    chosen         whether the user chose the rule; a join of streams without a chosen rule follows the slower side
    """

    rule: str = LARGEST
    idle_after_ms: int | None = None
    idle_advance_ms: int | None = None
    max_future_skew_ms: int | None = None
    chosen: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls,
        stream_time: str | None,
        *,
        partition: str | None,
        idle_after: Duration | None = None,
        idle_advance: Duration | None = None,
        max_future_skew: Duration | None = None,
    ) -> Clock:
        """The clock of a stream, checked. Raises DefinitionError for arguments that do not go together."""
        if stream_time is not None and not is_one_of(stream_time, (LARGEST, SLOWEST)):
            raise DefinitionError(f"`stream_time` is {in_one_line(stream_time)}. Use {LARGEST!r} or {SLOWEST!r}.")
        if stream_time == SLOWEST and partition is None:
            raise DefinitionError(
                f"`stream_time` is {SLOWEST!r}, but the stream has no partitions to compare. "
                'Give partition="partition", offset="offset".'
            )
        if stream_time == LARGEST and idle_after is not None:
            raise _nothing_idle(show_ms(_at_least("idle_after", idle_after, 1)))
        return cls(
            stream_time or LARGEST,
            _positive("idle_after", idle_after),
            _positive("idle_advance", idle_advance),
            None if max_future_skew is None else _at_least("max_future_skew", max_future_skew, 0),
            chosen=stream_time is not None,
        )

    def lines(self) -> list[str]:
        """Lines of text about the settings that differ from the default."""
        idle = "" if self.idle_after_ms is None else f", but for partitions idle for {show_ms(self.idle_after_ms)}"
        lines = [f"time of the slowest partition{idle}"] if self.slowest else []
        if self.idle_advance_ms is not None:
            lines.append(f"goes on with the wall clock after {show_ms(self.idle_advance_ms)} without a record")
        if self.max_future_skew_ms is not None:
            lines.append(f"keeps records out that are more than {show_ms(self.max_future_skew_ms)} ahead")
        return lines

    def said_by(self, sources: Sequence[Clock]) -> Clock:
        """The clock of a join whose sides choose none: the rule and `idle_after` of their sources, if these agree."""
        rules = {one.rule for one in sources if one.chosen}
        idle = {one.idle_after_ms for one in sources if one.idle_after_ms is not None}
        if self.idle_after_ms is None and len(rules) == 1:
            rule, idle_after_ms = rules.pop(), idle.pop() if len(idle) == 1 else None
            return replace(self, rule=rule, idle_after_ms=idle_after_ms if rule == SLOWEST else None, chosen=True)
        return self

    @property
    def slowest(self) -> bool:
        """Whether stream time is the time of the slowest partition."""
        return self.rule == SLOWEST

    @property
    def needs_wall_clock(self) -> bool:
        """Whether a batch must know its wall clock."""
        return any(ms is not None for ms in (self.idle_after_ms, self.idle_advance_ms, self.max_future_skew_ms))

    @property
    def uses_timers(self) -> bool:
        """Whether stream time may advance without a record."""
        return self.idle_advance_ms is not None


def check_aggregated(clock: Clock) -> None:
    """Raise DefinitionError if the clock of an aggregated stream has `idle_after` without "min_partition"."""
    if clock.idle_after_ms is not None and not clock.slowest:
        raise _nothing_idle(show_ms(clock.idle_after_ms))


def _nothing_idle(idle_after: str) -> DefinitionError:
    return DefinitionError(
        f"`idle_after` is {idle_after!r}, but with stream_time={LARGEST!r} no partition ever holds stream time "
        f"back. Leave it out, or use stream_time={SLOWEST!r}."
    )


def joined_clock(left: Clock, right: Clock) -> Clock:
    """The clock of a join: the settings of both sides, and "min_partition" if no side chose a rule.

    Raises DefinitionError if the sides have different settings.
    """
    rules = {clock.rule for clock in (left, right) if clock.chosen}
    if len(rules) > 1:
        raise DefinitionError(
            f"join: `stream_time` is {left.rule!r} on the left and {right.rule!r} on the right. A join has one stream "
            "time over both: say the same, or say it once."
        )
    found = {}
    for name in ("idle_after_ms", "idle_advance_ms", "max_future_skew_ms"):
        said = {value for clock in (left, right) if (value := getattr(clock, name)) is not None}
        if len(said) > 1:
            one, other = (show_ms(getattr(clock, name)) for clock in (left, right))
            raise DefinitionError(
                f"join: `{name.removesuffix('_ms')}` is {one} on the left and {other} on the right. A join has one "
                "stream time over both: say the same, or say it once."
            )
        found[name] = next(iter(said), None)
    clock = Clock(rules.pop() if rules else SLOWEST, **found, chosen=bool(left.chosen or right.chosen))
    check_aggregated(clock)
    return clock


def _positive(argument: str, value: Duration | None) -> int | None:
    return None if value is None else _at_least(argument, value, 1)


def _at_least(argument: str, value: Duration, least_ms: int) -> int:
    ms = duration_ms(value, argument)
    if ms < least_ms:
        rule = "it must be larger than zero" if least_ms else "it must not be negative"
        raise DefinitionError(f'`{argument}` is {show_ms(ms)}: {rule}. Use for example "5 minutes".')
    return ms
