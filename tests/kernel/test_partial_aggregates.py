"""Records whose keys are nearly all distinct are not combined before the shuffle; the results stay the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.kernel.columns.arrays import ints
from tidegate.kernel.exchange import partial_aggregates
from tidegate.kernel.exchange.packing import pack
from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import frames
from tidegate.kernel.state.store import DictStore
from tidegate.plan import operation
from tidegate.spec.columns import START

ROWS = partial_aggregates._FEWEST_RECORDS
STREAM = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset").group_by_key()
WINDOWS = tg.TimeWindows.of_size_and_grace("10 ms", "20 ms")
FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
COUNTS = STREAM.windowed_by(WINDOWS).agg(n=tg.count()).suppress(FINAL)
EVERYTHING: dict[str, Any] = {
    "n": tg.count(),
    "total": tg.sum("amount"),
    "mean": tg.mean("amount"),
    "least": tg.min("amount"),
    "most": tg.max("name"),
    "about": tg.approx_count_distinct("name"),
}


def of_users(users: Any) -> pa.RecordBatch:
    """A record of each user, two to a millisecond."""
    return pa.record_batch(
        {
            "k:user": pa.array(users, pa.int64()),
            "v:amount": pa.array(np.arange(len(users)) % 100 / 4),
            "v:name": pa.array([f"name-{number % 7}" for number in range(len(users))]),
            "ts": pa.array(np.arange(len(users)) // 2),
            "partition": pa.array(np.zeros(len(users), np.int32)),
            "offset": pa.array(np.arange(len(users))),
        }
    )


def laid_out(table: tg.KTable, batch: pa.RecordBatch) -> Layout:
    return Layout(operation(table.node), batch.schema, sorts=False)


def abandoned(users: Any) -> bool:
    batch = of_users(users)
    rows = pa.table(batch).append_column("pane", pa.array(np.zeros(len(users), np.int64)))
    layout = laid_out(COUNTS, batch)
    hashes = partial_aggregates.abandoned(layout, rows, ["k:user", "pane"])
    assert hashes is None or (hashes == grouping.key_hash(layout, rows)).all()
    return hashes is not None


def test_records_of_distinct_keys_are_not_combined() -> None:
    assert abandoned(np.arange(ROWS))
    assert not abandoned(np.arange(ROWS - 1)), "few records"


@pytest.mark.parametrize(("repeated", "expected"), [(0.15, True), (0.25, False)])
def test_a_fifth_of_the_rows_has_to_be_saved(repeated: float, expected: bool) -> None:
    """The second record of a key comes half of all records after the first one."""
    users, many = np.arange(4 * ROWS), int(4 * repeated * ROWS)
    users[2 * ROWS + 5_000 :][:many] = users[:many]
    assert abandoned(users) == expected


def test_the_numbers_of_a_dictionary_are_not_its_values() -> None:
    """Each record batch has a dictionary of its own."""
    keys = [pa.array(np.arange(ROWS) + ROWS * number).cast(pa.string()).dictionary_encode() for number in range(2)]
    rows = pa.table({"k:user": pa.chunked_array(keys), "ts": np.zeros(2 * ROWS, np.int64)})
    layout = Layout(operation(STREAM.agg(n=tg.count()).node), pa.schema([("k:user", pa.string()), ("ts", pa.int64())]))
    assert partial_aggregates.abandoned(layout, rows, ["k:user"]) is not None
    rows = pa.concat_tables([rows, rows])
    assert partial_aggregates.abandoned(layout, rows, ["k:user"]) is None


def test_a_key_in_two_panes_has_two_rows() -> None:
    users = np.append(np.arange(ROWS), np.roll(np.arange(ROWS), 5_000))
    batch = of_users(users)
    rows = pa.table(batch).append_column("pane", pa.array(np.arange(2 * ROWS) // ROWS))
    assert partial_aggregates.abandoned(laid_out(COUNTS, batch), rows, ["k:user", "pane"]) is not None


def test_keys_that_come_again_far_apart_are_combined() -> None:
    """No sample of adjacent records has a key twice."""
    assert not abandoned(np.arange(2 * ROWS) % ROWS)


@pytest.mark.parametrize("place", [0, 0.3, 0.5])
def test_a_hot_key_is_combined_wherever_it_comes(place: float) -> None:
    """The records of a hot key may all lie outside the range of hashes that is looked at."""
    for hot in range(40):
        users = np.arange(ROWS)
        users[int(place * ROWS) : int((place + 0.4) * ROWS)] = hot
        assert not abandoned(users)


@pytest.mark.parametrize("windows", [WINDOWS, WINDOWS.advance_by("5 ms"), None], ids=["tumbling", "hopping", "none"])
def test_results_are_the_same(monkeypatch: pytest.MonkeyPatch, windows: tg.TimeWindows | None) -> None:
    batches = [of_users(np.random.default_rng(number).integers(0, 40, 300)) for number in range(2)]
    grouped = STREAM if windows is None else STREAM.windowed_by(windows)
    table = grouped.agg(**EVERYTHING)
    table = table if windows is None else table.suppress(FINAL)
    results, sizes, schemas = [], [], []
    for abandons in (False, True):
        monkeypatch.setattr(partial_aggregates, "_FEWEST_RECORDS", 1 if abandons else 10**6)
        monkeypatch.setattr(partial_aggregates, "_MOST_SAVED", 1)
        monkeypatch.setattr(partial_aggregates, "_frequent", lambda keys: False)
        rows, size, schema = through(table, batches)
        results.append(rows)
        sizes.append(size)
        schemas.append(schema)
    assert results[0] == results[1]
    assert schemas[0] == schemas[1]
    assert sizes[0] < sizes[1]
    assert sizes[1] == 600 or windows is None


def through(table: tg.KTable, batches: list[pa.RecordBatch]) -> tuple[Counter[str], int, list[pa.Schema]]:
    """The rows that leave; the number of combined rows; and their schemas."""
    layout, store, found, size, schemas = laid_out(table, batches[0]), DictStore(), Counter[str](), 0, []
    for number, batch in enumerate(batches):
        for task in range(2):
            blob = dict(pack(layout, [batch], range(2)))[task]
            combined = frames.decode(frames.BLOB, blob)[1][0]
            size += combined.num_rows
            schemas.append(combined.schema)
        blobs = [dict(pack(layout, [batch], [0]))[0]]
        for part in Stage(layout).begin(store, blobs, end_of_input=number == len(batches) - 1).parts:
            found.update(map(repr, part.to_pylist()))
    return found, size, schemas


def test_rows_of_a_task_come_pane_by_pane() -> None:
    batch = of_users(np.random.default_rng(0).permutation(ROWS))
    layout, seen = laid_out(COUNTS, batch), []
    for task, blob in pack(layout, [batch], range(3)):
        rows = frames.decode(frames.BLOB, blob)[1][0]
        assert (grouping.key_hash(layout, rows) % np.uint64(3) == task).all()
        assert (np.diff(ints(rows["pane"])) >= 0).all()
        assert (ints(rows["n"]) == 1).all()
        seen += zip(rows["k:user"].to_pylist(), rows["pane"].to_pylist(), strict=True)
    windows = (ints(batch["ts"]) // 10 * 10).tolist()
    assert sorted(seen) == sorted(zip(batch["k:user"].to_pylist(), windows, strict=True))


def test_every_record_is_counted() -> None:
    batch = of_users(np.arange(ROWS))
    layout = laid_out(COUNTS, batch)
    blobs = [dict(pack(layout, [batch], [0]))[0]]
    parts = Stage(layout).begin(DictStore(), blobs, end_of_input=True).parts
    found = Counter((row["user"], row[START], row["n"]) for part in parts for row in part.to_pylist())
    assert found == Counter((user, user // 20 * 10, 1) for user in range(ROWS))
