"""Topologies of hostile users, on Spark: a smoke part of `make test-spark-random`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from hostile import files
from hostile.case import Case
from hostile.drawn import scenario
from hostile.draws import SAME_CLOCK
from hostile.on_spark import check, stops
from hostile.runs import report

SEEDS = range(40, 44)


def test_what_comes_out_is_what_the_oracle_says(spark: SparkSession) -> None:
    """Several topologies in one query."""
    warnings.simplefilter("ignore")
    group = [what for seed in SEEDS if not stops(what := scenario(seed, spark=True))]
    assert len(group) >= len(SEEDS) // 2
    found = check(spark, group)
    assert not found, "\n".join(report(finding.what, finding.problem) for finding in found)


def test_what_must_stop_a_query_stops_it(spark: SparkSession) -> None:
    """A function returns a value that its type cannot hold: the error names it, and earlier batches stay."""
    warnings.simplefilter("ignore")
    what = next(what for seed in range(1_000) if stops(what := scenario(seed, spark=True)) and not stops_at_once(what))
    found = check(spark, [what])
    assert not found, report(what, found[0].problem)


def test_batches_run_at_the_wall_clock_of_their_plan(spark: SparkSession) -> None:
    """Stream time advances without records, and a record too far ahead is skipped."""
    warnings.simplefilter("ignore")
    kinds = ("time: idle_advance", "time: max_future_skew")
    groups = (
        [next((what for what in of_one_clock(first) if kind in what.kinds), None) for kind in kinds]
        for first in range(0, 20 * SAME_CLOCK, SAME_CLOCK)
    )
    found = check(spark, next([*filter(None, group)] for group in groups if all(group)))
    assert not found, "\n".join(report(finding.what, finding.problem) for finding in found)


def test_a_buffer_that_is_full_stops_a_query_which_goes_on_with_a_larger_one(spark: SparkSession) -> None:
    """Earlier rows stay, and the failed batch loses nothing."""
    warnings.simplefilter("ignore")
    cases = (scenario(seed, spark=True) for seed in range(1_000))
    what = next(what for what in cases if stops(what) == "BufferFullError" and not stops_at_once(what))
    found = check(spark, [what])
    assert not found, report(what, found[0].problem)


def test_every_way_of_records_into_spark_is_drawn() -> None:
    found = Counter[tuple[str, bool, str]]()
    for what in (scenario(seed, spark=True) for seed in range(600)):
        for side in range(len(what.sources)):
            way = files.door(what, side)
            found[way.format, way.in_order, way.moved] += 1
    for format in (files.PARQUET, files.ORC, files.JSON, files.CSV):
        assert found[format, False, ""]
        assert found[format, True, ""]
    assert found[files.DELTA, True, ""]
    assert all(found[files.SPARKS, False, moved] for moved in files.MOVES)


def of_one_clock(first: int) -> Iterator[Case]:
    """The cases from this seed on whose batches run at the same instants, and which nothing stops."""
    cases = (scenario(seed, spark=True) for seed in range(first, first + SAME_CLOCK))
    return (what for what in cases if not stops(what))


def stops_at_once(what: Case) -> bool:
    """Whether the first batch stops it."""
    return bool(stops(replace(what, batches=what.batches[:1])))
