"""Rows of windows that are grouped, selected or joined with `window` as a part of the key."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.testing import TopologyTestDriver, Window, layout

TEN = tg.TimeWindows.of_size_and_grace("10 ms", "1 day")


def stream(name: str = "events", **more: Any) -> tg.KStream:
    return tg.stream(name, key="k", timestamp="ts", **more)


def counts(name: str = "events", windows: Any = TEN, column: str = "count", **more: Any) -> tg.KTable:
    return stream(name, **more).group_by_key().windowed_by(windows).count(column)


def records(seed: int, size: int = 60) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [{"k": draw.choice("abcd"), "ts": draw.randrange(60), "partition": 0, "offset": n} for n in range(size)]


def per_window(rows: list[dict[str, Any]]) -> dict[tuple[int, int], Counter[str]]:
    """Number of records of each key, by window."""
    found: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for row in rows:
        start = row["ts"] // 10 * 10
        found[start, start + 10][row["k"]] += 1
    return found


def last(rows: list[dict[str, Any]], *key: str) -> dict[Any, dict[str, Any]]:
    return {tuple(row[name] for name in key): row for row in rows}


@pytest.mark.parametrize("seed", range(4))
def test_a_total_per_window_is_that_of_its_keys_however_batches_are_cut(seed: int) -> None:
    """Each change of a count moves the total of its window, with restarts between batches."""
    table = counts().group_by("window").agg(total=tg.sum("count"), keys=tg.count())
    rows, got, driver = records(seed), [], TopologyTestDriver(table)
    for at in range(0, len(rows), 1 + 7 * seed):
        driver = TopologyTestDriver(table, state=driver.state())
        driver.pipe_batch(rows[at : at + 1 + 7 * seed])
        got += driver.read_output()
    wanted = {(window,): (sum(keys.values()), len(keys)) for window, keys in per_window(rows).items()}
    assert {key: (row["total"], row["keys"]) for key, row in last(got, "window").items()} == wanted


@pytest.mark.parametrize("tasks", [1, 3])
def test_in_any_number_of_tasks(tasks: int) -> None:
    table = counts(partition="partition", offset="offset").group_by("window").agg(total=tg.sum("count"))
    batches = [records(5)[at : at + 20] for at in (0, 20, 40)]
    got, _ = layout.run(table, batches, tasks=tasks, splits=[[batch[:9], batch[9:]] for batch in batches])
    wanted = {(window,): sum(keys.values()) for window, keys in per_window(records(5)).items()}
    assert {key: row["total"] for key, row in last(got, "window").items()} == wanted


def test_functions_are_given_the_window_with_the_key() -> None:
    def spell(key: Any, row: dict[str, Any], so_far: str) -> str:
        letter, window = key
        assert isinstance(window, Window)
        return f"{so_far}{letter}{window.start}:{row['count']} "

    table = counts().to_stream().select_key("k", "window").group_by_key().aggregate(str, spell, type="string")
    table = table.filter(lambda key, row: key == ("a", row["window"]) and row["window"].end == 20)
    driver = TopologyTestDriver(table)
    for ts in (1, 12, 13):
        driver.pipe_input({"k": "a", "ts": ts})
    assert [row["aggregate"] for row in driver.read_output() if not row["deleted"]] == ["a10:1 ", "a10:1 a10:2 "]
    alone = (
        counts().to_stream().group_by("window").aggregate(list, lambda key, row, a: [*a, key.start], type="array<long>")
    )
    driver = TopologyTestDriver(alone)
    driver.pipe_batch([{"k": "a", "ts": 1}, {"k": "b", "ts": 2}])
    assert [row["aggregate"] for row in driver.read_output()] == [[0, 0]]


def test_the_bounds_of_sessions_are_their_key() -> None:
    """A session that grows is another window: its tombstone takes the shorter one out of the group."""
    sessions = counts(windows=tg.SessionWindows.of_inactivity_gap_and_grace("3 ms", "1 day"))
    table = sessions.group_by("window").agg(keys=tg.count())
    driver = TopologyTestDriver(table)
    for key, ts in (("a", 1), ("b", 1), ("a", 3)):
        driver.pipe_input({"k": key, "ts": ts})
    told = [(row["window"], row["keys"]) for row in driver.read_output()]
    assert told == [((1, 1), 1), ((1, 1), 2), ((1, 1), 1), ((1, 3), 1)]


def test_a_window_of_the_key_is_a_key_again() -> None:
    """Counts per window and key, then per window, then the changes of these per window."""
    twice = counts().group_by("window", "k").agg(n=tg.sum("count")).group_by("window").agg(n=tg.sum("n"))
    driver = TopologyTestDriver(twice.to_stream().select_key("window").group_by_key().count("changes"))
    for ts in (1, 2, 12):
        driver.pipe_input({"k": "a", "ts": ts})
    told = [(row["window"], row["changes"]) for row in driver.read_output()]
    assert told == [((0, 10), 1), ((0, 10), 2), ((10, 20), 1)]


def test_an_unlimited_window_is_a_key_too() -> None:
    table = counts(windows=tg.UnlimitedWindows.start_on(0)).group_by("window").agg(keys=tg.count())
    driver = TopologyTestDriver(table)
    driver.pipe_batch([{"k": "a", "ts": 1}, {"k": "b", "ts": 2}])
    assert [(row["window"].start, row["keys"]) for row in driver.read_output()] == [(0, 2)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_windowed_tables_join_per_key_and_window(how: Any, seed: int) -> None:
    one, other = counts("one"), counts("other", column="others")
    table = one.join(other, how)
    driver, rows = TopologyTestDriver(table), {"one": records(seed, 25), "other": records(seed + 50, 25)}
    got = []
    for at in range(0, 25, 5):
        for name in ("other", "one"):
            driver.pipe_batch(rows[name][at : at + 5], name)
            got += driver.read_output()
            driver = TopologyTestDriver(table, state=driver.state())
    sides = [{(k, w): n for w, keys in per_window(rows[name]).items() for k, n in keys.items()} for name in rows]
    keys = {
        "inner": sides[0].keys() & sides[1].keys(),
        "left": sides[0].keys(),
        "outer": sides[0].keys() | sides[1].keys(),
    }
    wanted = {key: (sides[0].get(key), sides[1].get(key)) for key in keys[how]}
    assert {key: (row["count"], row["others"]) for key, row in last(got, "k", "window").items()} == wanted
    assert wanted


def test_what_waits_and_what_is_stored_shows_the_window_as_one() -> None:
    table = counts().to_stream().group_by("k", "window").count("n", materialized=tg.Materialized.as_("per_window"))
    held = tg.Suppressed.until_time_limit("5 ms", tg.BufferConfig.unbounded(), clock="stream")
    driver = TopologyTestDriver(table.suppress(held))
    driver.pipe_batch([{"k": "a", "ts": 1}, {"k": "a", "ts": 12}])
    assert driver.read_output() == [{"k": "a", "window": (0, 10), "n": 1, "timestamp": 1}]
    stored = [(row["k"], row["window"], row["n"]) for row in driver.read_state("per_window")]
    assert sorted(stored) == [("a", (0, 10), 1), ("a", (10, 20), 1)]
    *_, behind = driver.pending_of_chain()
    assert "k 'a' in window 10 to 20 ms" in str(behind.buffered)


def test_late_records_name_the_window_of_their_key() -> None:
    table = counts().to_stream().group_by("window").count("n")
    driver = TopologyTestDriver({"n": table, "late": table.late_records()})
    driver.pipe_input({"k": "a", "ts": 1})
    assert [(row["output"], row["window"], row["n"]) for row in driver.read_output()] == [("n", (0, 10), 1)]


def test_another_key_is_another_checkpoint() -> None:
    driver = TopologyTestDriver(counts().to_stream().group_by("k", "window").count("n"))
    driver.pipe_input({"k": "a", "ts": 1})
    other = TopologyTestDriver(counts().to_stream().group_by("k").count("n"), state=driver.state())
    with pytest.raises(tg.CheckpointError, match=r"key.*k, window"):
        other.pipe_input({"k": "a", "ts": 1})


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (lambda: stream().group_by_key().count().to_stream().group_by("window"), "because the table has no windows"),
        (lambda: stream().group_by_key().count().group_by("window"), "because the table has no windows"),
        (lambda: counts().to_stream().group_by("k", "window").windowed_by(TEN), "its rows would have two windows"),
        (lambda: counts().group_by("timestamp"), "'timestamp' is what rows of a result call their timestamp, and no"),
        (lambda: counts().join(stream().group_by_key().count("n")), r"is k, window and that of 'events' k\."),
        (lambda: stream().join(counts()), r"is k and that of 'events' k, window\."),
    ],
)
def test_what_cannot_be(topology: Any, message: str) -> None:
    with pytest.raises(tg.DefinitionError, match=message):
        topology()


def test_the_window_has_one_name_in_what_is_shown() -> None:
    grouped = counts().to_stream().group_by("k", "window")
    assert repr(grouped).endswith(" by k, window>")
    table = grouped.count("n").filter(pc.field("n") > 1)
    assert "tidegate:" not in repr(table) + table.describe()
    with pytest.raises(tg.DefinitionError, match=r"Its columns are k, window, n, timestamp, deleted\."):
        table.map_values({"start": "tidegate:start"})
