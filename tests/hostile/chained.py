"""An operator behind another one: rows of a join in windows or joined again, tables grouped anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hostile.case import Case, Source
from hostile.joined import Joining
from hostile.scenario import AnyWindows, Scenario, windows_code
from hostile.tables import Regrouping, aggregated


@dataclass(frozen=True)
class Windowing:
    """Rows grouped by `by`, in windows.

    anew        whether that is another key than the rows have
    calls       as those of a Regrouping
    suppresses  whether final results are those of a suppression
    others      records that the rows are merged with, the last source; `first` whether the rows are named first
    """

    by: tuple[str, ...]
    anew: bool
    windows: AnyWindows
    calls: tuple[tuple[str, str, str | None], ...]
    final: bool
    suppresses: bool = False
    others: Source | None = None
    first: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The value columns."""
        return tuple(name for name, _, _ in self.calls)


@dataclass(frozen=True)
class Again:
    """Rows joined with a table, the last source; history and grace as those of a Joining."""

    by: tuple[str, ...]
    table: Source
    how: str
    history: int | None = None
    grace: int | None = None


@dataclass(frozen=True, kw_only=True)
class Chained(Case):
    """`first` makes rows that `behind` takes. The records, batches and restarts of `first` are those of this."""

    first: Scenario | Joining
    behind: Regrouping | Windowing | Again

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
        more = getattr(self.behind, "table", None) or getattr(self.behind, "others", None)
        return (*self.first.sources, *(() if more is None else (more,)))

    @property
    def in_order(self) -> bool:
        return not isinstance(self.behind, Again)

    @property
    def key(self) -> tuple[str, ...]:
        return self.behind.by

    @property
    def kinds(self) -> list[str]:
        first = "aggregation"
        if isinstance(self.first, Joining):
            first = f"join: {self.first.family}" + ", min_partition" * self.first.slowest
        if isinstance(self.behind, Regrouping):
            return [f"behind {first}: groups"]
        if isinstance(self.behind, Again):
            return [f"behind {first}: a join", *["behind: grace of a table"] * bool(self.behind.grace)]
        if self.behind.others is not None:
            return [f"behind {first}, merged: windows"]
        made = "suppressed" if self.behind.suppresses else "final" if self.behind.final else "updates"
        return [f"behind {first}: windows", f"behind: {type(self.behind.windows).__name__}, {made}"]

    def code(self, unbound: bool = True) -> str:
        lines, behind = [self.first.code(unbound)], self.behind
        if isinstance(behind, Regrouping):
            lines.append(f"grouped = table.group_by({', '.join(map(repr, behind.by))})")
            return "\n".join([*lines, *aggregated(behind, "behind"), "table = results"])
        if isinstance(behind, Again):
            number, said = len(self.first.sources), behind.table.arguments
            if unbound:
                lines.append(f"schema{number} = {behind.table.schema_code}")
                said.append(f"schema=schema{number}")
            said += [] if behind.history is None else [f'history="{behind.history} ms"']
            grace = "" if behind.grace is None else f', grace="{behind.grace} ms"'
            lines.append(f"third = tg.table(sources[{number}], {', '.join(said)}, name={self.names[number]!r})")
            return "\n".join([*lines, f"table = table.join(third, how={behind.how!r}{grace})"])
        if (others := behind.others) is not None and isinstance(self.first, Joining):
            number, said = len(self.first.sources), others.arguments
            if unbound:
                lines.append(f"schema{number} = {others.schema_code}")
                said.append(f"schema=schema{number}")
            said.append(f"stream_time={'min_partition' if self.first.slowest else 'max'!r}")
            lines.append(f"others = tg.stream(sources[{number}], {', '.join(said)}, name={self.names[number]!r})")
            lines.append("table = table.merge(others)" if behind.first else "table = others.merge(table)")
        grouped = f".group_by({', '.join(map(repr, behind.by))})" if behind.anew else ".group_by_key()"
        emits = behind.final and not behind.suppresses
        closes = ".emit_strategy(tg.EmitStrategy.on_window_close())" if emits else ""
        final = ".suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))" if behind.suppresses else ""
        lines.append(f"grouped = table{grouped}{windows_code(behind.windows)}{closes}")
        plain = Regrouping(behind.by, "built-in", behind.calls)
        return "\n".join([*lines, *aggregated(plain, "behind"), f"table = results{final}"])


def value_kinds(first: Scenario | Joining) -> dict[str, Any]:
    """The value columns of rows, with their types as code; None where it is not known."""
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
