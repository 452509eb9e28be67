"""`tg.advise_limit` against the test driver, record by record."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from advice.recordings import SCHEMA, drawn
from advice.slowly import Recording
from seeds import seeds
from tidegate.cli.main import main
from tidegate.testing import TopologyTestDriver

LIMITS = [0, 7, 60]


def come(recording: Recording) -> list[dict[str, Any]]:
    """The records in arrival order."""
    return [r for batch in recording.batches() for r in batch]


def driven(recording: Recording, windows: Any, limit: int, bound: int | None) -> tuple[int, list[int], int]:
    """Number of updates, wait of each emitted row (ms), and number of rows still buffered at the end."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    stream = tg.stream("events", key="k", timestamp="ts", schema=schema)
    grouped = stream.group_by_key()
    counted = grouped.count() if windows is None else grouped.windowed_by(windows).count()
    buffer = tg.BufferConfig.unbounded() if bound is None else tg.BufferConfig.max_records(bound)
    driver = TopologyTestDriver(
        tg.outputs(
            raw=counted,
            calm=counted.suppress(tg.Suppressed.until_time_limit(f"{limit} ms", buffer, clock="stream")),
        )
    )
    updates, waits, now, first = 0, [], -1, {}
    for r in come(recording):
        now = max(now, r["ts"])
        if windows is None:
            driver.pipe_input(without_value(r))
        driver.pipe_input({"k": r["k"], "ts": r["ts"], "v": 1})
        rows = driver.read_output()
        made = {name(row): row for row in rows if row["output"] == "raw"}
        updates += len(made)
        first |= {one: row["timestamp"] for one, row in made.items() if one not in first}
        for row in rows:
            if row["output"] == "calm":
                waits.append(max(now - first.pop(name(row)), 0))
                update = made.get(name(row))
                if update is not None and update["count"] != row["count"]:
                    # With several windows per record, a later window may leave before its update comes to the buffer.
                    first[name(row)] = update["timestamp"]
    return updates, waits, len(first)


def without_value(r: dict[str, Any]) -> dict[str, Any]:
    """A later record without a value: groups without windows skip it."""
    return {"k": r["k"], "ts": r["ts"] + 1_000, "v": None}


def name(row: dict[str, Any]) -> Any:
    return row["k"], row["window"].start if "window" in row else None


