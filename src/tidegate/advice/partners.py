"""Distances between the partners of a join in two recorded streams, and the partners that join windows find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidegate.advice.counts import Counts
from tidegate.advice.join_graces import JoinArrivals, JoinGrace, graces_of
from tidegate.advice.keys import numbered_keys
from tidegate.advice.ordered import place
from tidegate.advice.question import Question, check_target
from tidegate.advice.recorded import Recorded
from tidegate.advice.text import aligned, number, share, short
from tidegate.arguments import is_one_of
from tidegate.errors import DefinitionError, in_one_line
from tidegate.instants import MAX_MS, earlier_ms, later_ms, rounded_up, show_ms
from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.spec.windows import TimeWindows

TARGET = 0.01
"""The share of left records with partners that the chosen windows may leave without one."""
_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


@dataclass(frozen=True)
class JoinCost:
    """The partners that windows of `width` before and after a left record find; times in ms.

    Attributes:
        width: How far the windows reach to both sides.
        found: The number of left records with a partner.
        before: That number if the windows reached only to the records before.
        after: That number if they reached only to the records after.
        pairs: The number of rows of an inner join.
    """

    width: int
    found: int
    before: int
    after: int
    pairs: int


@dataclass(frozen=True)
class JoinAdvice:
    """The partners that join windows find; times in ms.

    Attributes:
        left: The number of left records that are not skipped.
        right: The number of right records that are not skipped.
        skipped: The number of other records, by side and reason.
        target: The target share.
        partnered: The number of left records whose key has any right record.
        before: With `after`, the shortest round windows that leave at most `target` of `partnered` without a partner.
        after: See `before`.
        costs: The partners found by windows that reach equally far to both sides.
        grace: The shortest round grace with which the chosen windows lose at most `target` of their pairs; None without
            arrivals.
        graces: The pairs of the chosen windows that each grace loses.

    Examples:
        >>> side = pa.table({"k": ["a"], "ts": [7]})
        >>> found = tg.advise_join(side, side, key="k", timestamp="ts")
        >>> (found.partnered, found.before, found.after)
        (1, 0, 0)
    """

    left: int
    right: int
    skipped: dict[str, dict[str, int]]
    target: float
    partnered: int
    before: int
    after: int
    costs: list[JoinCost]
    _sides: Partners = field(compare=False, repr=False)
    grace: int | None = None
    graces: list[JoinGrace] = field(default_factory=list)

    def found(self, before_ms: int, after_ms: int) -> int:
        """The exact number of left records that find a partner with these windows.

        Args:
            before_ms: How far before a left record its partners may be.
            after_ms: How far after a left record its partners may be.

        Returns:
            The number of left records.

        Examples:
            >>> left, right = pa.table({"k": ["a"], "ts": [7]}), pa.table({"k": ["a"], "ts": [9]})
            >>> tg.advise_join(left, right, key="k", timestamp="ts").found(0, 2)
            1
        """
        return self._sides.found(before_ms, after_ms)

    def pairs(self, before_ms: int, after_ms: int) -> int:
        """The exact number of rows of an inner join with these windows, if no record is late.

        Args:
            before_ms: How far before a left record its partners may be.
            after_ms: How far after a left record its partners may be.

        Returns:
            The number of rows.

        Examples:
            >>> left, right = pa.table({"k": ["a"], "ts": [7]}), pa.table({"k": ["a", "a"], "ts": [7, 9]})
            >>> tg.advise_join(left, right, key="k", timestamp="ts").pairs(0, 2)
            2
        """
        return self._sides.pairs(before_ms, after_ms)

    def json(self) -> str:
        """All numbers.

        Returns:
            JSON.

        Examples:
            >>> side = pa.table({"k": ["a"], "ts": [7]})
            >>> tg.advise_join(side, side, key="k", timestamp="ts").json()[:13]
            '{"format": 1,'
        """
        values: dict[str, Any] = {"format": 1}
        values |= {name: getattr(self, name) for name in ("left", "right", "skipped", "target", "partnered")}
        values |= {"before": self.before, "after": self.after, "found": self.found(self.before, self.after)}
        values |= {"pairs": self.pairs(self.before, self.after), "costs": [vars(cost) for cost in self.costs]}
        values |= {"grace": self.grace, "graces": [vars(one) for one in self.graces]}
        return json.dumps(values)

    def __str__(self) -> str:
        skipped = [f"{n} {reason} ({side})" for side, by in self.skipped.items() for reason, n in by.items() if n]
        lines = [f"{number(self.left)} left and {number(self.right)} right records" + _behind(skipped)]
        lines.append(f"  {number(self.partnered)} left records have a right one of their key at any time.")
        if not self.partnered:
            return "\n".join(lines)
        lines += ["", *_table(self.costs, self.left), ""]
        found = self.found(self.before, self.after)
        rows = number(self.pairs(self.before, self.after))
        lines.append(
            f"Chosen: {show_ms(self.before)} before and {show_ms(self.after)} after a left record. They find a partner "
            f"for {share(found / self.partnered)} of those that have one, in {rows} rows."
        )
        if self.grace is not None:
            lines += ["", *_table_of_graces(self.graces), ""]
            lines.append(f"Grace: {show_ms(self.grace)} loses at most {share(self.target)} of these pairs.")
        grace = "grace" if self.grace is None else repr(show_ms(self.grace))
        lines.append(
            f"  tg.JoinWindows.of_time_difference_and_grace(..., {grace}).before({show_ms(self.before)!r})"
            f".after({show_ms(self.after)!r})"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def advise_sides(
    left: pa.Table, right: pa.Table, asked: tuple[Question, Question], target: float, stream_time: str
) -> JoinAdvice:
    """The advice about two Arrow tables. Raises DefinitionError and InputError as `Recorded.of`."""
    check_asked(target, stream_time)
    recorded = [Recorded.of(one, table) for one, table in zip(asked, (left, right), strict=True)]
    keys = [one.rows.select([name for name in one.rows.schema.names if name.startswith("k:")]) for one in recorded]
    try:
        codes, _ = numbered_keys(pa.concat_tables(keys, promote_options="permissive"))
    except pa.ArrowException as error:
        raise other_types(keys[0].schema.types, keys[1].schema.types, str(error)) from None
    split = len(recorded[0].arrived.ts)
    sides = Sides.of(codes[:split], recorded[0].arrived.ts, codes[split:], recorded[1].arrived.ts)
    skipped = {side: one.skipped for side, one in zip(("left", "right"), recorded, strict=True)}
    advice = advice_of(sides, (split, len(recorded[1].arrived.ts)), skipped, target)
    if asked[0].arrival is None:
        return advice
    arrivals = JoinArrivals.of(recorded[0], recorded[1], asked[0].trigger_ms, slowest=stream_time == "min_partition")
    needed, pairs = arrivals.needed(sides, advice.before, advice.after)
    return with_graces(advice, needed, pairs)


def with_graces(advice: JoinAdvice, needed: Counts, pairs: int) -> JoinAdvice:
    """The advice with the losses by grace; `needed` are the graces (ms) of the pairs that need one."""
    grace, graces = graces_of(needed, pairs, advice.target)
    return replace(advice, grace=grace, graces=graces)


def check_asked(target: Any, stream_time: Any) -> None:
    """Raise DefinitionError unless `target` is a share, and `stream_time` is "max" or "min_partition"."""
    check_target(target, "left records that may miss their partners", TARGET)
    if not is_one_of(stream_time, ("max", "min_partition")):
        raise DefinitionError(f"`stream_time` is {in_one_line(stream_time)}. Use one of 'max', 'min_partition'.")


def other_types(left: Any, right: Any, why: str) -> DefinitionError:
    """The error for keys that cannot be compared."""
    return DefinitionError(
        f"The keys of the two recordings have different types ({left} and {right}): {why}. Cast one of them."
    )


def advice_of(sides: Partners, many: tuple[int, int], skipped: dict[str, dict[str, int]], target: float) -> JoinAdvice:
    """The advice, from the distances of partners; `many`: the numbers of left and right records."""
    before, after = chosen(sides, target)
    wide = widths(sides)
    sides.prepare([pair for width in wide for pair in ((width, width), (width, 0), (0, width))])
    costs = [
        JoinCost(
            width,
            sides.found(width, width),
            sides.found(width, 0),
            sides.found(0, width),
            sides.pairs(width, width),
        )
        for width in wide
    ]
    left, right = many
    return JoinAdvice(
        left=left,
        right=right,
        skipped=skipped,
        target=float(target),
        partnered=sides.nearest.total,
        before=before,
        after=after,
        costs=costs,
        _sides=sides,
    )


def question(key: str | Sequence[str], timestamp: str, **order: Any) -> Question:
    """The question about one side, which says what to read of it."""
    about = Question.of(key, timestamp, TimeWindows.of_size_with_no_grace("1 ms"), **order)
    return replace(about, skips_null_values=True)


class Partners(Protocol):
    """The distances between records of two sides with the same key."""

    @property
    def nearest(self) -> Counts:
        """The distances (ms) of left records to their nearest partner, in either direction."""

    def prepare(self, windows: Sequence[tuple[int, int]]) -> None:
        """Prepare these (before, after): the costly part is done for all of them at once."""

    def found(self, before_ms: int, after_ms: int) -> int:
        """The number of left records that find a partner."""

    def pairs(self, before_ms: int, after_ms: int) -> int:
        """The number of pairs."""


def widths(sides: Partners) -> list[int]:
    """Round widths (ms) that find growing shares of the partners."""
    counts = sides.nearest
    return sorted({rounded_up(counts.quantile(share)) for share in _SHARES}) if counts.total else []


def chosen(sides: Partners, target: float) -> tuple[int, int]:
    """The shortest round (before, after) in ms: at most the share `target` of partnered records finds no partner."""
    nearest = sides.nearest
    if not nearest.total:
        return 0, 0
    most_missed = nearest.total * target
    width = rounded_up(nearest.smallest_with(most_missed))
    within = nearest.values[nearest.values <= width].tolist()
    candidates = sorted({0, width, *map(rounded_up, within)})
    sides.prepare([(ms, width) for ms in candidates])
    before = next(ms for ms in candidates if nearest.total - sides.found(ms, width) <= most_missed)
    sides.prepare([(before, ms) for ms in candidates])
    return before, next(ms for ms in candidates if nearest.total - sides.found(before, ms) <= most_missed)


@dataclass(frozen=True)
class Sides:
    """Left records (key numbers, timestamps), and right records ordered by key and timestamp.

    order            the row numbers of the ordered right records
    earlier, later   distance (ms) of each left record to the nearest right one at or before it, and at or after it;
                     MAX_MS if there is none
    """

    key: Ints
    ts: Ints
    order: Ints
    right_key: Ints
    right_ts: Ints
    earlier: Ints
    later: Ints

    @classmethod
    def of(cls, key: Ints, ts: Ints, right_key: Ints, right_ts: Ints) -> Sides:
        order = np.lexsort((right_ts, right_key))
        right_key, right_ts = right_key[order], right_ts[order]
        found = cls(key, ts, order, right_key, right_ts, ts, ts)
        last, first = found._place(ts, behind=True) - 1, found._place(ts, behind=False)
        return replace(found, earlier=found._distance(last), later=found._distance(first))

    def _place(self, ts: Ints, *, behind: bool) -> Ints:
        """The number of right records before the keys and times of the left records; `behind`: or equal to them."""
        return place(self.right_key, self.right_ts, self.key, ts, behind=behind)

    def _distance(self, place: Ints) -> Ints:
        if not len(self.right_ts):
            return np.full(len(place), MAX_MS, np.int64)
        at = np.clip(place, 0, len(self.right_ts) - 1)
        mine = (place == at) & (self.right_key[at] == self.key)
        return np.where(mine, np.abs(self.right_ts[at] - self.ts), MAX_MS)

    @cached_property
    def nearest(self) -> Counts:
        near = np.minimum(self.earlier, self.later)
        return Counts.of(near[near < MAX_MS])

    def prepare(self, windows: Sequence[tuple[int, int]]) -> None:
        """Nothing to prepare: all records are in memory."""

    def found(self, before_ms: int, after_ms: int) -> int:
        if min(before_ms, after_ms) < 0:  # the nearest partner of a direction may be too near
            low, high = self.within(before_ms, after_ms)
            return int((high > low).sum())
        within = (self.earlier <= before_ms) | (self.later <= after_ms)
        return int((within & (np.minimum(self.earlier, self.later) < MAX_MS)).sum())

    def pairs(self, before_ms: int, after_ms: int) -> int:
        low, high = self.within(before_ms, after_ms)
        return int((high - low).sum())

    def within(self, before_ms: int, after_ms: int) -> tuple[Ints, Ints]:
        """The range of each left record's partners, [low, high), in the right records ordered by key and time."""
        low = self._place(ints(pa.array(earlier_ms(self.ts, before_ms))), behind=False)
        high = self._place(ints(pa.array(later_ms(self.ts, after_ms))), behind=True)
        return low, np.maximum(low, high)


def _behind(skipped: list[str]) -> str:
    return f" (skipped: {', '.join(skipped)})." if skipped else "."


def _table(costs: list[JoinCost], left: int) -> list[str]:
    rows = [("both ways", "of left records", "before alone", "after alone", "rows")]
    rows += [
        (
            f"± {short(cost.width)}",
            share(cost.found / left),
            share(cost.before / left),
            share(cost.after / left),
            number(cost.pairs),
        )
        for cost in costs
    ]
    return aligned(rows)


def _table_of_graces(graces: list[JoinGrace]) -> list[str]:
    return aligned(
        [("grace", "pairs lost", "of all"), *((short(o.grace), number(o.lost), share(o.share)) for o in graces)]
    )
