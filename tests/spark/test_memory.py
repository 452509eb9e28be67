"""A worker reuses memory that it has freed: counted in page faults, each of which is a new page."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest

from fresh import printed
from tidegate.kernel.state.copies import Copies, Numbers, Parked, Partition
from tidegate.kernel.suppress import key_index
from tidegate.kernel.tuning import Tuning
from tidegate.runtime.spark.worker import memory

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        os.name != "posix" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="another malloc than glibc's"
    ),
]

PACKING = """
import resource, sys
import numpy as np, pyarrow as pa
import tidegate as tg
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.exchange.packing import pack
from tidegate.plan import operation
from tidegate.runtime.spark.worker.memory import give_back, keep

ROWS, BATCHES = 500_000, 5
stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
table = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("1 minute")).agg(total=tg.sum("amount"))
number = np.arange(ROWS)
rows = pa.record_batch({
    "k:user": pa.array([f"user-{n:07d}" for n in number // 4]),
    "v:amount": number,
    "ts": number // 10,
    "partition": np.zeros(ROWS, np.int32),
    "offset": number,
})
layout = Layout(operation(table.node), rows.schema, sorts=False)

def packed():
    return [len(blob) for _, blob in pack(layout, [rows], [0, 1])]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(open("/proc/self/statm").read().split()[1])

if sys.argv[1] == "keep":
    keep()
for _ in range(BATCHES):
    packed()
before = faults()
for _ in range(BATCHES):
    packed()
taken, held = faults() - before, resident()
give_back()
print(taken // BATCHES, held - resident())
"""


def counted(how: str) -> tuple[int, int]:
    """New pages per batch, and the number of pages that go back afterwards."""
    pages, given_back = map(int, printed(PACKING, how))
    return pages, given_back


@pytest.mark.full
def test_freed_memory_is_used_again_and_can_be_given_back() -> None:
    left_alone, _ = counted("leave")
    kept, given_back = counted("keep")
    assert left_alone > 2_000
    assert kept < left_alone / 4
    assert given_back > 1_000


def test_a_large_process_hands_back_what_nobody_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    mib, code = 1 << 20, 50
    size, given = [0, 0], []

    def give_back() -> None:
        given.append(tuple(part // mib for part in size))
        size[0] = size[1] + code * mib
        memory._after.unused = memory._unused()

    monkeypatch.setattr(memory, "_use_again", lambda: None)
    monkeypatch.setattr(memory, "_resident", lambda: size[0])
    monkeypatch.setattr(memory, "_unused", lambda: size[0] - size[1])
    monkeypatch.setattr(memory, "_after", memory._After())
    monkeypatch.setattr(memory, "give_back", give_back)
    for resident, used in [(320, 10), (321, 200), (340, 259), (340, 258), (340, 257), (500, 430), (320, 0)]:
        size[:] = resident * mib, used * mib
        memory.keep()
    # Only above 320 MiB; later only if more than the 50 left over plus 32 MiB more are free.
    assert given == [(321, 200), (340, 257)]


def test_what_is_in_use_and_what_is_not() -> None:
    memory.give_back()
    before = memory._unused(), memory._resident()
    assert memory._after.unused == pytest.approx(before[0], rel=0.2)
    held = np.ones(4 << 20)
    assert memory._resident() - before[1] > 0.9 * held.nbytes
    assert abs(memory._unused() - before[0]) < 0.3 * held.nbytes


def test_a_large_process_drops_copies_that_no_step_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    now, size = [0.0], [0]
    held, few = Copies(clock=lambda: now[0]), Numbers.of(np.array([1_000, 2_000]))
    monkeypatch.setattr(memory, "COPIES", held)
    monkeypatch.setattr(memory, "_resident", lambda: size[0])
    monkeypatch.setattr(key_index, "_cache", indexes := {"ended": key_index._Content(used=0.0)})
    monkeypatch.setattr(key_index.time, "monotonic", lambda: now[0])
    held.put(Partition("query", 0), "ended", few, Tuning())
    now[0] = 30.0
    held.put(Partition("query", 1), "runs", few, Tuning())
    indexes["runs"] = key_index._Content(used=30.0)
    size[0], now[0] = 320 << 20, 60.0
    memory.keep()
    assert set(held.held) == set(indexes) == {"ended", "runs"}
    size[0], now[0] = 321 << 20, 59.9
    memory.keep()
    assert set(held.held) == set(indexes) == {"ended", "runs"}
    now[0] = 60.0
    memory.keep()
    assert set(held.held) == set(indexes) == {"runs"}


COLUMNS = """
import sys
import numpy as np
from tidegate.kernel.state.copies import Parked
from tidegate.runtime.spark.worker import memory

memory.COPIES.held["a run"] = Parked(None, int(sys.argv[1]))
memory.keep()
before = memory._resident()
columns = [np.ones(1 << 19) for _ in range(10)]
taken = memory._resident()
del columns
print(taken - before >> 20, taken - memory._resident() >> 20)
"""
"""Ten columns of 4 MiB in a process whose copies have so many bytes."""


def test_beside_many_copies_freed_columns_go_back() -> None:
    most = memory.COPIED_BYTES
    (few, kept), (many, given_back) = (map(int, printed(COLUMNS, str(copied))) for copied in (most, most + 1))
    assert few == pytest.approx(40, abs=2)
    assert many == pytest.approx(40, abs=2)
    assert kept == 0
    assert given_back == pytest.approx(40, abs=2)


def test_the_room_changes_with_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    held, apart = Copies(), list[int]()
    monkeypatch.setattr(memory, "COPIES", held)
    monkeypatch.setattr(memory, "_take_apart", apart.append)
    for copied in (0, memory.COPIED_BYTES + 1, 0):
        held.held["a run"] = Parked(None, copied)
        memory.keep()
    assert apart == [memory.APART_BYTES, memory.APART_BESIDE_COPIES_BYTES, memory.APART_BYTES]
