"""The comparison in a crash test of a join: its rows are of all kinds, and it finds a missing row and an extra row."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crash.join_feed import JoinFeed, taken

FILES = 15
EVEN = [(n, n) for n in range(1, FILES + 2)]
UNEVEN = [(1, 0), *((min(n + 1, FILES + 1), n) for n in range(1, FILES + 2))]
"""Batches if the left file was there before the right one."""


@pytest.fixture
def feed(tmp_path: Path) -> JoinFeed:
    feed = JoinFeed(tmp_path, random.Random(7))
    feed.write(FILES)
    feed.write(1, closing=True)
    return feed


def checkpoint(folder: Path, cuts: Sequence[tuple[int, ...]]) -> None:
    """The part of Spark's checkpoint that `taken` reads."""
    (folder / "offsets").mkdir(parents=True)
    for number, cut in enumerate(cuts):
        lines = ["v1", "{}", *("-" if n == 0 else f'{{"logOffset":{n - 1}}}' for n in cut)]
        (folder / "offsets" / str(number)).write_text("\n".join(lines))


def test_its_batches_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    checkpoint(tmp_path, UNEVEN)
    assert taken(tmp_path) == UNEVEN


@pytest.mark.parametrize("cuts", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_each_kind_of_row_is_there(feed: JoinFeed, cuts: Sequence[tuple[int, ...]]) -> None:
    rows = feed.wanted(cuts)
    assert len(set(rows)) == len(rows)
    assert {(row.key is None, row.right is None) for row in rows} == {(False, False), (False, True), (True, True)}
    assert feed.drops["late"] > 0


@pytest.mark.parametrize(
    ("change", "missing", "more"),
    [
        (lambda rows: rows, 0, 0),
        (lambda rows: rows[1:], 1, 0),
        (lambda rows: [*rows, rows[0]], 0, 1),
        (lambda rows: [{**rows[0], "right": -1}, *rows[1:]], 1, 1),
    ],
    ids=["same", "missing", "twice", "wrong"],
)
def test_what_is_missing_or_twice_is_found(
    feed: JoinFeed, tmp_path: Path, change: Callable[[Any], Any], missing: int, more: int
) -> None:
    checkpoint(tmp_path / "checkpoint", EVEN)
    names = ("k", "left", "right", "timestamp")
    rows = change([dict(zip(names, row, strict=False)) for row in feed.wanted(EVEN)])
    table = pa.Table.from_pylist(rows)
    stamps = table["timestamp"].cast(pa.timestamp("ms", "UTC"))
    pq.write_table(table.set_column(3, "timestamp", stamps), tmp_path / "result.parquet")
    compared = feed.compared(tmp_path / "result.parquet")
    assert (compared.missing, compared.twice_or_wrong) == (missing, more)
    assert compared.right == (missing == more == 0)
