"""Definitions of an operator's numbers per micro-batch, and of the metrics over them, as data.

Names and meanings come from KIP-328 and KIP-825, in snake case. Spark combines the numbers of its tasks in `observe()`
(runtime/spark/flow.py), all others with `combined`: both read the same formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

NOTHING = float("nan")
"""A metric without a sample, as in Kafka."""

# Groups of numbers; `plan.Operation.measured` gives the groups that an operator reports.
(
    ALWAYS,
    SKEW,
    FINAL,
    SUPPRESSION,
    BOUND,
    OVERTIME,
    WAITS,
    SLOWEST,
    FOLLOWS,
    WAKES,
    JOIN,
    LOOKUPS,
    GRACES,
    ORDER,
) = GROUPS = (
    "always",
    "skew",
    "final",
    "suppression",
    "bound",
    "overtime",
    "waits",
    "slowest",
    "follows",
    "wakes",
    "join",
    "lookups",
    "graces",
    "order",
)

SKIPPED = ("null_key", "null_value", "bad_timestamp", "future")
"""Reasons to skip a record, because it cannot be processed. Being late is not one of them (KIP-328)."""

FILL = 10_000
"""The number that tasks report for a full buffer; a half full one is 5,000."""


GRACE_NEEDED = "grace_needed"
"""Lists of numbers (`kernel.time.window_graces.encoded`), one per task that has any."""
OF_TIME, OF_SLIDING, OF_SESSIONS, OF_JOIN = GRACE_KINDS = range(4)
"""The first number of such a list: its kind of windows."""
PARTITION_TIMES = "partition_times"
"""JSON text with [partition, its largest timestamp] of each partition with records; a single task reports it."""


@dataclass(frozen=True)
class Term:
    """The number named `of` combined over the tasks by the aggregate function `how`; or, if `how` is "number", the
    constant `of`.
    """

    how: str
    of: str


@dataclass(frozen=True)
class Formula:
    """A term, or the ratio of two. A denominator counts the samples of the numerator, so a ratio 0 / 0 is 0."""

    over: Term
    under: Term | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """Numerator and denominator, if there is one."""
        return (self.over,) if self.under is None else (self.over, self.under)


_TERM = re.compile(r"(\w+)\((\w+)\)")


@cache
def formula(name: str, how: str) -> Formula:
    """The formula of the number `name`, parsed from `how`: for example "sum" (of itself) or "sum(a) / sum(b)"."""
    over, _, under = how.partition(" / ")
    return Formula(_term(name, over), _term(name, under) if under else None)


def _term(name: str, text: str) -> Term:
    if (found := _TERM.fullmatch(text)) is not None:
        return Term(found[1], found[2])
    return Term("number" if text.isdecimal() else text, text if text.isdecimal() else name)


@dataclass(frozen=True)
class Number:
    """A number of a micro-batch, as `observedMetrics` shows it under `name`; times are in ms."""

    name: str
    how: str
    of: str = ALWAYS


NUMBERS = (
    Number("records", "sum"),
    Number("late", "sum"),
    Number("null_key", "sum"),
    Number("null_value", "sum"),
    Number("bad_timestamp", "sum"),
    Number("future", "sum", SKEW),
    Number("emitted", "sum"),
    Number("open_windows", "max"),
    Number("open_left_records", "sum", JOIN),
    Number("open_right_records", "sum", JOIN),
    Number("stream_time", "max"),
    Number("stream_time_lag", "min"),
    Number("record_lateness_max", "max"),
    Number("record_lateness_avg", "sum(lateness_sum) / sum(records)"),
    Number("emit_final_records", "sum", FINAL),
    Number("emit_final_latency_max", "max(emit_final_latency)", FINAL),
    Number("emit_final_latency_avg", "avg(emit_final_latency)", FINAL),
    Number("suppression_emit", "sum", SUPPRESSION),
    Number("suppression_buffer_count_current", "sum", SUPPRESSION),
    Number("suppression_buffer_count_max", "sum", BOUND),
    Number("suppression_buffer_size_current", "sum", SUPPRESSION),
    Number("suppression_buffer_size_max", "sum", BOUND),
    Number("suppression_buffer_fill", f"max(suppression_buffer_fill) / {FILL}", BOUND),
    Number("spilled_bytes", "sum", SUPPRESSION),
    Number("intermediate_result_suppression_overtime_min", "min(overtime_min)", OVERTIME),
    Number("intermediate_result_suppression_overtime_avg", "sum(overtime_sum) / sum(suppression_emit)", OVERTIME),
    Number("next_close", "min", WAITS),
    Number("next_lookup", "min", LOOKUPS),
    Number("lookup_clock", "max", LOOKUPS),
    Number(GRACE_NEEDED, "collect_list", GRACES),
    Number(PARTITION_TIMES, "max", ORDER),
    Number("slowest_partition", "max", SLOWEST),
    Number("slowest_side", "max", SLOWEST),
    Number("slowest_time", "max", SLOWEST),
    Number("follows_join", "max", FOLLOWS),
    # Without input only tasks with a due timer report. Totals over all tasks must then be followed by their changes.
    Number("tasks", "max", WAKES),
    Number("tasks_heard", "sum", WAKES),
    Number("suppression_buffer_count_change", "sum", WAKES),
    Number("suppression_buffer_size_change", "sum", WAKES),
    Number("spilled_bytes_change", "sum", WAKES),
)

BUFFER_SIZES = ("suppression_buffer_count_current", "suppression_buffer_size_current", "spilled_bytes")
"""Sizes of buffers, summed over all tasks."""


def change_of(size: str) -> str:
    """The name of the number with the change of one of `BUFFER_SIZES`."""
    return f"{size.removesuffix('_current')}_change"


def numbers(measured: Iterable[str], stores: Mapping[str, tuple[int, Iterable[str]]] | None = None) -> dict[str, str]:
    """The numbers per batch of operators in the groups `measured`: formula text by name.

    stores  for an operator with several time limits: by the name of each limit, its place and its groups. Each limit
            reports the numbers of these groups about its own rows, named by `of_store`
    """
    groups = {ALWAYS, *measured}
    found = {number.name: number.how for number in NUMBERS if number.of in groups}
    for store, (place, own) in (stores or {}).items():
        mine = [number for number in NUMBERS if number.of in {*own} and not number.name.startswith("tasks")]
        found |= {of_store(number.name, store): _of_place(number, place) for number in mine}
    return found


def of_store(name: str, store: str) -> str:
    """The name of a number or metric of one suppression among several."""
    return f"{name}[{store}]"


def store_of(name: str) -> tuple[str, str | None]:
    """The name of a number or metric without its store, and the store; None if the operator itself reports it."""
    base, bracket, store = name.partition("[")
    return base, store.removesuffix("]") if bracket else None


def at_place(name: str, place: int) -> str:
    """The name under which tasks report a number of the limit at this place."""
    return f"{name}_{place}"


def _of_place(number: Number, place: int) -> str:
    if "(" not in number.how:
        return f"{number.how}({at_place(number.name, place)})"
    return _TERM.sub(lambda term: f"{term[1]}({at_place(term[2], place)})", number.how)


def timed(own: Mapping[str, float], took_ms: float, now_ms: float) -> dict[str, float]:
    """The numbers of a task that need a clock: its part of a batch took so long, and is done at `now_ms`.

    `own` are its other numbers.
    """
    more = {}
    if own["stream_time"] >= 0:
        more["stream_time_lag"] = now_ms - own["stream_time"]
    if own.get("emit_final_records"):
        more["emit_final_latency"] = took_ms
    return more


_COMBINE: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "avg": lambda values: sum(values) / len(values),
    "collect_list": list,
}


def combined(hows: Mapping[str, str], tasks: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """The numbers of all `tasks` combined by their formulas `hows`, as `observedMetrics` shows them.

    None where no task reported the numbers that a formula needs.
    """

    def of(term: Term) -> float | None:
        if term.how == "number":
            return float(term.of)
        values = [task[term.of] for task in tasks if term.of in task]
        return _COMBINE[term.how](values) if values else None

    def value(made: Formula) -> float | None:
        over = of(made.over)
        if made.under is None:
            return over
        under = of(made.under)
        return None if under is None or over is None else over / max(under, 1)

    return {name: value(formula(name, how)) for name, how in hows.items()}


@dataclass(frozen=True)
class Metric:
    """A metric of an operator over the life of its query.

    kind   "total" (only grows), "rate" (per second, over the last minute) or "gauge"
    means  its meaning, for the documentation and for Prometheus
    kafka  the name in the KIPs, empty for our own metrics
    needs  the number of a batch without which the metric does not exist
    """

    name: str
    kind: str
    unit: str
    means: str
    kafka: str = ""
    needs: str = "records"


def _counted(kafka: str, unit: str, means: str, needs: str) -> tuple[Metric, Metric]:
    base = kafka.replace("-", "_")
    return (
        Metric(f"{base}_rate", "rate", f"{unit}/s", f"{means}, per second", f"{kafka}-rate", needs),
        Metric(f"{base}_total", "total", unit, means, f"{kafka}-total", needs),
    )


def _gauge(kafka: str, unit: str, means: str, needs: str = "records") -> Metric:
    return Metric(kafka.replace("-", "_"), "gauge", unit, means, kafka, needs)


def _open_records(side: str) -> Metric:
    means = f"{side} records of a join that are kept, because they may still find partners"
    return Metric(f"open_{side}_records", "gauge", "records", means, "", f"open_{side}_records")


_COUNT, _SIZE = "suppression_buffer_count_current", "suppression_buffer_size_current"
_OVERTIME = "intermediate_result_suppression_overtime_min"

METRICS: tuple[Metric, ...] = (
    Metric("records_total", "total", "records", "records taken or dropped late, without skipped records"),
    Metric("emitted_total", "total", "rows", "rows that left the operator, of all outputs"),
    _gauge(
        "record-lateness-avg", "ms", "average lateness of a record: the stream time at its arrival minus its timestamp"
    ),
    _gauge("record-lateness-max", "ms", "the largest lateness of a record"),
    Metric("grace", "gauge", "ms", "the grace of the windows", needs=GRACE_NEEDED),
    Metric(
        "grace_enough",
        "gauge",
        "ms",
        "the shortest round grace with which at most 0.1 % of the (record, window) pairs of the last 24 hours would "
        "have been late (sliding windows, sessions and joins: of the records; for sessions it is an upper bound)",
        needs=GRACE_NEEDED,
    ),
    *_counted(
        "late-record-drop",
        "records",
        "records dropped because their window was closed, counted once per window",
        "late",
    ),
    *_counted(
        "expired-window-record-drop",
        "records",
        "records that a store refused because their window had expired; always 0, as no store forgets an open window",
        "late",
    ),
    Metric("skipped_records_rate", "rate", "records/s", "records skipped, per second"),
    Metric(
        "skipped_records_total",
        "total",
        "records",
        "records skipped, by reason: null_key, null_value, bad_timestamp, future",
    ),
    _open_records("left"),
    _open_records("right"),
    _gauge("suppression-buffer-count-current", "rows", "rows that wait now", _COUNT),
    _gauge("suppression-buffer-count-avg", "rows", "rows that wait, on average over the batches", _COUNT),
    _gauge("suppression-buffer-count-max", "rows", "the most rows that waited", _COUNT),
    _gauge("suppression-buffer-size-current", "bytes", "bytes of the rows that wait now", _SIZE),
    _gauge("suppression-buffer-size-avg", "bytes", "bytes of the rows that wait, on average over the batches", _SIZE),
    _gauge("suppression-buffer-size-max", "bytes", "the most bytes that waited", _SIZE),
    Metric(
        "suppression_buffer_fill",
        "gauge",
        "share",
        "how full a bounded buffer has been in the last batch, 0 to 1, in the task where it was fullest",
        needs="suppression_buffer_fill",
    ),
    Metric("spilled_bytes", "gauge", "bytes", "bytes of waiting rows that are on disk only", needs=_COUNT),
    *_counted("suppression-emit", "rows", "rows that a suppression emitted", "suppression_emit"),
    _gauge(
        "intermediate-result-suppression-overtime-min",
        "ms",
        "shortest wait of a row for a time limit after its last update",
        _OVERTIME,
    ),
    _gauge(
        "intermediate-result-suppression-overtime-avg",
        "ms",
        "wait of a row for a time limit after its last update, on average",
        _OVERTIME,
    ),
    _gauge(
        "emit-final-latency-avg",
        "ms",
        "average wall-clock time from the start of the batch in the operator until its final results left, over the "
        "batches with final results",
        "emit_final_records",
    ),
    _gauge(
        "emit-final-latency-max",
        "ms",
        "longest wall-clock time from the start of the batch in the operator until its final results left",
        "emit_final_records",
    ),
    *_counted("emit-final-records", "rows", "final results that left", "emit_final_records"),
    Metric("open_windows", "gauge", "windows", "open windows of the task with the most open windows"),
    Metric("stream_time", "gauge", "ms since 1970", "the stream time; -1 before the first record"),
    Metric("stream_time_lag", "gauge", "ms", "wall clock when the metric is read, minus stream time"),
)

PER_STORE = tuple(
    metric
    for metric in METRICS
    if metric.needs in {number.name for number in NUMBERS if number.of in (SUPPRESSION, BOUND, OVERTIME)}
)
"""Metrics that each of several suppressions reports by itself."""

LEAVING = frozenset(
    metric.name for metric in METRICS if metric.needs not in ("records", "late") or metric.name == "emitted_total"
) | {"emitted"}
"""Metrics that the last operator of a chain reports for the whole chain."""
