"""Ids of a join's rows name the records that made each row, for any batches, tasks and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from properties import test_joins as streams
from properties import test_table_joins as tables
from properties.test_joins import Row
from tidegate.kernel.rows import row_ids
from tidegate.plan import operation, with_row_ids
from tidegate.testing import TopologyTestDriver, layout, operators

ORDER = {"partition": "partition", "offset": "offset"}
WITHIN = tg.JoinWindows.of_time_difference_and_grace("10 ms", "5 ms")
UNBOUNDED = tg.BufferConfig.unbounded()


@pytest.fixture(autouse=True, scope="module")
def asked_for() -> Iterator[None]:
    """Make driver and layouts run the plan of `to_df(row_ids=True)`."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (operators, layout):
            patch.setattr(module, "operation", lambda node: with_row_ids(operation(node)) or operation(node))
        yield


def of_source(record: Row) -> str:
    return f"{record['partition']}@{record['offset']}"


@st.composite
def splits(draw: Any, batches: Any, prepared: Any = lambda side, record: record) -> tuple[list[Any], list[Any]]:
    """Batches as map tasks read them, and the side of each."""
    parts_of, sides = [], []
    for batch in batches:
        parts: dict[tuple[int, int], list[Row]] = {}
        for side, record in batch:
            parts.setdefault((side, draw(st.integers(0, 1))), []).append(prepared(side, record))
        parts_of.append(list(parts.values()))
        sides.append([side for side, _ in parts])
    return parts_of, sides


# The number `n` of a record is unique, so the values of a row tell which records made it.


@given(case=streams.joins(), data=st.data())
def test_two_streams(case: streams.Case, data: Any) -> None:
    batches = data.draw(streams.placed(case.self_join))
    known = {record["n"]: of_source(record) for batch in batches for _, record in batch} | {None: ""}
    parts, sides = data.draw(splits(batches))
    whole = [[record for _, record in batch] for batch in batches]
    tasks = data.draw(st.integers(1, 3))
    got, _ = layout.run(case.table(ordered=True), whole, tasks=tasks, splits=parts, sides=sides)
    made = [row["row_id"] for row in got]
    assert made == [f"({known[row['n_l']]},{known[row['n_r']]})" for row in got]
    assert not made or max(Counter(made).values()) == 1


@given(case=tables.cases(), data=st.data())
def test_with_tables(case: tables.Case, data: Any) -> None:
    """The id names the record of the stream; of two tables the change, on its own side."""
    batches = data.draw(tables.placed())
    prepared = lambda side, record: tables.prepared(case, tables.SIDES[side], record)  # noqa: E731
    parts, sides = data.draw(splits(batches, prepared))
    whole = [[prepared(side, record) for side, record in batch] for batch in batches]
    tasks = data.draw(st.integers(1, 3))
    got, _ = layout.run(case.table(ordered=True), whole, tasks=tasks, splits=parts, sides=sides)
    known = {record["n"]: of_source(record) for batch in batches for _, record in batch}
    made = [row["row_id"] for row in got]
    assert not made or max(Counter(made).values()) == 1
    for row in got:
        if case.of_tables:
            last = {f"({known.get(row['n_l'])},)", f"(,{known.get(row['n_r'])})"}
            places = [(side, of_source(record), record) for batch in batches for side, record in batch]
            (change,) = [
                (side, record) for side, at, record in places if row["row_id"] == (f"({at},)", f"(,{at})")[side]
            ]
            gone = tables.prepared(case, tables.SIDES[change[0]], change[1])["gone"]
            assert gone or row["row_id"] in last
        else:
            assert row["row_id"] == known[row["n_l"]]


