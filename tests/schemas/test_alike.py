"""Objects that are written alike are read as the parser reads them, whatever lies between them."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegate.runtime.spark.kafka import alike
from tidegate.runtime.spark.kafka.alike import Form
from tidegate.runtime.spark.kafka.plain import LONGEST, Reader

KINDS: dict[str, tuple[Any, pa.DataType]] = {
    "user": (StringType(), pa.string()),
    "ts": (TimestampType(), pa.timestamp("us", "UTC")),
    "amount": (LongType(), pa.int64()),
    "price": (DoubleType(), pa.float64()),
    "small": (IntegerType(), pa.int32()),
    "two": (ShortType(), pa.int16()),
    "one": (ByteType(), pa.int8()),
    "ok": (BooleanType(), pa.bool_()),
    "a.b c-ü": (LongType(), pa.int64()),
}
READER = Reader(
    pa.schema([(name, kind) for name, (_, kind) in KINDS.items()]),
    StructType([StructField(name, kind) for name, (kind, _) in KINDS.items()]),
    {name: name for name in KINDS},
    None,
)
TEXTS = ["A", "", "ü😀", "a b", "null", ",", "}", '{"user":', ":1,", "\x7f", "5", "x" * 9, "y" * 70]
TIMES = ["2026-01-01T00:00:00Z", "2026-12-31T23:59:59.123456Z", "2026-01-01 00:00:00", "1999-12-31T00:00:00+05:30"]
NUMBERS = ["0", "5", "-17", "7" * 18, "99", "123456789", "-9999", "1767225600000"]
ORDINARY: dict[str, list[str]] = {
    "user": [f'"{text}"' for text in TEXTS],
    "ts": [f'"{time}"' for time in TIMES],
    "amount": NUMBERS,
    "price": [*NUMBERS, "1.5", "-0.25", "1e3", "0.30000000000000004"],
    "small": ["0", "5", "-999999999"],
    "two": ["0", "-9999"],
    "one": ["0", "-99", "42"],
    "ok": ["true", "false"],
    "a.b c-ü": ["1", "22"],
    "more": ["1.5", "null", "true", "-1"],
    "text": ['"x"', '""'],
}
NUMBERS_THAT_ARE_ODD = """
    -0 007 +5 .5 5. 1e400 0x10 Infinity NaN nul truefalse True 1.0 -0.0 128 32768 2147483648 9223372036854775807
    9223372036854775808 1234567890123456789012345 1_000 1. 5e 1-1 -
