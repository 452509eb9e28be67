"""A table given as its changes, perhaps grouped anew, perhaps behind time limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hostile.case import Case, Source, Step
from hostile.scenario import limit_code, roomier
from oracle_suppress import Limit


@dataclass(frozen=True)
class Regrouping:
    """A table grouped by other columns.

    family  "built-in", "reduce" or "aggregate"
    calls   of built-in aggregates: name, function, and column if it has one
    name    of functions: the result column; `what` is their class, `column` the column they read, `kind` the type
    """

    by: tuple[str, ...]
    family: str
    calls: tuple[tuple[str, str, str | None], ...] = ()
    name: str = ""
    what: str = ""
    column: str = ""
    kind: str = ""
    caching: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The value columns of a group."""
        return tuple(name for name, _, _ in self.calls) or (self.name,)


@dataclass(frozen=True, kw_only=True)
class Changes(Case):
    """A table. `step` and `limits` are those of the table, `step_behind` and `limits_behind` those of its groups."""

    source: Source
    step: Step | None = None
    limits: tuple[Limit, ...] = ()
    grouping: Regrouping | None = None
    step_behind: Step | None = None
    limits_behind: tuple[Limit, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def key(self) -> tuple[str, ...]:
        return self.source.key if self.grouping is None else self.grouping.by

    @property
    def values(self) -> tuple[str, ...]:
        """The value columns of the table, behind its step."""
        types = () if self.step is None else self.step.types
        return tuple(name for name, _ in types) or self.source.values

    @property
    def roomier(self) -> Changes:
        return replace(self, limits=roomier(self.limits), limits_behind=roomier(self.limits_behind))

    @property
    def kinds(self) -> list[str]:
        found = ["table: changes" if self.grouping is None else f"table: groups, {self.grouping.family}"]
        found += [f"table: {step.how}" for step in (self.step, self.step_behind) if step is not None]
        found += ["table: a limit"] * bool(self.limits) + ["table: a limit behind groups"] * bool(self.limits_behind)
        return found

    def code(self, unbound: bool = True) -> str:
        said = self.source.arguments
        lines = []
        if unbound:
            lines.append(f"schema = {self.source.schema_code}")
            said.append("schema=schema")
        ways = _way(self.step, self.limits)
        lines.append(f"table = tg.table(sources[0], {', '.join(said)}, name={self.names[0]!r}){ways}")
        if self.grouping is not None:
            by = ", ".join(map(repr, self.grouping.by))
            lines.append(f"grouped = table.group_by({by})")
            lines += aggregated(self.grouping)
            lines.append(f"table = results{_way(self.step_behind, self.limits_behind)}")
        return "\n".join(lines)


def aggregated(grouping: Regrouping, name: str = "store") -> list[str]:
    """The aggregation of `grouped`, as code."""
    store = f'tg.Materialized.as_("{name}")' + ("" if grouping.caching else ".with_caching_disabled()")
    if grouping.family == "built-in":
        made = [
            f"{name!r}: tg.{what}({'' if column is None else repr(column)})" for name, what, column in grouping.calls
        ]
        return [f"results = grouped.agg({store}, **{{{', '.join(made)}}})"]
    lines = [f"made = f.{grouping.what}({grouping.column!r})"]
    if grouping.family == "reduce":
        said = f"{grouping.column!r}, {grouping.name!r}, materialized={store}"
        return [*lines, f"results = grouped.reduce(made.added, made.taken, {said})"]
    said = f"type={grouping.kind}, name={grouping.name!r}, materialized={store}"
    return [*lines, f"results = grouped.aggregate(made.initializer, made.adder, made.subtractor, {said})"]


def _way(step: Step | None, limits: tuple[Limit, ...]) -> str:
    return (step.code if step else "") + "".join(f".suppress({limit_code(limit)})" for limit in limits)