@given(case=streams.joins(), stream=streams.records(), data=st.data())
def test_restarts_and_batches_change_no_id(case: streams.Case, stream: Any, data: Any) -> None:
    """Record by record, and in batches with a restart between any two."""

    def run(cuts: bool) -> list[Row]:
        joined = case.table(ordered=False)
        one, found = TopologyTestDriver(joined), []
        batch: list[Row] = []
        for n, (side, record) in enumerate(stream):
            side = "left" if case.self_join else side
            batch.append(record)
            ends = n + 1 == len(stream) or (not case.self_join and stream[n + 1][0] != side)
            if not cuts or ends or data.draw(st.booleans()):
                one.pipe_batch(batch, side)
                found += one.read_output()
                batch = []
                if cuts and data.draw(st.booleans()):
                    one = TopologyTestDriver(joined, state=one.state())
        one.drain()
        return found + one.read_output()

    assert run(cuts=True) == run(cuts=False)


# -- through the rest of a topology --------------------------------------------------------------------------------


def stream(name: str, **more: Any) -> Any:
    return tg.stream(name, key="k", timestamp="ts", stream_time="max", **(ORDER | more))


def table(name: str, **more: Any) -> Any:
    return tg.table(name, key="k", timestamp="ts", **(ORDER | more))


def piped(topology: Any, *records: tuple[str, Row]) -> list[Row]:
    one = TopologyTestDriver(topology)
    for name, record in records:
        one.pipe_input({"k": "A", "partition": 0, **record}, name)
    one.drain()
    return one.read_output()


PAIR = (("l", {"ts": 1, "offset": 1, "a": 1}), ("r", {"ts": 2, "offset": 7, "b": 2}))


def test_steps_neither_see_nor_change_an_id() -> None:
    seen: list[Row] = []

    def looked_at(row: Row) -> Row:
        seen.append(dict(row))
        return {**row, "c": 1}

    joined = stream("l").join(stream("r"), WITHIN, value_joiner=lambda left, right: {**left, **right})
    (row,) = piped(joined.filter(lambda row: len(row) == 4).map_values(looked_at), *PAIR)
    assert seen == [{"k": "A", "a": 1, "b": 2, "timestamp": 2}]
    assert row == {"row_id": "(0@1,0@7)", "k": "A", "a": 1, "b": 2, "c": 1, "timestamp": 2}


def test_a_join_behind_a_join_and_a_table_behind_it() -> None:
    pairs = stream("l").join(stream("r"), WITHIN)
    third = ("z", {"ts": 3, "offset": 9, "c": 3})
    (row,) = piped(pairs.join(stream("z"), WITHIN), *PAIR, third)
    assert row["row_id"] == "((0@1,0@7),0@9)"
    rows = piped(pairs.left_join(table("z")), *PAIR, third)
    assert [row["row_id"] for row in rows] == ["(0@1,0@7)"]
    both = table("l").outer_join(table("r"))
    assert [row["row_id"] for row in piped(both, *PAIR)] == ["(0@1,)", "(,0@7)"]
    assert [row["row_id"] for row in piped(both.join(table("z")), *PAIR, third)] == ["(,0@9)"]
    into_stream = both.to_stream().left_join(table("z"))
    assert [row["row_id"] for row in piped(into_stream, *PAIR)] == ["(0@1,)", "(,0@7)"]


def test_rows_of_joins_that_are_merged_say_which_input_they_are() -> None:
    """Rows of two joins may come from records with the same partition and offset."""

    def joined(left: str, right: str) -> Any:
        rows = stream(left).join(stream(right), WITHIN)
        return rows.map_values(lambda row: {"a": row["a"] + row["b"]}, types={"a": "long"})

    merged = joined("l", "r").merge(joined("m", "s"), stream("n"))
    others = [(name, record) for name, (_, record) in zip("ms", PAIR, strict=True)]
    rows = piped(merged.left_join(table("z")), *PAIR, *others, ("n", {"ts": 3, "offset": 5, "a": 9}))
    assert [row["row_id"] for row in rows] == ["0:(0@1,0@7)", "1:(0@1,0@7)", "2%3A0@5"]
    nowhere = {"partition": None, "offset": None}
    unknown = joined("l", "r").merge(stream("n", **nowhere)).left_join(table("z"))
    assert with_row_ids(operation(unknown.node)) is None


