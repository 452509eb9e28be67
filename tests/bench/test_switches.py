"""`benchmarks.switches`: the settings of one turn do not stay for the next one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.contestant import Contestant
from benchmarks.switches import SWITCHES, switched


class Conf(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


def test_each_turn_has_its_own_settings_alone() -> None:
    conf: Any = Conf({"spark.sql.shuffle.partitions": "2"})
    had: list[dict[str, str]] = []
    contestant = Contestant("ours", "ours", lambda spark, _: had.append(dict(spark.conf)))
    spark: Any = SimpleNamespace(conf=conf)
    for settings in (*SWITCHES.values(), *reversed(SWITCHES.values())):
        switched(contestant, settings).frame(spark, Path())
        assert had[-1] == {"spark.sql.shuffle.partitions": "2"} | dict(settings)
