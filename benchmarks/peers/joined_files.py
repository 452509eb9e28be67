"""JF: the left join of J1 over the same files in Flink SQL, its interval join.

All rows of Flink are compared with a direct computation, except their timestamps, which Flink's join does not have. The
runs of tidegate must have as many rows, and agree with each other; `make bench` compares their rows with a direct
computation. Flink's time counts from a moment after the micro-batches that do not count for tidegate, as in W8, and it
writes no checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from benchmarks import measure
from benchmarks.contestant import Contestant
from benchmarks.inputs import HALVES, Int64s
from benchmarks.join_race import compared, timed
from benchmarks.joined_columns import left_joined, rows
from benchmarks.measure import Digest, Run
from benchmarks.options import Options
from benchmarks.peers import peer
from benchmarks.peers.peer import Peer, PeerRun
from benchmarks.race import Bar, alternate, judged, report
from benchmarks.two_sides import Shape, write
from benchmarks.warming import SECONDS, for_seconds
from benchmarks.workloads.joins import ours, shapes

KEYS, PAIRS = 100_000, 1
FLINK = (
    Peer("flink", "Flink SQL, state on the heap", "flink", state="hashmap", file="join.py"),
    Peer("flink_rocksdb", "Flink SQL, RocksDB", "flink", state="rocksdb", file="join.py"),
)


@dataclass(frozen=True)
class JoinedFiles:
    name: str
    title: str
    shapes: dict[str, Shape]
    peers: tuple[Peer, ...]
    bars: tuple[Bar, ...]

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns and compare all rows; peers that cannot run here are left out. Returns JSON."""
        shape = self.shapes[options.size]
        trial, wanted = self.shapes["smoke"], [each for each in self.peers if options.wants(each.name)]
        peers, unable = peer.able(wanted, partial(_run, files=write(trial, folder), shape=trial))
        files, of_us = write(shape, folder), ours("left", shape.window_ms)
        for each in of_us if not options.smoke else ():
            for_seconds(SECONDS, partial(measure.run, spark, each, files))
        done: dict[str, Peer] = {each.name: each for each in peers}
        whole: dict[str, list[Run]] = {each.name: [] for each in of_us}

        def once(who: Contestant | Peer) -> Run | PeerRun:
            if isinstance(who, Contestant):
                whole[who.name].append(measure.run(spark, who, files))
                return timed(whole[who.name][-1])
            one = _run(who, files, shape)
            done[who.name] = replace(who, settings={**one.report.settings, **one.report.versions})
            return one

        contestants: list[Contestant | Peer] = [*of_us, *peers]
        runs = alternate(contestants, options.repeat or 1, once, unable)
        digest = compared({name: [Digest.all(one.digests) for one in mine] for name, mine in whole.items()})
        if digest.rows != len(right_rows(shape)):
            raise AssertionError(f"tidegate gave {digest.rows:,} rows, not {len(right_rows(shape)):,}")
        ran = [each for name, each in done.items() if name in runs]
        found = report([*of_us, *ran], runs)
        agreement = {"timed runs": f"{digest.rows:,} rows, equal in every run of {' and '.join(whole)}"}
        return found | {
            "agreement": agreement | {each.name: peer.COMPARED for each in ran},
            "bars": judged(self.bars, runs),
            "unable": unable,
        }


def _run(who: Peer, files: Path, shape: Shape) -> PeerRun:
    return peer.checked(who, files, partial(require, who.label, shape), shape.window_ms)


@cache
def right_rows(shape: Shape) -> Int64s:
    """All rows, those of the records that close all too: a pair for each source partition."""
    one = np.ones(HALVES, np.int64)
    return np.sort(np.concatenate([left_joined(shape), rows(np.arange(HALVES), one, one)]))


def require(label: str, shape: Shape, output: Path) -> None:
    """AssertionError unless the rows in the folder `output` are right."""
    paths = [str(path) for path in output.iterdir() if path.stat().st_size and not path.name.startswith(".")]
    table = ds.dataset(paths).to_table(["user", "amount", "price"])
    user = pc.cast(pc.utf8_slice_codeunits(table["user"], len("user-")), "int64").to_numpy()
    found = rows(user, table["amount"].to_numpy(), pc.fill_null(table["price"], -1).to_numpy())
    if not np.array_equal(found, right_rows(shape)):
        raise AssertionError(f"{label}: its {len(found):,} rows are not the {len(right_rows(shape)):,} right ones")


JF = JoinedFiles(
    "JF",
    "J1-left-1 over files, against Flink SQL's interval join",
    shapes(KEYS, PAIRS),
    FLINK,
    (Bar(1.0, tuple(each.name for each in FLINK)),),
)
