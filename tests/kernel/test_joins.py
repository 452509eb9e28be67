"""Parts of joins: stretches of open records, ranges of codes, versions of rows, and progress of time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.instants import MAX_MS
from tidegate.kernel.columns.arrays import concat_tables
from tidegate.kernel.columns.row_bytes import extents, together
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.joins import matching, stream_stream
from tidegate.kernel.joins.arrivals import Progress, arrived
from tidegate.kernel.joins.matching import Records, in_order, pairs
from tidegate.kernel.joins.open_records import Closing, OpenRecords
from tidegate.kernel.joins.table_rows import Lookup
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import frames, sorted_runs
from tidegate.kernel.state.copies import Copies, Numbers, Partition, Run, distinct, places
from tidegate.kernel.state.run_merging import InTable, merged_parts
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import DictStore, Section
from tidegate.kernel.state.tables import OPEN_LEFT
from tidegate.kernel.tuning import DEFAULT, Tuning
from tidegate.plan import operation
from tidegate.spec.windows import LEFT, RIGHT, JoinWindows
from tidegate.testing import TopologyTestDriver


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


# -- windows -------------------------------------------------------------------------------------------------------


def test_when_a_record_is_closed_and_when_it_is_late() -> None:
    windows = JoinWindows.of_time_difference_and_grace("10 ms", "3 ms").after("4 ms")
    # A left record at 100 meets right ones up to 104, and waits for them to 107.
    assert windows.close_ms(LEFT, 100) == 108
    assert windows.open_from_ms(LEFT, 107) == 100
    assert windows.close_ms(RIGHT, 100) == 114
    # Late: neither earlier nor later records can join it.
    assert windows.late_before_ms(LEFT, 117) == windows.late_before_ms(RIGHT, 117) == 100
    ahead = JoinWindows.of_time_difference_with_no_grace("10 ms").before("-5 ms")
    assert (ahead.late_before_ms(LEFT, 110), ahead.late_before_ms(RIGHT, 110)) == (100, 105)


# -- open records --------------------------------------------------------------------------------------------------


def rows(times: list[int], first: int = 0) -> pa.Table:
    names = [f"k{n % 3}" for n in range(first, first + len(times))]
    hashes = [n % 3 << 40 for n in range(first, first + len(times))]
    return pa.table({"k:k": names, "v:n": list(range(first, first + len(times))), "ts": times, "h": hashes})


def kept(preserved: bool = True, **sizes: int) -> OpenRecords:
    return OpenRecords.of(State(DictStore(tuning=Tuning(**sizes)), {}, 1), LEFT, preserved)


def copied(table: pa.Table, store: DictStore) -> Run:
    run = Run.of([table], extents(table), table.num_rows, store)
    assert run is not None
    return run


def test_runs_are_merged_as_in_a_binary_counter() -> None:
    held = kept()
    runs = []
    for n in range(8):
        assert held.add(0, rows([n, n + 1], 2 * n)) == 2 * n
        runs.append(held.index[0].segments)
    assert runs == [1, 1, 2, 1, 2, 2, 3, 1]
    assert sorted(held.read(0)["v:n"].to_pylist()) == list(range(16))
    assert (held.index[0].due, held.index[0].closes, held.index.totals().rows) == (0, 8, 16)


def test_few_runs_are_left_whatever_their_sizes() -> None:
    held = kept(preserved=False)
    for count in range(60, 0, -1):
        held.add(0, rows([count] * count))
    assert held.index[0].segments <= (60 * 61 // 2).bit_length()


def test_a_column_that_a_run_had_not_yet_is_null_in_it() -> None:
    held = kept(preserved=False)
    held.add(0, rows([1, 2]))
    held.add(0, rows([3, 4], 2).append_column("v:new", pa.array(["c", "d"])))
    held.add(0, rows([5, 6], 4))
    held.add(0, rows([7, 8], 6))
    assert held.index[0].segments == 1
    found = held.read(0).sort_by("ts")
    assert found["v:n"].to_pylist() == list(range(8))
    assert found["v:new"].to_pylist() == [None, None, "c", "d", None, None, None, None]


def test_which_stretches_have_open_records_at_a_time() -> None:
    held = kept(preserved=False)
    assert held.first_open is None
    held.add(0, rows([5, 3]))
    held.add(0, rows([4], 2))
    held.add(10, rows([12, 15]))
    assert [held.between(*one) for one in ((6, 11), (5, 11), (6, 12), (0, 20))] == [[], [0], [10], [0, 10]]
    assert [held.first_behind(0, time) for time in (2, 3, 4)] == [3, 4, 5]
    # A record closes 2 past its timestamp.
    assert [held.due(up_to, 2) for up_to in (4, 5, 13, 14, MAX_MS)] == [[], [0], [0], [0, 10], [0, 10]]
    held.opened_from(0, 5)
    held.opened_from(0, 4)
    assert (held.first_open, held.due(6, 2), held.due(7, 2)) == (5, [], [0])


MERGED = st.lists(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4), st.sampled_from(["", "a", "long " * 9, None]))),
    min_size=1,
    max_size=4,
).filter(any)


@given(runs=MERGED, most=st.sampled_from([1, 2, 5, 100]), data=st.data())
def test_runs_merged_in_parts_are_as_sorted_at_once(runs: list[list[Any]], most: int, data: Any) -> None:
    """Order by hash and time, ties run after run; with copies of some runs, and a column that some runs lack."""
    names = ("h", "ts", "v:text")
    tables, sources = [], []
    for run in runs:
        columns = {name: [record[n] for record in run] for n, name in enumerate(names)}
        # Hashes whose upper halves are equal stay together as well.
        columns["h"] = [hash_ << 31 for hash_ in columns["h"]]
        table = pa.table(columns, schema=pa.schema([("h", pa.int64()), ("ts", pa.int64()), ("v:text", pa.string())]))
        table = table if data.draw(st.booleans()) else table.drop_columns(["v:text"])
        tables.append(table)
        sorted_run = InTable.of(table, ("h", "ts"))
        sources.append(copied(sorted_run.rows, DictStore()) if data.draw(st.booleans()) else sorted_run)
    whole = concat_tables(tables)
    whole = whole.take(pa.array(np.lexsort((whole["ts"].to_numpy(), whole["h"].to_numpy()))))
    parts = list(merged_parts(sources, most, ("h", "ts")))
    assert concat_tables(parts).select(whole.schema.names).to_pylist() == whole.to_pylist()
    assert all(part.num_rows for part in parts)
    ends = [(part["h"][0].as_py() >> 32, part["h"][-1].as_py() >> 32) for part in parts]
    assert all(one[1] < other[0] for one, other in pairwise(ends))
    # Copied part by part, a run has the column formats of the whole table.
    columns = together([source.columns for source in sources])
    assert columns == extents(whole.select([name for (name,) in columns]))
    run = Run.of(parts, columns, whole.num_rows, DictStore())
    assert run is not None
    back = concat_tables(list(run.blocks()))
    assert back.equals(whole.select(back.schema.names).cast(back.schema))
    assert len(back.schema.names) == len(columns)


def test_a_part_has_about_as_many_records_as_asked_for() -> None:
    sources = [InTable(pa.table({"h": np.arange(at, 4_000, 4) << 32, "ts": np.arange(1_000)})) for at in range(4)]
    sizes = [part.num_rows for part in merged_parts(list(sources), 500, ("h", "ts"))]
    assert sum(sizes) == 4_000
    assert (min(sizes), max(sizes)) == (500, 500)


def test_a_merged_run_is_stored_in_parts_and_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers: the worker with the copy, a new worker, and a worker that has no room for copies."""
    monkeypatch.setattr(sorted_runs, "COPIES", Copies())
    store = DictStore(tuning=Tuning(block_rows=10))
    held = OpenRecords.of(State(store, {}, 1), LEFT, preserved=True)
    for n in range(4):
        held.add(0, rows(list(range(20)), 20 * n))
    assert held.index[0].segments == 1
    _, tables = frames.decode(frames.SEGMENT, Section(store, OPEN_LEFT).read(0, 0))
    assert len(tables) == 3  # `rows` has three hashes, and records of one stay together
    for room in (1 << 20, 1 << 20, 0):
        assert sorted(held.read(0)["v:n"].to_pylist()) == list(range(80))
        assert len(found_in(held, 1 << 40)) == 27
        monkeypatch.setattr(sorted_runs, "COPIES", Copies())
        store.tuning = Tuning(block_rows=10, copy_bytes=room)


