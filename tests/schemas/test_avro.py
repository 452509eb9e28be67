"""Avro in columns equals fastavro, one record at a time, for the same bytes and schemas."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from schemas.drawn import Draw
from tidegate.errors import DefinitionError
from tidegate.runtime.spark.schemas import avro, avro_columns, avro_resolution
from tidegate.runtime.spark.schemas.cursor import Cursor

fastavro = pytest.importorskip("fastavro")

RECORDS = 60


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def columns(data: list[bytes], writer: Any, reader: Any) -> tuple[pa.Array, list[str]]:
    """The column of some records, and the reason for each record that has no value."""
    node = avro_resolution.resolve(avro.parse(json.dumps(writer)), avro.parse(json.dumps(reader)))
    cursor = Cursor.over(pa.array(data, pa.binary()))
    column = avro_columns.read(cursor, node)
    column.validate(full=True)
    assert column.type == avro.kind_of(avro.parse(json.dumps(reader)))
    return column, [cursor.records.reasons[code] for code in cursor.records.codes]


def one_by_one(data: bytes, writer: Any, reader: Any) -> Any:
    """The value that fastavro reads; raises if fastavro fails or bytes are left."""
    stream = io.BytesIO(data)
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    if stream.read(1):
        raise ValueError("bytes are left over")
    return found


def plain(value: Any) -> Any:
    """The value with maps as dicts."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return {name: plain(each) for name, each in value}
        return [plain(each) for each in value]
    return value


def same(found: Any, wanted: Any) -> bool:
    """Empty maps and lists are alike in Arrow's lists."""
    if isinstance(wanted, dict) and not wanted:
        return found in ([], {})
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in found)
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


def check(data: list[bytes], writer: Any, reader: Any) -> None:
    column, reasons = columns(data, writer, reader)
    for bytes_, found, reason in zip(data, column.to_pylist(), reasons, strict=True):
        try:
            wanted = one_by_one(bytes_, writer, reader)
        except Exception:
            assert reason, (bytes_, writer, reader)
        else:
            assert not reason, (reason, bytes_, writer, reader)
            assert same(plain(found), wanted), (found, wanted, writer, reader)


@pytest.mark.parametrize("seed", range(60))
def test_random_records_of_random_schemas(seed: int) -> None:
    draw = Draw(random.Random(seed))
    writer = draw.record()
    data = [written(writer, draw.value(writer)) for _ in range(RECORDS)]
    check(data, writer, writer)
    for _ in range(3):
        check(data, writer, draw.evolved(writer))


@pytest.mark.parametrize("seed", range(60))
def test_damaged_records_have_a_reason_and_their_neighbours_are_read(seed: int) -> None:
    """Cut, longer and changed bytes: records that fastavro does not read have a fault, and all others are read."""
    r = random.Random(seed)
    draw = Draw(r)
    writer = draw.record()
    whole = [written(writer, draw.value(writer)) for _ in range(RECORDS)]
    data = []
    for each in whole:
        cut = r.randrange(len(each) + 1)
        data += [each, each[:cut], each + b"\0"]
    column, reasons = columns(data, writer, writer)
    wanted, _ = columns(whole, writer, writer)
    assert column.take(pa.array(range(0, len(data), 3))).to_pylist() == wanted.to_pylist()
    for at, (bytes_, reason) in enumerate(zip(data, reasons, strict=True)):
        if at % 3 == 1 and len(bytes_) < len(data[at - 1]):
            assert reason, (bytes_, writer)
        if at % 3 == 2:
            assert reason == "bytes are left over"
        if at % 3 == 0:
            assert not reason
    changed = [bytes(b ^ (1 << r.randrange(8)) if r.random() < 0.2 else b for b in each) for each in whole]
    columns(changed, writer, writer)  # whole columns, whatever the bytes say


