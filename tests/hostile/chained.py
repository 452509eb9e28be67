"""An operator behind another one: rows in windows, or joined with a table or a stream, and tables grouped anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hostile.case import Case, Source
from hostile.joined import Joining, join_windows_code
from hostile.scenario import AnyWindows, Call, Scenario, functions_code, limit_code, windows_code
from hostile.tables import Regrouping, aggregated
from oracle_suppress import Limit


@dataclass(frozen=True)
class Windowing:
    """Rows grouped by `by`, in windows.

    anew        whether `by` differs from the key of the rows
    calls       as the calls of a Regrouping
    function    a function instead of calls, to which only the order of instants matters; None if there is none
    suppresses  whether final results come from a suppression
    others      last source: records that the rows are merged with; `first`: whether the rows come first in the merge
    """

    by: tuple[str, ...]
    anew: bool
    windows: AnyWindows
    calls: tuple[tuple[str, str, str | None], ...]
    final: bool
    suppresses: bool = False
    others: Source | None = None
    first: bool = True
    function: Call | None = None


@dataclass(frozen=True)
class Again:
    """Rows joined with a table, the last source; history and grace as in a Joining."""

    by: tuple[str, ...]
    table: Source
    how: str
    history: int | None = None
    grace: int | None = None


@dataclass(frozen=True)
class Meeting:
    """Rows joined with a stream, the last source; reach as in a Joining.

    slowest  whether the slowest partition is the clock; the rows are one partition
    """

    by: tuple[str, ...]
    stream: Source
    how: str
    reach: tuple[int, int, int]
    slowest: bool = False


@dataclass(frozen=True, kw_only=True)
class Chained(Case):
    """A chain: `behind` takes the rows of `first`. The records, batches and restarts of this case count for `first`.

    limits  time limits behind both, on final results or groups
    """

    first: Scenario | Joining
    behind: Regrouping | Windowing | Again | Meeting
    limits: tuple[Limit, ...] = ()

    @property
    def front(self) -> Scenario | Joining:
        """The first operator over the records of this case."""
        shared = ("batches", "sides", "clocks", "restarts", "splits", "tasks")
        mine = len(self.first.sources)
        others = {(n, i) for n, sides in enumerate(self.sides) for i, side in enumerate(sides) if side == mine}
        made = replace(self.first, **{name: getattr(self, name) for name in shared}, drains=self.drains).without(others)
        return replace(made, sides=made.sides if mine > 1 else [])

    @property
    def sources(self) -> tuple[Source, ...]:
        return (*self.first.sources, *(() if self.another is None else (self.another,)))

    @property
    def another(self) -> Source | None:
        """The last source, which the operator behind reads besides the rows; None if there is none."""
        if isinstance(self.behind, Meeting):
            return self.behind.stream
        if isinstance(self.behind, Again):
            return self.behind.table
        return self.behind.others if isinstance(self.behind, Windowing) else None

    @property
    def clocked(self) -> bool:
        return self.first.clocked

    @property
    def in_order(self) -> bool:
        return not isinstance(self.behind, Again | Meeting)

    @property
    def key(self) -> tuple[str, ...]:
        return self.behind.by

    @property
    def kinds(self) -> list[str]:
        first = "aggregation"
        if isinstance(self.first, Joining):
            first = f"join: {self.first.family}" + ", min_partition" * self.first.slowest
        if isinstance(self.behind, Windowing) and self.behind.others is not None:
            first += ", merged"
        behind, found = self.behind, [f"behind {first}: {self._operator}"]
        found += ["behind: a limit"] * bool(self.limits)
        if isinstance(behind, Regrouping):
            return [*found, *[f"behind: groups, {behind.family}"] * (behind.family != "built-in")]
        if isinstance(behind, Again):
            return [*found, *["behind: grace of a table"] * bool(behind.grace)]
        if isinstance(behind, Meeting):
            return [*found, *["behind: a join of streams, min_partition"] * behind.slowest]
        found += [f"behind: functions, {behind.function.family}"] if behind.function is not None else []
        if behind.others is not None:
            return found
        made = "suppressed" if behind.suppresses else "final" if behind.final else "updates"
        return [*found, f"behind: {type(behind.windows).__name__}, {made}"]

    @property
    def _operator(self) -> str:
        """Name of the operator behind."""
        words = {Regrouping: "groups", Windowing: "windows", Again: "a join", Meeting: "a join of streams"}
        return words[type(self.behind)]

    # -- code ------------------------------------------------------------------------------------------------------

    def code(self, unbound: bool = True) -> str:
        lines = [self.first.code(unbound), *self._behind(unbound)]
        limits = "".join(f".suppress({limit_code(limit)})" for limit in self.limits)
        return "\n".join([*lines, *([f"table = table{limits}"] if limits else [])])

    def _behind(self, unbound: bool) -> list[str]:
        behind = self.behind
        if isinstance(behind, Regrouping):
            grouped = f"grouped = table.group_by({', '.join(map(repr, behind.by))})"
            return [grouped, *aggregated(behind, "behind"), "table = results"]
        if isinstance(behind, Again):
            said = [] if behind.history is None else [f'history="{behind.history} ms"']
            grace = "" if behind.grace is None else f', grace="{behind.grace} ms"'
            lines = self._other_source("third", "table", said, unbound)
            return [*lines, f"table = table.join(third, how={behind.how!r}{grace})"]
        if isinstance(behind, Meeting):
            lines = self._other_source("third", "stream", [_clock(behind.slowest)], unbound)
            rows = "table.to_stream()" if isinstance(self.first, Scenario) else "table"
            return [*lines, f"table = {rows}.join(third, {join_windows_code(behind.reach)}, how={behind.how!r})"]
        lines = []
        if behind.others is not None and isinstance(self.first, Joining):
            lines = self._other_source("others", "stream", [_clock(self.first.slowest)], unbound)
            lines.append("table = table.merge(others)" if behind.first else "table = others.merge(table)")
        return [*lines, *self._windowed(behind)]

    def _other_source(self, name: str, kind: str, said: list[str], unbound: bool) -> list[str]:
        """The last source, as code: a stream or a table of this name."""
        assert self.another is not None
        number = len(self.first.sources)
        said = [*self.another.arguments, *([f"schema=schema{number}"] if unbound else []), *said]
        made = f"{name} = tg.{kind}(sources[{number}], {', '.join(said)}, name={self.names[number]!r})"
        return [*([f"schema{number} = {self.another.schema_code}"] if unbound else []), made]

    @staticmethod
    def _windowed(behind: Windowing) -> list[str]:
        grouped = f".group_by({', '.join(map(repr, behind.by))})" if behind.anew else ".group_by_key()"
        emits = behind.final and not behind.suppresses
        closes = ".emit_strategy(tg.EmitStrategy.on_window_close())" if emits else ""
        final = ".suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))" if behind.suppresses else ""
        made = aggregated(Regrouping(behind.by, "built-in", behind.calls), "behind")
        if behind.function is not None:
            store = 'materialized=tg.Materialized.as_("behind")'
            made = functions_code(behind.function, behind.windows, [store])
        lines = [f"grouped = table{grouped}{windows_code(behind.windows)}{closes}"]
        return [*lines, *made, f"table = results{final}"]


def _clock(slowest: bool) -> str:
    """The clock of a stream, as an argument."""
    return f"stream_time={'min_partition' if slowest else 'max'!r}"


def value_kinds(first: Scenario | Joining) -> dict[str, Any]:
    """The value columns of rows, with their types as code; None if the type is not known."""
    if isinstance(first, Scenario):
        (output,) = first.outputs
        if output.step is not None and output.step.types:
            return dict(output.step.types)
        return {call.name: _kind(call) for call in first.calls}
    if first.step is not None and first.step.types:
        return dict(first.step.types)
    if first.joiner:
        return {"pair": "pa.string()", "parts": None}
    columns = [dict((*source.keys, *source.columns)) for source in (first.inputs[0], first.inputs[-1])]
    sides = zip(first.renamed, columns, strict=True)
    return {named: types[name] for renamed, types in sides for name, named in renamed.items()}


def _kind(call: Any) -> str | None:
    """The type of an aggregate."""
    if call.family == "built-in" and (call.column is None or call.what == "count"):
        return "pa.int64()"
    return None if call.what in ("mean", "collect_list") else call.kind