@pytest.mark.parametrize("fails_at", [0, 1, 3])
def test_what_finds_no_room_beside_the_worker_is_stored_all_the_same(fails_at: int) -> None:
    class Full(DictStore):
        def beside(self, parts: Any) -> Any:
            for _ in zip(range(fails_at), parts, strict=False):
                pass

    store = Full(tuning=Tuning(block_rows=2))
    held = OpenRecords.of(State(store, {}, 1), LEFT, preserved=True)
    held.add(0, rows([5, 4, 3, 2, 1]))
    assert sorted(held.read(0)["ts"].to_pylist()) == [1, 2, 3, 4, 5]


def test_large_runs_are_not_merged() -> None:
    held = kept(preserved=False, merged_rows=2)
    for n in range(5):
        held.add(0, rows([n, n], 2 * n))
    assert sorted(held.read(0)["v:n"].to_pylist()) == list(range(10))
    assert held.index[0].segments > 1


@pytest.mark.parametrize("most", [3, 1_000_000])
def test_what_has_joined_follows_its_record_through_merges(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held, joined = kept(merged_rows=most), set()
    for n in range(11):
        first = held.add(0, rows([50 - n, n], 2 * n))
        if n % 2 == 0:
            held.mark(0, ints(first))
            joined |= {2 * n}
        if n == 7:
            held.mark(0, ints(3, 2, 0))  # one of them for the second time
            joined |= {3, 2}
    held.mark(0, ints(*sorted(joined)))
    found = held.read(0)
    assert set(found.filter(pa.array(held.joined(0, found["n"].to_numpy())))["v:n"].to_pylist()) == joined
    monkeypatch.setattr(sorted_runs, "COPIES", Copies())  # another worker reads the lists
    assert held.joined(0, ints(0, 1, 3, 21, 99)).tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("batches", [1, 4, 5, 8])
def test_a_stretch_is_dropped_with_all_that_it_has(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged runs and lists leave no entries, neither in the store nor beside the worker."""
    monkeypatch.setattr(sorted_runs, "COPIES", beside := Copies())
    state = State(store := DictStore(), {}, 1)
    held = OpenRecords.of(state, RIGHT, preserved=True)
    for n in range(batches):
        first = held.add(0, rows([n]))
        held.mark(0, ints(first))
    assert beside.held
    held.forget(0)
    assert (store.log, beside.held) == ({}, {})
    assert held.first_open is None


class Counting(DictStore):
    read_bytes = 0

    def read(self, window: int, segment: int) -> bytes:
        found = super().read(window, segment)
        self.read_bytes += len(found)
        return found


def found_in(held: OpenRecords, *hashes: int) -> list[int]:
    return sorted(n for part in held.find(0, ints(*hashes)) for n in part["v:n"].to_pylist())


def closing_in(held: OpenRecords, closing: Closing, *besides: int) -> list[int]:
    parts = held.closing(0, closing, ints(*besides) if besides else None)
    return sorted(n for part in parts for n in part["v:n"].to_pylist())


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_records_are_found_with_copies_and_without(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hash, or by closing time; a new worker and one without room find the same records."""
    monkeypatch.setattr(sorted_runs, "COPIES", Copies())
    state = State(DictStore(tuning=Tuning(copy_bytes=room)), {}, 1)
    held = OpenRecords.of(state, LEFT, preserved=True)
    shift = 1 << 40
    for n, times in enumerate([[10, 20, 30], [15, 25], [5]]):
        held.add(0, pa.table({"k:k": [f"k{n}"] * len(times), "v:n": times, "ts": times, "h": [n * shift] * len(times)}))
    for _ in range(2):
        assert found_in(held, 0, 2 * shift) == [5, 10, 20, 30]
        assert found_in(held, 7 * shift) == found_in(held) == []
        # Records that are found by these hashes are left out, and so are records with the same upper half only.
        for closing, some in ((Closing(15, 26, 1), [15, 20, 25]), (Closing(15, 99, 1), [15, 20, 25, 30])):
            assert closing_in(held, closing) == closing_in(held, closing, 2 * shift) == some
            assert closing_in(held, closing, shift, 2 * shift) == [n for n in some if n % 10 == 0]
            assert closing_in(held, closing, 1) == [n for n in some if n % 10]
        monkeypatch.setattr(sorted_runs, "COPIES", Copies())


def test_a_worker_reads_what_it_has_no_copy_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counting()
    held = OpenRecords.of(State(store, {}, 1), LEFT, preserved=False)
    monkeypatch.setattr(sorted_runs, "COPIES", Copies())
    held.add(0, rows(list(range(5_000))))
    costs = []
    for worker in ("that wrote it", "another", "another"):
        if worker == "another" and len(costs) == 1:
            monkeypatch.setattr(sorted_runs, "COPIES", Copies())
        store.read_bytes = 0
        assert found_in(held, 1 << 40) == list(range(1, 5_000, 3))
        costs.append(store.read_bytes)
    assert costs[0] == costs[2] < 300 < costs[1]


def test_of_columns_without_a_length_the_run_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "COPIES", held_copies := Copies())
    held = kept(preserved=False)
    lists = pa.array([[1], [], None, [2, 3]], pa.list_(pa.int64()))
    held.add(0, rows([1, 2, 3, 4]).append_column("v:l", lists))
    assert held_copies.held == {}
    assert next(held.find(0, ints(1 << 40)))["v:l"].to_pylist() == [[]]
    assert next(held.closing(0, Closing(2, 4, 0), None))["v:l"].to_pylist() == [[2, 3], None]


def test_copies_that_nobody_asks_for_make_room() -> None:
    now = [0.0]
    many, sizes = Copies(clock=lambda: now[0]), Tuning(copy_bytes=20, copy_seconds=2)
    few, one, other = Numbers.of(ints(1_000, 2_000)), Partition("one", 0), Partition("other", 0)
    assert few.memory == 8
    many.put(one, "a", few, sizes)
    many.put(one, "b", few, sizes)
    many.put(other, "c", few, sizes)
    assert list(many.held) == ["a", "b"]  # both are in use
    now[0] = 1.9
    assert not many.room(5, sizes)
    assert many.get("a") is few
    now[0] = 2.0
    many.put(other, "c", few, sizes)
    assert list(many.held) == ["a", "c"]
    many.drop("a")
    many.drop("a")
    assert list(many.used) == ["c"]
    assert many.by_partition == {other: {"c"}}


@pytest.mark.parametrize("then", ["a", "b", None])
def test_a_copy_that_grows_as_it_is_used_takes_more_room(then: str | None) -> None:
    many, sizes = Copies(), Tuning(copy_bytes=60)
    one, other = Numbers.of(ints(1_000, 2_000)), Numbers.of(ints(1_000, 2_000))
    for name, numbers in (("a", one), ("b", other)):
        many.put(Partition("task", 0), name, numbers, sizes)
    assert many.room(40, sizes)
    assert many.get("a") is one
    one.few = np.arange(4, dtype=np.uint32)  # as a run takes more once its records are in order by time
    if then is not None:
        many.get(then)
    assert many.room(36, sizes)
    assert not many.room(37, sizes)


def test_copies_of_a_query_that_has_ended_are_dropped() -> None:
    now = [0.0]
    many, sizes = Copies(clock=lambda: now[0]), Tuning()
    few = Numbers.of(ints(1_000, 2_000))
    for at, name in enumerate("abc"):
        now[0] = float(at)
        many.put(Partition("task", at), name, few, sizes)
    now[0] = 61.0
    assert many.get("a") is few
    many.drop_unused(60)
    assert sorted(many.held) == ["a", "c"]
    assert many.by_partition == {Partition("task", 0): {"a"}, Partition("task", 2): {"c"}}
    now[0] = 63.0
    many.drop_unused(60)
    assert list(many.held) == ["a"]  # used two seconds ago


def test_copies_of_runs_that_another_worker_replaced_are_dropped() -> None:
    many, sizes = Copies(), Tuning(copy_bytes=50)
    few, one, other = Numbers.of(ints(1_000, 2_000)), Partition("task", 0), Partition("task", 1)
    many.put(one, "a", few, sizes)
    many.put(one, "b", few, sizes)
    many.put(other, "c", few, sizes)
    many.keep_only(one, {"b", "never copied"})
    assert sorted(many.held) == ["b", "c"]
    many.put(other, "b", few, sizes)  # the same rows, in a partition of another task
    many.keep_only(one, set())
    many.keep_only(other, {"b"})
    assert sorted(many.held) == sorted(many.used) == ["b"]
    assert many.by_partition == {other: {"b"}}


@pytest.mark.parametrize("numbers", [[0], [7], [8], [0, 1, 2, 3], [5, 100_000], list(range(1, 400, 3))])
def test_numbers_are_the_same_as_bits_and_in_order(numbers: list[int]) -> None:
    made = Numbers.of(ints(*numbers))
    assert made.all().tolist() == numbers
    asked = ints(*range(max(numbers) + 20)) if max(numbers) < 1_000 else ints(4, 5, 99_999, 100_000, 2**33)
    assert asked[made.have(asked)].tolist() == numbers


@given(hashes=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3).map(lambda n: n << 32), max_size=60))
def test_records_of_hashes_in_a_run_of_any_size(hashes: list[int]) -> None:
    stored = np.sort(np.array(hashes, np.int64))
    run = copied(pa.table({"h": stored, "ts": np.arange(len(stored))}), DictStore(tuning=Tuning(range_records=2)))
    for asked in ([], hashes[::2], [-(2**63), -(1 << 32), 0, 5, 2**63 - 1]):
        wanted = distinct(np.sort(np.array(asked, np.int64)))
        found = run.with_hashes(wanted).tolist()
        assert found == [n for n, one in enumerate(stored.tolist()) if one >> 32 in {w >> 32 for w in asked}]


