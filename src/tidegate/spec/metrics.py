"""What an operator tells about itself: the numbers of a micro-batch, and the metrics they add up to, both as data.

The names and meanings are those of KIP-328 and KIP-825 in snake case. Spark puts the numbers of its tasks together in
`observe()` (runtime/spark/flow.py), everybody else by `combined`: both read the same formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

NOTHING = float("nan")
"""A metric without a sample, as in Kafka."""

# Which operators tell a number; `plan.Operation.measured` says which groups one is in.
(
    ALWAYS,
    SKEW,
    FINAL,
    SUPPRESSION,
    BOUND,
    UNBOUND,
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
    "unbound",
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
"""Why a record is skipped: it is no record that could be taken. A late one is none of these (KIP-328)."""

FILL = 10_000
"""A full buffer, in the whole numbers that tasks tell."""


GRACE_NEEDED = "grace_needed"
"""Lists of numbers (`kernel.time.lateness.told`), one of each task that tells any."""
OF_TIME, OF_SLIDING, OF_SESSIONS, OF_JOIN = GRACE_KINDS = range(4)
"""Of which windows such a list is, its first number."""
PARTITION_TIMES = "partition_times"
"""Text: JSON with [partition, its largest timestamp] of those that had records; a single task tells it."""


@dataclass(frozen=True)
class Term:
    """The numbers `of` the tasks put together: by `how`, an aggregate function, or just the "number" `of` itself."""

    how: str
    of: str


@dataclass(frozen=True)
class Formula:
    """A term, or the ratio of two; a ratio with nothing below is 0."""

    over: Term
    under: Term | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The one term or both."""
        return (self.over,) if self.under is None else (self.over, self.under)


_TERM = re.compile(r"(\w+)\((\w+)\)")


@cache
def formula(name: str, how: str) -> Formula:
    """How the number `name` is made: "sum" of itself over the tasks, or "sum(a) / sum(b)"."""
    over, _, under = how.partition(" / ")
    return Formula(_term(name, over), _term(name, under) if under else None)


def _term(name: str, text: str) -> Term:
    if (found := _TERM.fullmatch(text)) is not None:
        return Term(found[1], found[2])
    return Term("number" if text.isdecimal() else text, text if text.isdecimal() else name)


@dataclass(frozen=True)
class Number:
    """What `observedMetrics` shows of a micro-batch under `name`; times are in ms."""

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
    Number("late_record_drop", "sum(late)"),
    Number("expired_window_record_drop", "0"),
    Number("emit_final_records", "sum", FINAL),
    Number("emit_final_latency_max", "max(emit_final_latency)", FINAL),
    Number("emit_final_latency_avg", "avg(emit_final_latency)", FINAL),
    Number("suppression_emit", "sum", SUPPRESSION),
    Number("suppression_buffer_count_current", "sum", SUPPRESSION),
    Number("suppression_buffer_count_max", "sum", BOUND),
    Number("suppression_buffer_count_max", "sum(suppression_buffer_count_current)", UNBOUND),
    Number("suppression_buffer_size_current", "sum", SUPPRESSION),
    Number("suppression_buffer_size_max", "sum", BOUND),
    Number("suppression_buffer_size_max", "sum(suppression_buffer_size_current)", UNBOUND),
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
    # Without input only the tasks whose time has come are heard, so that what all hold must be followed by changes.
    Number("tasks", "max", WAKES),
    Number("tasks_heard", "sum", WAKES),
    Number("suppression_buffer_count_change", "sum", WAKES),
    Number("suppression_buffer_size_change", "sum", WAKES),
    Number("spilled_bytes_change", "sum", WAKES),
)

HELD = ("suppression_buffer_count_current", "suppression_buffer_size_current", "spilled_bytes")
"""What all tasks together hold."""


def change_of(held: str) -> str:
    """The name of the number that says how one of `HELD` changed."""
    return f"{held.removesuffix('_current')}_change"


def numbers(measured: Iterable[str], stores: Mapping[str, tuple[int, Iterable[str]]] | None = None) -> dict[str, str]:
    """What the operators of these groups tell of a batch, and how.

    stores  of an operator with several time limits, for the name of each its place and the groups that it is in: it
            tells the same numbers of its own rows, under `of_store`
    """
    groups = {ALWAYS, *measured}
    found = {number.name: number.how for number in NUMBERS if number.of in groups}
    for store, (place, own) in (stores or {}).items():
        mine = [number for number in NUMBERS if number.of in {*own} and not number.name.startswith("tasks")]
        found |= {of_store(number.name, store): _of_place(number, place) for number in mine}
    return found