@pytest.mark.parametrize(
    ("windows", "marks"),
    [
        (tg.TimeWindows.of_size_with_no_grace("10 ms"), ["A[0,10", "A[10,20", "A[100,110"]),
        (tg.SessionWindows.of_inactivity_gap_with_no_grace("5 ms"), ["A[1,1", "A[12,12", "A[100,100"]),
    ],
)
def test_final_results_are_known_by_key_and_window(windows: Any, marks: list[str]) -> None:
    nowhere = {"partition": None, "offset": None}
    counts = stream("l", **nowhere).group_by_key().windowed_by(windows).count()
    final = counts.suppress(tg.Suppressed.until_window_closes(UNBOUNDED)).to_stream()
    joined = final.join(stream("r"), tg.JoinWindows.of_time_difference_and_grace("1 s", "1 s"))
    right = ("r", {"ts": 2, "offset": 7, "b": 2})
    rows = piped(joined, right, ("l", {"ts": 1}), ("l", {"ts": 12}), ("l", {"ts": 100}))
    assert [row["row_id"] for row in rows] == [f"({mark},0@7)" for mark in marks]
    assert with_row_ids(operation(counts.to_stream().join(stream("r"), WITHIN).node)) is None


@pytest.mark.parametrize(
    "values",
    [
        [1, -3],
        ["a,b", "a[b", "é"],
        [b"\xff", b"a"],
        [True, False],
        [0.5, float("nan")],
        [Decimal("1.20")],
        [date(2026, 1, 1)],
    ],
    ids=str,
)
def test_the_text_of_a_key(values: list[Any]) -> None:
    check_text_of(pa.array(values))


def test_the_text_of_a_key_that_is_not_utf8() -> None:
    check_text_of(pa.array([b"\xff", b"a", b"a,\xfe"]).view(pa.string()))


def check_text_of(values: pa.Array) -> None:
    keys = pa.table({"k": values, "l": ["x"] * len(values)})
    bounds = pa.table({"start": [0] * len(values), "end": [10] * len(values)})
    ids = row_ids.of_results(keys, bounds).to_pylist()
    assert len(set(ids)) == len(values)
    assert all(one.endswith(",x[0,10") and set("()@:").isdisjoint(one) for one in ids)


def test_late_and_skipped_records_and_null_keys() -> None:
    joined = stream("l").left_join(stream("r"), WITHIN)
    rows = piped(
        tg.outputs(joined=joined, late=joined.late_records()),
        ("l", {"ts": 100, "offset": 1, "a": 1}),
        ("l", {"ts": 3, "offset": 2, "a": 1}),
        ("l", {"ts": 3, "offset": 3, "a": None}),
        ("l", {"ts": 3, "offset": 4, "a": 2, "k": None}),
        ("r", {"ts": 3, "offset": 2, "b": 1}),
    )
    assert Counter((row["output"], row["row_id"]) for row in rows) == Counter(
        [(name, f"(0@{n},)") for name, n in (("joined", 1), ("joined", 2), ("joined", 4), ("late", 2), ("late", 3))]
        + [("late", "(,0@2)")]
    )


@pytest.mark.parametrize("buffer", [UNBOUNDED, tg.BufferConfig.max_records(1).emit_early_when_full()], ids=str)
def test_rows_that_wait_keep_their_id(buffer: Any) -> None:
    """The last update of a key leaves, with the id of the change that made it."""
    limit = tg.Suppressed.until_time_limit("5 ms", buffer, clock="stream")
    joined = table("l").outer_join(table("r")).filter(lambda row: row["a"] != 5).suppress(limit)
    rows = piped(joined, *PAIR, ("l", {"ts": 50, "offset": 8, "a": 7, "k": "B"}))
    assert [(row["k"], row["row_id"]) for row in rows] == [("A", "(,0@7)"), ("B", "(0@8,)")]