def test_the_records_of_a_run_that_close() -> None:
    run = copied(rows([7, 3, 9, 3]), DictStore())
    before = run.memory
    assert run.closing(12, 16, 9).tolist() == [0]
    assert run.closing(11, 12, 9).tolist() == [1, 3]
    assert run.closing(-1, 2**63 - 1, 2**63 - 2).tolist() == [0, 1, 2, 3]
    assert run.memory == before + 12 * 4


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_a_join_takes_some_hashes_at_a_time(monkeypatch: pytest.MonkeyPatch, how: Any, itself: bool) -> None:
    """With the rows, counts and later batches of a join that takes all records of a batch at once."""
    passes: list[int] = []

    def counted(layout: Layout, batch: Any) -> Any:
        found = arrived(layout, batch)
        passes.append(sum(map(len, found)))
        return found

    monkeypatch.setattr(stream_stream, "arrived", counted)
    rows, late = _joined_in_tasks(how, itself, DEFAULT)
    whole = passes.copy()
    passes.clear()
    assert _joined_in_tasks(how, itself, Tuning(divided_rows=20, joined_rows=60)) == (rows, late)
    assert len(rows) > 500
    assert late > 0
    assert sum(passes) == sum(whole)
    assert max(passes) < max(whole) / 3


def _joined_in_tasks(how: Any, itself: bool, tuning: Tuning) -> tuple[list[str], int]:
    """The rows and the number of late records of a join with two tasks, over four batches."""
    left, right = (
        tg.stream(name, key="k", timestamp="ts", partition="p", offset="o", stream_time="max") for name in ("l", "r")
    )
    windows = tg.JoinWindows.of_time_difference_and_grace("20 ms", "10 ms")
    suffixes = ("_1", "_2") if itself else None
    op = operation(left.join(left if itself else right, windows, how, suffixes=suffixes).node)
    names = ("l",) if itself else ("l", "r")
    numbers = ("ts", "partition", "offset")
    schemas = [
        pa.schema([("k:k", pa.string()), *((name, pa.int64()) for name in (f"v:{value}", *numbers))]) for value in names
    ]
    layout = Layout.of_join(op, schemas, sorts=False, tuning=tuning)
    stores, rng = [DictStore(tuning=tuning) for _ in range(2)], np.random.default_rng(7)
    found, late, offset = [], 0, 0
    for batch in range(4):
        blobs: list[list[bytes]] = [[], []]
        for side, schema in enumerate(schemas):
            # The blobs of the second map task are too small to be divided. The last batch closes all.
            for partition, count in ((0, 500), (1, 9)) if batch < 3 else ((0, 1),):
                keys = [f"k{n}" if n else None for n in rng.integers(0, 60, count).tolist()]
                times = 100 * batch + np.arange(count) // 5 - rng.integers(0, 60, count) + (batch == 3) * 10_000
                columns = [keys, np.arange(count), np.maximum(times, 0), np.full(count, partition)]
                records = pa.record_batch([*columns, offset + np.arange(count)], schema=schema)
                offset += count
                for task, blob in pack(layout.of_side(side, schema), [records], [0, 1]):
                    blobs[task].append(blob)
        for task, store in enumerate(stores):
            step = Stage(layout, tasks=2).step(store, blobs[task])
            found += [str(row) for row in step.rows.to_pylist()]
            late += step.metrics["late"]
    return sorted(found), late


