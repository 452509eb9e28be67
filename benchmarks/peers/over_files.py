"""W8: the query of W1 over the same files, in other engines.

A peer measures its own time, from the first row that it reads to the last row that it writes, without the start of its
interpreter or its JVM. Flink compiles while it runs, as Spark does: its time counts from a moment after the
micro-batches that do not count for tidegate either. Bytewax and Pathway have nothing to warm up. All peers write the
windows that are still open when their input ends, and this counts too. None has durable state: without checkpoints,
recovery or persistence they do less than tidegate, which checkpoints every micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import measure
from benchmarks.agreement import Rows, closed_and_open
from benchmarks.contestant import Contestant
from benchmarks.inputs import SIZE_MS, Shape, write
from benchmarks.measure import Digest, Run
from benchmarks.options import Options, say
from benchmarks.peers import peer
from benchmarks.peers.peer import Peer, PeerRun
from benchmarks.race import Bar, alternate, judged, prefix, report, turns
from benchmarks.workloads.tumbling import OURS, SIZES

FLINK = (
    Peer("flink", "Flink SQL, state on the heap", "flink", state="hashmap"),
    Peer("flink_rocksdb", "Flink SQL, RocksDB", "flink", state="rocksdb"),
)
PYTHON = (Peer("pathway", "Pathway", "pathway", batches=3), Peer("bytewax", "Bytewax", "bytewax", batches=3))
"""Slow engines; in three micro-batches the first window closes."""


TRIAL = SIZES["W1"]["smoke"]


@dataclass(frozen=True)
class OverFiles:
    name: str
    title: str
    shapes: dict[str, Shape]
    peers: tuple[Peer, ...]
    bars: tuple[Bar, ...]

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns and compare all rows; peers that cannot run here are left out. Returns JSON."""
        shape = self.shapes[options.size]
        trial, wanted = write(TRIAL, folder), [each for each in self.peers if options.wants(each.name)]
        peers, unable = peer.able(wanted, partial(peer.run, files=trial, right=_right(TRIAL)))
        files = write(shape, folder)
        if not options.smoke:
            turns(spark, replace(options, repeat=0), list(OURS), files)
        done: dict[str, Peer] = {each.name: each for each in peers}

        def once(who: Contestant | Peer) -> Run | PeerRun:
            if isinstance(who, Contestant):
                return measure.run(spark, who, files)
            part = replace(shape, batches=who.batches or shape.batches)
            one = peer.run(who, prefix(files, who.batches), _right(part))
            done[who.name] = replace(who, settings={**one.report.settings, **one.report.versions})
            return one

        contestants: list[Contestant | Peer] = [*OURS, *peers]
        runs = alternate(contestants, options.repeat or 1, once, unable)
        ours = {each.name: runs[each.name] for each in OURS}
        agreed = _agreed(spark, ours, _right(shape)[0], folder)
        say(f"  {agreed}")
        ran = [each for name, each in done.items() if name in runs]
        found = report([*OURS, *ran], runs)
        return found | {
            "agreement": {
                "timed runs": agreed,
                **{each.name: peer.COMPARED for each in ran},
            },
            "bars": judged(self.bars, runs),
            "unable": unable,
        }


@cache
def _right(shape: Shape) -> tuple[Rows, Rows]:
    return closed_and_open(shape, ordered=True)


def _agreed(spark: SparkSession, runs: dict[str, list[Run | PeerRun]], right: Rows, folder: Path) -> str:
    """A sentence that tidegate emitted `right` in every run; AssertionError if it did not."""
    wanted = _digest(spark, right, folder)
    for name, mine in runs.items():
        for one in mine:
            if isinstance(one, Run) and (got := Digest.all(one.digests)) != wanted:
                raise AssertionError(f"{name} gave other rows than the direct computation: {got}, not {wanted}")
    return f"{wanted.rows:,} final rows, equal to a direct computation in every run of {' and '.join(runs)}"


def _digest(spark: SparkSession, rows: Rows, folder: Path) -> Digest:
    path = folder / "expected.parquet"
    names, starts = zip(*rows, strict=True)
    counts, totals = zip(*rows.values(), strict=True)
    pq.write_table(pa.table({"user": names, "start": starts, "count": counts, "total": totals}), path)
    start, end = "timestamp_millis(start) AS start", f"timestamp_millis(start + {SIZE_MS}) AS end"
    columns = "user", f"struct({start}, {end}) AS window", "count", "total"
    return measure.digest_of(spark.read.parquet(str(path)).selectExpr(*columns))


W8 = OverFiles(
    "W8",
    "W1 over files, against other engines",
    SIZES["W1"],
    (*FLINK, *PYTHON),
    (Bar(3.0, tuple(each.name for each in FLINK)), *(Bar(20.0, (each.name,)) for each in PYTHON)),
)
