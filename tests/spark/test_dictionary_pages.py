"""Columns of Parquet files that are read through their dictionaries have the same rows as read otherwise."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from sizes import SMALL
from tidegate.kernel.exchange import decoding
from tidegate.kernel.rows.layout import Layout
from tidegate.plan import operation
from tidegate.runtime.spark.files import dictionary_pages
from tidegate.runtime.spark.files.columnar import Columns, Files
from tidegate.runtime.spark.files.dictionary_pages import of_numbers
from tidegate.runtime.spark.files.listed import PATH
from tidegate.runtime.spark.map_step import Packer
from tidegate.runtime.spark.row_decoder import Counts

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


def test_text_that_is_no_utf_8_is_read_as_it_is() -> None:
    """Spark writes it, with the smallest and the largest value of a row group."""
    bytes_ = pa.array([b"\xff\xfe", b"a", None] * 400, pa.binary())
    table = pa.table({"key": pa.Array.from_buffers(pa.string(), len(bytes_), bytes_.buffers())})
    file = written(table)
    opened = pq.ParquetFile(file)
    assert of_numbers(opened.metadata, opened.schema_arrow, ["key"]) == {"key"}
    assert read(file, table.schema)["key"].cast(pa.binary()).to_pylist() == bytes_.to_pylist()


@pytest.mark.parametrize(("others", "found"), [((), True), (("PLAIN",), True), (("DELTA_BYTE_ARRAY",), False)])
def test_pages_that_arrow_does_not_read_as_numbers(others: tuple[str, ...], found: bool) -> None:
    """Spark writes such pages beyond a dictionary, with the second version of Parquet's writers."""
    column = SimpleNamespace(
        num_values=1_000,
        has_dictionary_page=True,
        encodings=("RLE", "RLE_DICTIONARY", *others),
        total_uncompressed_size=900,
        statistics=None,
    )
    assert dictionary_pages._has_numbers(column) is found


def test_a_file_without_rows_or_row_groups(tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.string())])
    with pq.ParquetWriter(tmp_path / "none.parquet", schema):
        pass
    opened = pq.ParquetFile(tmp_path / "none.parquet")
    assert opened.metadata.num_row_groups == 0
    assert of_numbers(opened.metadata, opened.schema_arrow, ["key"]) == set()
    assert list(Columns(schema).rows(lambda: pa.OSFile(str(tmp_path / "none.parquet")), "none.parquet")) == []


class Plain(Files):
    """`Files` that decodes all columns."""

    def keeping_dictionaries(self, names: frozenset[str]) -> Plain:
        return self


FINAL = tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())
WINDOWS = tg.TimeWindows.of_size_and_grace("10 ms", "5 ms")
PLANS: dict[str, Callable[[tg.KStream], tg.KTable]] = {
    "combined": lambda s: s.group_by_key().windowed_by(WINDOWS).agg(n=tg.count()).suppress(FINAL),
    "a key as a value": lambda s: s.group_by_key().windowed_by(WINDOWS).agg(least=tg.min("user"), n=tg.count("item")),
    "filtered": lambda s: (
        s.filter(pc.utf8_length(pc.field("user")) != 1).group_by_key().windowed_by(WINDOWS).agg(n=tg.count())
    ),
    "a function": lambda s: (
        s.group_by_key().windowed_by(WINDOWS).reduce(lambda one, other: one + other, "amount", "total")
    ),
}
RECORDS = st.lists(st.tuples(WORDS, WORDS, st.integers(0, 40)), min_size=1, max_size=30)


@pytest.mark.parametrize("name", PLANS)
@given(st.lists(st.tuples(RECORDS, WRITERS), min_size=1, max_size=4))
def test_files_of_any_writers_are_packed_alike(
    name: str, files: list[tuple[list[tuple[str | None, str | None, int]], dict[str, Any]]]
) -> None:
    stream = tg.stream("events", key=["user", "item"], timestamp="ts", partition="partition", offset="offset")
    op = operation(PLANS[name](stream).node)
    kinds = {"user": pa.string(), "item": pa.binary(), "amount": pa.int64(), "ts": pa.timestamp("us", "UTC")}
    schema = pa.schema([*kinds.items(), ("partition", pa.int32()), ("offset", pa.int64())])
    with tempfile.TemporaryDirectory() as folder:
        paths, offset = [], 0
        for rows, how in files:
            user, item, ts = zip(*rows, strict=True)
            columns = [user, [None if one is None else one.encode() for one in item], ts, [1000 * one for one in ts]]
            arrays = [pa.array(one, kind) for one, kind in zip(columns, kinds.values(), strict=True)]
            place = [pa.array([0] * len(rows), pa.int32()), pa.array(range(offset, offset + len(rows)), pa.int64())]
            offset += len(rows)
            paths.append(f"file:{folder}/{len(paths)}.parquet")
            pq.write_table(pa.table([*arrays, *place], schema=schema), paths[-1].removeprefix("file:"), **how)
        layout = Layout(op, decoding.read(op, op.stream, schema.empty_table()).schema, tuning=SMALL)
        given_paths = pa.record_batch({PATH: paths})
        packed, wanted = (
            list(Packer(layout, 2, branch=op.stream, row_decoder=decoder)(iter([given_paths]), Counts()))
            for decoder in (Files(schema), Plain(schema))
        )
    assert packed == wanted
