"""Runs a scenario in the test driver and in layouts of several tasks, and compares with the truth."""

from __future__ import annotations

import math
import pickle
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from pyspark import cloudpickle

import tidegate as tg
from hostile.case import Case, Row
from hostile.drawn import scenario
from hostile.functions import EPOCH
from hostile.scenario import Scenario
from hostile.steps import Stopped
from hostile.truths import AnyTruth, truth_of
from tidegate.kernel.inspect.graces import Graces
from tidegate.plan import Operation
from tidegate.testing import TopologyTestDriver
from tidegate.testing.layout import Tasks

MOST_RUNS = 300
"""Most runs of a failing case while it is made smaller."""


class Runner(Protocol):
    """Runs the batches of a scenario; `what` has the batches as this runner takes them."""

    what: Case

    def batch(self, number: int) -> list[Row]:
        """The rows of a batch."""

    def drain(self) -> list[Row]:
        """The rows of a drain."""

    @property
    def drops(self) -> Counter[str]:
        """Dropped records, counted by reason."""


class InDriver:
    """The test driver, restarted before the batches in `restarts`."""

    def __init__(self, what: Case) -> None:
        self.what = what = what.by_source()
        self.driver = TopologyTestDriver(what.table(), tuning=what.tuning)
        self.dropped: Counter[str] = Counter()
        self.clock = 0
        self.unread: list[Row] = []
        """Rows emitted by the passage of time before a failed batch, kept across a restart of the driver."""

    def batch(self, number: int) -> list[Row]:
        if number in self.what.restarts:
            self.unread += self.driver.read_output()
            self.dropped.update(self.driver.drops)
            self.driver = TopologyTestDriver(self.what.table(), self.driver.state(), tuning=self.what.tuning)
        self.driver.advance_wall_clock(f"{self.what.clocks[number] - self.clock} ms")
        self.clock = self.what.clocks[number]
        self.driver.pipe_batch(self.what.batches[number], self._input(number))
        rows, self.unread = self.unread, []
        return rows + self.driver.read_output()

    def _input(self, number: int) -> str | None:
        """Name of the input of a batch, if there are several inputs."""
        what = self.what
        return what.names[what.side_of(number, 0)] if len(what.sources) > 1 and what.batches[number] else None

    def drain(self) -> list[Row]:
        self.driver.drain()
        return self.unread + self.driver.read_output()

    @property
    def drops(self) -> Counter[str]:
        return self.dropped + Counter(self.driver.drops)


class InLayout:
    """Several map tasks and stateful tasks; a restart goes on from the stored state, with new function objects."""

    def __init__(self, what: Case) -> None:
        self.what = what
        self.tasks: Tasks | None = None
        self.dropped: Counter[str] = Counter()
        self.untrue = ""
        self._start()

    def _start(self, drains: bool = False) -> None:
        if self.tasks is not None:
            self.dropped = self.drops
            self.untrue = self.misfit
        # As the plan travels to the workers of Spark.
        plan = pickle.loads(cloudpickle.dumps(self.what.table().node))
        self.tasks = Tasks(plan, self.what.tasks, self.tasks, as_spark=True, drains=drains, tuning=self.what.tuning)

    def batch(self, number: int) -> list[Row]:
        if number in self.what.restarts:
            self._start()
        assert self.tasks is not None
        what = self.what
        parts: dict[tuple[int, int], list[Row]] = {}
        for place, (reader, record) in enumerate(zip(what.splits[number], what.batches[number], strict=True)):
            parts.setdefault((what.side_of(number, place), reader), []).append(record)
        read = [(what.names[side], part) for (side, _), part in sorted(parts.items(), key=lambda one: one[0])]
        return self.tasks.batch(read, what.clocks[number])

    def drain(self) -> list[Row]:
        self._start(drains=True)
        assert self.tasks is not None
        return self.tasks.drain()

    @property
    def drops(self) -> Counter[str]:
        assert self.tasks is not None
        return sum(self.tasks.dropped, self.dropped)

    @property
    def misfit(self) -> str:
        """Text about an operator whose metrics of graces contradict its late records; empty if none does."""
        assert self.tasks is not None
        told = zip(self.tasks.nodes, self.tasks.graces, self.tasks.dropped, strict=True)
        found = (_misfit(node.op, graces.last_day(0), dropped["late"]) for node, graces, dropped in told)
        return self.untrue or next((one for one in found if one), "")


