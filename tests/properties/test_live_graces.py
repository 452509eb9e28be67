"""What a running operator tells of graces is what `tg.advise` says of the same stream, however it was cut."""

from __future__ import annotations

from random import Random

import pytest

import tidegate as tg
from advice.recordings import SCHEMA, asked, drawn
from advice.slowly import Recording
from tidegate.instants import ROUND_MS
from tidegate.kernel.inspect.graces import Graces
from tidegate.testing import TopologyTestDriver

GRACES = [0, *ROUND_MS[:6], 7, 25]
ASKED = sorted({grace * part // 4 for grace in GRACES for part in (3, 4)})
SEEDS = range(150)


def graces(recording: Recording, today: int, *, function: bool = False) -> tuple[Graces, int]:
    """What the driver has heard of the stream in the batches that advice takes it in, and its late pairs."""
    windows = tg.TimeWindows(recording.size, recording.advance, today)
    stream = tg.stream("events", key="k", timestamp="ts", partition="p", offset="o", schema=SCHEMA)
    windowed = stream.group_by_key().windowed_by(windows)
    table = windowed.aggregate(lambda: 0, lambda _k, _r, n: n + 1, type="long") if function else windowed.count()
    driver = TopologyTestDriver(table)
    for batch in recording.batches():
        driver.pipe_batch(batch, "events")
    return driver._tallies[0].graces.life(), driver.drops["late"]


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_what_advice_says(seed: int) -> None:
    recording = drawn(seed)
    today = Random(seed).choice([0, 3, 25])
    live, late = graces(recording, today, function=seed % 5 == 0)
    advice = asked(recording, ASKED, today=today)
    assert live.pairs == advice.pairs
    if not recording.good():
        return
    assert live.today == today
    assert live.late(today) == late
    known = [grace for grace in GRACES if grace in (0, today, *ROUND_MS)]
    assert [live.late(grace) for grace in known] == [advice.cost(grace).late for grace in known]
    for grace in GRACES:
        assert advice.cost(grace).late <= live.late(grace) <= advice.cost(grace * 3 // 4).late
    assert live.late(live.enough()) <= 0.001 * live.pairs
