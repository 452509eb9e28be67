"""The consumer of the examples, fed with records as confluent-kafka has them."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "drop_repeats.py"


@dataclass
class Record:
    """The parts of a record that the example reads."""

    at: int
    body: dict[str, Any] | None
    row_id: str | None = None

    def value(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body).encode()

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.row_id is None else [("timestamp", b"0"), ("row_id", self.row_id.encode())]

    def partition(self) -> int:
        return self.at % 2

    def offset(self) -> int:
        return self.at // 2


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("drop_repeats", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(at: int, user: str, count: int, row_id: str, header: bool = True) -> Record:
    body = {"user": user, "count": count}
    return Record(at, body, row_id) if header else Record(at, body | {"row_id": row_id})


def totals(database: Any) -> dict[str, tuple[int, int]]:
    return {key: (results, total) for key, results, total in database.execute("SELECT * FROM totals")}


def test_repeats_count_once_and_a_crash_takes_nothing_twice(example: ModuleType, tmp_path: Path) -> None:
    path = str(tmp_path / "totals.db")
    database = example.opened(path)
    first = [result(0, "A", 2, "x"), result(1, "B", 3, "y", header=False), result(2, "A", 2, "x"), Record(3, None)]
    assert example.take(database, first, "user", "count") == 2

    def dies() -> Any:
        yield result(4, "A", 5, "z")
        raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="the power is gone"):
        example.take(database, dies(), "user", "count")
    database.close()
    database = example.opened(path)
    assert dict(database.execute("SELECT * FROM read")) == {0: 2, 1: 1}
    again = [result(4, "A", 5, "z"), result(6, "B", 3, "y"), result(8, "A", 5, "w")]
    assert example.take(database, again, "user", "count") == 2
    assert totals(database) == {"A": (3, 12), "B": (1, 3)}
    database.close()
