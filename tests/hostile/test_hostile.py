"""What hostile users write, in the driver and in layouts: a smoke part, and that the draws and the comparison work."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hostile.chained_draws import ChainDraw
from hostile.drawn import scenario
from hostile.draws import HOARD
from hostile.joined import Joining
from hostile.joined_draws import JoinDraw
from hostile.kinds import KEYS
from hostile.runs import RUNNERS, chunk, report, run, smaller
from hostile.scenario import Scenario, Sliding
from hostile.stored import Misfit, stored
from oracle import Sessions
from tidegate.kernel.columns import runs
from tidegate.kernel.columns.words import as_words
from tidegate.kernel.exchange import partial_aggregates, retract_insert, stream_clock, to_stream
from tidegate.kernel.state import frames, state, without_repeats
from tidegate.kernel.time import slowest_partition
from tidegate.kernel.time.idle import Idle
from tidegate.kernel.windows import functions
from tidegate.kernel.windows.stored_windows import Loaded
from tidegate.kernel.windows.window_runs import WindowRuns
from tidegate.kernel.windows.windows_by_key import WindowsByKey

CHUNKS = 4
"""Of the smoke cases, which run side by side."""
CHUNK_CASES = 15


@pytest.mark.parametrize("number", range(CHUNKS))
def test_what_comes_out_is_what_the_oracle_says(number: int) -> None:
    warnings.simplefilter("ignore")
    for seed in range(number * CHUNK_CASES, (number + 1) * CHUNK_CASES):
        outcome = run(scenario(seed))
        assert not outcome.problem, report(scenario(seed), outcome.problem)


def test_small_batches_go_the_way_of_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only blobs of larger tables leave out what repeats, and only with more rows panes come in runs."""
    warnings.simplefilter("ignore")
    monkeypatch.setattr(frames, "_TINY", 0)
    monkeypatch.setattr(without_repeats, "in_words", as_words)
    monkeypatch.setattr(runs, "_FEWEST_ROWS", 1)
    for seed in range(100, 125):
        outcome = run(scenario(seed))
        assert not outcome.problem, report(scenario(seed), outcome.problem)


