"""An aggregation, from its stream to its outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hostile.case import Case, Row, Source, Step
from oracle import Batches, NoWindows, Sessions, Unlimited, Windows
from oracle_suppress import Limit


@dataclass(frozen=True)
class Sliding:
    """[t - d, t] and [t + 1, t + 1 + d] for each record at t; closed when stream time passes end + grace."""

    difference: int
    grace: int

    def closed(self, end: int, stream_time: int) -> bool:
        return end < stream_time - self.grace


ROOM = 10_000
"""Records of a strict buffer that no case fills; the operator is still a single task."""

AnyWindows = Windows | Sliding | Sessions | Batches | Unlimited | NoWindows


@dataclass(frozen=True)
class Call:
    """An aggregate: built-in, functions to reduce, or functions to aggregate.

    family   "built-in", "reduce" or "aggregate"
    what     name of the function, or of the class of functions
    column   column that it reads, for some classes several; None if none
    kind     declared type of the aggregate, as code; for other families the type of the column
    vectorized  whether the aggregator is called with Arrow arrays
    """

    name: str
    family: str
    what: str
    column: Any
    kind: str = ""
    vectorized: bool = False


@dataclass(frozen=True)
class Output:
    """An output: updates, final results, rows behind a time limit, or late records."""

    name: str
    kind: str
    suppresses: bool = False
    bound: tuple[str, int] | None = None
    limit: Limit | None = None
    step: Step | None = None
    behind: tuple[Limit, ...] = ()
    """Further limits, behind the first one."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """All limits, one behind the other."""
        return () if self.limit is None else (self.limit, *self.behind)

    @property
    def final(self) -> bool:
        return self.kind.startswith("final")

    @property
    def roomier(self) -> Output:
        """The same with buffers that are never full."""
        limit, *behind = roomier(self.limits) or (None,)
        bound = None if self.bound is None else (self.bound[0], ROOM)
        return replace(self, limit=limit, behind=tuple(behind), bound=bound)


@dataclass(frozen=True, kw_only=True)
class Scenario(Case):
    """An aggregation. `columns` are the value columns with their types as code; `keys` the key columns likewise.

    slowest     whether the slowest partition is the clock
    idle_after  when a silent partition stops holding back the others (ms), None if never
    skew    how far ahead of the wall clock a record may be (ms), None if there is no limit
    inputs  "one"; or two streams that each keep a part of the records, in a "merge" or a "cogroup"
    """

    keys: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    timestamp: str
    order: tuple[str, str] | None
    steps: tuple[Step, ...]
    windows: AnyWindows
    calls: tuple[Call, ...]
    outputs: tuple[Output, ...]
    caching: bool
    retention: int | None
    typed: bool
    inputs: str = "one"
    skew: int | None = None
    slowest: bool = False
    idle_after: int | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return (Source(self.keys, self.columns, self.timestamp, self.order, self.steps),)

    @property
    def clocked(self) -> bool:
        return any(span is not None for span in (self.idle, self.idle_after, self.skew))

    @property
    def roomier(self) -> Scenario:
        return replace(self, outputs=tuple(output.roomier for output in self.outputs))

    @property
    def named(self) -> bool:
        """Whether rows have a column `output`."""
        return self.outputs[0].name != ""

    @property
    def kinds(self) -> list[str]:
        found = [f"windows: {type(self.windows).__name__}", f"aggregate: {self.calls[0].family}"]
        found += ["limits in a row"] * any(output.behind for output in self.outputs)
        found.append("out: " + "+".join(sorted(output.kind for output in self.outputs)))
        found += [f"step: {step.how}" for step in self.steps]
        found += ["aggregate: vectorized"] if self.calls[0].vectorized else []
        found += ["time: max_future_skew"] if self.skew is not None else []
        found += ["time: idle_advance"] * (self.idle is not None)
        found += [f"time: min_partition{also}" for also in ("", *self._also) if self.slowest]
        found += ["time: idle_after"] * (self.idle_after is not None)
        found += ["windows: Sliding, one instant"] * (self.windows == Sliding(0, getattr(self.windows, "grace", 0)))
        return found + ([f"inputs: {self.inputs}"] if self.inputs != "one" else [])

    @property
    def _also(self) -> list[str]:
        """Labels for further features of a case whose clock is the slowest partition."""
        found = [] if self.inputs == "one" else [f", {self.inputs}"]
        found += [", filter"] * any(step.how == "filter" for step in self.steps)
        found += [", expect_keys"] * (self.expects is not None)
        found += [", idle_advance"] * (self.idle is not None)
        found += [f", {output.kind}" for output in self.outputs if output.limit is not None]
        found += [", a strict bound"] * any(output.bound is not None for output in self.outputs)
        partitions = self.order and {record[self.order[0]] for batch in self.batches for record in batch}
        return [*found, *(f"{one}, partitions" for one in found if len(partitions or ()) > 1)]

    # -- code ------------------------------------------------------------------------------------------------------

    def code(self, unbound: bool = True) -> str:
        (source,) = self.sources
        said = [*source.arguments, *(["schema=schema"] if unbound and self.typed else []), *self._clock]
        lines = [f"schema = {source.schema_code}"] if unbound and self.typed else []
        steps, windowed = "".join(step.code for step in self.steps), f"{windows_code(self.windows)}{self._strategy}"
        stream = f'tg.stream(sources[0], {", ".join(said)}, name="case{self.seed}")'
        if self.inputs == "one":
            lines += [f"stream = {stream}{steps}", f"grouped = stream.group_by_key(){windowed}"]
        else:
            # Both streams have one name, so that records that are piped together keep their order.
            for n, name in enumerate(("stream", "other")):
                lines.append(f"{name} = {stream}.filter(f.Part({self.columns[0][0]!r}, {n})){steps}")
        if self.inputs == "merge":
            lines.append(f"grouped = stream.merge(other).group_by_key(){windowed}")
        if self.inputs == "cogroup":
            lines += [
                f"made = f.{self.calls[0].what}({self.calls[0].column!r})",
                "grouped = stream.group_by_key().cogroup(made.aggregator)",
                f"grouped = grouped.cogroup(other.group_by_key(), made.aggregator){windowed}",
            ]
        lines += self._aggregated
        if not self.named:
            lines.append(f"table = results{_way(self.outputs[0])}")
        else:
            made = ", ".join(f"{output.name}=results{_way(output)}" for output in self.outputs)
            lines.append(f"table = tg.outputs({made})")
        return "\n".join(lines)

    @property
    def _clock(self) -> list[str]:
        """Arguments of `tg.stream` that decide how stream time moves."""
        spans = {"idle_advance": self.idle, "idle_after": self.idle_after, "max_future_skew": self.skew}
        said = [f'{name}="{ms} ms"' for name, ms in spans.items() if ms is not None]
        return [*said, *(['stream_time="min_partition"'] if self.slowest else [])]

    @property
    def _strategy(self) -> str:
        closes = any(output.final and not output.suppresses for output in self.outputs)
        return ".emit_strategy(tg.EmitStrategy.on_window_close())" if closes else ""

    @property
    def _aggregated(self) -> list[str]:
        store = 'tg.Materialized.as_("store")'
        if not self.caching:
            store += ".with_caching_disabled()"
        if self.retention is not None:
            store += f'.with_retention("{self.retention} ms")'
        more = [f"materialized={store}"]
        if self.expects is not None:
            more.append(f"expect_keys={list(self.expects)!r}")
        (call, *_) = self.calls
        if call.family == "built-in":
            made = {c.name: f"tg.{c.what}({'' if c.column is None else repr(c.column)})" for c in self.calls}
            # Names that are no identifiers are passed in a dict.
            said = "**{" + ", ".join(f"{name!r}: {what}" for name, what in made.items()) + "}"
            return [f"results = grouped.agg({', '.join([*more, said])})"]
        return functions_code(call, self.windows, more, cogroups=self.inputs == "cogroup")


def _way(output: Output) -> str:
    step = output.step.code if output.step else ""
    if output.kind == "late":
        return ".late_records()"
    made = ""
    if output.final and output.suppresses:
        buffer = "tg.BufferConfig.unbounded()"
        if output.bound is not None:
            buffer = f"tg.BufferConfig.{output.bound[0]}({output.bound[1]}).shut_down_when_full()"
        made += f".suppress(tg.Suppressed.until_window_closes({buffer}))"
    made += step
    return made + "".join(f".suppress({limit_code(limit)})" for limit in output.limits)


def functions_code(call: Call, windows: AnyWindows, more: list[str], *, cogroups: bool = False) -> list[str]:
    """Code that assigns `results` from functions over `grouped`; a cogroup already has its aggregators."""
    if call.family == "reduce":
        return [f"results = grouped.reduce(f.{call.what}, {call.column!r}, name={call.name!r}, {', '.join(more)})"]
    if isinstance(windows, Sessions):
        more = [*more, "merger=made.merger"]
    said = f"type={call.kind}, name={call.name!r}, {', '.join(more)}"
    if cogroups:
        return [f"results = grouped.aggregate(made.initializer, {said})"]
    how = "made.vectors, vectorized=True" if call.vectorized else "made.aggregator"
    return [f"made = f.{call.what}({call.column!r})", f"results = grouped.aggregate(made.initializer, {how}, {said})"]


def windows_code(windows: AnyWindows) -> str:
    """The call that puts a grouped stream in windows, as code."""
    match windows:
        case Windows(size, advance, grace):
            made = f'tg.TimeWindows.of_size_and_grace("{size} ms", "{grace} ms").advance_by("{advance} ms")'
        case Sliding(difference, grace):
            made = f'tg.SlidingWindows.of_time_difference_and_grace("{difference} ms", "{grace} ms")'
        case Sessions(gap, grace):
            made = f'tg.SessionWindows.of_inactivity_gap_and_grace("{gap} ms", "{grace} ms")'
        case Batches(size):
            made = f'tg.BatchWindows.of_size("{size} ms")'
        case Unlimited(start):
            made = f"tg.UnlimitedWindows.start_on({start})"
        case _:
            return ""
    return f".windowed_by({made})"


def roomier(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """The same limits with buffers so large that none stops a query."""
    return tuple(replace(limit, max_records=ROOM) if limit.strategy == "shut_down" else limit for limit in limits)


def limit_code(limit: Limit) -> str:
    """A suppression until a time limit, as code."""
    buffer = "tg.BufferConfig.unbounded().emit_early_when_full()"
    if limit.max_records is not None:
        buffer = f"tg.BufferConfig.max_records({limit.max_records})"
        if limit.max_bytes is not None:
            buffer += f".with_max_bytes({limit.max_bytes})"
    elif limit.max_bytes is not None:
        buffer = f"tg.BufferConfig.max_bytes({limit.max_bytes})"
    if limit.strategy != "emit_early":
        buffer += f".{limit.strategy}_when_full()"
    how = f'clock="stream", measured_from={limit.measured_from!r}'
    return f'tg.Suppressed.until_time_limit("{limit.ms} ms", {buffer}, {how})'


__all__ = ["AnyWindows", "Call", "Output", "Row", "Scenario", "Sliding", "Step", "limit_code"]
