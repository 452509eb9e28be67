"""Task numbers that Spark's hash partitioning spreads evenly, one to a shuffle partition."""

from __future__ import annotations

from functools import lru_cache
from itertools import count

_SEED = 42
_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def spark_hash(value: int) -> int:
    """Spark's `hash(int)`: murmur3_x86_32 of four bytes with seed 42, as a signed 32-bit integer.

    Pinned by tests/spark/test_plumbing.py::test_spark_hash_is_sparks_own.
    """
    k = (value & _MASK) * 0xCC9E2D51 & _MASK
    k = _rotate(k, 15) * 0x1B873593 & _MASK
    h = _rotate(_SEED ^ k, 13) * 5 + 0xE6546B64 & _MASK
    h ^= 4  # the length in bytes
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@lru_cache(maxsize=16)
def task_numbers(n: int) -> tuple[int, ...]:
    """The smallest int32 numbers whose `pmod(hash(number), n)` is 0, 1, ..., n - 1, in that order.

    Small integers collide (0 and 1 share a partition of 2), which would leave cores idle.
    Pinned by tests/spark/test_plumbing.py::test_every_task_gets_its_own_shuffle_partition.
    """
    if n < 1:
        raise ValueError(f"`n` is {n}: there must be at least one task")
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(spark_hash(number) % n, number)
        if len(found) == n:
            return tuple(found[partition] for partition in range(n))
    raise AssertionError  # pragma: no cover


def place_of(number: int, tasks: int) -> int:
    """The place of a number among the `task_numbers` of so many tasks."""
    return spark_hash(number) % tasks


def in_partitions(tasks: int, partitions: int) -> dict[int, int]:
    """Number of a task by shuffle partition, for those of `partitions` to which Spark's hash sends one of `tasks`.

    With fewer tasks than partitions, two tasks may share a partition, and one of them is kept. One is enough where a
    checkpoint is refused (`worker.processor.StageProcessor.close`): a drain marks every task in the same micro-batch,
    and Spark commits the state of a partition as a whole, so either all tasks of a partition are marked or none.
    """
    return {spark_hash(number) % partitions: number for number in task_numbers(tasks)}
