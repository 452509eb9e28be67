"""A left join of two streams in Flink SQL: its interval join over files, by PyFlink with a cluster inside its JVM."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.peers.contract import Report, Task, installed, millis, task
from benchmarks.peers.flink.program import settings, started, telling, view, written
from benchmarks.two_sides import GRACE_MS, SIDES, VALUES

SINK = """
CREATE TABLE joined (`user` STRING, amount BIGINT, price BIGINT, ts BIGINT, other_ts BIGINT, left_at TIMESTAMP_LTZ(3))
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')
"""
MS = "1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {}) AS BIGINT)"

QUERY = """
INSERT INTO joined
SELECT `left`.`user`, amount, price, {ts}, {other_ts}, CURRENT_ROW_TIMESTAMP()
FROM `left` LEFT JOIN `right`
ON `left`.`user` = `right`.`user`
AND `right`.ts BETWEEN `left`.ts - INTERVAL '{seconds}' SECOND AND `left`.ts + INTERVAL '{seconds}' SECOND
"""


def side(work: Task, name: str) -> Task:
    return replace(work, input=work.input / name)


def main() -> None:
    work = task()
    environment, tables = started(work)
    for name, value in zip(SIDES, VALUES, strict=True):
        view(tables, name, side(work, name), value, environment, GRACE_MS)
    tables.execute_sql(SINK.format(path=work.output.as_uri()))
    query = QUERY.format(ts=MS.format("`left`.ts"), other_ts=MS.format("`right`.ts"), seconds=work.window_ms // 1000)
    began = time.time()
    tables.execute_sql(query).wait()
    seconds = time.time() - began
    rows = sum(side(work, name).rows() for name in SIDES)
    Report(rows, seconds, warm(work, began, seconds), installed("apache-flink"), settings(work)).say()


def warm(work: Task, began: float, seconds: float) -> tuple[int, float] | None:
    """(rows, seconds) at the first pair of two records that are both behind the first `warm_up_rows` rows.

    Both sides have been read so far then, one perhaps farther, so the rate behind may be too high. None: unknown.
    """
    files = [path for name in SIDES for half in side(work, name).halves() for path in half]
    times = np.sort(np.concatenate([millis(pq.read_table(path, columns=["ts"])["ts"]).to_numpy() for path in files]))
    if len(times) <= work.warm_up_rows:
        return None
    # Times of rows are written in whole seconds.
    until = int(times[work.warm_up_rows]) // 1000 * 1000 + 1000
    rows = written(work, ["ts", "other_ts", "left_at"])
    behind = rows.filter(pc.and_(pc.greater_equal(rows["ts"], until), pc.greater_equal(rows["other_ts"], until)))
    if not len(behind):
        return None
    after = pc.min(millis(behind["left_at"])).as_py() / 1000 - began
    read = int(np.searchsorted(times, until))
    return (read, after) if telling(seconds - after) else None


if __name__ == "__main__":
    main()