@pytest.mark.parametrize("joined_first", [False, True])
def test_what_closes_leaves_some_rows_at_a_time(joined_first: bool) -> None:
    """At most some rows per part, however many earlier records close at once or wait for the last record."""
    left, right = (tg.stream(name, key="k", timestamp="ts", stream_time="max") for name in ("left", "right"))
    windows = tg.JoinWindows.of_time_difference_and_grace("10 ms", "1 ms")
    op = operation(left.left_join(right, windows).node)
    schemas = [pa.schema([("k:k", pa.string()), (f"v:{name}", pa.int64()), ("ts", pa.int64())]) for name in "lr"]
    layout = Layout.of_join(op, schemas, sorts=False, tuning=Tuning(block_rows=10, pairs=10))
    store = DictStore(tuning=layout.tuning)

    def step(side: int, keys: list[str], ts: int) -> list[pa.Table]:
        rows = pa.record_batch([keys, list(range(len(keys))), [ts] * len(keys)], schema=schemas[side])
        blobs = [blob for _, blob in pack(layout.of_side(side, schemas[side]), [rows], [0])]
        return [part for part in Stage(layout).begin(store, blobs).parts if part.num_rows]

    keys = [f"k{n}" for n in range(100)]
    assert step(LEFT, keys, 0) == []
    if joined_first:
        assert sum(part.num_rows for part in step(RIGHT, keys[:30], 5)) == 30
    parts = step(RIGHT, ["k50"], 1_000)
    assert max(part.num_rows for part in parts) < 20  # two parts that are not full become one
    left_alone = [key for part in parts for key in part["k"].to_pylist()]
    assert sorted(left_alone) == sorted(keys[30:] if joined_first else keys)


