"""States of every family of plans, as files: written once per version, read by all later ones.

`PYTHONPATH=src:tests python -m golden` writes the files of the version that is checked out, and no others.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.kernel.state.store import DictStore
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.testing import TopologyTestDriver

FOLDER = Path(__file__).parent

SCHEMA = pa.schema({"k": pa.string(), "ts": pa.int64(), "v": pa.int64()})
BEFORE = [
    [{"k": "a", "ts": 1, "v": 5}, {"k": "b", "ts": 3, "v": 1}, {"k": "a", "ts": 12, "v": None}],
    [{"k": "b", "ts": 14, "v": 7}, {"k": "a", "ts": 9, "v": 2}],
    [{"k": "c", "ts": 24, "v": 7}, {"k": "a", "ts": 22, "v": 3}, {"k": "b", "ts": 19, "v": 4}],
]
AFTER = [
    [{"k": "a", "ts": 23, "v": 6}, {"k": "c", "ts": 26, "v": 1}, {"k": "b", "ts": 11, "v": 9}],
    [{"k": "b", "ts": 48, "v": 7}, {"k": "a", "ts": 31, "v": 2}],
    [{"k": "c", "ts": 190, "v": 0}],
]

_UNBOUNDED = tg.BufferConfig.unbounded()
_FINAL = tg.Suppressed.until_window_closes(_UNBOUNDED)
_STRICT = tg.Suppressed.until_window_closes(tg.BufferConfig.max_records(90).shut_down_when_full())
_TIME = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
_HOPPING = _TIME.advance_by("5 ms")
_SLIDING = tg.SlidingWindows.of_time_difference_and_grace("6 ms", "5 ms")
_SESSIONS = tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "5 ms")

_LONG_SESSIONS = tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "20 ms")


def _grouped() -> tg.KGroupedStream:
    return tg.stream("events", key="k", timestamp="ts", schema=SCHEMA).group_by_key()


def _all(windowed: Any) -> tg.KTable:
    return windowed.agg(
        tg.Materialized.as_("store"),
        n=tg.count(),
        total=tg.sum("v"),
        low=tg.min("v"),
        high=tg.max("v"),
        mean=tg.mean("v"),
        kinds=tg.approx_count_distinct("v"),
    )


def _ordered(windowed: Any) -> tg.KTable:
    return windowed.agg(a=tg.first("v"), z=tg.last("v"), all=tg.collect_list("v"))


def _joined(key: Any, row: dict[str, Any], so_far: str) -> str:
    return f"{so_far}{row['v']};"


def _limit(buffer: Any, measured_from: str = "first_update") -> Any:
    return tg.Suppressed.until_time_limit("15 ms", buffer, clock="stream", measured_from=measured_from)


def _stream() -> tg.KStream:
    return tg.stream("events", key="k", timestamp="ts", schema=SCHEMA, stream_time="max")


def _table(**more: Any) -> tg.KTable:
    return tg.table("events", key="k", timestamp="ts", schema=SCHEMA, **more)


_NAMES = ("_left", "_right")
_MEETS = tg.JoinWindows.of_time_difference_and_grace("8 ms", "4 ms")


def families() -> dict[str, tg.KTable | tg.KStream]:
    """A plan of every family, by the name of its file."""
    retained = tg.Materialized.as_("kept").with_retention("1 minute")
    return {
        "time-final": _all(_grouped().windowed_by(_TIME)).suppress(_FINAL),
        "hopping-final": _all(_grouped().windowed_by(_HOPPING)).suppress(_FINAL),
        "hopping-updates": _all(_grouped().windowed_by(_HOPPING)),
        "large-windows": _all(_grouped().windowed_by(_TIME)),
        "time-ordered": _ordered(_grouped().windowed_by(_TIME)).suppress(_FINAL),
        "time-function": _grouped().windowed_by(_TIME).aggregate(str, _joined, type="string").suppress(_FINAL),
        "time-retention": _grouped().windowed_by(_TIME).agg(retained, n=tg.count()).suppress(_FINAL),
        "batch-windows": _all(_grouped().windowed_by(tg.BatchWindows.of_size("10 ms"))).suppress(_FINAL),
        "sliding-final": _all(_grouped().windowed_by(_SLIDING)).suppress(_FINAL),
        "sessions-final": _all(_grouped().windowed_by(_SESSIONS)).suppress(_FINAL),
        "sliding-by-key": _all(_grouped().windowed_by(_SLIDING)).suppress(_FINAL),
        "sessions-by-key": _all(_grouped().windowed_by(_LONG_SESSIONS)).suppress(_FINAL),
        "sessions-updates": _ordered(_grouped().windowed_by(_SESSIONS)),
        "unlimited": _all(_grouped().windowed_by(tg.UnlimitedWindows.start_on(0))),
        "plain": _all(_grouped()),
        "regrouped": _grouped().agg(n=tg.count(), z=tg.last("v")).group_by("n").agg(keys=tg.count(), s=tg.sum("z")),
        "forwarded": _all(_grouped().windowed_by(_TIME)).suppress(_FINAL).to_stream().group_by("n").agg(m=tg.count()),
        "limit-unbounded": _all(_grouped().windowed_by(_TIME)).suppress(_limit(_UNBOUNDED)),
        "limit-records": _all(_grouped()).suppress(_limit(tg.BufferConfig.max_records(3))),
        "limit-bytes": _all(_grouped()).suppress(_limit(tg.BufferConfig.max_bytes(900), "latest_update")),
        "limits-in-a-row": _all(_grouped())
        .suppress(_limit(tg.BufferConfig.max_bytes(900)))
        .suppress(_limit(tg.BufferConfig.max_bytes(900)).with_name("second"))
        .suppress(_limit(_UNBOUNDED).with_name("third")),
        "join-streams": _stream().join(_stream(), _MEETS, "outer", suffixes=_NAMES),
        "join-table": _stream().left_join(_table(history="30 ms"), grace="5 ms", suffixes=_NAMES),
        "join-tables": _table().outer_join(_table(), suffixes=_NAMES),
        "strict-time": _all(_grouped().windowed_by(_TIME)).suppress(_STRICT),
        "strict-sessions": _all(_grouped().windowed_by(_SESSIONS)).suppress(_STRICT),
    }


_BY_KEY = Tuning(whole_rows=0, whole_times=0)
SIZES = {
    "large-windows": Tuning(whole_rows=1, whole_times=1),
    "sliding-by-key": _BY_KEY,
    "sessions-by-key": _BY_KEY,
}
"""Sizes for families whose code a handful of records must reach."""


def piped(driver: TopologyTestDriver, batches: list[list[dict[str, Any]]]) -> list[str]:
    """The rows that these batches emit, as text."""
    out = []
    for batch in batches:
        driver.pipe_batch(batch)
        out += map(repr, driver.read_output())
    return out


def written(table: tg.KTable | tg.KStream, tuning: Tuning = DEFAULT) -> str:
    """A golden file: the stores after the first batches, and the rows that the later batches emit."""
    driver = TopologyTestDriver(table, tuning=tuning)
    piped(driver, BEFORE)
    state = driver.state()
    stores = [_packed(store) for store in state.stores]
    return json.dumps({"stores": stores, "rows": piped(driver, AFTER)}, indent=1) + "\n"


def read(path: Path, table: tg.KTable | tg.KStream) -> tuple[TopologyTestDriver, list[str]]:
    """A driver that goes on from a golden file, and the rows that it must emit."""
    golden = json.loads(path.read_text())
    stores = tuple(map(_unpacked, golden["stores"]))
    fresh = TopologyTestDriver(table).state()
    piped_before = sum(map(len, BEFORE))
    state = replace(fresh, stores=stores, piped=piped_before)
    return TopologyTestDriver(table, state=state), golden["rows"]


def _packed(store: DictStore) -> dict[str, str]:
    named = {name: b64encode(value).decode() for name, value in sorted(store.values.items())}
    return named | {f"{w}/{s}": b64encode(value).decode() for (w, s), value in sorted(store.log.items())}


def _unpacked(packed: dict[str, str]) -> DictStore:
    store = DictStore()
    for name, text in packed.items():
        window, slash, segment = name.partition("/")
        if slash:
            store.write(int(window), int(segment), b64decode(text))
        else:
            store.put(name, b64decode(text))
    return store
