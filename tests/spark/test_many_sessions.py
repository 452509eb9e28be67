"""Sessions so many that they are stored by key (decision 0059), in the store of Spark and with a restart."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.tuning import DEFAULT

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from spark.replay import Replay, Row, collect, schema_of, with_offsets

pytestmark = pytest.mark.spark

HOUR = 3_600_000
KEYS = 5 * DEFAULT.whole_rows
"""Each of two tasks has more than twice the sessions that are always stored in buckets."""


def batches(random: Random) -> list[list[Row]]:
    """All keys within an hour, then few of them and some new ones in each batch, then a record that closes them."""
    first = [(key, HOUR + key * HOUR // KEYS) for key in range(KEYS)]
    few = [[(key, 2 * HOUR + at) for key in random.sample(range(4_000, KEYS + 1_000), 300)] for at in range(1, 5)]
    closing = [[(KEYS + 2_000, 2 * HOUR + minutes * 60_000)] for minutes in (1, 3)]
    chosen = [first, *few, *closing, [(KEYS + 3_000, 9 * HOUR)]]
    return with_offsets([[{"k": f"k{key}", "ts": at, "x": key % 7} for key, at in batch] for batch in chosen])


@pytest.mark.full
def test_final_results_before_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    parts = batches(Random(59))

    def attached(events: Any) -> Any:
        stream = tg.stream(events, key="k", timestamp="ts", partition="partition", offset="offset", name="stream")
        sessions = tg.SessionWindows.of_inactivity_gap_with_no_grace("1 hour")
        table = stream.group_by_key().windowed_by(sessions).agg(n=tg.count(), total=tg.sum("x"))
        return table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())).to_df()

    open_now: dict[str, tuple[int, int, int]] = {}  # no key comes again once its session has closed
    newest = 0
    replay = Replay(spark, tmp_path, schema_of(k=pa.string(), x=pa.int64()), attached)
    for part in (parts[:3], parts[3:6], parts[6:]):
        for batch, rows in zip(part, replay.run(part).rows, strict=True):
            for record in batch:
                key, at = record["k"], record["ts"]
                start, end, n = open_now.get(key, (at, at, 0))
                open_now[key] = (min(start, at), max(end, at), n + 1)
                newest = max(newest, at)
            closed = {key: found for key, found in open_now.items() if found[1] < newest - HOUR}
            assert {_shown(row) for row in rows} == {(key, *found) for key, found in closed.items()}
            assert len(rows) == len(closed)
            open_now = {key: found for key, found in open_now.items() if key not in closed}
        stored = collect(tg.read_state(spark, str(tmp_path / "checkpoint")))
        assert {_shown(row) for row in stored} == {(key, *found) for key, found in open_now.items()}


def _shown(row: Row) -> tuple[str, int, int, int]:
    return row["k"], row["window"].start, row["window"].end, row["n"]