"""
ODD = [
    *NUMBERS_THAT_ARE_ODD.split(),
    *["null", "[1]", "{}", '"A"', '"2026-02-29T00:00:00Z"', '"2026-01-01"', '"soon"', '"5"', '"\\u0041"', '"\\""'],
    *['"a\\\\"', '"\t"', '"x"y"', "'x'", '""', '"5', '5"', "", "1 2", "1,2"],
]
BREAKS = [b"", b"\xc3", b"\x00", b'"', b",", b"}", b" ", b"\t", b"\\", b'""', b"{", b":"]
LAYOUTS = [(",", ":", ""), (", ", ": ", ""), (" , ", "\t: ", " "), (",", ":", "  ")]


def objects(draw: random.Random, rows: int, oddness: float) -> list[bytes]:
    """Objects of one producer, some of which are odd or damaged."""
    names = draw.sample(list(ORDINARY), draw.randrange(1, len(ORDINARY) + 1))
    layout = draw.choice(LAYOUTS)
    return [_one(draw, names, layout, draw.random() < oddness) for _ in range(rows)]


def _one(draw: random.Random, names: list[str], layout: tuple[str, str, str], odd: bool) -> bytes:
    if odd and draw.random() < 0.2:
        names = draw.choice([names[::-1], names[1:], [*names, names[0]], [*names, "new"]])
    if odd and draw.random() < 0.2:
        layout = draw.choice(LAYOUTS)
    comma, colon, inside = layout
    values = {name: draw.choice(ORDINARY.get(name, ["7"])) for name in names}
    if odd and names and draw.random() < 0.6:
        values[draw.choice(names)] = draw.choice(ODD)
    data = ("{" + inside + comma.join(f'"{name}"{colon}{values[name]}' for name in names) + inside + "}").encode()
    if odd and draw.random() < 0.4:
        at = draw.randrange(len(data) + 1)
        data = data[:at] + draw.choice(BREAKS) + data[at + draw.randrange(3) :]
    return data + (draw.choice(BREAKS) if odd and draw.random() < 0.2 else b"")


def read(records: list[bytes], monkeypatch: pytest.MonkeyPatch, by_parser: bool) -> list[dict[str, Any] | None]:
    """The row of each record that is plain; None for the others."""
    with monkeypatch.context() as patched:
        if by_parser:
            patched.setattr(Reader, "_alike", lambda self, texts: None)
        mask, columns = READER._read(pa.array(records, pa.binary()), np.ones(len(records), bool))
    rows = iter(pa.table(columns).to_pylist())
    found = [next(rows) if plain else None for plain in mask]
    assert next(rows, None) is None
    return found


def has_a_field_twice(record: bytes) -> bool | None:
    """None if the record is no JSON."""
    twice: list[bool] = []

    def noted(pairs: list[tuple[str, Any]]) -> None:
        twice.append(len({name for name, _ in pairs}) < len(pairs))

    try:
        json.loads(record.decode(), object_pairs_hook=noted)
    except ValueError:
        return None
    return any(twice)


@pytest.mark.parametrize("seed", range(150))
def test_random_objects_are_read_as_the_parser_reads_them(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(alike, "READ_AT_ONCE", draw.choice([500, 5_000, 1 << 20]))
    records = objects(draw, draw.choice([1, 2, 40, 300]), draw.choice([0, 0.02, 0.3, 0.7]))
    found, parsed = read(records, monkeypatch, False), read(records, monkeypatch, True)
    # With an object that has a field twice, the parser hands back plain ones as well: which ones depends on the batch.
    twice = any(map(has_a_field_twice, records))
    for record, mine, theirs in zip(records, found, parsed, strict=True):
        if not twice or (mine is not None and theirs is not None):
            assert repr(mine) == repr(theirs), record
        if mine is not None:
            assert has_a_field_twice(record) is not None, record


def test_most_objects_of_one_producer_are_written_alike() -> None:
    """The test above compares nothing if all objects are left to the parser."""
    read_, left = 0, 0
    for seed in range(150):
        draw = random.Random(seed)
        records = objects(draw, 300, draw.choice([0, 0.02, 0.3]))
        texts = pa.array([each.decode(errors="replace") for each in records])
        found = READER._alike(texts)
        read_ += 0 if found is None else int(found[0].sum())
        left += 0 if found is None else int((~found[0]).sum())
    assert read_ > 25_000
    assert left > 1_000


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("name", [*KINDS, "more"])
def test_an_odd_value_among_ordinary_ones(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    ordinary = [f'{{"user":"A","{name}":{text}}}'.encode() for text in ORDINARY[name] for _ in range(9)]
    if name == "user":
        ordinary = [each.replace(b'"user":"A",', b"") for each in ordinary]
    odd = ordinary[0].replace(ORDINARY[name][0].encode(), value.encode())
    records = [*ordinary, odd, *ordinary]
    assert read(records, monkeypatch, False) == read(records, monkeypatch, True)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"a":1}', Form(("a",), (False,), (b'{"a":', b"}"))),
        ('{"a": "x", "b": null }', Form(("a", "b"), (True, False), (b'{"a": "', b'", "b": ', b" }"))),
        ("{}", None),
        ('{"a":[1]}', None),
        ('{"a":{"b":1}}', None),
        ('{"a":"\\u0041"}', None),
        ('{"a":1,"a":2}', None),
        ('{"a":1,}', None),
        ('{"a":1} x', None),
        ('{"a":1}\n', None),
        (' {"a":1}', None),
        ('{"a":"x"', None),
        ("5", None),
        ("", None),
        ("{" + ",".join(f'"{n}":1' for n in range(alike.MOST_FIELDS + 1)) + "}", None),
    ],
)
def test_the_form_of_an_object(text: str, form: Form | None) -> None:
    assert Form.of(text) == form


def test_long_objects_and_numbers_are_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    long = b'{"user":"' + b"x" * LONGEST + b'","price":1}'
    many_digits = b'{"user":"A","price":' + b"1" * 250 + b"}"
    ordinary = [b'{"user":"A","price":1}'] * 5
    found = read([*ordinary, long, many_digits], monkeypatch, False)
    assert found == read([*ordinary, long, many_digits], monkeypatch, True)
    assert [row is None for row in found] == [False] * 5 + [True] * 2


@pytest.mark.parametrize("place", range(10))
def test_an_object_of_another_form_does_not_choose_the_form(place: int) -> None:
    objects_ = ['{"amount":1}'] * 9
    objects_.insert(place, '{"small":1}')
    found = READER._alike(pa.array(objects_))
    assert found is not None
    assert found[0].tolist() == [at != place for at in range(10)]


def test_objects_of_many_forms_are_left_to_the_parser() -> None:
    assert READER._alike(pa.array(['{"amount":1}', '{"small":1}', '{"two":1}'])) is None
    assert READER._alike(pa.array([], pa.string())) is None
