"""Columns in one piece, and plain columns of a user's table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.columns.arrays import array, as_schema, as_type, concat_tables, plain_columns, raw


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_column_in_one_piece(dictionary: bool) -> None:
    """A column of one chunk is not copied: most columns have one."""
    chunk = pa.array(["a", "b", "a"])
    whole = pa.chunked_array([chunk.dictionary_encode() if dictionary else chunk])
    found = array(whole)
    assert isinstance(found, pa.Array)
    assert found.buffers()[1].address == whole.chunk(0).buffers()[1].address
    for chunks in ([], [chunk[:1], chunk[1:]]):
        several = pa.chunked_array(chunks, pa.string())
        found = array(several.dictionary_encode() if dictionary else several)
        assert isinstance(found, pa.Array)
        assert found.to_pylist() == [text for part in chunks for text in part.to_pylist()]


VIEW, TEXT = pa.string_view(), pa.large_string()
ENUM = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.uint8()), pa.array(["a", "b"], VIEW), ordered=True)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["a", None, "b" * 20], VIEW), TEXT),
        (pa.array([b"a", None, b"b" * 20], pa.binary_view()), pa.large_binary()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array([7, None, 7]).dictionary_encode(), pa.int64()),
        (ENUM, TEXT),
        (pa.ListArray.from_arrays([0, 1, 1, 3], ENUM), pa.list_(TEXT)),
        (pa.LargeListArray.from_arrays([0, 1, 1, 3], ENUM), pa.large_list(TEXT)),
        (pa.FixedSizeListArray.from_arrays(ENUM, 1), pa.list_(TEXT, 1)),
        (pa.StructArray.from_arrays([ENUM, pa.array([1, 2, 3])], ["x", "y"]), pa.struct([("x", TEXT), ("y", "int64")])),
        (pa.MapArray.from_arrays([0, 1, 1, 2], pa.array(["k", "l"], VIEW), ENUM[:2]), pa.map_(TEXT, TEXT)),
    ],
    ids=["text", "bytes", "dictionary", "numbers", "enum", "list", "large list", "fixed list", "struct", "map"],
)
def test_columns_of_users_become_plain(column: pa.Array, kind: pa.DataType) -> None:
    rows = pa.table({"x": pa.chunked_array([column, column[1:]]), "n": range(5)})
    found = plain_columns(rows)
    assert found.schema.types == [kind, pa.int64()]
    assert found.to_pylist() == rows.to_pylist()
    assert plain_columns(found) is found


def struct_of(nullable: bool, zone: str) -> pa.StructType:
    return pa.struct([pa.field("a", pa.int64(), nullable), pa.field("t", pa.timestamp("us", zone), nullable)])


STRUCTS: list[Any] = [{"a": 1, "t": 5}, None, {"a": 2, "t": 7}]
NESTED: dict[str, tuple[Any, list[Any]]] = {
    "struct": (lambda kind: kind, STRUCTS),
    "list": (lambda kind: pa.list_(pa.field("element", kind)), [STRUCTS, None, [], [None]]),
    "map": (lambda kind: pa.map_(pa.string(), kind), [[("x", STRUCTS[0]), ("y", None)], None, []]),
    "list in struct": (lambda kind: pa.struct([("l", pa.list_(kind))]), [{"l": [None, STRUCTS[2]]}, None, {"l": None}]),
}


@pytest.mark.parametrize("name", NESTED)
@given(
    has=st.tuples(st.booleans(), st.sampled_from(["UTC", "Asia/Tokyo"])),
    wants=st.booleans(),
    bounds=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_null_structs_are_cast_to_a_type_whose_fields_are_never_null(
    name: str, has: tuple[bool, str], wants: bool, bounds: tuple[int, int]
) -> None:
    """Spark's types say of a field that it is never null, also where the struct itself may be."""
    around, values = NESTED[name]
    column = pa.array(values, around(struct_of(*has)))
    kind = around(struct_of(wants, "UTC"))
    plain = pa.array(values, kind)
    for given_column, expected in ((column, plain), (column[slice(*bounds)], plain[slice(*bounds)])):
        found = as_type(given_column, kind)
        found.validate()
        assert (found.type, found.to_pylist()) == (kind, expected.to_pylist())
    rows = pa.table({"x": pa.chunked_array([column, column[1:]]), "n": range(2 * len(column) - 1)})
    schema = pa.schema([("x", kind), ("n", pa.int32())])
    for some in (rows, rows.combine_chunks().to_batches()[0]):
        assert as_schema(some, schema).schema == schema
        assert as_schema(some, schema)["x"].to_pylist() == [*plain.to_pylist(), *plain[1:].to_pylist()]
    with pytest.raises(ValueError, match="rows with the columns"):
        as_schema(rows, pa.schema(list(schema)[::-1]))


