"""Comparison of the rows of a join over files in another engine, without the engine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psutil")

from benchmarks.inputs import key_names
from benchmarks.joined_columns import rows
from benchmarks.joined_rows import joined
from benchmarks.peers import peer
from benchmarks.peers.joined_files import JF, require, right_rows
from benchmarks.peers.peer import Peer
from benchmarks.two_sides import Shape, Stretch, write

SHAPE = Shape(keys=400, window_ms=30_000, stretches=(Stretch(3, 400, 60_000),))

PROGRAM = """
from dataclasses import replace
from benchmarks.peers.contract import Report, task

work = task()
rows = sum(replace(work, input=work.input / side).rows() for side in ("left", "right"))
(work.output / "rows").write_text("")
Report(rows, 2.0, (work.warm_up_rows, 0.5), {}, {"window_ms": str(work.window_ms)}).say()
"""


@dataclass(frozen=True)
class Fake(Peer):
    folder: Path = Path()

    @property
    def program(self) -> Path:
        return self.folder / self.file

    def interpreter(self) -> Path:
        return Path(sys.executable)


def columns(shape: Shape) -> pa.Table:
    """The rows by the definition, as Flink writes them."""
    every = [row[:3] for row, times in joined(shape, "left").items() for _ in range(times)]
    user, amount, price = zip(*every, strict=True)
    return pa.table({"user": user, "amount": amount, "price": pa.array(price, pa.int64())})


def written(table: pa.Table, folder: Path) -> Path:
    half = len(table) // 2
    pq.write_table(table[:half], folder / "part-0")
    pq.write_table(table[half:], folder / "part-1")
    (folder / ".crc").write_text("not rows")
    (folder / "part-2").write_text("")
    return folder


def test_right_rows_are_those_of_the_definition() -> None:
    table = columns(SHAPE)
    numbers = {name: number for number, name in enumerate(key_names(np.arange(SHAPE.keys)))}
    user = np.array([numbers[name] for name in table["user"].to_pylist()])
    price = table["price"].fill_null(-1).to_numpy()
    np.testing.assert_array_equal(rows(user, table["amount"].to_numpy(), price), right_rows(SHAPE))
    assert table["price"].null_count > 0


def test_rows_of_a_peer(tmp_path: Path) -> None:
    require("Fake", SHAPE, written(columns(SHAPE), tmp_path))


@pytest.mark.parametrize("wrong", ["a row is missing", "a row is there twice", "a price is null"])
def test_wrong_rows_of_a_peer(tmp_path: Path, wrong: str) -> None:
    table = columns(SHAPE)
    if wrong == "a row is missing":
        table = table[1:]
    elif wrong == "a row is there twice":
        table = pa.concat_tables([table, table[:1]])
    else:
        of_pair = next(at for at, price in enumerate(table["price"].to_pylist()) if price is not None)
        prices = table["price"].to_pylist()
        prices[of_pair] = None
        table = table.set_column(2, "price", pa.array(prices, pa.int64()))
    with pytest.raises(AssertionError, match=r"Fake: its [\d,]+ rows are not the [\d,]+ right ones"):
        require("Fake", SHAPE, written(table, tmp_path))


def test_a_program_gets_the_window_and_both_sides(tmp_path: Path) -> None:
    (tmp_path / "join.py").write_text(PROGRAM)
    checked: list[str] = []
    fake = Fake("fake", "Fake", "fake", file="join.py", folder=tmp_path)
    files = write(SHAPE, tmp_path / "input")
    one = peer.checked(fake, files, lambda output: checked.extend(path.name for path in output.iterdir()), 30_000)
    assert one.rows == [800, 800, 800, 4]
    assert one.report.rows == 2_404
    assert one.report.settings == {"window_ms": "30000"}
    assert checked == ["rows"]


def test_the_programs_of_its_peers_exist() -> None:
    assert all(each.program.exists() for each in JF.peers)