def test_nothing_shows_ids_inside() -> None:
    one = TopologyTestDriver(stream("l").left_join(stream("r"), WITHIN))
    one.pipe_input({"k": "A", "partition": 0, **PAIR[0][1]}, "l")
    (row,) = one.read_state("join-left")
    assert list(row) == ["k", "a", "timestamp", "status", "until"]


def test_ids_begin_when_they_are_asked_for() -> None:
    """A row of a record from before has no id; asking for ids changes nothing else of a checkpoint."""
    for joined in (
        stream("l").outer_join(stream("r"), WITHIN),
        stream("l").left_join(table("r", history="1 minute"), grace="20 ms"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operators, "operation", operation)
            before = TopologyTestDriver(joined)
            before.pipe_input({"k": "A", "partition": 0, "offset": 1, "ts": 1, "a": 1}, "l")
            assert before.check_upgrade(joined).changes == ()
        one = TopologyTestDriver(joined, state=before.state())
        one.pipe_input({"k": "A", "partition": 0, "offset": 2, "ts": 2, "a": 2}, "l")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operators, "operation", operation)
            TopologyTestDriver(joined, state=one.state()).pipe_input(
                {"k": "A", "partition": 0, "offset": 3, "ts": 3, "b": 2}, "r"
            )
        one.drain()
        assert [row["row_id"] is None for row in one.read_output()] == [True, False]


# -- where they are known -------------------------------------------------------------------------------------------


def test_ids_need_partition_and_offset_of_each_record_that_makes_rows() -> None:
    nowhere = {"partition": None, "offset": None}
    ordered, loose = stream("l"), stream("r", **nowhere)
    counted = stream("l").group_by_key().count()
    known = {
        "pairs": ordered.join(stream("r"), WITHIN),
        "self": ordered.join(ordered, WITHIN, suffixes=("", "_r")),
        "any table": ordered.join(table("r", **nowhere)),
        "merged": stream("a").merge(stream("b")).join(stream("r"), WITHIN),
    }
    unknown = {
        "a side": ordered.join(loose, WITHIN),
        "the stream": loose.join(table("l")),
        "a table of two": table("l").join(table("r", **nowhere)),
        "a join before": ordered.join(loose, WITHIN).join(stream("z"), WITHIN),
        "updates": counted.to_stream().join(stream("r"), WITHIN),
        "no join": counted,
    }
    for name, topology in known.items():
        assert with_row_ids(operation(topology.node)) is not None, name
    for name, topology in unknown.items():
        assert with_row_ids(operation(topology.node)) is None, name


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.string(), pa.large_string()], ids=str)
def test_the_text_of_a_record(kind: pa.DataType) -> None:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    names = ["a,b", "(a", "a@1", "", "é/%"] if text else [0, 7, -3, 12, 2]
    ids = row_ids.of_records(pa.chunked_array([pa.array(names, kind)]), pa.chunked_array([[1, 2, -3, 4, 5]]))
    assert len(set(ids.to_pylist())) == 5
    assert all(set(one.partition("@")[0]).isdisjoint("(),@") for one in ids.to_pylist())


def test_no_two_lists_of_records_have_one_text() -> None:
    ids = ["0@1", "0@11", "1@1", "(0@1,)", "(,0@1)"]
    sides = [(left, right) for left in [None, *ids] for right in [None, *ids] if left or right]
    texts = [
        row_ids.of_sides(*(None if one is None else pa.chunked_array([[one]]) for one in both))[0].as_py()
        for both in sides
    ]
    assert len(set(texts)) == len(texts)
    assert pc.is_null(row_ids.of_sides(pa.chunked_array([[None]], pa.string()), pa.chunked_array([["0@1"]])))[0].as_py()
