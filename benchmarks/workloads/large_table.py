"""J6: a stream joined with a large table, in small micro-batches. The cost of a batch should depend on its size only.

The table is loaded first, as changes in large micro-batches. Then come small micro-batches, which are timed: records of
random keys, some without a row, and changes of a few rows. All changes of a micro-batch are older than its records, so
that every contestant joins a record with the same row, whichever side it reads first.

By hand: a processor that keeps the row of its key, over the union of both sides (`transformWithStateInPandas`). It runs
key by key, also while the table is loaded. So it gets only small tables and fewer of the small micro-batches, and no
turn to warm up.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import tidegate as tg
from benchmarks.contestant import COLUMNS, FILES, Contestant, from_files, source, streamed
from benchmarks.inputs import FIRST_MS, HALVES, Int64s, key_names, table, write_halves
from benchmarks.join_race import compared, timed
from benchmarks.joined_rows import Rows, differing
from benchmarks.measure import Digest, run
from benchmarks.options import Options, say
from benchmarks.two_sides import SIDES, VALUES, first
from benchmarks.workloads.joins import collected
from benchmarks.workloads.open_entries import SMALL_BATCHES, Found, judged
from benchmarks.workloads.open_joins import against, at, together

LOAD_ROWS = 1_000_000
SMALL_ROWS, SMALL_CHANGES = 10_000, 1_000
"""Records of the stream and changes of the table in a timed micro-batch."""
WITHOUT_ROW = 10
"""About one in so many records has no row in the table."""
BATCH_MS = 10_000
MOST_RATIO, AT_LEAST = 1.3, 5.0

KEYS = {
    "smoke": (100, 200),
    "default": (100_000, 1_000_000, 10_000_000),
    "full": (100_000, 1_000_000, 10_000_000),
}
BY_HAND_BATCHES = 5
"""Number of small micro-batches that it runs, besides the last one, which is not timed."""
BY_HAND_UP_TO = {"smoke": 200, "default": 100_000, "full": 1_000_000}


@dataclass(frozen=True)
class Shape:
    """A table of `keys` rows; then `batches` micro-batches of `rows` records and `changes` changes."""

    keys: int
    rows: int
    changes: int
    batches: int

    @property
    def load(self) -> int:
        """Number of micro-batches that load the table."""
        return max(1, -(-self.keys // LOAD_ROWS))

    @property
    def entries(self) -> int:
        return self.keys


@dataclass(frozen=True)
class Batch:
    """A micro-batch: keys and values of its records and of its changes, and the time of each kind (ms)."""

    records: tuple[Int64s, Int64s]
    changes: tuple[Int64s, Int64s]
    record_ms: int
    change_ms: int


def batches(shape: Shape) -> Iterator[Batch]:
    """All micro-batches; the last one is as large as the one before it, and is not timed."""
    rng = np.random.default_rng([2026, shape.keys])

    def valued(keys: Int64s) -> tuple[Int64s, Int64s]:
        return keys, rng.integers(1, 10_000, len(keys))

    every = rng.permutation(shape.keys)
    with_others = shape.keys * WITHOUT_ROW // (WITHOUT_ROW - 1)
    for number in range(shape.load + shape.batches + 1):
        loads = number < shape.load
        changed = np.array_split(every, shape.load)[number] if loads else rng.integers(0, shape.keys, shape.changes)
        asked = rng.integers(0, with_others, HALVES if loads else shape.rows)
        at_ms = FIRST_MS + number * BATCH_MS
        yield Batch(valued(asked), valued(changed), at_ms + BATCH_MS // 2, at_ms)


def write(shape: Shape, folder: Path) -> Path:
    """Write records (left) and changes (right) as Parquet below `folder`, unless that was done before."""
    target = folder / f"table-{shape.keys}-{shape.rows}-{shape.changes}-{shape.batches}"
    for side, (name, value) in enumerate(zip(SIDES, VALUES, strict=True)):
        write_halves(target / name, _tables(shape, side, value))
    return target


def _tables(shape: Shape, side: int, value: str) -> Iterator[pa.Table]:
    offset = 0
    for batch in batches(shape):
        keys, values = (batch.records, batch.changes)[side]
        ms = (batch.record_ms, batch.change_ms)[side]
        for half in range(HALVES):
            # All records of a key are in one partition, as in a topic.
            mine = keys % HALVES == half
            stamps = np.full(int(mine.sum()), ms)
            rows = table(pa.array(key_names(keys[mine]), pa.string()), stamps, values[mine], half, offset)
            yield rows.rename_columns([value if name == "amount" else name for name in rows.column_names])
        offset += len(keys)


def looked_up(shape: Shape) -> Rows:
    """The rows of the join by its definition: each record with the row of its key at its time."""
    of_key: dict[int, int] = {}
    rows: Rows = Counter()
    for batch in batches(shape):
        of_key.update(zip(*(column.tolist() for column in batch.changes), strict=True))
        keys, values = batch.records
        for key, name, amount in zip(keys.tolist(), key_names(keys), values.tolist(), strict=True):
            rows[name, amount, of_key.get(key), batch.record_ms] += 1
    return rows


# -- contestants ----------------------------------------------------------------------------------------------------


def tidegate(spark: SparkSession, folder: Path, opened: Callable[..., tg.KStream]) -> DataFrame:
    left, right = SIDES
    prices = tg.table(source(spark, folder / right), **COLUMNS, name=right)
    rows: DataFrame = opened(spark, folder / left, name=left).left_join(prices).to_df()
    return rows.select("user", *VALUES, "timestamp")


class LatestRow(StatefulProcessor):
    """Keeps the row of a key; in a micro-batch, changes have a `price` and records have an `amount`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._row = handle.getValueState("row", "price long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        frames = list(rows)
        found = frames[0] if len(frames) == 1 else pd.concat(frames)
        if len(found) > 1:
            found = found.sort_values(["ts", "offset"])
        changes = found["price"].dropna()
        if len(changes):
            self._row.update((int(changes.iloc[-1]),))
        records = found[found["amount"].notna()]
        if len(records):
            (price,) = self._row.get() or (None,)
            columns = {"user": key[0], "amount": records["amount"].astype("int64")}
            columns |= {"price": pd.array([price] * len(records), dtype="Int64"), "timestamp": records["ts"]}
            yield pd.DataFrame(columns)

    def close(self) -> None:
        pass


def by_hand(spark: SparkSession, folder: Path) -> DataFrame:
    of_sides = [source(spark, folder / side) for side in SIDES]
    nothing = F.lit(None).cast("long")
    whole = of_sides[0].withColumn("price", nothing).unionByName(of_sides[1].withColumn("amount", nothing))
    rows = whole.select("user", "ts", "amount", "price", "offset").groupBy("user")
    return rows.transformWithStateInPandas(
        LatestRow(), "user string, amount long, price long, timestamp timestamp", outputMode="append", timeMode="none"
    )


OURS = (
    Contestant("tidegate", "tidegate, partition and offset given", partial(tidegate, opened=streamed)),
    Contestant(FILES, "tidegate, records by tg.files.source", partial(tidegate, opened=from_files)),
)
BY_HAND = Contestant("by_hand", "transformWithStateInPandas, per key", by_hand, ends_workers=True)

SMALL = Shape(500, 200, 50, 3)


class LargeTable:
    name = "J6"
    title = (
        "left join of a stream with a table of 100 k, 1 M and 10 M keys, in batches of 10 k records and 1 k changes; "
        "seconds a batch"
    )

    def measure(self, spark: SparkSession, options: Options, folder: Path) -> dict[str, Any]:
        """Run all turns with each table, and return the results as JSON; AssertionError if rows differ."""
        chosen = [each for each in (*OURS, BY_HAND) if options.wants(each.name)]
        agreed = checked(spark, chosen, folder)
        found: list[Found] = []
        for keys in KEYS[options.size]:
            few = 200 if options.smoke else 1
            shape = Shape(keys, SMALL_ROWS // few, SMALL_CHANGES // few, SMALL_BATCHES[options.size])
            files = write(shape, folder)
            who = [each for each in chosen if each is not BY_HAND]
            for contestant in who if not (options.smoke or found) else ():
                run(spark, contestant, files)  # a turn that is not counted
            here, agreed[str(keys)] = at(shape, spark, files, who, options.repeat or 1)
            if BY_HAND in chosen and keys <= BY_HAND_UP_TO[options.size]:
                by_hand, sentence = alone(shape, spark, files)
                here, agreed[f"{keys} by hand"] = [*here, by_hand], sentence
            found += here
            for one in here:
                say(f"  {one.entries:12,} keys  {one.label:38} {one.median_s:7.3f} s a batch")
            if options.size == "full":
                shutil.rmtree(files)
        ours = [one for one in found if one.contestant != BY_HAND.name]
        bars = [*judged(ours, MOST_RATIO), *against(found, BY_HAND.name, AT_LEAST)]
        return {"agreement": agreed, "found": [asdict(each) for each in found], "bars": bars}


def alone(shape: Shape, spark: SparkSession, files: Path) -> tuple[Found, str]:
    """Run the processor by hand over the first micro-batches, and compare its rows with tidegate's.

    Raises AssertionError if they differ.
    """
    few, tidegate_files = first(files, shape.load + BY_HAND_BATCHES), OURS[-1]
    runs = {each.label: run(spark, each, few) for each in (tidegate_files, BY_HAND)}
    same = compared({label: [Digest.all(one.digests)] for label, one in runs.items()})
    return together(BY_HAND, shape, [timed(runs[BY_HAND.label])]), f"{same.rows:,} rows equal to tidegate's"


def checked(spark: SparkSession, contestants: list[Contestant], folder: Path) -> dict[str, str]:
    """A sentence per contestant; AssertionError unless all emit the rows of the direct computation."""
    files, wanted = write(SMALL, folder), looked_up(SMALL)
    for contestant in contestants:
        if wrong := differing(collected(spark, contestant, files), wanted):
            raise AssertionError(f"{contestant.label}: {wrong} of {wanted.total()} rows differ from what is right")
    return {each.name: f"{wanted.total():,} rows equal to a direct computation" for each in contestants}


J6 = LargeTable()