def test_stretches_span_a_part_of_the_time_for_which_a_record_is_open() -> None:
    assert kept().stretches(ints(0, 9, 10, 25), 40).tolist() == [0, 0, 10, 20]
    assert kept(open_stretches=2).stretches(ints(0, 9, 10, 25), 40).tolist() == [0, 0, 0, 20]
    assert kept().stretches(ints(0, 1, 7), 0).tolist() == [0, 1, 7]


def test_records_of_a_batch_lie_in_few_stretches_however_far_they_span() -> None:
    """Twice as wide as long as there are too many: a record that is far from all others has a stretch of its own."""
    assert kept(batch_stretches=3).stretches(ints(0, 1, 7), 0).tolist() == [0, 1, 7]
    assert kept(batch_stretches=3).stretches(ints(0, 1, 2, 9, 10**15), 0).tolist() == [0, 0, 0, 8, 10**15]
    assert kept(batch_stretches=1).stretches(ints(5, 2**62), 40).tolist() == [0, 0]
    many = 10 * np.arange(6_400)
    assert len(np.unique(kept().stretches(many, 40))) == 100


def test_no_stretch_begins_before_the_last_record_of_another_however_wide_it_is() -> None:
    held = kept(batch_stretches=1)
    for times in ([5, 130], [70, 71], [128, 300], [301], [70, 500], [420], [290, 490]):
        for start in np.unique(starts := held.stretches(ints(*times), 40)).tolist():
            mine = pa.array(ints(*times)[starts == start])
            held.add(start, pa.table({"h": pa.array(np.zeros(len(mine), np.int64)), "ts": mine}))
        bounds = [(start, log.closes) for start, log in held.index.items()]
        assert all(one[1] < two[0] for one, two in pairwise(bounds))


def test_records_of_one_timestamp_leave_in_order_of_arrival_however_wide_their_batches_are() -> None:
    stream, prices = tg.stream("s", key="k", timestamp="ts"), tg.table("t", key="k", timestamp="ts", history="1 day")
    driver = TopologyTestDriver(stream.left_join(prices, grace="40 ms"), tuning=Tuning(batch_stretches=1))
    driver.pipe_input({"k": "A", "b": 0, "ts": 0}, "t")
    for a, times in ((1, [128]), (2, [128, 100]), (3, [101, 128])):
        driver.pipe_batch([{"k": "A", "a": a, "ts": ts} for ts in times], "s")
    driver.pipe_input({"k": "B", "a": 4, "ts": 500}, "s")
    found = [(row["a"], row["timestamp"]) for row in driver.read_output()]
    assert found == [(2, 100), (3, 101), (1, 128), (2, 128), (3, 128)]


