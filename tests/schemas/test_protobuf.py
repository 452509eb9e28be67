"""Protobuf in columns equals google.protobuf, one message at a time, for the same bytes."""

from __future__ import annotations

import random
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIME_FILE

from tidegate.errors import DefinitionError
from tidegate.runtime.spark.schemas import protobuf
from tidegate.runtime.spark.schemas.cursor import Cursor

F = descriptor_pb2.FieldDescriptorProto
SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)


def add(message: Any, name: str, kind: str, number: int, **more: Any) -> Any:
    return message.field.add(name=name, number=number, type=getattr(F, f"TYPE_{kind.upper()}"), **more)


def file_of() -> Any:
    """A file with two messages, of which the second has a bit of everything."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    other = file.message_type.add(name="Other")
    add(other, "x", "int32", 1, label=F.LABEL_OPTIONAL)
    all_ = file.message_type.add(name="All")
    all_.enum_type.add(name="Kind").value.add(name="NONE", number=0)
    all_.enum_type[0].value.add(name="SOME", number=7)
    for number, kind in enumerate(SCALARS, 1):
        add(all_, f"one_{kind}", kind, number, label=F.LABEL_OPTIONAL)
        add(all_, f"many_{kind}", kind, number + 20, label=F.LABEL_REPEATED)
    add(all_, "kind", "enum", 40, label=F.LABEL_OPTIONAL, type_name=".shop.All.Kind")
    all_.oneof_decl.add(name="either")
    add(all_, "left", "int32", 41, label=F.LABEL_OPTIONAL, oneof_index=0)
    add(all_, "right", "string", 42, label=F.LABEL_OPTIONAL, oneof_index=0)
    all_.oneof_decl.add(name="_maybe")
    add(all_, "maybe", "int64", 43, label=F.LABEL_OPTIONAL, oneof_index=1, proto3_optional=True)
    add(all_, "other", "message", 44, label=F.LABEL_OPTIONAL, type_name=".shop.Other")
    add(all_, "others", "message", 45, label=F.LABEL_REPEATED, type_name=".shop.Other")
    add(all_, "at", "message", 46, label=F.LABEL_OPTIONAL, type_name=".google.protobuf.Timestamp")
    entry = all_.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", "string", 1, label=F.LABEL_OPTIONAL)
    add(entry, "value", "int32", 2, label=F.LABEL_OPTIONAL)
    add(all_, "counts", "message", 300, label=F.LABEL_REPEATED, type_name=".shop.All.CountsEntry")
    return file


FILE = file_of()


def message_class(file: Any, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(TIME_FILE.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


ALL = message_class(FILE, "shop.All")
HEAD = b"\x02\x02"  # one index, which is 1: both as zigzag


def value(r: random.Random, kind: str) -> Any:
    if kind in ("double", "float"):
        return r.choice([0.0, -1.5, 2.0**20])
    if kind == "bool":
        return r.random() < 0.5
    if kind in ("string", "bytes"):
        text = r.choice(["", "a", "ü" * 3, "x" * 150])
        return text if kind == "string" else text.encode()
    bits = 32 if "32" in kind else 64
    low, high = (0, 2**bits) if kind.startswith(("u", "f")) else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return r.choice([low, high - 1, 0, 1, r.randrange(low, high), r.randrange(100)])


def drawn(r: random.Random) -> Any:
    made = ALL()
    for kind in SCALARS:
        if r.random() < 0.5:
            setattr(made, f"one_{kind}", value(r, kind))
        getattr(made, f"many_{kind}").extend(value(r, kind) for _ in range(r.choice([0, 0, 1, 3])))
    made.kind = r.choice([0, 7, 7, 9])
    if r.random() < 0.6:
        setattr(made, *r.choice([("left", 3), ("right", "r")]))
    if r.random() < 0.5:
        made.maybe = r.choice([0, 2**40])
    if r.random() < 0.5:
        made.other.x = r.choice([0, -5])
    for _ in range(r.choice([0, 1, 2])):
        made.others.add(x=r.randrange(9))
    if r.random() < 0.5:
        made.at.seconds, made.at.nanos = r.randrange(-(10**9), 10**10), r.randrange(10**9)
    for name in r.sample("abc", r.randrange(3)):
        made.counts[name] = r.randrange(5)
    return made


def wanted(made: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for kind in SCALARS:
        number = Decimal if kind in ("uint64", "fixed64") else lambda each: each
        row[f"one_{kind}"] = number(getattr(made, f"one_{kind}"))
        row[f"many_{kind}"] = [number(each) for each in getattr(made, f"many_{kind}")]
    row["kind"] = {0: "NONE", 7: "SOME"}.get(made.kind, str(made.kind))
    for name in ("left", "right", "maybe"):
        row[name] = getattr(made, name) if made.HasField(name) else None
    row["other"] = {"x": made.other.x} if made.HasField("other") else None
    row["others"] = [{"x": each.x} for each in made.others]
    row["at"] = made.at.seconds * 10**6 + made.at.nanos // 1000 if made.HasField("at") else None
    row["counts"] = dict(made.counts)
    return row


def read(data: list[bytes], of: Any = ALL.DESCRIPTOR) -> tuple[list[dict[str, Any]], list[str]]:
    cursor = Cursor.over(pa.array(data, pa.binary()))
    column = protobuf.read(cursor, protobuf.message(of), protobuf.place(of))
    column.validate(full=True)
    fields = {each.name: column.field(i) for i, each in enumerate(column.type)}
    if "at" in fields:
        fields["at"] = fields["at"].cast(pa.int64())
    rows = pa.table(fields).to_pylist()
    for row in rows:
        if "counts" in row:
            assert len(row["counts"]) == len(dict(row["counts"]))
            row["counts"] = dict(row["counts"])
    return rows, [cursor.records.reasons[code] for code in cursor.records.codes]


@pytest.mark.parametrize("seed", range(10))
def test_random_messages(seed: int) -> None:
    r = random.Random(seed)
    made = [drawn(r) for _ in range(100)]
    rows, reasons = read([HEAD + each.SerializeToString() for each in made])
    assert reasons == [""] * len(made)
    for row, each in zip(rows, made, strict=True):
        assert row == wanted(each)


@pytest.mark.parametrize("seed", range(10))
def test_damaged_messages_have_a_reason_and_their_neighbours_are_read(seed: int) -> None:
    r = random.Random(seed)
    made = [drawn(r) for _ in range(40)]
    whole = [HEAD + each.SerializeToString() for each in made]
    data = [part for each in whole for part in (each, each[: r.randrange(len(each))])]
    rows, reasons = read(data)
    for at, each in enumerate(made):
        assert reasons[2 * at] == ""
        assert rows[2 * at] == wanted(each)
    for bytes_, row, reason in zip(data, rows, reasons, strict=True):
        try:
            parsed = ALL.FromString(bytes_[2:]) if bytes_.startswith(HEAD) else None
        except Exception:
            parsed = None
        assert bool(reason) == (parsed is None), (bytes_, reason)
        if parsed is not None:
            assert row == wanted(parsed)
    read([bytes(b ^ (1 << r.randrange(8)) if r.random() < 0.1 else b for b in each) for each in whole])


def test_fields_that_came_and_went() -> None:
    """An older reader skips unknown fields; a newer one has defaults, and null for fields that may be absent."""
    older = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    add(older.message_type.add(name="Order"), "user", "string", 1, label=F.LABEL_OPTIONAL)
    newer = descriptor_pb2.FileDescriptorProto()
    newer.CopyFrom(older)
    add(newer.message_type[0], "price", "double", 2, label=F.LABEL_OPTIONAL)
    newer.message_type[0].oneof_decl.add(name="_note")
    add(newer.message_type[0], "note", "string", 3, label=F.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True)
    old, new = message_class(older, "shop.Order"), message_class(newer, "shop.Order")
    data = [b"\0" + new(user="A", price=1.5, note="n").SerializeToString(), b"\0" + old(user="B").SerializeToString()]
    assert read(data, old.DESCRIPTOR) == ([{"user": "A"}, {"user": "B"}], ["", ""])
    assert read(data, new.DESCRIPTOR)[0] == [
        {"user": "A", "price": 1.5, "note": "n"},
        {"user": "B", "price": 0.0, "note": None},
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "it is another message than shop.All"),
        (b"\x02\x04", "it is another message than shop.All"),
        (b"\x04\x02\x02", "it is another message than shop.All"),
        (b"", "the bytes end within the place of the message"),
        (HEAD + b"\x0b", "it has a group, or is no message"),
        (HEAD + b"\x72\x02\xff\xff", "`one_string` is not UTF-8"),
        (HEAD + b"\xe2\x02\x00\xe2\x02\x00", "`other` is there twice"),
        (HEAD + b"\xc8\x02\x01\xd2\x02\x01a", "it has two fields of either"),
    ],
)
def test_what_does_not_fit_says_why(data: bytes, reason: str) -> None:
    assert read([data])[1] == [reason]


def test_entries_of_maps_that_come_again_or_lack_a_part() -> None:
    """The last value of a key counts; a key or a value that is missing is its default, a message an empty one."""
    file = file_of()
    all_ = file.message_type[1]
    entry = all_.nested_type.add(name="PlacesEntry")
    entry.options.map_entry = True
    add(entry, "key", "int32", 1, label=F.LABEL_OPTIONAL)
    add(entry, "value", "message", 2, label=F.LABEL_OPTIONAL, type_name=".shop.Other")
    add(all_, "places", "message", 301, label=F.LABEL_REPEATED, type_name=".shop.All.PlacesEntry")
    of = message_class(file, "shop.All")
    counts, places = b"\xe2\x12", b"\xea\x12"
    data = [
        counts + b"\x05\x0a\x01a\x10\x01" + counts + b"\x05\x0a\x01b\x10\x02" + counts + b"\x05\x0a\x01a\x10\x03",
        counts + b"\x05\x0a\x01a\x10\x04" + counts + b"\x02\x10\x05" + counts + b"\x03\x0a\x01a",
        places + b"\x02\x08\x07" + places + b"\x06\x08\x08\x12\x02\x08\x05" + places + b"\x00",
        b"",
    ]
    rows, reasons = read([HEAD + each for each in data], of.DESCRIPTOR)
    assert reasons == [""] * len(data)
    wanted_maps = [of.FromString(each) for each in data]
    assert [row["counts"] for row in rows] == [dict(each.counts) for each in wanted_maps]
    assert [{key: value["x"] for key, value in row["places"]} for row in rows] == [
        {key: value.x for key, value in each.places.items()} for each in wanted_maps
    ]
    assert [len(row["places"]) for row in rows] == [0, 0, 3, 0]


@pytest.mark.parametrize("seconds", [-(2**63), -protobuf.MOST_S - 1, protobuf.MOST_S + 1, 2**63 - 1])
def test_a_time_beyond_those_of_spark_is_a_fault(seconds: int) -> None:
    made = ALL()
    made.at.seconds = seconds
    assert read([HEAD + made.SerializeToString()])[1] == ["`at` is a time beyond those of Spark"]


@pytest.mark.parametrize("seconds", [-protobuf.MOST_S, protobuf.MOST_S])
def test_the_first_and_the_last_second_of_spark_are_read(seconds: int) -> None:
    made = ALL()
    made.at.seconds, made.at.nanos = seconds, 10**9 - 1
    (row,), reasons = read([HEAD + made.SerializeToString()])
    assert (row["at"], reasons) == (seconds * 10**6 + 999_999, [""])


def test_the_descriptor_of_a_registry() -> None:
    binary = b64encode(FILE.SerializeToString()).decode()
    assert protobuf.place(protobuf.descriptor(binary, {}, None)) == (0,)
    assert protobuf.place(protobuf.descriptor(binary, {}, "All")) == (1,)
    with pytest.raises(DefinitionError, match="It has Other, All"):
        protobuf.descriptor(binary, {}, "Nothing")
    with pytest.raises(DefinitionError, match="Give the message as protoc makes it"):
        protobuf.descriptor('syntax = "proto3";', {}, None)


def test_a_message_that_contains_itself() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="shop", syntax="proto3")
    add(file.message_type.add(name="R"), "r", "message", 1, label=F.LABEL_OPTIONAL, type_name=".shop.R")
    with pytest.raises(DefinitionError, match="contains itself"):
        protobuf.message(message_class(file, "shop.R").DESCRIPTOR)
