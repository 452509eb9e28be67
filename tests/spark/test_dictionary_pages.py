"""Columns of Parquet files that are read through their dictionaries have the same rows as read otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.spark.files.columnar import Columns
from tidegate.runtime.spark.files.dictionary_pages import of_numbers

WORDS = st.none() | st.sampled_from(["", "a", "é", "ab" * 40, "key-1", "key-2"]) | st.text(max_size=5)
WRITERS = st.fixed_dictionaries(
    {},
    optional={
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([1, 16, 200]),
        "data_page_size": st.sampled_from([1, 64]),
        "row_group_size": st.integers(1, 30),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "version": st.sampled_from(["1.0", "2.6"]),
        "compression": st.sampled_from(["none", "snappy", "zstd"]),
        "store_schema": st.booleans(),
    },
)


def written(rows: pa.Table, **how: Any) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **how)
    return pa.BufferReader(sink.getvalue())


def read(file: pa.BufferReader, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(list(Columns(schema).rows(lambda: file, "some.parquet")), schema)


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 3)), max_size=60), WRITERS)
def test_the_rows_are_those_of_arrow(rows: list[tuple[str | None, str | None, int]], how: dict[str, Any]) -> None:
    key, value, number = zip(*rows, strict=True) if rows else ((), (), ())
    inside = [None if one is None else {"key": one, "b": many} for one, many in zip(value, number, strict=True)]
    table = pa.table(
        {
            "key": pa.array(key, pa.string()),
            "bytes": pa.array([None if one is None else one.encode() for one in value], pa.binary()),
            "n": pa.array(number, pa.int64()),
            "in": pa.array(inside, pa.struct([("key", pa.string()), ("b", pa.int64())])),
            "in.key": pa.array(key, pa.string()),
            # Arrow loses rows whose list lies in two pages.
            "list": pa.array([[one] for one in key], pa.list_(pa.string())),
        }
    )
    assert read(written(table, **how), table.schema).equals(table)


@pytest.mark.parametrize("wanted", [pa.string(), pa.binary(), pa.large_string(), pa.int64()], ids=str)
def test_another_type_is_wanted(wanted: pa.DataType) -> None:
    file = written(pa.table({"key": ["1", "2", None, "1"]}))
    opened = pq.ParquetFile(file)
    assert of_numbers(opened.metadata, opened.schema_arrow, ["key"]) == {"key"}
    assert of_numbers(opened.metadata, opened.schema_arrow, ["other"]) == set()
    assert read(file, pa.schema([("key", wanted)]))["key"].type == wanted


def column(distinct: int, rows: int) -> pa.Table:
    names = pa.array([f"user-{number:07}" for number in range(distinct)])
    return pa.table({"key": names.take(pa.array(np.random.default_rng(1).integers(0, distinct, rows)))})


@pytest.mark.parametrize(
    ("distinct", "rows", "how", "found"),
    [
        (1, 2_000, {}, True),
        (10, 1_000, {}, True),
        (10, 1_000, {"row_group_size": 100}, True),
        (10, 1_000, {"write_statistics": False}, True),
        (10, 1_000, {"compression": "zstd", "data_page_size": 200}, True),
        (60_000, 400_000, {}, True),
        (60_000, 400_000, {"row_group_size": 20_000}, False),
        (100_000, 400_000, {}, False),
        (100_000, 400_000, {"row_group_size": 350_000}, False),
        (20_000, 200_000, {"dictionary_pagesize_limit": 1_000}, False),
        (1_000, 1_000, {}, False),
        (10, 1_000, {"use_dictionary": False}, False),
        (10, 1_000, {"use_dictionary": False, "column_encoding": {"key": "DELTA_BYTE_ARRAY"}}, False),
    ],
)
def test_a_column_of_many_values_or_beyond_its_dictionary_is_read_value_by_value(
    distinct: int, rows: int, how: dict[str, Any], found: bool
) -> None:
    table = column(distinct, rows)
    file = written(table, **how)
    opened = pq.ParquetFile(file)
    assert of_numbers(opened.metadata, opened.schema_arrow, ["key"]) == ({"key"} if found else set())
    assert read(file, table.schema).equals(table)


def test_a_file_without_rows_or_row_groups(tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.string())])
    with pq.ParquetWriter(tmp_path / "none.parquet", schema):
        pass
    opened = pq.ParquetFile(tmp_path / "none.parquet")
    assert opened.metadata.num_row_groups == 0
    assert of_numbers(opened.metadata, opened.schema_arrow, ["key"]) == set()
    assert list(Columns(schema).rows(lambda: pa.OSFile(str(tmp_path / "none.parquet")), "none.parquet")) == []
