"""A worker uses memory again that it has freed: counted in page faults, each of which is a new page."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from tidegate.runtime.spark import memory

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
from tidegate.kernel.layout import Layout
from tidegate.kernel.packing import pack
from tidegate.plan import operation
from tidegate.runtime.spark.memory import give_back, keep

ROWS, BATCHES = 200_000, 5
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
    """New pages per batch, and how many go back afterwards."""
    path = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", PACKING, how]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    pages, given_back = map(int, done.stdout.split())
    return pages, given_back


def test_freed_memory_is_used_again_and_can_be_given_back() -> None:
    left_alone, _ = counted("leave")
    kept, given_back = counted("keep")
    assert left_alone > 2_000
    assert kept < left_alone / 4
    assert given_back > 1_000


def test_a_process_that_has_become_large_hands_back_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    mib = 1 << 20
    size, given = [0], []

    def give_back() -> None:
        size[0] -= 10 * mib
        memory._after.size = size[0]
        given.append(size[0] // mib)

    monkeypatch.setattr(memory, "_use_again", lambda: None)
    monkeypatch.setattr(memory, "_resident", lambda: size[0])
    monkeypatch.setattr(memory, "_after", memory._After())
    monkeypatch.setattr(memory, "give_back", give_back)
    for grown in (100, 319, 320, 321, 330, 375, 376, 400):
        size[0] = grown * mib
        memory.keep()
    # Beyond 320; then beyond the 311 that were left and 64 more.
    assert given == [311, 366]


def test_what_is_left_is_noted() -> None:
    memory.give_back()
    assert memory._after.size == pytest.approx(memory._resident(), rel=0.2)
    assert memory._after.size > 10 << 20