@pytest.mark.parametrize("seed", seeds(5, 12))
def test_as_many_rows_leave_the_driver_after_as_long(seed: int) -> None:
    recording, random = drawn(seed, least=5, most=45), Random(seed)
    windows = random.choice([None, tg.TimeWindows(recording.size, recording.advance, random.choice([0, 20]))])
    bound = random.choice([0, 1, 2, 5])
    asked = {"partition": "p", "offset": "o", "arrival": "at"}
    recording.trigger = None
    records = [r | {"v": 1} for r in recording.records]
    skipped = [r | without_value(r) for r in recording.good()] if windows is None else []
    found = tg.advise_limit(
        pa.Table.from_pylist([*skipped, *records], SCHEMA.append(pa.field("v", pa.int64()))),
        key="k",
        timestamp="ts",
        windows=windows,
        limits=[f"{limit} ms" for limit in LIMITS],
        max_records=[bound],
        **asked,
    )
    assert (found.records, found.skipped["null_value"]) == (len(recording.good()), len(skipped))
    assert [(cost.limit, cost.max_records) for cost in found.costs] == [(ms, b) for ms in LIMITS for b in (None, bound)]
    for cost in found.costs:
        updates, waits, waiting = driven(recording, windows, cost.limit, cost.max_records)
        assert (found.updates, cost.rows, cost.waiting) == (updates, len(waits), waiting)
        assert cost.saved == pytest.approx(1 - (len(waits) + waiting) / updates)
        assert (
            cost.wait == (sorted(waits)[(len(waits) - 1) // 2] + sorted(waits)[len(waits) // 2]) / 2 if waits else True
        )
        assert cost.wait_p95 is None or sum(wait <= cost.wait_p95 for wait in waits) >= 0.95 * len(waits)


@pytest.mark.parametrize("seed", range(40))
def test_without_a_bound_as_with_one_that_is_never_reached(seed: int) -> None:
    recording, random = drawn(seed, most=200), Random(seed)
    windows = random.choice([None, tg.TimeWindows(recording.size, recording.advance, random.choice([0, 20]))])
    found = tg.advise_limit(
        pa.Table.from_pylist(recording.records, SCHEMA),
        key="k",
        timestamp="ts",
        arrival="at",
        windows=windows,
        limits=[f"{limit} ms" for limit in (0, 1, 7, 60, 10**15)],
        max_records=[10_000],
    )
    free, bounded = found.costs[::2], found.costs[1::2]
    assert [asdict(cost) | {"max_records": None} for cost in bounded] == list(map(asdict, free))


def test_a_bound_of_what_waits_at_most_changes_nothing() -> None:
    table = pa.Table.from_pylist(drawn(9, least=200, most=300, bad=False).records, SCHEMA)
    asked = {"key": "o", "timestamp": "ts", "arrival": "at", "limits": ["50 ms"]}
    (free,) = tg.advise_limit(table, **asked).costs
    _, same, fuller = tg.advise_limit(table, max_records=[free.most, free.most - 1], **asked).costs
    assert (same.rows, same.early, same.most, same.wait) == (free.rows, 0, free.most, free.wait)
    assert fuller.early > 0


@pytest.mark.parametrize("keys", [[0.0, -0.0, 0.0, -0.0], [float("nan")] * 4])
def test_keys_that_are_equal_to_the_operator_are_one_key(keys: list[float]) -> None:
    records = [{"k": key, "ts": ts, "v": 1} for key, ts in zip(keys, (0, 10, 20, 30), strict=True)]
    (found,) = tg.advise_limit(pa.Table.from_pylist(records), key="k", timestamp="ts", limits=["15 ms"]).costs
    held = tg.Suppressed.until_time_limit("15 ms", tg.BufferConfig.unbounded(), clock="stream")
    driver = TopologyTestDriver(tg.stream("events", key="k", timestamp="ts").group_by_key().count().suppress(held))
    for record in records:
        driver.pipe_input(record)
    waits = driver.pending().buffered
    assert (found.rows, found.waiting) == (len(driver.read_output()), waits and waits.keys) == (1, 1)


def test_an_index_of_pandas_is_no_value() -> None:
    """Rows that were chosen have one. Records without a value are skipped, so they must not have it for a value."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"k": ["a"] * 4, "ts": [0, 10, 20, 30], "v": [1.0, None, 2.0, None]}).iloc[[0, 1, 3]]
    assert tg.advise_limit(frame, key="k", timestamp="ts").skipped["null_value"] == 2
    assert tg.advise_join(frame, frame, key="k", timestamp="ts").left == 1


def test_limits_that_the_data_call_for_and_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"k": ["a", "b"] * 50, "ts": [1_000 * i for i in range(100)]})
    pq.write_table(table, tmp_path / "prices.parquet")
    found = tg.advise_limit(table, key="k", timestamp="ts")
    assert [cost.limit for cost in found.costs] == [5_000]
    assert found.costs[0].saved > 0.4
    arguments = ["advise-limit", str(tmp_path / "prices.parquet"), "--key", "k", "--timestamp", "ts"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{found}\n"
    assert main([*arguments, "--window", "1 minute", "--limits", "10 s", "--max-records", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"][1]["early"] > 0
    assert main([*arguments, "--max-records", "many"]) == 2
    assert "`--max-records` has 'many'" in capsys.readouterr().err
    assert "<pre>Updates of groups" in found._repr_html_()


def test_nothing_and_what_is_refused() -> None:
    nothing = pa.table({"k": pa.array([], pa.string()), "ts": pa.array([], pa.int64())})
    assert tg.advise_limit(nothing, key="k", timestamp="ts", limits=["1 s"], max_records=[3]).costs == []
    late = pa.table({"k": ["a", "a"], "ts": [500, 3]})
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    assert tg.advise_limit(late, key="k", timestamp="ts", windows=windows, limits=["0 s"]).updates == 1
    with pytest.raises(tg.DefinitionTypeError, match="Time limits are looked at of tumbling and hopping windows"):
        tg.advise_limit(late, key="k", timestamp="ts", windows=tg.SessionWindows(5, 0))
    with pytest.raises(tg.DefinitionError, match="`limit` is -1 second"):
        tg.advise_limit(late, key="k", timestamp="ts", limits=["-1 s"])
    with pytest.raises(tg.DefinitionError, match="`max_records` is -1"):
        tg.advise_limit(late, key="k", timestamp="ts", max_records=[-1])
    for name in ("limits", "max_records"):
        with pytest.raises(tg.DefinitionTypeError, match=f"`{name}` is 5, not a list"):
            tg.advise_limit(late, **{"key": "k", "timestamp": "ts", name: 5})
    with pytest.raises(tg.DefinitionTypeError, match="`max_records` is 'x'"):
        tg.advise_limit(late, key="k", timestamp="ts", max_records=["x"])