def test_records_are_not_combined_before_the_shuffle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only many records with keys of their own are not."""
    warnings.simplefilter("ignore")
    monkeypatch.setattr(partial_aggregates, "_FEWEST_RECORDS", 1)
    monkeypatch.setattr(partial_aggregates, "_MOST_SAVED", 1)
    monkeypatch.setattr(partial_aggregates, "_frequent", lambda keys: False)
    for seed in range(200, 225):
        outcome = run(scenario(seed))
        assert not outcome.problem, report(scenario(seed), outcome.problem)


def test_every_kind_of_topology_is_drawn() -> None:
    kinds: Counter[str] = Counter()
    names: set[str] = set()
    for seed in range(2_500):
        what = scenario(seed)
        kinds.update(what.kinds)
        if not isinstance(what, Scenario):
            continue
        kinds.update(f"key: {kind}" for _, kind in what.keys)
        kinds.update(call.what for call in what.calls)
        kinds["expects"] += what.expects is not None
        kinds["expects, drained"] += what.expects is not None and what.drains
        kinds["retention"] += what.retention is not None
        kinds["strict"] += any(output.bound for output in what.outputs)
        kinds["unordered"] += what.order is None
        names |= {name for name, _ in (*what.keys, *what.columns)}
    assert {"windows: Sliding", "windows: NoWindows", "windows: Unlimited", "out: final+late+updates"} <= kinds.keys()
    assert kinds["time: max_future_skew"] > 100
    assert min(kinds["inputs: merge"], kinds["inputs: cogroup"]) > 50
    assert min(kinds[f"join: {family}"] for family in ("streams", "self", "table", "tables")) > 30
    tables = ("changes", "groups, built-in", "groups, aggregate", "groups, reduce", "a limit", "a limit behind groups")
    assert min(kinds[f"table: {what}"] for what in tables) > 10
    assert kinds["join: names of both sides"] > 30
    also = ("grace of a table", "late records", "min_partition", "max_future_skew")
    assert min(kinds[f"join: {what}"] for what in also) > 30
    assert (
        min(kinds[f"join: {how}, {of}"] for how in ("idle_after", "idle_advance") for of in ("two inputs", "self")) > 3
    )
    assert min(kinds["time: min_partition"], kinds["time: idle_after"], kinds["time: idle_advance"]) > 50
    assert kinds["time: min_partition, idle_advance"] > 3
    assert kinds["windows: Sliding, one instant"] > 10
    slowest = ("merge", "cogroup", "filter", "limit", "final limit", "a strict bound", "expect_keys")
    assert min(kinds[f"time: min_partition, {what}, partitions"] for what in slowest) > 2
    assert kinds["limits in a row"] > 50
    assert {"out: final limit", "out: limit", "step: select_key", "aggregate: reduce"} <= kinds.keys()
    assert {f"key: {kind.code}" for kind in KEYS.values()} <= kinds.keys()
    assert {"Appending", "Growing", "Tally", "merged", "Failing"} <= kinds.keys()
    assert min(kinds[name] for name in ("expects", "expects, drained", "retention", "strict", "unordered")) > 10
    assert {"__deleted", "__start", "start", "a.b", "back`tick", "k:k", "N"} <= names


def test_every_kind_of_chain_is_drawn() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(800):
        kinds.update(ChainDraw(seed, spark=False).chained().kinds)
    firsts = {"aggregation", "join: streams", "join: self", "join: table", "join: tables"}
    drawn = {"groups": {"aggregation", "join: tables"}, "a join of streams": firsts - {"join: tables"}}
    drawn |= dict.fromkeys(("windows", "a join"), firsts - {"aggregation", "join: tables"})
    for operator, mine in drawn.items():
        for first in mine:
            # By any clock, and also where the rows of the join are merged with records.
            kind = re.compile(rf"behind {first}(, [a-z_]+)*: {operator}")
            assert sum(many for name, many in kinds.items() if kind.fullmatch(name)) > 5, (first, operator)
    also = ("a limit", "groups, aggregate", "groups, reduce", "functions, aggregate", "functions, reduce")
    assert min(kinds[f"behind: {what}"] for what in (*also, "a join of streams, min_partition")) > 5


def test_sizes_are_drawn_by_which_windows_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the driver and in layouts, where a window has many keys and a later batch few of them."""
    large: set[tuple[str, str]] = set()
    add, where = WindowRuns.add, ("", "")

    def seen(self: WindowRuns, *given: Any) -> None:
        large.add(where)
        add(self, *given)

    monkeypatch.setattr(WindowRuns, "add", seen)
    wanted = {(name, sizes) for name in RUNNERS for sizes in ("small", "mixed")}
    for what in map(scenario, range(1_000)):
        if isinstance(what, Scenario) and HOARD in map(len, what.batches):
            for where in wanted - large:
                if where[1] == what.sizes:
                    run(what, where[0])
    assert large == wanted


def test_sizes_are_drawn_by_which_windows_of_keys_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the driver and in layouts: a later batch finds them by key, and changes them."""
    many: set[tuple[str, str]] = set()
    store, where = WindowsByKey.store, ("", "")

    def seen(self: WindowsByKey, loaded: Loaded, rows: pa.Table, records: pa.Table | None) -> None:
        if records is not None and loaded.rows.num_rows:
            many.add(where)
        store(self, loaded, rows, records)

    monkeypatch.setattr(WindowsByKey, "store", seen)
    wanted = {(name, sizes) for name in RUNNERS for sizes in ("small", "mixed")}
    for what in map(scenario, range(1_000)):
        if isinstance(what, Scenario) and isinstance(what.windows, Sessions | Sliding):
            for where in wanted - many:
                if where[1] == what.sizes:
                    run(what, where[0])
    assert many == wanted


def test_what_is_drawn_for_spark() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(400):
        kinds.update(JoinDraw(seed, spark=True).joining().kinds)
        kinds[scenario(seed, spark=True).sizes] += 1
    assert min(kinds["join: idle_after"], kinds["join: idle_advance"]) > 5
    assert min(kinds["small"], kinds["mixed"]) > 50


def test_a_seed_is_one_scenario() -> None:
    for seed in range(20):
        assert repr(scenario(seed)) == repr(scenario(seed))
        assert repr(scenario(seed, spark=True)) == repr(scenario(seed, spark=True))


def test_shared_aggregates_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without copies of what functions change, some case differs, and a smaller one does too."""
    monkeypatch.setattr(functions, "converter", lambda kind: lambda value: value)
    problem, what = "", None
    for seed in range(200):
        what = scenario(seed)
        if "f.Appending(" in what.code() and (problem := run(what).problem):
            break
    else:
        pytest.fail("nothing is found")
    few = smaller(what, lambda other: bool(run(other).problem), 60)
    assert sum(map(len, few.batches)) <= sum(map(len, what.batches))
    assert run(few).problem
    assert "f.Appending(" in report(few, problem)