def _misfit(op: Operation, live: Graces, late: int) -> str:
    if not op.reports_graces:
        return f"{op.name} tells of graces, and has none" if live.total else ""
    mine = live.late(live.today)
    # Sliding windows count each window that a late record misses.
    right = 0 < mine <= late if live.windows == "sliding" and late else mine == late
    return "" if right else f"{op.name} says that {mine} of {live.total} are late, and dropped {late}: {live}"


def lays_out(what: Case) -> bool:
    """Whether a layout must give the expected rows: the order of records is known."""
    return all(source.order is not None for source in what.sources)


RUNNERS: dict[str, tuple[Callable[[Case], Runner], Callable[[Case], bool]]] = {
    "driver": (InDriver, lambda what: True),
    "layout": (InLayout, lays_out),
}


@dataclass
class Outcome:
    """Result of a scenario; `problem` is empty if all is right."""

    problem: str = ""
    rows: int = 0
    stopped: bool = False
    ran: Counter[str] = field(default_factory=Counter)


def run(what: Case, only: str = "") -> Outcome:
    """Run a scenario everywhere but on Spark, or in the one runner of this name."""
    outcome = Outcome()
    for name, (runner, able) in RUNNERS.items():
        if only in ("", name) and able(what) and not outcome.problem:
            outcome.ran[name] += 1
            try:
                _compare(what, runner, outcome)
            except Exception:  # any error is a finding
                outcome.problem = traceback.format_exc(limit=-6)
            if outcome.problem:
                outcome.problem = f"in the {name}: {outcome.problem}"
    return outcome


def _compare(what: Case, runner: Callable[[Case], Runner], outcome: Outcome) -> None:
    ran = runner(what)
    what = ran.what
    truth = truth_of(what, ticks=isinstance(ran, InLayout))
    for number in range(len(what.batches)):
        wanted, error = [], None
        try:
            wanted = truth.batch(number)
        except Stopped as stopped:
            error, outcome.stopped = stopped.error, True
        try:
            got = ran.batch(number)
        except (tg.AggregationError, tg.BufferFullError) as raised:
            if error != type(raised).__name__:
                raise
            continue
        if error is not None:
            outcome.problem = f"batch {number} gave\n{lines(got)}\nand should have raised {error}"
        else:
            outcome.problem = differ(f"batch {number}", what, got, wanted)
        if outcome.problem:
            return
        outcome.rows += len(got)
    readable = None if what.expects is not None or "status" in names_of(what) else truth.readable()
    if isinstance(ran, InDriver) and any(what.batches) and readable is not None:
        stored = ran.driver.read_state("store")
        extra = [row for row in stored if "deleted" in row]
        outcome.problem = f"the store has `deleted`:\n{lines(extra)}" if extra else ""
        outcome.problem = outcome.problem or differ("the store", what, stored, readable)
    if what.drains and not outcome.problem:
        outcome.problem = _drained(what, ran, truth)
    outcome.problem = outcome.problem or _counted(ran, truth)


def _counted(ran: Runner, truth: AnyTruth) -> str:
    drops = Counter({reason: n for reason, n in ran.drops.items() if n})
    if drops != truth.drops:
        return f"dropped {dict(drops)}, and should have: {dict(truth.drops)}"
    return ran.misfit if isinstance(ran, InLayout) else ""


def names_of(what: Case) -> set[str]:
    """User-defined columns of a result; a store with a column `status` cannot be read."""
    return {*what.key, *(call.name for call in what.calls)} if isinstance(what, Scenario) else set()


def _drained(what: Case, ran: Runner, truth: AnyTruth) -> str:
    try:
        wanted = truth.drain()
    except Stopped:
        try:
            return f"the drain gave\n{lines(ran.drain())}\nand should have stopped"
        except tg.BufferFullError:
            return ""
    return differ("the drain", what, ran.drain(), wanted)


# -- comparison ----------------------------------------------------------------------------------------------------


