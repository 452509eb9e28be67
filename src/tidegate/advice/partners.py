"""How far the partners of a join are apart, in two recorded streams: which join windows find how many of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.advice.counts import Counts
from tidegate.advice.question import Question
from tidegate.advice.recorded import Recorded, numbered_keys
from tidegate.advice.text import aligned, number, share, short
from tidegate.errors import DefinitionError
from tidegate.instants import MAX_MS, earlier_ms, later_ms, rounded_up, show_ms
from tidegate.kernel.columns.arrays import Ints, ints
from tidegate.spec.windows import TimeWindows

TARGET = 0.01
"""The share of left records with partners that the chosen windows may leave without one."""
_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


@dataclass(frozen=True)
class JoinCost:
    """What windows that reach as far before as after a left record would find; times in ms.

    found         left records with a partner; `before` and `after`: if the windows reached to this side alone
    pairs         rows of an inner join
    """

    width: int
    found: int
    before: int
    after: int
    pairs: int


@dataclass(frozen=True)
class JoinAdvice:
    """Which join windows find how many partners; times in ms.

    Attributes:
        left: Left records with a key and a time.
        right: Right records with a key and a time.
        skipped: Other records, by side and reason.
        target: The share that was asked for.
        partnered: Left records for whose key there is a right record at all.
        before: With `after`, the shortest round windows that leave at most `target` of these without a partner.
        after: See `before`.
        costs: What windows find that reach as far to both sides.

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
    _sides: _Sides = field(compare=False, repr=False)

    def found(self, before_ms: int, after_ms: int) -> int:
        """How many left records find a partner with these windows; exact.

        Args:
            before_ms: How far before a left record its partners may be.
            after_ms: How far after it.

        Returns:
            The number of left records.

        Examples:
            >>> left, right = pa.table({"k": ["a"], "ts": [7]}), pa.table({"k": ["a"], "ts": [9]})
            >>> tg.advise_join(left, right, key="k", timestamp="ts").found(0, 2)
            1
        """
        return self._sides.found(before_ms, after_ms)

    def pairs(self, before_ms: int, after_ms: int) -> int:
        """The rows of an inner join with these windows, if no record is late; exact.

        Args:
            before_ms: How far before a left record its partners may be.
            after_ms: How far after it.

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
        told: dict[str, Any] = {"format": 1}
        told |= {name: getattr(self, name) for name in ("left", "right", "skipped", "target", "partnered")}
        told |= {"before": self.before, "after": self.after, "found": self.found(self.before, self.after)}
        told |= {"pairs": self.pairs(self.before, self.after), "costs": [vars(cost) for cost in self.costs]}
        return json.dumps(told)

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
        lines.append(
            f"  tg.JoinWindows.of_time_difference_and_grace(..., grace).before({show_ms(self.before)!r})"
            f".after({show_ms(self.after)!r})"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def advise_sides(
    left: pa.Table, right: pa.Table, key: str | Sequence[str], timestamps: tuple[str, str], target: float
) -> JoinAdvice:
    """The advice about two Arrow tables. Raises DefinitionError and InputError as `Recorded.of`."""
    if not isinstance(target, int | float) or not 0 <= target < 1:
        raise DefinitionError(
            f"`target` is {target!r}: it is the share of left records that may miss their partners, from 0 to below 1. "
            "Use for example 0.01."
        )
    recorded = [Recorded.of(question(key, time), table) for time, table in zip(timestamps, (left, right), strict=True)]
    keys = [one.rows.select([name for name in one.rows.schema.names if name.startswith("k:")]) for one in recorded]
    try:
        codes, _ = numbered_keys(pa.concat_tables([keys[0], keys[1].cast(keys[0].schema)]))
    except pa.ArrowException as error:
        raise DefinitionError(
            f"The keys of the two recordings have different types ({keys[0].schema.types} and {keys[1].schema.types}): "
            f"{error}. Cast one of them."
        ) from None
    split = len(recorded[0].arrived.ts)
    sides = _Sides.of(codes[:split], recorded[0].arrived.ts, codes[split:], recorded[1].arrived.ts)
    before, after = sides.chosen(target)
    return JoinAdvice(
        split,
        len(recorded[1].arrived.ts),
        {side: one.skipped for side, one in zip(("left", "right"), recorded, strict=True)},
        float(target),
        sides.partnered,
        before,
        after,
        [
            JoinCost(
                width,
                sides.found(width, width),
                sides.found(width, 0),
                sides.found(0, width),
                sides.pairs(width, width),
            )
            for width in sides.widths()
        ],
        sides,
    )


def question(key: str | Sequence[str], timestamp: str) -> Question:
    """What is read of a side."""
    return Question.of(key, timestamp, TimeWindows.of_size_with_no_grace("1 ms"))


@dataclass(frozen=True)
class _Sides:
    """Left records (numbers of keys, timestamps), and right ones in the order of key and timestamp.

    earlier, later   of each left record the distance to the nearest right one at or before it, and at or after it;
                     MAX_MS where there is none
    """

    key: Ints
    ts: Ints
    right_key: Ints
    right_ts: Ints
    earlier: Ints
    later: Ints

    @classmethod
    def of(cls, key: Ints, ts: Ints, right_key: Ints, right_ts: Ints) -> _Sides:
        order = np.lexsort((right_ts, right_key))
        right_key, right_ts = right_key[order], right_ts[order]
        found = cls(key, ts, right_key, right_ts, ts, ts)
        last, first = found._place(ts, behind=True) - 1, found._place(ts, behind=False)
        return cls(key, ts, right_key, right_ts, found._distance(last), found._distance(first))

    def _place(self, ts: Ints, *, behind: bool) -> Ints:
        """How many right records lie before these times of the left records' keys; `behind`: or at them."""
        keys, times = np.concatenate([self.right_key, self.key]), np.concatenate([self.right_ts, ts])
        is_left = np.repeat([0, 1], [len(self.right_ts), len(ts)])
        order = np.lexsort((is_left if behind else -is_left, times, keys))
        before = np.cumsum(1 - is_left[order])
        found = np.empty(len(order), np.int64)
        found[order] = before
        placed: Ints = found[len(self.right_ts) :]
        return placed

    def _distance(self, place: Ints) -> Ints:
        if not len(self.right_ts):
            return np.full(len(place), MAX_MS, np.int64)
        at = np.clip(place, 0, len(self.right_ts) - 1)
        mine = (place == at) & (self.right_key[at] == self.key)
        return np.where(mine, np.abs(self.right_ts[at] - self.ts), MAX_MS)

    @property
    def nearest(self) -> Ints:
        """The distance to the nearest right record of those that have one."""
        near: Ints = np.minimum(self.earlier, self.later)
        return near[near < MAX_MS]

    @property
    def partnered(self) -> int:
        return len(self.nearest)

    def found(self, before_ms: int, after_ms: int) -> int:
        within = (self.earlier <= before_ms) | (self.later <= after_ms)
        return int((within & (np.minimum(self.earlier, self.later) < MAX_MS)).sum())

    def pairs(self, before_ms: int, after_ms: int) -> int:
        high = self._place(ints(pa.array(later_ms(self.ts, after_ms))), behind=True)
        low = self._place(ints(pa.array(earlier_ms(self.ts, before_ms))), behind=False)
        return int((high - low).sum())

    def widths(self) -> list[int]:
        """Round widths that find growing shares of the partners."""
        counts = Counts.of(self.nearest)
        return sorted({rounded_up(counts.quantile(share)) for share in _SHARES}) if self.partnered else []

    def chosen(self, target: float) -> tuple[int, int]:
        """The shortest round (before, after) that leave at most this share of those with partners without one."""
        if not self.partnered:
            return 0, 0
        wanted = self.partnered * (1 - target)
        width = rounded_up(Counts.of(self.nearest).quantile(1 - target))
        candidates = sorted(
            {0, width, *(rounded_up(ms) for ms in np.unique(self.nearest[self.nearest <= width]).tolist())}
        )
        before = next(ms for ms in candidates if self.found(ms, width) >= wanted)
        return before, next(ms for ms in candidates if self.found(before, ms) >= wanted)


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
