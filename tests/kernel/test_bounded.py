"""The bounded buffer against a dict that is searched each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.suppress import bounded_buffer
from tidegate.kernel.suppress.bounded_buffer import Bounded, Entry, Waited
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
            assert (buffer.records, buffer.size) == (len(model), sum(entry.size for entry in model.values()))
            assert buffer.over == (len(model) > most)
            assert {key: buffer.get(key) for key in range(8)} == {key: model.get(key) for key in range(8)}
    finally:
        bounded_buffer._BLOCK = before
    rest = sorted(model, key=lambda key: (model[key].time, names[key]))
    rows, priors, since, sizes = (column.tolist() for column in buffer.entries())
    assert list(zip(since, rows, priors, sizes, strict=True)) == [
        (entry.time, entry.row, entry.prior, entry.size) for entry in (model[key] for key in rest)
    ]