def differ(where: str, what: Case, got: list[Row], wanted: list[Row]) -> str:
    """Text of the difference, empty if there is none: rows by output, key and window, in order within each."""
    got, wanted = placed(what, map(shown, got)), placed(what, map(shown, wanted))
    if len(got) == len(wanted) and all(map(_same_row, got, wanted)):
        return ""
    return f"{where} gave\n{lines(got)}\nand should have given\n{lines(wanted)}"


def placed(what: Case, rows: Any) -> list[Row]:
    """Rows sorted by output, key and window; rows without an order, and late records, by all their columns."""

    def place(row: Row) -> str:
        whole = not what.in_order or ("reason" in row and row.get("reason") is not None and "late_by" in row)
        if whole:
            return repr([(name, row[name]) for name in sorted(row) if row[name] is not None])
        return repr([row.get(name) for name in ("output", *what.key, "window")])

    return sorted(rows, key=place)


def _same_row(got: Row, wanted: Row) -> bool:
    """Whether the wanted columns are equal and all others null: with several outputs, rows have the columns of all."""
    more = got.keys() - wanted.keys()
    if any(got[name] is not None for name in more):
        return False
    return all(same(got.get(name), value) for name, value in wanted.items())


def shown(row: Row) -> Row:
    """A row whose values compare: maps as pairs, bytes, windows as pairs of numbers."""
    # The stream time of a skipped record is for people, and not defined.
    skipped = row.get("reason") in ("null_key", "null_value", "bad_timestamp", "future")
    return {name: _shown(value) for name, value in row.items() if not (skipped and name == "stream_time")}


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    if isinstance(value, list):
        parts = [_shown(part) for part in value]
        # Only maps are pairs, and their pairs have no order.
        pairs = all(isinstance(part, tuple) and len(part) == 2 for part in parts)
        return sorted(parts, key=repr) if pairs else parts
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - EPOCH) // timedelta(microseconds=1)  # as Spark's times are collected
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value


def same(a: Any, b: Any) -> bool:
    """Equal, of one type, floats to rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def lines(rows: Any) -> str:
    return "\n".join(f"  {row}" for row in rows) or "  nothing"


# -- smaller -------------------------------------------------------------------------------------------------------


def smaller(what: Case, fails: Callable[[Case], bool], most_runs: int = MOST_RUNS) -> Case:
    """A smaller scenario that still fails, without needless records, restarts and drain."""
    left = most_runs

    def fails_too(other: Case) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(other)

    for other in (replace(what, drains=False), replace(what, restarts=frozenset()), replace(what, tasks=1)):
        what = other if other != what and fails_too(other) else what
    before = None
    while before != what and left > 0:
        before = what
        for number in reversed(range(len(what.batches))):
            whole = {(number, i) for i in range(len(what.batches[number]))}
            if whole and fails_too(other := what.without(whole)):
                what = other
                continue
            for i in reversed(range(len(what.batches[number]))):
                if fails_too(other := what.without({(number, i)})):
                    what = other
    return what


def report(what: Case, problem: str) -> str:
    """A scenario as text that a reader can run."""
    batches = "\n".join(
        f"  batch {n} at {clock} ms{', restarted before' if n in what.restarts else ''}, read by {split}\n"
        + "\n".join(f"    {what.names[what.side_of(n, i)]} {record}" for i, record in enumerate(batch))
        for n, (batch, clock, split) in enumerate(zip(what.batches, what.clocks, what.splits, strict=True))
        if batch
    )
    drains = ", and a drain" if what.drains else ""
    sizes = f"{what.tasks} tasks, sizes {what.sizes}{drains}"
    return f"seed {what.seed}, {sizes}\n{what.code()}\ninput:\n{batches}\n{problem}"


def chunk(first: int, cases: int) -> tuple[Counter[str], list[int]]:
    """Run the cases from a seed on: counts of their kinds, and the seeds that fail."""
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    failed = []
    for seed in range(first, first + cases):
        what = scenario(seed)
        outcome = run(what)
        counts.update(outcome.ran)
        counts.update([*what.kinds, f"sizes: {what.sizes}"])
        counts["rows"] += outcome.rows
        counts["stopped by a function or a buffer"] += outcome.stopped
        if outcome.problem:
            failed.append(seed)
    return counts, failed