def of(kind: Any, **more: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, **more}]}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "wanted"),
    [
        (of("int"), of("long"), 5, 5),
        (of("int"), of("float"), 5, 5.0),
        (of("long"), of("double"), 2**40, float(2**40)),
        (of("float"), of("double"), 0.5, 0.5),
        (of("string"), of("bytes"), "ü", "ü".encode()),
        (of("bytes"), of("string"), "ü".encode(), "ü"),
        (of("int"), of(["null", "int"]), 5, 5),
        (of(["null", "int"]), of("int"), 5, 5),
        (of("int"), of(["string", "int"]), 5, {"member0": None, "member1": 5}),
        (of(["string", "int"]), of(["int", "string"]), "a", {"member0": None, "member1": "a"}),
        (of(["null", "string"]), of(["null", "int", "string"]), None, None),
        (of(["int", "long"]), of(["int", "long"]), 7, 7),
        (of("null"), of("null"), None, None),
    ],
)
def test_a_type_becomes_another_one(writer: Any, reader: Any, value: Any, wanted: Any) -> None:
    column, reasons = columns([written(writer, {"x": value})], writer, reader)
    assert reasons == [""]
    assert column.to_pylist() == [{"x": wanted}]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "reason"),
    [
        (of("long"), of("int"), 5, "`x` is long for the writer, and int for the reader"),
        (of(["null", "int"]), of("int"), None, "`x` is null for the writer, and int for the reader"),
        (
            of("string"),
            of(["null", "int"]),
            "a",
            "`x` is string for the writer, which is no branch of the reader's union",
        ),
        (
            of("int"),
            of("int") | {"fields": [{"name": "y", "type": "int"}]},
            5,
            "the writer has no field 'y', and the reader has no default for it",
        ),
        (
            of({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            of({"type": "enum", "name": "E", "symbols": ["A"]}),
            "B",
            "`x` is a symbol that the reader's enum does not have",
        ),
        (
            of({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
            of({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}),
            b"\1",
            "`x` is decimal(4, 2) for the writer, and decimal(4, 1) for the reader",
        ),
        (of("bytes"), of("string"), b"\xff", "`x` is not UTF-8"),
        (
            of("long"),
            of({"type": "long", "logicalType": "timestamp-millis"}),
            2**62,
            "`x` is a time beyond those of Spark",
        ),
        (of("bytes"), of("bytes"), None, "the bytes end within `x`"),
    ],
)
def test_what_does_not_fit_says_why(writer: Any, reader: Any, value: Any, reason: str) -> None:
    plain_writer = json.loads(json.dumps(writer).replace('"logicalType": "decimal"', '"logicalType": "none"'))
    data = b"\x08ab" if value is None and writer == of("bytes") else written(plain_writer, {"x": value})
    _, reasons = columns([data], writer, reader)
    assert reasons == [reason]


def test_times_go_by_the_unit_of_their_writer() -> None:
    """Avro's rules know only the number; a second would be read as some other second."""
    writer = of({"type": "long", "logicalType": "timestamp-millis"})
    reader = of({"type": "long", "logicalType": "timestamp-micros"})
    column, _ = columns([written(writer, {"x": 1_000})], writer, reader)
    assert column.field(0).cast(pa.int64()).to_pylist() == [1_000_000]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ({"type": "record", "fields": [{"name": "x", "type": "string"}]}, [{"x": "a"}, {"x": "b"}]),
        ({"type": "enum", "symbols": ["A", "B"]}, ["B", "A"]),
        ({"type": "fixed", "size": 1}, [b"a", b"b"]),
    ],
)
def test_types_that_differ_by_their_namespace_alone(kind: Any, values: list[Any]) -> None:
    """A value is in the branch with its full name or alias, and without such a branch in the first one of its name."""
    branches = [{**kind, "name": "T", "namespace": space} for space in ("v1", "v2")]
    writer = of(["null", *branches])
    # One byte of a branch, and what it holds.
    data = [bytes([2 * (at + 1)]) + written({**kind, "name": "T"}, value) for at, value in enumerate(values)]
    v1, v2 = values
    renamed = {**branches[1], "namespace": "new", "aliases": ["v2.T"]}
    for reader, wanted in (
        (branches, [(v1, None), (None, v2)]),
        (branches[::-1], [(None, v1), (v2, None)]),
        ([branches[0], renamed], [(v1, None), (None, v2)]),
        ([{**branches[0], "namespace": "new"}, branches[1]], [(v1, None), (None, v2)]),
    ):
        column, reasons = columns(data, writer, of(["null", *reader]))
        assert reasons == ["", ""]
        assert [tuple(row["x"].values()) for row in column.to_pylist()] == wanted


def test_blocks_with_their_size_and_several_blocks() -> None:
    schema = of({"type": "array", "items": "int"})
    data = [b"\x04\x02\x04\x02\x06\x00", b"\x03\x04\x02\x04\x01\x02\x06\x00", b"\x00"]  # 2+1, sized 2+1, none
    column, reasons = columns(data, schema, schema)
    assert reasons == ["", "", ""]
    assert column.to_pylist() == [{"x": [1, 2, 3]}, {"x": [1, 2, 3]}, {"x": []}]


@pytest.mark.parametrize("kind", ["int", "long", "float", "double", "boolean"])
def test_long_arrays_of_numbers(kind: str) -> None:
    """Blocks are read one at a time; fastavro writes one block, so longer ones follow by hand."""
    r = random.Random(7)
    schema = of({"type": "array", "items": kind})
    draw = Draw(r)
    data = [written(schema, {"x": [draw.value(kind) for _ in range(n)]}) for n in (0, 1, 1000, 3, 0, 70)]
    several = data[2][:-1] + data[5]
    check([*data, several, several[:-1], data[2][:900]], schema, schema)


def test_more_elements_than_bytes_end_at_once() -> None:
    schema = of({"type": "array", "items": "null"})
    many = np.array([2**40], np.int64)
    data = bytearray()
    number = int(many[0]) << 1
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    _, reasons = columns([bytes([*data, number, 0])], schema, schema)
    assert reasons == ["`x` has more elements than bytes"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]}', "contains itself"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "Other"}]}', "neither known nor defined"),
        ('{"name": "R"}', "is no Avro schema"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 50}', "up to 38 digits"),
    ],
)
def test_schemas_that_have_no_columns(schema: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        avro.parse(schema)


def test_types_that_stand_elsewhere() -> None:
    text = '{"type": "record", "name": "R", "namespace": "a.b", "fields": [{"name": "x", "type": "Inner"}]}'
    inner = '{"type": "record", "name": "Inner", "namespace": "a.b", "fields": [{"name": "y", "type": "int"}]}'
    found = avro.kind_of(avro.parse(text, {"a.b.Inner": inner}))
    assert found == pa.struct([("x", pa.struct([("y", pa.int32())]))])


@pytest.mark.parametrize("name", ["shop.Order", "order.avsc"])
def test_types_that_stand_within_types_that_stand_elsewhere(name: str) -> None:
    """A schema may name a type within another one, in front of that one; a reference may have any name."""
    place = {"type": "record", "name": "Place", "fields": [{"name": "zip", "type": "string"}]}
    to = {"name": "to", "type": {"type": "array", "items": ["null", place]}}
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": [to]}
    fields = [{"name": "home", "type": "shop.Place"}, {"name": "order", "type": "shop.Order"}]
    text = json.dumps({"type": "record", "name": "Event", "namespace": "web", "fields": fields})
    references = {name: json.dumps(order)}
    inner = pa.struct([("zip", pa.string())])
    of_order = pa.struct([("to", pa.list_(inner))])
    assert avro.kind_of(avro.parse(text, references)) == pa.struct([("home", inner), ("order", of_order)])
    whole = avro.whole(text, references)
    assert avro.parse(whole) == avro.parse(text, references)
    assert written(json.loads(whole), {"home": {"zip": "8000"}, "order": {"to": [None, {"zip": "9000"}]}})


def test_a_text_that_has_the_types_that_stand_elsewhere() -> None:
    """Each type is written once, where it is first named: one that a reference refers to, too."""
    zone = {"type": "enum", "name": "Zone", "symbols": ["A", "B"]}
    place = {
        "type": "record",
        "name": "Place",
        "namespace": "shop",
        "fields": [{"name": "zip", "type": "string"}, {"name": "zone", "type": ["null", "geo.Zone"], "default": None}],
    }
    references = {"shop.Place": json.dumps(place), "geo.Zone": json.dumps({**zone, "namespace": "geo"})}
    fields = [
        {"name": "to", "type": "Place"},
        {"name": "by", "type": {"type": "array", "items": {"type": "map", "values": ["null", "shop.Place"]}}},
        {"name": "zone", "type": "geo.Zone"},
        {"name": "n", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    order = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})
    text = avro.whole(order, references)
    assert avro.parse(text) == avro.parse(order, references)
    value = {"to": {"zip": "8000", "zone": "B"}, "by": [{"x": {"zip": "9000"}}], "zone": "A", "n": 1}
    assert written(json.loads(text), value)
    assert avro.whole(order, {}) == order
