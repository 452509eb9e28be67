"""W6: at most one update per key and 30 s, of 1 M keys: `until_time_limit` against a processor written by hand.

Every key has three records within 10 s, and again 45 s later, so that each contestant emits the same rows whenever in a
batch it reads its clock. Two thirds of the keys are buffered at any time. The processor by hand runs key by key, so it
gets a smaller input of the same kind, and its rows are compared over that input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import tidegate as tg
from benchmarks.contestant import Contestant, ours, source, streamed
from benchmarks.inputs import FIRST_MS, HALVES, key_names, table, write_halves
from benchmarks.measure import Run
from benchmarks.options import Options, say
from benchmarks.race import agreement, ratio, report, turns

LIMIT_MS = 30_000
PERIOD_MS = 45_000
WITHIN_MS = (0, 5_000, 10_000)
BAR = 20.0


@dataclass(frozen=True)
class Shape:
    keys: int
    batches: int
    batch_ms: int = 3_000

    @property
    def rows(self) -> int:
        """Rows of a micro-batch."""
        return self.keys * len(WITHIN_MS) * self.batch_ms // PERIOD_MS


SIZES = {"smoke": Shape(300, 7, 6_000), "default": Shape(1_000_000, 16), "full": Shape(1_000_000, 40)}
SMALL = {"smoke": Shape(300, 7, 6_000), "default": Shape(6_000, 16), "full": Shape(30_000, 20)}


def write(shape: Shape, folder: Path) -> Path:
    key = np.arange(shape.keys)
    phase = key * PERIOD_MS // shape.keys
    names = np.array(key_names(key), dtype=object)

    def halves() -> Iterator[pa.Table]:
        rng = np.random.default_rng(2026)
        offset = 0
        for batch in range(shape.batches):
            low = batch * shape.batch_ms
            due = []
            for within in WITHIN_MS:
                # The keys with a record of this kind in this batch; no record is before the phase of its key.
                ts = phase + within
                ts = ts + np.maximum(0, -((ts - low) // PERIOD_MS)) * PERIOD_MS
                mine = np.flatnonzero((ts >= low) & (ts < low + shape.batch_ms) & (ts - within >= phase))
                due.append((mine, ts[mine]))
            keys, stamps = (np.concatenate([part[i] for part in due]) for i in (0, 1))
            order = np.argsort(stamps, kind="stable")
            keys, stamps = keys[order], stamps[order]
            # All records of a key are in one partition, as in a topic.
            side = keys % HALVES
            for partition in range(HALVES):
                here = np.flatnonzero(side == partition)
                amount = rng.integers(1, 10_000, len(here))
                yield table(pa.array(names[keys[here]]), FIRST_MS + stamps[here], amount, partition, offset)
            offset += len(keys)

    return write_halves(folder / f"limit-{shape.keys}-{shape.batches}", halves())


def held(stream: tg.KStream, buffer: tg.StrictBuffer | tg.EagerBuffer) -> DataFrame:
    totals = stream.group_by_key().agg(count=tg.count(), total=tg.sum("amount"))
    limited = totals.suppress(tg.Suppressed.until_time_limit(f"{LIMIT_MS} milliseconds", buffer, clock="stream"))
    rows: DataFrame = limited.to_df()
    return rows.select("user", "count", "total")


class HoldBack(StatefulProcessor):
    """Count and sum per key; emits the newest result 30 s after the first record that was not yet emitted."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("totals", "count long, total long, waits boolean")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        count, total, waits = self._state.get() or (0, 0, False)
        first = None
        for frame in rows:
            count += len(frame)
            total += int(frame["amount"].sum())
            earliest = int(frame["ts"].min().timestamp() * 1000)
            first = earliest if first is None else min(first, earliest)
        if not waits and first is not None:
            self._handle.registerTimer(first + LIMIT_MS)
        self._state.update((count, total, True))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        count, total, _ = self._state.get() or (0, 0, False)
        self._state.update((count, total, False))
        yield pd.DataFrame({"user": [key[0]], "count": [count], "total": [total]})

    def close(self) -> None:
        pass


def by_hand(spark: SparkSession, folder: Path) -> DataFrame:
    rows = source(spark, folder).withWatermark("ts", "0 seconds").select("user", "ts", "amount").groupBy("user")
    return rows.transformWithStateInPandas(
        HoldBack(), "user string, count long, total long", outputMode="update", timeMode="eventTime"
    )


def _bounded(stream: tg.KStream) -> DataFrame:
    return held(stream, tg.BufferConfig.max_records(2_000_000))


UNBOUNDED = ours(partial(held, buffer=tg.BufferConfig.unbounded()))
BOUNDED = Contestant("tidegate_bounded", "tidegate, max_records(2 M)", lambda s, folder: _bounded(streamed(s, folder)))
BY_HAND = Contestant("by_hand", "transformWithStateInPandas, per key", by_hand, mode="update", ends_workers=True)


class TimeLimit:
    name = "W6"
    title = "until_time_limit(30 s) of totals per key, 1 M keys, 200 k rows a batch of 3 s"

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        contestants = [each for each in (*UNBOUNDED, BOUNDED) if options.wants(each.name)]
        agreed, slow = {}, {}
        if options.wants(BY_HAND.name):
            say(f"  {SMALL[options.size].keys:,} keys, by hand too")
            every = [*contestants, BY_HAND]
            slow = turns(spark, replace(options, repeat=1), every, write(SMALL[options.size], folder))
            agreed["by hand"] = agreement(every, slow)
            say(f"  {agreed['by hand']}")
        say(f"  {SIZES[options.size].keys:,} keys")
        runs = {each.name: slow[each.name] for each in contestants if each.name in slow}
        if not runs or SIZES[options.size] != SMALL[options.size]:
            repeated = replace(options, repeat=options.repeat or 1)
            runs = turns(spark, repeated, contestants, write(SIZES[options.size], folder))
        agreed["timed runs"] = agreement(contestants, runs)
        say(f"  {agreed['timed runs']}")
        if BY_HAND.name not in slow:
            return report(contestants, runs) | {"agreement": agreed, "bars": []}
        found = report([*contestants, BY_HAND], runs | {BY_HAND.name: slow[BY_HAND.name]})
        return found | {"agreement": agreed, "bars": _judged(runs, slow[BY_HAND.name])}


def _judged(runs: dict[str, list[Run]], hand: list[Run]) -> list[dict[str, Any]]:
    verdicts = []
    for name, mine in runs.items():
        times = ratio(mine, hand * len(mine))
        verdicts.append({"contestant": name, "others": [BY_HAND.name], "times": times, "at_least": BAR})
        verdict = "reached" if times >= BAR else "NOT reached"
        say(f"  {name} is {times:.1f} times as fast as by hand (which had fewer keys); the bar of {BAR} is {verdict}")
    return verdicts


W6 = TimeLimit()
