"""A batch that fits into a bounded buffer: at once equals one update after the other, down to the stored state."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.errors import BufferFullError
from tidegate.kernel.suppress import bounded_time_limit, within_bound
from tidegate.kernel.suppress.bounded_buffer import exceeds
from tidegate.kernel.suppress.within_bound import Outcome
from tidegate.testing import TopologyTestDriver, layout

KEYS: dict[str, list[Any]] = {
    "name": ["", "a", "a\0", "a\0b", "ab", "é", "\U0001f600"],
    "number": [0, 1, 255, 256, -1, -256, 2**63 - 1],
    "part": [0.0, 0.5, -0.5, 1e300, -1e300],
    "price": [Decimal(9), Decimal(10), Decimal(-9), Decimal("0.01")],
    "day": [date(1969, 12, 31), date(1970, 1, 1), date(2013, 7, 2)],
    "yes": [False, True],
    "raw": [b"", b"\0", b"\0\1", b"\xff"],
}


@contextlib.contextmanager
def both_ways() -> Iterator[list[bool]]:
    """Take every batch both ways, and compare; gives whether the batch fitted, batch by batch."""
    at_once, room = within_bound.apply, []

    def apply(layout: Any, state: Any, both: Any, waited: int, clocks: Any) -> Outcome | None:
        found = at_once(layout, state, both, waited, clocks)
        room.append(found is not None)
        try:
            wanted = bounded_time_limit._one_by_one(layout, state, both, waited, clocks)
        except BufferFullError:
            assert found is None
            return None
        bound = layout.op.limit.buffer.share(state.task, state.tasks)
        assert (found is None) == exceeds(bound, *wanted.most)
        if found is not None:
            assert found.evicted.rows.to_pylist() == wanted.evicted.rows.to_pylist()
            assert found.evicted.since.tolist() == wanted.evicted.since.tolist()
            assert found.evicted.shown.tolist() == wanted.evicted.shown.tolist()
            assert found.retained.to_pylist() == wanted.retained.to_pylist()
            assert found.retained.schema == wanted.retained.schema
            assert found.most == wanted.most
        return found

    with mock.patch.object(within_bound, "apply", apply):
        yield room


@st.composite
def buffers(draw: Any) -> Any:
    records, size = draw(st.one_of(st.none(), st.integers(0, 12))), draw(st.one_of(st.none(), st.integers(0, 600)))
    if records is None and size is None:
        size = 200
    buffer: Any = tg.BufferConfig.max_records(99 if records is None else records)
    buffer = buffer if size is None else buffer.with_max_bytes(size)
    return draw(st.sampled_from([buffer, buffer.shut_down_when_full()]))


@st.composite
def streams(draw: Any) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """Some key columns, and batches of changes with few keys, of one partition or several."""
    columns = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    values = {name: st.sampled_from(KEYS[name]) for name in columns}
    keys = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=6))
    change = st.fixed_dictionaries(
        {
            "ts": st.integers(0, 60),
            "s": st.one_of(st.none(), st.text("xyz", max_size=3)),
            "partition": st.integers(0, draw(st.integers(0, 2))),
        }
    )
    batches = draw(st.lists(st.lists(st.tuples(st.sampled_from(keys), change), max_size=12), max_size=5))
    offsets = itertools.count()
    return columns, [
        [{**key, **one, "gone": one["s"] is None, "offset": next(offsets)} for key, one in batch] for batch in batches
    ]


@given(
    stream=streams(),
    buffer=buffers(),
    limit_ms=st.integers(0, 30),
    measured_from=st.sampled_from(["first_update", "latest_update"]),
    clock=st.sampled_from(["stream", "stream", "wall"]),
    tasks=st.integers(1, 3),
)
def test_at_once_is_one_by_one(
    stream: tuple[list[str], list[list[dict[str, Any]]]],
    buffer: Any,
    limit_ms: int,
    measured_from: Any,
    clock: Any,
    tasks: int,
) -> None:
    columns, batches = stream
    span = timedelta(milliseconds=limit_ms)
    limit = tg.Suppressed.until_time_limit(span, buffer, clock=clock, measured_from=measured_from)
    order = {"partition": "partition", "offset": "offset"}
    changes = tg.table("changes", key=columns, timestamp="ts", deleted="gone", **order).suppress(limit)
    with both_ways(), contextlib.suppress(BufferFullError):
        splits = [[batch] for batch in batches]
        layout.run(changes, batches, tasks=tasks, splits=splits, clocks=[10 * n for n in range(len(batches))])


def test_both_ways_are_taken() -> None:
    """A batch does not fit if the buffer passes its bound even for a moment; the next batch fits again."""
    limit = tg.Suppressed.until_time_limit("10 ms", tg.BufferConfig.max_records(2), clock="stream")
    changes = tg.table("changes", key="k", timestamp="ts").suppress(limit)
    with both_ways() as room:
        driver = TopologyTestDriver(changes)
        driver.pipe_batch([{"k": k, "ts": ts, "s": k * ts} for k, ts in [("a", 1), ("b", 2), ("a", 3)]])
        assert driver.read_output() == []
        driver.pipe_batch([{"k": "c", "ts": 4, "s": ""}])
        assert [row["k"] for row in driver.read_output()] == ["a"]
        driver.pipe_batch([{"k": "c", "ts": 30, "s": "xyz"}])
    assert room == [True, False, True]
