"""The settings of a contestant's query: they do not stay for the next one, and Spark's own has Spark's defaults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.contestant import BARE_MAP, FILES, IN_MEMORY, SPARKS_OWN, Contestant
from benchmarks.measure import settings
from benchmarks.options import HADOOPS_OWN
from benchmarks.switches import SWITCHES, switched

from tidegate.runtime.spark.session.config import FASTER


class Conf(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


def session(**more: str) -> Any:
    return SimpleNamespace(conf=Conf({"spark.sql.shuffle.partitions": "2", **more}))


def contestant(name: str) -> Contestant:
    return Contestant(name, name, lambda *_: None, IN_MEMORY)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("name", ["spark_memory", FILES])
def test_each_turn_has_its_own_settings_alone(name: str) -> None:
    spark = session()
    before = dict(spark.conf)
    for wanted in (*SWITCHES.values(), *reversed(SWITCHES.values())):
        with settings(spark, switched(contestant(name), wanted).settings_in(spark)):
            assert spark.conf == before | IN_MEMORY | dict(wanted)
        assert spark.conf == before


@pytest.mark.parametrize("name", [*SPARKS_OWN, "spark_bucketed", "per_key", "by_hand"])
def test_as_installed_a_query_of_spark_alone_writes_files_as_spark_does(name: str) -> None:
    assert contestant(name).settings_in(session()) == IN_MEMORY | HADOOPS_OWN
    assert contestant(name).settings_in(session(**FASTER)) == IN_MEMORY


@pytest.mark.parametrize("name", [FILES, "tidegate_every", BARE_MAP])
def test_tidegate_and_what_bounds_it_write_files_alike(name: str) -> None:
    for spark in (session(), session(**FASTER)):
        assert contestant(name).settings_in(spark) == IN_MEMORY
