"""`tg.advise_join` against every pair, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from seeds import seeds
from tidegate.advice.partners import JoinAdvice
from tidegate.cli.main import main
from tidegate.instants import ROUND_MS, show_ms
from tidegate.testing import TopologyTestDriver

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64())])
Record = tuple[str | None, int]


def drawn(seed: int) -> tuple[list[Record], list[Record]]:
    random = Random(seed)

    def side() -> list[Record]:
        most = random.choice([5, 100, 10_000])
        keys = random.choice([["a"], ["a", "b", "c"], ["a", "b", None]])
        return [
            (random.choice(keys), random.randrange(-1 if seed % 3 == 0 else 0, most))
            for _ in range(random.randrange(40))
        ]

    return side(), side()


def table(records: list[Record]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "ts": ts} for k, ts in records], SCHEMA)


def asked(left: list[Record], right: list[Record], **more: float) -> JoinAdvice:
    return tg.advise_join(table(left), table(right), key="k", timestamp="ts", **more)


def good(records: list[Record]) -> list[Record]:
    return [(k, ts) for k, ts in records if k is not None and ts >= 0]


def partners(record: Record, right: list[Record], before: float, after: float) -> int:
    return sum(k == record[0] and record[1] - before <= ts <= record[1] + after for k, ts in right)


@pytest.mark.parametrize("seed", seeds(40, 80))
def test_windows_find_what_every_pair_says(seed: int) -> None:
    left, right = drawn(seed)
    advice = asked(left, right, target=0.1)
    left, right = good(left), good(right)
    assert (advice.left, advice.right) == (len(left), len(right))

    def found(before: float, after: float) -> int:
        return sum(partners(one, right, before, after) > 0 for one in left)

    whole = float("inf")
    assert advice.partnered == found(whole, whole)
    for before, after in ((0, 0), (3, 0), (0, 50), (7, 7), (1_000, 10), (-3, 50), (1_000, -5), (-9, 2)):
        assert advice.found(before, after) == found(before, after)
        assert advice.pairs(before, after) == sum(partners(one, right, before, after) for one in left)
    for cost in advice.costs:
        assert cost.found == found(cost.width, cost.width)
        assert (cost.before, cost.after) == (found(cost.width, 0), found(0, cost.width))
    enough = 0.9 * advice.partnered
    assert found(advice.before, advice.after) >= enough
    # A shorter round window on either side finds too few.
    shorter = [max((ms for ms in (0, *ROUND_MS) if ms < one), default=None) for one in (advice.before, advice.after)]
    assert shorter[0] is None or found(shorter[0], advice.after) < enough
    assert shorter[1] is None or found(advice.before, shorter[1]) < enough


@pytest.mark.parametrize("target", [hundredth / 100 for hundredth in range(100)])
def test_any_share_may_miss_its_partners(target: float) -> None:
    """The share of a hundredth may be rounded: exactly so many records as allowed may be far from their partners."""
    for most in (50, 150):
        far = int(most * target)
        left = [(f"{number}", 0) for number in range(most)]
        advice = asked(left, [(key, 100_000 if int(key) < far else 0) for key, _ in left], target=target)
        assert (advice.before, advice.after) == (0, 0)


@pytest.mark.parametrize("stream_time", ["max", "min_partition"])
@pytest.mark.parametrize("seed", seeds(5, 12))
def test_the_driver_joins_as_many_pairs_with_each_grace(seed: int, stream_time: Any) -> None:
    random, now = Random(seed), 0
    came: list[tuple[str, dict[str, object]]] = []
    offsets = [0, 0, 0, 0]
    # One side may be alone at first.
    alone, side_alone = random.choice([0, 0, 10]), random.randrange(2)
    for nth in range(random.choice([5, 50])):
        now += random.choice([1, 1, 5, 20])
        place = 2 * side_alone + random.randrange(2) if nth < alone else random.randrange(4)
        ts = max(0, now - random.choice([0, 0, 3, 40]))
        record = {"k": random.choice("ab"), "ts": ts, "p": place % 2, "o": offsets[place], "at": now}
        came.append((("left", "right")[place // 2], record))
        offsets[place] += 1
    schema = pa.schema([*SCHEMA, ("p", pa.int32()), ("o", pa.int64()), ("at", pa.int64())])
    sides = {side: [r for of, r in came if of == side] for side in ("left", "right")}
    tables = [pa.Table.from_pylist(random.sample(of, len(of)), schema) for of in sides.values()]
    advice = tg.advise_join(
        *tables, key="k", timestamp="ts", partition="p", offset="o", arrival="at", stream_time=stream_time
    )
    assert advice.grace is not None
    pairs = advice.pairs(advice.before, advice.after)
    for one in advice.graces:
        windows = tg.JoinWindows(advice.before, advice.after, one.grace)
        asked: dict[str, Any] = {
            "key": "k",
            "timestamp": "ts",
            "partition": "p",
            "offset": "o",
            "stream_time": stream_time,
        }
        asked |= {"idle_after": "9 days"} if stream_time == "min_partition" else {}
        left, right = (tg.stream(side, schema=schema.remove(4), **asked) for side in sides)
        driver = TopologyTestDriver(left.join(right, windows))
        for side, record in came:
            driver.pipe_input({name: value for name, value in record.items() if name != "at"}, side)
        assert len(driver.read_output()) == pairs - one.lost
        assert one.share == one.lost / max(pairs, 1)
    assert next(one for one in advice.graces if one.grace == advice.grace).share <= 0.01
    if pairs:
        assert f"Grace: {show_ms(advice.grace)} loses at most" in str(advice)


@pytest.mark.parametrize("first", ["left", "right"])
def test_no_record_closes_before_both_sides_have_sent_records(first: str) -> None:
    ts = [0, 100_000]
    early, late = (pa.table({"k": ["a", "a"], "ts": ts, "at": at}) for at in ([0, 1], [2, 3]))
    sides = (early, late) if first == "left" else (late, early)
    advice = tg.advise_join(*sides, key="k", timestamp="ts", arrival="at")
    assert (advice.pairs(advice.before, advice.after), advice.grace) == (2, 0)
    assert [(one.grace, one.lost) for one in advice.graces] == [(0, 0)]
    by_largest = tg.advise_join(*sides, key="k", timestamp="ts", arrival="at", stream_time="max")
    assert by_largest.graces[0].lost == 1


def test_a_record_without_a_value_has_no_partner() -> None:
    schema = pa.schema([*SCHEMA, ("v", pa.int64())])
    records = [{"k": "a", "ts": ts, "v": v} for ts, v in ((0, 1), (90_000, None), (1_000, 2))]
    side = pa.Table.from_pylist(records, schema)
    advice = tg.advise_join(side, side, key="k", timestamp="ts")
    assert (advice.left, advice.right, advice.partnered) == (2, 2, 2)
    assert {name: by["null_value"] for name, by in advice.skipped.items()} == {"left": 1, "right": 1}
    streams = [tg.stream(name, key="k", timestamp="ts", schema=schema, idle_after="1 day") for name in advice.skipped]
    windows = tg.JoinWindows.of_time_difference_and_grace("2 minutes", "2 minutes")
    driver = TopologyTestDriver(streams[0].join(streams[1], windows, suffixes=("_l", "_r")))
    for name in advice.skipped:
        for record in records:
            driver.pipe_input(record, name)
    assert (len(driver.read_output()), driver.drops["null_value"]) == (advice.pairs(120_000, 120_000), 2)


def test_text_json_and_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = [("a", 10_000 * i) for i in range(100)] + [("alone", 5), (None, 5)]
    right = [("a", 10_000 * i + 2_000) for i in range(100)]
    pq.write_table(table(left), tmp_path / "left.parquet")
    pq.write_table(table(right).rename_columns(["k", "at"]), tmp_path / "right.parquet")
    paths = [str(tmp_path / "left.parquet"), str(tmp_path / "right.parquet")]
    arguments = ["advise-join", *paths, "--key", "k", "--timestamp", "ts", "--right-timestamp", "at"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert said.startswith("101 left and 100 right records (skipped: 1 null_key (left)).\n  100 left records have")
    assert "Chosen: 0 milliseconds before and 2 seconds after a left record." in said
    assert "100.0% of those that have one, in 100 rows." in said
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["before"], told["after"], told["found"], told["pairs"]) == (0, 2_000, 100, 100)
    assert "<pre>101 left" in asked(left, right)._repr_html_()


def test_the_shell_says_the_grace_of_a_join(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The right side comes 25 s later, when the left one has gone on by 20 s.
    for side, behind in (("left", 0), ("right", 25_000)):
        ts = [10_000 * i for i in range(100)]
        pq.write_table(
            pa.table({"k": ["a"] * 100, "ts": ts, "at": [t + behind for t in ts]}), tmp_path / f"{side}.parquet"
        )
    paths = [str(tmp_path / f"{side}.parquet") for side in ("left", "right")]
    arguments = ["advise-join", *paths, "--key", "k", "--timestamp", "ts", "--arrival", "at"]
    assert main([*arguments, "--stream-time", "max", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["grace"] == 20_000
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["grace"] == 0
    assert main([*arguments, "--trigger", "no time"]) == 2


def test_nobody_has_a_partner() -> None:
    for left, right in (([("a", 1)], [("b", 1)]), ([("a", 1)], []), ([], [("a", 1)])):
        advice = asked(left, right)
        assert (advice.partnered, advice.before, advice.after, advice.costs) == (0, 0, 0, [])
        assert "0 left records have a right one" in str(advice)


def test_keys_of_two_types_meet_only_if_they_are_equal() -> None:
    """A key is no other one because its type is wider, and no text is a number, whichever side is the left one."""

    def of(keys: list[Any], kind: pa.DataType) -> pa.Table:
        return pa.table({"k": pa.array(keys, kind), "ts": [1] * len(keys)})

    for one, other, partnered in (
        (of([1, 2], pa.int32()), of([1, 2**40], pa.int64()), 1),
        (of([0.1, 0.5], pa.float32()), of([0.1, 0.5], pa.float64()), 1),
        (of(["a"], pa.string()), of(["a"], pa.large_string()), 1),
        (of([None], pa.null()), of([1], pa.int64()), 0),
    ):
        for sides in ((one, other), (other, one)):
            assert tg.advise_join(*sides, key="k", timestamp="ts").partnered == partnered
    text, number = of(["1"], pa.string()), of([1], pa.int64())
    for sides in ((text, number), (number, text)):
        with pytest.raises(tg.DefinitionError, match="have different types"):
            tg.advise_join(*sides, key="k", timestamp="ts")


def test_what_is_refused() -> None:
    with pytest.raises(tg.DefinitionError, match="`target` is 1"):
        asked([("a", 1)], [("a", 1)], target=1)
    with pytest.raises(tg.DefinitionError, match="has no column 'at'"):
        tg.advise_join(table([]), table([]), key="k", timestamp="ts", right_timestamp="at")
    numbers = pa.table({"k": ["x"], "ts": [1]}), pa.table({"k": [pa.scalar(1.5)], "ts": [1]})
    with pytest.raises(tg.DefinitionError, match="have different types"):
        tg.advise_join(numbers[1], numbers[0], key="k", timestamp="ts")