def test_a_forgotten_stream_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """State that goes back in time takes records that are late."""
    load = state.State.load

    def forgetful(*given: Any) -> Any:
        found = load(*given)
        found.stream_time = max(-1, found.stream_time - 25)
        return found

    monkeypatch.setattr(state.State, "load", forgetful)
    assert any(chunk(first, 10)[1] for first in range(0, 100, 10))


def test_time_that_does_not_go_on_without_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the driver, and in tasks that wake by the wall clock."""
    monkeypatch.setattr(Idle, "advance", lambda self, after, came, wall_clock, stream_time, alone: stream_time)
    idle = [what for what in map(scenario, range(1_000)) if "time: idle_advance" in what.kinds]
    for name in RUNNERS:
        assert any(run(what, name).problem for what in idle), name


def test_a_partition_that_never_counts_as_idle_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds stream time back for ever."""
    monkeypatch.setattr(slowest_partition, "is_idle", lambda *given: False)
    assert any(run(what).problem for what in map(scenario, range(500)) if "time: idle_after" in what.kinds)


def test_removed_records_that_make_a_partition_idle_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only batches with records check which partitions are idle."""
    monkeypatch.setattr(stream_clock, "reports_more", lambda *given: True)
    assert any(run(what).problem for what in map(scenario, range(500)) if "time: idle_after" in what.kinds)


@pytest.mark.parametrize(("way", "name"), [(retract_insert, "to_changes"), (to_stream, "to_records")])
def test_rows_that_are_lost_on_their_way_to_another_operator_are_found(
    way: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of several."""
    whole = getattr(way, name)

    def losing(*given: Any) -> pa.Table:
        rows = whole(*given)
        return rows.slice(1) if rows.num_rows > 1 else rows

    monkeypatch.setattr(way, name, losing)
    chains = (ChainDraw(seed, spark=False).chained() for seed in range(40))
    assert any(run(what).problem for what in chains)


def test_a_join_that_tells_another_time_to_the_join_behind_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with_time = to_stream.with_time
    monkeypatch.setattr(to_stream, "with_time", lambda rows, time, silent: with_time(rows, max(-1, time - 20), silent))
    chains = (ChainDraw(seed, spark=False).chained() for seed in range(400))
    met = [what for what in chains if "behind: a join of streams, min_partition" in what.kinds]
    problems = (run(what).problem for what in met if isinstance(what.first, Joining))
    assert any("should have given" in problem for problem in problems)  # and no error of the call itself


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (np.int8(3), pa.int64(), 3),
        (3.0, pa.int64(), 3),
        (pa.scalar(3), pa.int32(), 3),
        (2, pa.float64(), 2.0),
        (Decimal("1.5"), pa.decimal128(5, 2), Decimal("1.50")),
        ((1, 2), pa.list_(pa.int64()), [1, 2]),
        ({"x": 1}, pa.map_(pa.string(), pa.int64()), [("x", 1)]),
        ({"a": 1.0, "more": 2}, pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 1, "b": None}),
        (None, pa.bool_(), None),
    ],
)
def test_a_value_that_fits_is_stored(value: Any, kind: pa.DataType, wanted: Any) -> None:
    assert stored(value, kind) == wanted


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2.5, pa.int64()),
        (2**63, pa.int64()),
        (2**31, pa.int32()),
        (True, pa.int64()),
        ("1", pa.int64()),
        (1, pa.string()),
        (1, pa.bool_()),
        (Decimal("0.001"), pa.decimal128(5, 2)),
        ("ab", pa.list_(pa.string())),
        ([2.5], pa.list_(pa.int64())),
    ],
)
def test_a_value_that_does_not_fit_is_none(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(Misfit):
        stored(value, kind)
