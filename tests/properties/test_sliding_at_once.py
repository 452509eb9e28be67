"""Sliding windows taken at once, also in parts, equal record by record: rows, order, drops and state."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.kernel.tuning import Tuning
from tidegate.kernel.windows import sliding_batch
from tidegate.testing import TopologyTestDriver

ORIGINS = [0, 0, 3, 25, 10_000, 1_700_000_000_000]
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
EVERY = tg.Materialized.as_("every").with_caching_disabled()
ALL = {
    "n": tg.count(),
    "total": tg.sum("x"),
    "top": tg.max("x"),
    "mean": tg.mean("x"),
    "one": tg.first("x"),
    "newest": tg.last("x"),
    "xs": tg.collect_list("x"),
    "kinds": tg.approx_count_distinct("x"),
}


@st.composite
def batches(draw: Any) -> list[list[dict[str, Any]]]:
    """Batches of a stream whose clock advances, with records that lag behind it."""
    clock = draw(st.sampled_from(ORIGINS))
    lag = draw(st.sampled_from([0, 0, 2, 8, 40]))
    made: list[list[dict[str, Any]]] = []
    for _ in range(draw(st.integers(1, 4))):
        batch = []
        for _ in range(draw(st.integers(1, 12))):
            clock += draw(st.sampled_from([0, 1, 1, 2, 5, 20]))
            ts = max(0, clock - draw(st.integers(0, lag)))
            x = draw(st.one_of(st.none(), st.integers(-3, 9)))
            batch.append({"k": draw(st.sampled_from("aaabcd")), "ts": ts, "x": x})
        made.append(batch)
    return made


@st.composite
def tables(draw: Any) -> Any:
    """An aggregation over sliding windows, with any kind of output."""
    difference = draw(st.one_of(st.integers(0, 8), st.just(30)))
    grace = draw(st.sampled_from([0, 0, 1, 5, 12, 1_000]))
    windows = tg.SlidingWindows.of_time_difference_and_grace(f"{difference} ms", f"{grace} ms")
    names = draw(st.lists(st.sampled_from(sorted(ALL)), min_size=1, unique=True))
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
    way = draw(st.sampled_from(["final", "updates", "every", "both", "both, every"]))
    store = [EVERY] if "every" in way else []
    table = windowed.agg(*store, **{name: ALL[name] for name in names})
    if way == "final":
        return table.suppress(FINAL)
    return {"raw": table, "final": table.suppress(FINAL)} if "both" in way else table


@contextmanager
def one_by_one() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding_batch, "applies", lambda *_: False)
        yield


def small(part: int) -> Tuning:
    """Sizes that split buckets and parts early."""
    return Tuning(part_records=part, key_windows=(2, 2))


TUNINGS = st.sampled_from([small(1), small(3), Tuning()])


@given(table=tables(), piped=batches(), tuning=TUNINGS)
def test_at_once_as_one_by_one(table: Any, piped: list[Any], tuning: Tuning) -> None:
    taken, wanted = TopologyTestDriver(table, tuning=tuning), TopologyTestDriver(table)
    for batch in [*piped, None]:
        for driver in (taken, wanted):
            with one_by_one() if driver is wanted else nullcontext():
                driver.drain() if batch is None else driver.pipe_batch(batch)
        assert taken.read_output() == wanted.read_output()
        assert taken.drops == wanted.drops


@given(piped=batches(), grace=st.sampled_from([0, 3, 100]), tuning=TUNINGS)
def test_late_records_are_told_in_their_order(piped: list[Any], grace: int, tuning: Tuning) -> None:
    windows = tg.SlidingWindows.of_time_difference_and_grace("8 ms", f"{grace} ms")
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
    counts = windowed.count(late_records="keep")
    outputs = {"final": counts.suppress(FINAL), "late": counts.late_records()}
    taken, wanted = TopologyTestDriver(outputs, tuning=tuning), TopologyTestDriver(outputs)
    for batch in piped:
        taken.pipe_batch(batch)
        with one_by_one():
            wanted.pipe_batch(batch)
        assert taken.read_output() == wanted.read_output()


def test_a_part_of_buckets_that_are_due_and_one_of_late_records() -> None:
    windows = tg.SlidingWindows.of_time_difference_and_grace("8 ms", "0 ms")
    windowed = tg.stream("events", key="k", timestamp="ts").group_by_key().windowed_by(windows)
    counts = windowed.count()
    outputs = {"final": counts.suppress(FINAL), "late": counts.late_records()}
    taken, wanted = TopologyTestDriver(outputs, tuning=small(1)), TopologyTestDriver(outputs)
    first = [{"k": name, "ts": 1} for name in "abcdefgh"]
    late = [{"k": name, "ts": n} for n, name in enumerate("hgfedcba")]
    for batch in [first, *([{"k": name, "ts": ts} for ts in (100, 101)] for name in "abcdefgh"), late]:
        taken.pipe_batch(batch)
        with one_by_one():
            wanted.pipe_batch(batch)
        assert taken.read_output() == wanted.read_output()
