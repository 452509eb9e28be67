"""Avro schemas, values and evolved schemas drawn at random."""

from __future__ import annotations

import copy
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Json = Any
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SIMPLE = ["boolean", "int", "long", "float", "double", "bytes", "string"]
WIDER = {"int": ["long", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"], "bytes": ["string"]}
EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31)]
LONG_EDGES = [*EDGES, 2**27, 2**34, 2**41, 2**48, 2**55, 2**62, 2**63 - 1, -(2**63), -(2**55)]


class Draw:
    """Named types get numbers, so that no two have one name."""

    def __init__(self, r: random.Random) -> None:
        self.r, self._names = r, 0

    def _name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    def record(self, depth: int = 2) -> Json:
        fields = [{"name": f"f{i}", "type": self.schema(depth)} for i in range(self.r.randrange(1, 6))]
        return {"type": "record", "name": self._name(), "fields": fields}

    def schema(self, depth: int) -> Json:
        r = self.r
        kind = r.choice([*SIMPLE, "null or", "time", "decimal", "enum", "fixed", "array", "map", "record", "number"])
        if kind in ("array", "map", "record", "null or") and depth == 0:
            kind = r.choice(SIMPLE)
        if kind == "record":
            return self.record(depth - 1)
        if kind in ("array", "map"):
            return {"type": kind, "items" if kind == "array" else "values": self.schema(depth - 1)}
        if kind == "null or":
            inner = self.schema(0)
            return inner if isinstance(inner, list) else r.choice([["null", inner], [inner, "null"]])
        if kind == "number":
            return r.choice([["int", "long"], ["null", "float", "double"]])
        return self._alone(kind)

    def _alone(self, kind: str) -> Json:
        r = self.r
        if kind == "time":
            said = r.choice(["timestamp-millis", "timestamp-micros", "date"])
            return {"type": "int" if said == "date" else "long", "logicalType": said}
        if kind == "decimal":
            precision = r.choice([3, 9, 18, 19, 38])
            stored = r.choice([{"type": "bytes"}, {"type": "fixed", "name": self._name(), "size": 17}])
            return stored | {"logicalType": "decimal", "precision": precision, "scale": r.randrange(precision + 1)}
        if kind == "enum":
            return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"][: r.randrange(1, 4)]}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(), "size": r.randrange(1, 5)}
        return kind

    def value(self, schema: Json) -> Any:
        r = self.r
        if isinstance(schema, list):
            return self.value(r.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, dict) and "logicalType" in schema:
            return self._logical(schema)
        if kind in ("int", "long"):
            most = 2**31 if kind == "int" else 2**63
            return r.choice([*(EDGES if kind == "int" else LONG_EDGES), r.randrange(-most, most), r.randrange(100)])
        if kind in ("float", "double"):
            return r.choice([0.0, -1.5, 0.25, float(r.randrange(2**20))])
        draws = {
            "null": lambda: None,
            "boolean": lambda: r.random() < 0.5,
            "bytes": lambda: bytes(r.randrange(128) for _ in range(r.randrange(4))),
            "string": lambda: r.choice(["", "a", "ü 😀", "x" * r.randrange(200)]),
            "enum": lambda: r.choice(schema["symbols"]),
            "fixed": lambda: r.randbytes(schema["size"]),
            "array": lambda: [self.value(schema["items"]) for _ in range(r.choice([0, 0, 1, 2, 5]))],
            "map": lambda: {f"k{i}": self.value(schema["values"]) for i in range(r.choice([0, 1, 3]))},
            "record": lambda: {each["name"]: self.value(each["type"]) for each in schema["fields"]},
        }
        return draws[kind]()

    def _logical(self, schema: Json) -> Any:
        r, said = self.r, schema["logicalType"]
        if said == "date":
            return date(1970, 1, 1) + timedelta(days=r.randrange(-9_000, 30_000))
        if said == "decimal":
            most = 10 ** r.randrange(1, schema["precision"] + 1)
            return Decimal(r.randrange(-most + 1, most)).scaleb(-schema["scale"])
        unit = timedelta(milliseconds=1) if said == "timestamp-millis" else timedelta(microseconds=1)
        return EPOCH + unit * r.randrange(-(10**12), 4 * 10**12)

    def evolved(self, schema: Json) -> Json:
        """A schema that may read what this one wrote; some of them cannot."""
        return self._other(copy.deepcopy(schema))

    def _other(self, schema: Json) -> Json:
        r = self.r
        if isinstance(schema, list):
            return schema
        if isinstance(schema, str):
            found = r.choice([schema, schema, *WIDER.get(schema, [])])
            return r.choice([found, found, ["null", found], [found, "null"]])
        if schema["type"] == "record":
            schema["fields"] = self._fields(schema["fields"])
        elif schema["type"] == "array":
            schema["items"] = self._other(schema["items"])
        elif schema["type"] == "map":
            schema["values"] = self._other(schema["values"])
        elif schema["type"] == "enum" and r.random() < 0.3:
            schema["symbols"] = ["C", "B", "A"]
        return schema

    def _fields(self, fields: list[Json]) -> list[Json]:
        r = self.r
        kept = [each for each in fields if r.random() < 0.8]
        for each in kept:
            each["type"] = self._other(each["type"])
            if r.random() < 0.2:
                each["aliases"], each["name"] = [each["name"]], f"new_{each['name']}"
        if r.random() < 0.5 or not kept:
            added, default = r.choice(
                [
                    (["null", "string"], None),
                    ("long", 5),
                    ("string", "ü"),
                    ({"type": "array", "items": "int"}, [1, 2]),
                    ({"type": "map", "values": "string"}, {"a": "b"}),
                    ({"type": "record", "name": self._name(), "fields": [{"name": "x", "type": "int"}]}, {"x": 3}),
                    ({"type": "enum", "name": self._name(), "symbols": ["P", "Q"]}, "Q"),
                ]
            )
            kept.append({"name": f"added{self._name()}", "type": added, "default": default})
        r.shuffle(kept)
        return kept
