"""The bounded buffer against a dict that is searched each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.suppress import bounded_buffer
from tidegate.kernel.suppress.bounded_buffer import Bounded, Entry, Waited, exceeds
from tidegate.spec.suppressed import BufferConfig

KEYS = st.integers(0, 7)
STEPS = st.lists(st.one_of(st.just("oldest"), st.tuples(KEYS, st.integers(0, 5), st.integers(1, 9))), max_size=30)


def name(key: int) -> bytes:
    """Names that sort in the reverse order of the keys' numbers."""
    return b"%d" % (9 - key)


@given(times=st.lists(st.integers(0, 5), max_size=6), steps=STEPS, block=st.integers(1, 3), most=st.integers(0, 9))
def test_what_waits_who_is_oldest_and_how_much_it_is(times: list[int], steps: list[Any], block: int, most: int) -> None:
    # Buffered entries are given in the order of eviction: here the order of their numbers.
    held = dict(enumerate(sorted(times)))
    order = list(held)
    waited = Waited(np.array([held[key] for key in order], np.int64), np.full(len(held), 3), lambda key: b"%d" % key)
    names = {key: b"%d" % key if key in held else b"9" + name(key) for key in range(8)}
    buffer = Bounded(BufferConfig.max_records(most), waited)
    model = {key: Entry(held[key], key, key, 3) for key in order}
    most_so_far = buffer.most
    assert most_so_far == (len(held), 3 * len(held))
    before, bounded_buffer._BLOCK = bounded_buffer._BLOCK, block
    try:
        for step in steps:
            if step != "oldest":
                key, time, size = step
                model[key] = Entry(time, 100 + key, key, size)
                buffer.put(key, names[key], model[key])
            elif model:
                oldest = min(model, key=lambda key: (model[key].time, names[key]))
                assert buffer.oldest() == (oldest, model[oldest].time)
                assert buffer.pop(oldest) == model.pop(oldest)
            now = len(model), sum(entry.size for entry in model.values())
            most_so_far = max(most_so_far[0], now[0]), max(most_so_far[1], now[1])
            assert (buffer.records, buffer.size, buffer.most) == (*now, most_so_far)
            assert buffer.over == (len(model) > most)
            assert {key: buffer.get(key) for key in range(8)} == {key: model.get(key) for key in range(8)}
    finally:
        bounded_buffer._BLOCK = before
    rest = sorted(model, key=lambda key: (model[key].time, names[key]))
    rows, priors, since, sizes = (column.tolist() for column in buffer.entries())
    assert list(zip(since, rows, priors, sizes, strict=True)) == [
        (entry.time, entry.row, entry.prior, entry.size) for entry in (model[key] for key in rest)
    ]


def test_a_key_whose_time_changes_leaves_at_its_new_time() -> None:
    buffer = Bounded(BufferConfig.max_records(9), Waited(np.array([], np.int64), np.array([], np.int64), name))
    assert buffer.oldest() is None
    for key, time in ((0, 5), (1, 6), (0, 7)):
        buffer.put(key, name(key), Entry(time, 100 + time, key, 1))
    assert buffer.oldest() == (1, 6)
    assert buffer.entries()[0].tolist() == [106, 107]
    assert buffer.pop(1).row == 106
    assert buffer.oldest() == (0, 7)


def test_entries_of_one_time_are_in_the_order_of_their_names() -> None:
    buffer = Bounded(
        BufferConfig.max_records(9), Waited(np.array([5, 5]), np.array([1, 1]), lambda key: b"02"[key:][:1])
    )
    for key, named in ((7, b"3"), (8, b"1")):
        buffer.put(key, named, Entry(5, key, key, 1))
    assert buffer.entries()[0].tolist() == [0, 8, 1, 7]


def test_a_bound_is_exceeded_by_one_record_or_byte_more() -> None:
    assert [exceeds(BufferConfig.max_records(9), many, 100) for many in (9, 10)] == [False, True]
    assert [exceeds(BufferConfig.max_bytes(9), 100, size) for size in (9, 10)] == [False, True]
    assert not exceeds(BufferConfig.unbounded(), 10**9, 10**9)