def of_store(name: str, store: str) -> str:
    """The name of a number or a metric of one of several suppressions."""
    return f"{name}[{store}]"


def store_of(name: str) -> tuple[str, str | None]:
    """The name of a number or a metric without its store, and the store; None if it is that of the operator."""
    base, bracket, store = name.partition("[")
    return base, store.removesuffix("]") if bracket else None


def at_place(name: str, place: int) -> str:
    """The name by which tasks tell a number of the limit at this place."""
    return f"{name}_{place}"


def _of_place(number: Number, place: int) -> str:
    if "(" not in number.how:
        return f"{number.how}({at_place(number.name, place)})"
    return _TERM.sub(lambda term: f"{term[1]}({at_place(term[2], place)})", number.how)


def timed(told: Mapping[str, float], began_ms: float, now_ms: float) -> dict[str, float]:
    """What a clock adds to the numbers of a task that took up its part of a batch at `began_ms` and is done."""
    more = {}
    if told["stream_time"] >= 0:
        more["stream_time_lag"] = now_ms - told["stream_time"]
    if told.get("emit_final_records"):
        more["emit_final_latency"] = now_ms - began_ms
    return more


_COMBINE: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "avg": lambda values: sum(values) / len(values),
    "collect_list": list,
}


def combined(hows: Mapping[str, str], tasks: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """What `observedMetrics` shows when these tasks have told their numbers.

    None where no task told what is needed.
    """

    def of(term: Term) -> float | None:
        if term.how == "number":
            return float(term.of)
        told = [task[term.of] for task in tasks if term.of in task]
        return _COMBINE[term.how](told) if told else None

    def value(made: Formula) -> float | None:
        over = of(made.over)
        if made.under is None:
            return over
        under = of(made.under)
        return None if under is None or over is None else over / under if under > 0 else 0.0

    return {name: value(formula(name, how)) for name, how in hows.items()}


@dataclass(frozen=True)
class Metric:
    """A metric of an operator over the life of its query.

    kind   "total" (only grows), "rate" (per second of the last minute) or "gauge"
    means  for the documentation and for Prometheus
    kafka  the name in the KIPs, empty for ours
    needs  the number of a batch that must be told for it to exist
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
    _gauge("record-lateness-avg", "ms", "stream time that a record saw less its timestamp, on average"),
    _gauge("record-lateness-max", "ms", "the largest lateness of a record"),
    Metric("grace", "gauge", "ms", "the grace of the windows", needs=GRACE_NEEDED),
    Metric(
        "grace_enough",
        "gauge",
        "ms",
        "the shortest round grace that would have left no more than 0.1 % of the (record, window) pairs (of sliding "
        "windows, sessions and joins: of the records) of the last 24 hours late; of sessions a shorter one may do",
        needs=GRACE_NEEDED,
    ),
    *_counted("late-record-drop", "records", "records dropped because a window was closed, once per window", "late"),
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
        "wall clock from the start of the batch in the operator until its final results left, on "
        "average over the batches with final results",
        "emit_final_records",
    ),
    _gauge("emit-final-latency-max", "ms", "the largest such latency", "emit_final_records"),
    *_counted("emit-final-records", "rows", "final results that left", "emit_final_records"),
    Metric("open_windows", "gauge", "windows", "open windows, in the task that has most"),
    Metric("stream_time", "gauge", "ms since 1970", "the stream time; -1 before the first record"),
    Metric("stream_time_lag", "gauge", "ms", "wall clock at the time of reading less stream time"),
)

PER_STORE = tuple(
    metric
    for metric in METRICS
    if metric.needs in {number.name for number in NUMBERS if number.of in (SUPPRESSION, BOUND, UNBOUND, OVERTIME)}
)
"""What each of several suppressions tells of itself."""

LEAVING = frozenset(
    metric.name for metric in METRICS if metric.needs not in ("records", "late") or metric.name == "emitted_total"
) | {"emitted"}
"""Of a chain of operators, what its last one is asked about."""