@pytest.mark.parametrize("window", ["0 ms", "1 second"])
def test_a_side_that_is_far_ahead_of_a_join_with_short_windows_has_few_stretches(window: str) -> None:
    """Each was a stretch of its own: 8,000 records of 40 minutes made 16,000 entries, and a batch took seconds."""
    left, right = (tg.stream(name, key="k", timestamp="ts", idle_after="1 day") for name in ("left", "right"))
    driver = TopologyTestDriver(left.left_join(right, tg.JoinWindows.of_time_difference_with_no_grace(window)))
    driver.pipe_input({"k": "k0", "b": 0, "ts": 0}, "right")
    for batch in range(3):
        ahead = range(1_000 * batch, 1_000 * (batch + 1))
        driver.pipe_batch([{"k": f"k{n}", "a": n, "ts": 1_500 * n} for n in ahead], "left")
    assert len(driver.state().stores[0].log) < 3 * 2 * 20
    for n in (500, 2_990):
        driver.pipe_input({"k": f"k{n}", "b": n, "ts": 1_500 * n}, "right")
    driver.pipe_input({"k": "none", "b": -1, "ts": 10_000_000}, "right")
    driver.pipe_input({"k": "none", "a": -1, "ts": 10_000_000}, "left")
    found = sorted((row["a"], row["b"]) for row in driver.read_output())
    joined = {0: 0, 500: 500, 2_990: 2_990}
    assert found == [(-1, -1), *((n, joined.get(n)) for n in range(3_000))]