def test_values_that_python_does_not_have_as_bytes_and_numbers() -> None:
    """Spark has texts that are no UTF-8, and instants past the year 9999."""
    text = pa.array([b"a", b"\xff", None]).view(pa.string())
    instant = pa.array([0, 2**60, None], pa.timestamp("us", "UTC"))
    values = [(b"a", 0), (b"\xff", 2**60), (None, None)]
    struct = pa.StructArray.from_arrays([text, instant], ["x", "t"])
    as_dicts = [{"x": x, "t": t} for x, t in values]
    assert raw(text).to_pylist() == [x for x, _ in values]
    assert raw(pa.chunked_array([instant])).to_pylist() == [t for _, t in values]
    assert raw(struct).to_pylist() == as_dicts
    assert raw(pa.ListArray.from_arrays([0, 1, 3], struct)).to_pylist() == [as_dicts[:1], as_dicts[1:]]
    lists = pa.FixedSizeListArray.from_arrays(text, 3)
    assert raw(pa.MapArray.from_arrays([0, 1, 2], text[:2], instant[:2])).to_pylist() == [[each] for each in values[:2]]
    assert raw(lists).to_pylist() == [[b"a", b"\xff", None]]
    numbers = pa.array([1.5, None])
    assert raw(numbers) is numbers


NOTHING = pa.null()
KNOWN_LATER = [
    (pa.list_(NOTHING), pa.list_(NOTHING), [[None, None]]),
    (pa.list_(NOTHING), pa.list_(pa.string()), [[None, None], None, []]),
    (
        pa.struct([("a", NOTHING), ("b", pa.int32())]),
        pa.struct([("a", NOTHING), ("b", pa.int64())]),
        [{"a": None, "b": 1}],
    ),
    (pa.map_(pa.string(), NOTHING), pa.map_(pa.string(), NOTHING), [[("x", None), ("y", None)]]),
]


@pytest.mark.parametrize(("have", "want", "values"), KNOWN_LATER, ids=str)
def test_a_cast_of_parts_of_type_null(have: pa.DataType, want: pa.DataType, values: list[object]) -> None:
    chunks = [pa.array(values, have), pa.array([None, *values, *values], have).slice(1)]
    rows = pa.table({"v": pa.chunked_array(chunks), "n": pa.array(range(3 * len(values)), pa.int32())})
    schema = pa.schema([("v", want), ("n", pa.int64())])
    found = as_schema(rows, schema)
    found.validate(full=True)
    assert found.schema == schema
    assert found["v"].to_pylist() == values * 3
    assert found["n"].to_pylist() == list(range(3 * len(values)))
    one = as_type(pa.array(values, have), want)
    assert isinstance(one, pa.Array)
    assert (one.type, one.to_pylist()) == (want, values)


@pytest.mark.parametrize("sliced", [False, True])
def test_tables_of_which_one_knows_more_parts_of_a_type(sliced: bool) -> None:
    """Arrow's own cast makes the list beside the part too short: its structs have a part of no type."""

    def kind(known: pa.DataType) -> pa.DataType:
        parts = pa.list_(pa.struct([("s", pa.struct([("n", pa.int64()), ("v", NOTHING)]))]))
        return pa.struct([("a", known), ("c", parts)])

    part = {"s": {"n": 1, "v": None}}
    older = [{"a": None, "c": [part] * 3}, None, {"a": None, "c": [part]}]
    newer = [{"a": 5, "c": [part] * 5}]
    stored = pa.array([None, *older], kind(NOTHING)).slice(1) if sliced else pa.array(older, kind(NOTHING))
    first = pa.table({"x": stored})
    for tables in ([first, pa.table({"x": pa.array(newer, kind(pa.int64()))})], [first, first]):
        found = concat_tables(tables)
        found.validate(full=True)
        assert found["x"].to_pylist() == [value for table in tables for value in table["x"].to_pylist()]
