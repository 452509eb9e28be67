"""A join: of two streams, of a stream with itself, of a stream with a table, or of two tables."""

from __future__ import annotations

from dataclasses import dataclass

from hostile.case import Case, Source, Step

SIDES = ("left", "right")


@dataclass(frozen=True, kw_only=True)
class Joining(Case):
    """A join.

    family    "streams", "self", "table" or "tables"
    inputs    the sources, left and right; one source for a join of a stream with itself
    suffixes  suffixes of columns that both sides have
    joiner    whether a function makes the values, instead of suffixes
    step      a step of the joined rows, None if there is none
    late      whether late records are a second output
    reach     of streams: before, after and grace (ms)
    slowest   whether the slowest of all partitions is the clock; with a table, the slowest of the stream
    idle_after, idle_advance
              further settings of the clock of the streams (ms)
    skew      how far ahead of the wall clock a record may be (ms), None if there is no limit
    history   of a table: how long it keeps versions (ms), None if it keeps none
    grace     of a stream with a table: how long a record waits (ms), None if it does not
    """

    family: str
    inputs: tuple[Source, ...]
    how: str
    suffixes: tuple[str, str]
    joiner: bool = False
    step: Step | None = None
    late: bool = False
    reach: tuple[int, int, int] = (0, 0, 0)
    slowest: bool = False
    idle_after: int | None = None
    idle_advance: int | None = None
    skew: int | None = None
    history: int | None = None
    grace: int | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.inputs

    @property
    def in_order(self) -> bool:
        return self.family == "tables"

    @property
    def clocked(self) -> bool:
        return any(span is not None for span in (self.idle_after, self.idle_advance, self.skew))

    @property
    def kinds(self) -> list[str]:
        found = [f"join: {self.family}", f"join: {self.how}"]
        found += ["join: value_joiner"] * self.joiner + ["join: late records"] * self.late
        with_table = " of a stream with a table" * (self.family == "table")
        found += [f"join: min_partition{with_table}"] * self.slowest
        two = ", two inputs" if self.family == "streams" else f", {self.family}"
        for name in ("idle_after", "idle_advance"):
            found += [f"join: {name}{also}" for also in ("", two) if getattr(self, name) is not None]
        found += ["join: max_future_skew"] * (self.skew is not None)
        found += ["join: grace of a table"] * (self.grace is not None)
        shared = len(self.inputs) > 1 and set(self.inputs[0].values) & set(self.inputs[1].values)
        found += ["join: names of both sides"] * bool(shared)
        return found + ["join: a step behind"] * (self.step is not None)

    @property
    def renamed(self) -> tuple[dict[str, str], dict[str, str]]:
        """Names of the value columns of either side in a joined row."""
        left, right = self.inputs[0].values, self.inputs[-1].values
        both = set(left) & set(right)
        sides = zip((left, right), self.suffixes, strict=True)
        first, second = ({n: n + suffix if n in both else n for n in names} for names, suffix in sides)
        return first, second

    def code(self, unbound: bool = True) -> str:
        lines = []
        for number, source in enumerate(self.inputs):
            said = source.arguments
            if unbound:
                lines.append(f"schema{number} = {source.schema_code}")
                said.append(f"schema=schema{number}")
            made = "table" if self._is_table(number) else "stream"
            # The default clock of joins does not need partitions.
            if made == "stream" and (source.order or not self.slowest):
                said.append(f"stream_time={'min_partition' if self.slowest else 'max'!r}")
                idle = {"idle_after": self.idle_after, "idle_advance": self.idle_advance}
                said += [f'{name}="{ms} ms"' for name, ms in idle.items() if ms is not None]
            elif self.history is not None:
                said.append(f'history="{self.history} ms"')
            if made == "stream" and self.skew is not None:
                said.append(f'max_future_skew="{self.skew} ms"')
            steps = "".join(step.code for step in source.steps)
            said.append(f"name={self.names[number]!r}")
            lines.append(f"{SIDES[number]} = tg.{made}(sources[{number}], {', '.join(said)}){steps}")
        lines.append(f"joined = left.join({'left' if self.family == 'self' else 'right'}, {', '.join(self._said)})")
        step = self.step.code if self.step else ""
        table = "tg.outputs(joined=joined, late=joined.late_records())" if self.late else f"joined{step}"
        return "\n".join([*lines, f"table = {table}"])

    def _is_table(self, number: int) -> bool:
        return self.family == "tables" or (self.family == "table" and number == 1)

    @property
    def _said(self) -> list[str]:
        said = [f"how={self.how!r}"]
        if self.family in ("streams", "self"):
            said.insert(0, join_windows_code(self.reach))
        if self.grace is not None:
            said.append(f'grace="{self.grace} ms"')
        if self.family == "tables":
            said.append('materialized=tg.Materialized.as_("join").with_caching_disabled()')
        if self.joiner:
            said.append("value_joiner=f.Paired(), types={'pair': pa.string(), 'parts': pa.list_(pa.string())}")
        else:
            said.append(f"suffixes={self.suffixes!r}")
        return said


def join_windows_code(reach: tuple[int, int, int]) -> str:
    """Windows in which records meet, by before, after and grace (ms), as code."""
    before, after, grace = reach
    windows = f'tg.JoinWindows.of_time_difference_and_grace("{max(before, 0)} ms", "{grace} ms")'
    # Set the longer one first: the window must not end before it starts in between.
    for name, value in sorted((("before", before), ("after", after)), key=lambda one: -one[1]):
        windows += f'.{name}("{value} ms")'
    return windows