def test_places_of_numbers_among_others() -> None:
    stored = ints(-(2**63), -5, -5, 0, 3, 3, 3, 2**63 - 1)
    assert places(stored, ints(-(2**63), -5, 1, 3, 2**63 - 1)).tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert places(stored, ints(-6, 4)).tolist() == []
    assert places(stored, ints()).tolist() == []
    assert places(ints(), ints(3)).tolist() == []
    assert distinct(ints(-1, -1, 0, 3, 3)).tolist() == [-1, 0, 3]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_a_batch_is_matched_with_records_of_its_keys_not_with_all_that_are_open(
    how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    met_: list[int] = []

    def counting(one: Records, other: Records, *reach: int) -> Any:
        met_.append(len(one.times) + len(other.times))
        return pairs(one, other, *reach)

    monkeypatch.setattr(stream_stream, "pairs", counting)
    counts = []
    for many in (50, 5_000):
        left, right = (tg.stream(name, key="k", timestamp="ts", stream_time="max") for name in ("left", "right"))
        windows = tg.JoinWindows.of_time_difference_and_grace("1 hour", "1 minute")
        driver = TopologyTestDriver(left.join(right, windows, how))
        for name, value in (("left", "a"), ("right", "b")):
            driver.pipe_batch([{"k": f"k{n}", value: n, "ts": n} for n in range(many)], name)
        driver.read_output()
        met_.clear()
        driver.pipe_batch([{"k": "k7", "a": -1, "ts": 100}], "left")
        assert [(row["a"], row["b"]) for row in driver.read_output()] == [(-1, 7)]
        counts.append(sum(met_))
    assert counts[0] == counts[1] <= 6


def test_a_record_that_closes_leaves_without_the_rest_of_its_stretch() -> None:
    """The others of the stretch keep their state: whether they have joined, before and after."""
    left, right = (tg.stream(name, key="k", timestamp="ts", stream_time="max") for name in ("left", "right"))
    windows = tg.JoinWindows.of_time_difference_with_no_grace("100 ms")
    driver = TopologyTestDriver(left.join(right, windows, "left"), tuning=Tuning(open_stretches=1))
    driver.pipe_batch(
        [{"k": k, "a": n, "ts": ts} for n, (k, ts) in enumerate([("x", 0), ("y", 10), ("z", 20)])], "left"
    )
    driver.pipe_batch([{"k": "y", "b": 1, "ts": 30}], "right")
    driver.pipe_batch([{"k": "q", "b": 2, "ts": 105}], "right")
    driver.pipe_batch([{"k": "q", "b": 3, "ts": 115}], "right")
    driver.pipe_batch([{"k": "q", "b": 4, "ts": 125}], "right")
    found = [(row["k"], row["b"]) for row in driver.read_output()]
    assert found == [("y", 1), ("x", None), ("z", None)]


# -- ranges of codes -------------------------------------------------------------------------------------------------


def records(keys: list[str], times: list[int], arrived: list[int], hashes: list[int] | None = None) -> Records:
    made = [sum(map(ord, key)) for key in keys] if hashes is None else hashes
    count = len(keys)
    return Records(
        pa.table({"k:k": pa.array(keys, pa.string())}),
        ("k:k",),
        ints(*made) << 40,
        ints(*times),
        ints(*arrived),
        ints(*times),
        np.ones(count, bool),
        100,
    )


def in_order_of_codes(one: Records) -> tuple[Records, Any]:
    order = in_order(one.hashes, one.times)
    columns = {name: getattr(one, name)[order] for name in ("hashes", "times", "arrived", "closing_times", "keyed")}
    return replace(one, rows=one.rows.take(pa.array(order)), **columns), order


def met(one: Records, other: Records, back: int, ahead: int, most: int = DEFAULT.pairs) -> set[tuple[int, int]]:
    ordered, order = in_order_of_codes(other)
    parts = pairs(one, ordered, back, ahead, most)
    found = [(int(a), int(order[b])) for rows, partners in parts for a, b in zip(rows, partners, strict=True)]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("most", [1, 3, 150_000])
def test_records_meet_within_reach_whichever_came_first(most: int) -> None:
    other = records(["a", "a", "b", "a"], [10, 15, 12, 30], [0, 1, 2, 3])
    one = records(["a", "b", "a"], [12, 12, 12], [-2, 4, 5])
    assert met(one, other, 2, 3, most) == {(0, 0), (0, 1), (1, 2), (2, 0), (2, 1)}


def test_the_one_that_came_first_must_be_open_when_the_other_comes() -> None:
    # Both close at 110. The left one sees 109, and then 110; the right one comes in between.
    other = replace(records(["a"], [10], [5]), closing_times=ints(109))
    assert met(replace(records(["a"], [10], [6]), closing_times=ints(109)), other, 0, 0) == {(0, 0)}
    assert met(replace(records(["a"], [10], [6]), closing_times=ints(110)), other, 0, 0) == set()
    # The stream time that the earlier record saw does not matter, nor that of a record of an earlier batch.
    for before in (4, -1):
        assert met(replace(records(["a"], [10], [before]), closing_times=ints(999)), other, 0, 0) == {(0, 0)}
        assert met(records(["a"], [10], [before]), replace(other, closing_times=ints(110)), 0, 0) == set()


def test_a_record_without_a_key_meets_nobody_and_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = counted(monkeypatch)
    none = replace(records(["a"] * 100, [10] * 100, list(range(100))), keyed=np.zeros(100, bool))
    assert met(none, records(["a"] * 100, [10] * 100, list(range(100, 200))), 0, 0) == set()
    assert looked_at == []
    assert met(records(["a"], [10], [200]), none, 0, 0) == set()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of pairs that are compared, per part."""
    looked_at: list[int] = []
    each = matching._each

    def counting(*ranges: Any) -> Any:
        for mine, theirs in each(*ranges):
            looked_at.append(len(mine))
            yield mine, theirs

    monkeypatch.setattr(matching, "_each", counting)
    return looked_at


@pytest.mark.parametrize(
    ("at", "saw", "meets", "checked"),
    [
        (13, 109, True, False),  # 96 ms late: whatever is within reach is open
        (12, 109, True, True),  # 97 ms late, as late as the grace of a record that is 3 ms older
        (13, 110, False, True),  # the record has closed at 110
        (MAX_MS, MAX_MS, False, True),  # the last instant: the record closes at it, not past it
    ],
)
@pytest.mark.parametrize("one_comes_first", [True, False])
def test_pairs_are_checked_one_by_one_only_if_a_record_comes_late(
    at: int, saw: int, meets: bool, checked: bool, one_comes_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, open_pairs = [], matching._open
    monkeypatch.setattr(matching, "_open", lambda *given_: [calls.append(1), open_pairs(*given_)][1])
    first = replace(records(["a"], [10 if at < MAX_MS else MAX_MS], [0]), closing_times=ints(0))
    later = replace(records(["a"], [at], [1]), closing_times=ints(saw))
    found = met(first, later, 0, 3) if one_comes_first else met(later, first, 3, 0)
    assert (bool(found), bool(calls)) == (meets, checked)


def test_of_a_frequent_key_only_records_within_reach_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = counted(monkeypatch)
    many = records(["a"] * 5_000, list(range(5_000)), list(range(5_000)))
    assert len(met(records(["a"], [500], [-1]), many, 2, 3)) == sum(looked_at) == 6


def test_keys_of_one_hash_are_told_apart() -> None:
    other = records(["a", "b"], [10, 10], [0, 1], hashes=[7, 7])
    assert met(records(["b"], [10], [2], hashes=[7]), other, 0, 0) == {(0, 1)}


def test_keys_of_two_columns_and_one_hash_are_told_apart() -> None:
    def with_second(made: Records, second: list[int]) -> Records:
        return replace(made, rows=made.rows.append_column("k:l", pa.array(second)), keys=("k:k", "k:l"))

    def other(keys: list[str], second: list[int]) -> Records:
        return with_second(records(keys, [10, 11], [0, 1], hashes=[7, 7]), second)

    one = with_second(records(["a"], [10], [2], hashes=[7]), [0])
    assert met(one, other(["a", "b"], [0, 0]), 0, 5) == {(0, 0)}
    assert met(one, other(["a", "a"], [0, 1]), 0, 5) == {(0, 0)}
    assert met(one, other(["b", "a"], [0, 0]), 0, 5) == {(0, 1)}
    assert met(one, other(["a", "a"], [0, 0]), 0, 5) == {(0, 0), (0, 1)}


_HASHES = {"a": 1, "b": 1, "c": 2, None: 1}
_RECORDS = st.lists(
    st.tuples(st.sampled_from(list(_HASHES)), st.sampled_from([0, 0, 0, 1]), st.integers(0, 9), st.integers(0, 120)),
    max_size=12,
)


@given(st.randoms(use_true_random=False), _RECORDS, _RECORDS, st.integers(0, 4), st.integers(0, 4), st.integers(1, 9))
def test_the_pairs_of_keys_with_equal_hashes_are_those_of_two_loops(
    random: Any, ones: list[Any], others: list[Any], back: int, ahead: int, most: int
) -> None:
    """Keys of two columns; the hash says nothing about the second column, and "a", "b" and no key have one hash."""
    order = list(range(-5, len(ones) + len(others) - 5))
    random.shuffle(order)

    def side(given_: list[Any], arrived: list[int]) -> Records:
        keys, seconds, times, seen = [list(column) for column in zip(*given_, strict=True)] or [[], [], [], []]
        made = records(keys, times, arrived, [_HASHES[key] for key in keys])
        rows = made.rows.append_column("k:l", pa.array(seconds, pa.int64()))
        keyed = np.array([key is not None for key in keys], bool)
        return replace(made, rows=rows, keys=("k:k", "k:l"), closing_times=ints(*seen), keyed=keyed)

    def meet(one: tuple[Any, int], other: tuple[Any, int]) -> bool:
        (key, second, at, saw), place = one
        (its_key, its_second, its_at, it_saw), its_place = other
        if key is None or (key, second) != (its_key, its_second) or not -back <= its_at - at <= ahead:
            return False
        return saw < its_at + 100 if place > its_place else it_saw < at + 100

    places = order[: len(ones)], order[len(ones) :]
    found = met(side(ones, places[0]), side(others, places[1]), back, ahead, most)
    both = [list(enumerate(zip(*each, strict=True))) for each in ((ones, places[0]), (others, places[1]))]
    assert found == {(a, b) for (a, one), (b, other) in product(*both) if meet(one, other)}


@pytest.mark.parametrize("far", [2**33, 2**50])
def test_times_that_lie_far_apart_are_told_apart_to_the_millisecond(far: int) -> None:
    other = records(["a", "a", "a"], [0, far, far + 1], [1, 2, 3])
    one = replace(records(["a"], [far], [0]), closing_times=ints(0), reach_ms=2**60)
    other = replace(other, closing_times=ints(0, 0, 0))
    assert met(one, other, 0, 0) == {(0, 1)}
    assert met(one, other, 0, 1) == {(0, 1), (0, 2)}


@given(
    st.lists(
        st.tuples(st.integers(-2, 2).map(lambda n: n << 31), st.sampled_from([0, 1, 2, 2**33, 2**50])), max_size=40
    )
)
def test_the_order_of_codes_is_that_of_upper_halves_and_times(given_: list[tuple[int, int]]) -> None:
    hashes, times = (np.array([one[n] for one in given_], np.int64) for n in (0, 1))
    wanted = sorted(range(len(given_)), key=lambda n: (hashes[n] >> 32, times[n]))
    assert in_order(hashes, times).tolist() == wanted


# -- versions and time -----------------------------------------------------------------------------------------------


def test_a_lookup_sees_what_came_before_its_place() -> None:
    #                     key 0            key 1
    codes, times = ints(0, 0, 0, 1), ints(10, 20, 15, 5)
    places = ints(-1, 4, 6, 2)
    lookup = Lookup.by(codes, times, places)
    wanted = [(0, 30, 9), (0, 30, 5), (0, 19, 9), (0, 19, 6), (0, 9, 9), (1, 30, 2), (1, 30, 3), (2, 30, 9)]
    found = lookup.last(*(ints(*column) for column in zip(*wanted, strict=True)))
    assert found.tolist() == [1, 1, 2, 0, -1, -1, 3, -1]


SMALL_NUMBERS = st.integers(0, 5)


@given(
    versions=st.lists(st.tuples(SMALL_NUMBERS, SMALL_NUMBERS, st.integers(-1, 9)), max_size=20),
    wanted=st.lists(st.tuples(SMALL_NUMBERS, SMALL_NUMBERS, st.integers(0, 9)), max_size=20),
)
def test_a_lookup_finds_the_last_version_up_to_its_time_and_before_its_place(
    versions: list[tuple[int, int, int]], wanted: list[tuple[int, int, int]]
) -> None:
    def last(key: int, up_to: int, before: int) -> int:
        some = [n for n, (code, time, place) in enumerate(versions) if code == key and time <= up_to and place < before]
        return max(some, key=lambda n: (versions[n][1], versions[n][2], n), default=-1)

    lookup = Lookup.by(*np.array(versions, np.int64).reshape(-1, 3).T)
    found = lookup.last(*np.array(wanted, np.int64).reshape(-1, 3).T)
    assert found.tolist() == [last(*one) for one in wanted]


def test_of_versions_at_one_instant_the_one_that_came_last_counts() -> None:
    lookup = Lookup.by(ints(0, 0, 0), ints(10, 10, 10), ints(-1, -1, 3))
    assert lookup.last(ints(0, 0), ints(10, 10), ints(3, 4)).tolist() == [1, 2]


def test_time_of_an_input_within_a_batch() -> None:
    progress = Progress(10, ints(2, 5), ints(12, 20))
    assert progress.at(ints(0, 2, 4, 5, 9)).tolist() == [10, 12, 12, 20, 20]
    places, reached = progress.reaches(ints(9, 10, 11, 12, 13, 20, 21))
    assert places[:6].tolist() == [-1, -1, 2, 2, 5, 5]
    assert reached.tolist() == [True] * 6 + [False]
    assert progress.after == 20
    still = Progress(10, ints(), ints())
    assert [part.tolist() for part in still.reaches(ints(9, 10))] == [[-1, -1], [True, True]]
    assert still.reaches(ints(11))[1].tolist() == [False]
    assert still.after == 10
