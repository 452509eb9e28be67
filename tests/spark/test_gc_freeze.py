"""Python's collector does not look through a worker's modules after every task."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.runtime.spark.worker import gc_freeze

pytestmark = pytest.mark.spark

SPARING = """
import gc, weakref
from tidegate.runtime.spark.worker.gc_freeze import spare_modules

class Node:
    pass

def circle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

spare_modules()
found = [gc.get_freeze_count()]
ours = Node()
spare_modules()
found.append(gc.is_tracked(ours) and gc.get_freeze_count() - found[0])
import fractions
lost, kept = circle(), Node()
spare_modules()
found += [gc.get_freeze_count() - found[0], lost() is None, sum(each is kept for each in gc.get_objects())]
later = circle()
gc.collect()
found.append(later() is None)
print(*found)
"""


def test_modules_are_spared_once_and_again_when_there_are_more() -> None:
    """Garbage from before and from later is collected."""
    # Not `fresh.printed`: workers import this module, and test helpers are not on their path.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", SPARING], env=env, capture_output=True, text=True, check=True)
    first, again, more, lost, in_sight, later = done.stdout.split()
    assert int(first) > 1_000
    assert int(again) <= 0  # nothing new, though there was an object to spare
    assert int(more) > 50
    assert (lost, in_sight, later) == ("True", "0", "True")


def spared() -> int:
    """Number of objects that the step had spared when it called this function."""
    count = gc.get_freeze_count()
    # Make the next step in this worker spare them again.
    gc.unfreeze()
    gc_freeze._spared.modules = 0
    return count


def test_workers_of_both_steps_spare_them(spark: SparkSession) -> None:
    def in_map(_row: object) -> dict[str, int]:
        return {"in_map": spared()}

    def in_stateful(_key: object, row: dict[str, int], _found: str) -> str:
        return f"{row['in_map']} {spared()}"

    frame = spark.createDataFrame([("a", 0)], "key string, ts long").selectExpr("key", "timestamp_millis(ts) AS ts")
    one_task = frame.coalesce(1)  # an empty task would spare them without calling the function
    stream = tg.stream(one_task, key="key", timestamp="ts").map_values(in_map, types={"in_map": "long"})
    table = stream.group_by_key().aggregate(str, in_stateful, type="string", name="found")
    for _ in range(2):  # workers of other tests may have spared them before
        (row,) = table.to_df().collect()
        assert all(int(count) > 10_000 for count in row.found.split()), row.found
