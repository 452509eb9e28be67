"""Metrics of graces from a running operator equal `tg.advise` over the same stream, for any cutting."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

import tidegate as tg
from advice.recordings import SCHEMA, asked, drawn
from advice.slowly import Recording
from seeds import seeds
from tidegate.instants import ROUND_MS
from tidegate.kernel.inspect.graces import Graces
from tidegate.testing import TopologyTestDriver

GRACES = [0, *ROUND_MS[:6], 7, 25]
ASKED = sorted({grace * part // 4 for grace in GRACES for part in (3, 4)})
SEEDS = seeds(50, 150)


def graces(recording: Recording, today: int, *, function: bool = False) -> tuple[Graces, int]:
    """The driver's metrics of graces after the batches that advice takes, and its late pairs."""
    windows = tg.TimeWindows(recording.size, recording.advance, today)
    stream = tg.stream("events", key="k", timestamp="ts", partition="p", offset="o", schema=SCHEMA)
    windowed = stream.group_by_key().windowed_by(windows)
    table = windowed.aggregate(lambda: 0, lambda _k, _r, n: n + 1, type="long") if function else windowed.count()
    driver = TopologyTestDriver(table)
    for batch in recording.batches():
        driver.pipe_batch(batch, "events")
    return driver._tallies[0].graces.last_day(0), driver.drops["late"]


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_what_advice_says(seed: int) -> None:
    recording = drawn(seed)
    today = Random(seed).choice([0, 3, 25])
    live, late = graces(recording, today, function=seed % 5 == 0)
    advice = asked(recording, ASKED, today=today)
    assert live.total == advice.pairs
    if not recording.good():
        return
    assert live.today == today
    assert live.late(today) == late
    known = [grace for grace in GRACES if grace in (0, today, *ROUND_MS)]
    assert [live.late(grace) for grace in known] == [advice.cost(grace).late for grace in known]
    for grace in GRACES:
        assert advice.cost(grace).late <= live.late(grace) <= advice.cost(grace * 3 // 4).late
    assert live.late(live.enough()) <= 0.001 * live.total


def test_a_batch_that_spans_months_is_not_rounded() -> None:
    """A replay: each batch has thousands of stream times, and most records come late for windows without grace."""
    random, hour = Random(4711), 3_600_000
    records = [
        {"k": "a", "ts": max(0, i * hour // 20 - random.randrange(10 * hour)), "p": 0, "o": i, "at": i}
        for i in range(20_000)
    ]
    driver = TopologyTestDriver(
        tg.stream("events", key="k", timestamp="ts", partition="p", offset="o", schema=SCHEMA)
        .group_by_key()
        .windowed_by(tg.TimeWindows(hour, hour, 6 * hour))
        .count()
    )
    for low in (0, 10_000):
        driver.pipe_batch(records[low : low + 10_000], "events")
    live = driver._tallies[0].graces.last_day(0)
    assert live.late(6 * hour) == driver.drops["late"] > 1_000
    table = pa.Table.from_pylist(records, SCHEMA)
    windows = tg.TimeWindows(hour, hour, 6 * hour)
    advice = tg.advise(table, key="k", timestamp="ts", windows=windows, partition="p", offset="o", arrival="at")
    for cost in advice.costs:
        assert live.late(cost.grace) == cost.late
