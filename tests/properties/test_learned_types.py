"""Streams without a schema, whose columns are null at first: their rows are those of streams that declare their types.

Columns, or parts of nested ones, get their types while rows wait in windows, tables, joins and buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from properties.composed_plans import CLOSES, UNBOUNDED, WINDOWS, chance
from properties.composed_runs import Batch, assert_same_rows, rows_of
from sizes import SMALL
from tidegate.kernel.tuning import DEFAULT
from tidegate.testing import TopologyTestDriver

Row = dict[str, Any]

PARTS = 'pa.list_(pa.struct([("s", pa.struct([("n", pa.int64()), ("m", pa.int64())]))]))'

TYPES: dict[str, tuple[str, list[Any]]] = {
    "long": ("pa.int64()", [0, 3, -7]),
    "double": ("pa.float64()", [0.5, -2.5, 3.0]),
    "string": ("pa.string()", ["", "x", "zz"]),
    "binary": ("pa.binary()", [b"", b"x"]),
    "boolean": ("pa.bool_()", [True, False]),
    "instant": ('pa.timestamp("us", "UTC")', [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]),
    "day": ("pa.date32()", [date(2026, 1, 1), date(1970, 1, 1)]),
    "time": ('pa.time64("us")', [time(1, 2, 3), time(0)]),
    "list": ("pa.list_(pa.string())", [[], [None], ["x", None], ["", "y"]]),
    "lists": ("pa.list_(pa.list_(pa.int64()))", [[], [[]], [None, [None]], [[1, None], []]]),
    "struct": (
        'pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])',
        [{"a": None, "b": None}, {"a": 1, "b": []}, {"a": None, "b": ["x"]}],
    ),
    "record": (
        'pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])',
        [{"a": None, "b": None}, {"a": 1, "b": {"c": None}}, {"a": None, "b": {"c": "x"}}],
    ),
    "structs": (
        'pa.list_(pa.struct([("a", pa.struct([("b", pa.int64())]))]))',
        [[], [None], [{"a": None}], [{"a": {"b": None}}], [{"a": {"b": 4}}, None]],
    ),
    "parts": (
        f'pa.struct([("a", pa.int64()), ("c", {PARTS})])',
        [
            {"a": None, "c": [{"s": {"n": 1, "m": None}}] * 3},
            {"a": 2, "c": [{"s": {"n": 1, "m": None}}, None]},
            {"a": 3, "c": [{"s": {"n": None, "m": 7}}]},
        ],
    ),
}
"""Types that a value alone tells, as code, and values of them."""

KEYS = ("long", "string", "boolean", "binary")
NESTED = ("list", "lists", "struct", "record", "structs", "parts")
BUFFERS = (
    UNBOUNDED,
    "tg.BufferConfig.max_records(1_000).shut_down_when_full()",
    "tg.BufferConfig.max_records(1).spill_to_disk_when_full()",
)


@dataclass(frozen=True, repr=False)
class Plan:
    """A plan as code, the types of its key and of its columns: x and y of the first input, z of the second one."""

    code: str
    key: str
    columns: dict[str, str]
    inputs: tuple[str, ...]

    def __repr__(self) -> str:
        named = {"ONE": ("x", "y"), "OTHER": ("z",)}
        schemas = [f"{name} = {self.schema(*columns)}" for name, columns in named.items()]
        return "\n".join([*schemas, f"result = {self.code}"])

    def schema(self, *columns: str) -> str:
        """The schema of an input, as code."""
        kinds = {"k": self.key} | {name: self.columns[name] for name in columns}
        fields = [f'("{name}", {TYPES[kind][0]})' for name, kind in kinds.items()]
        return f'pa.schema([("ts", pa.int64()), {", ".join(fields)}, ("gone", pa.bool_())])'

    def made(self, learned: bool) -> Any:
        """The result; `learned`: no input declares its schema."""
        space: Row = {"tg": tg, "pa": pa}
        exec(repr(self), space)
        if learned:
            space |= {"ONE": None, "OTHER": None}
            exec(f"result = {self.code}", space)
        return space["result"]


class Draw:
    """Draws a plan, and records whose columns are null until one of them has a value."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.key = random.choice(KEYS)
        self.columns = {name: random.choice([*TYPES, *NESTED]) for name in ("x", "y", "z")}

    def plan(self, family: str) -> Plan:
        ways: dict[str, Callable[[], str]] = {
            "windows": self.windows,
            "table": lambda: self.limited(self.source("table", "one", "ONE")),
            "tables": lambda: self.limited(
                f"{self.source('table', 'one', 'ONE')}.join({self.source('table', 'other', 'OTHER')}, "
                f"{self.random.choice(['inner', 'left', 'outer'])!r})"
            ),
            "lookup": self.lookup,
            "streams": self.streams,
        }
        code = ways[family]()
        return Plan(code, self.key, self.columns, ("one", "other") if "'other'" in code else ("one",))

    def source(self, what: str, name: str, schema: str, more: str = "") -> str:
        """A stream or a table."""
        deleted = ', deleted="gone"' if what == "table" else ""
        return f'tg.{what}({name!r}, key="k", timestamp="ts", schema={schema}{deleted}{more})'

    def windows(self) -> str:
        random = self.random
        windows = random.choice(["", *WINDOWS]).format(grace=random.choice([0, 3, 10]))
        typed = f'{{"x": lambda row: row["x"], "y": "y"}}, types={{"x": {TYPES[self.columns["x"]][0]}}}'
        named = '{"x": "x", "y": "y"}'
        steps = f".map_values({random.choice([named, typed])})" if chance(random, 30) else ""
        code = self.source("stream", "one", "ONE") + steps + ".group_by_key()"
        code += f".windowed_by({windows})" if windows else ""
        on_close = windows and chance(random, 30)
        code += ".emit_strategy(tg.EmitStrategy.on_window_close())" if on_close else ""
        store = 'tg.Materialized.as_("held")' + random.choice(["", ".with_caching_disabled()"])
        calls = "".join(f", v{number}={self.aggregate()}" for number in range(random.choice([1, 2, 4])))
        code += f".agg({store}, n=tg.count(){calls})"
        if windows and not on_close and chance(random, 60):
            return code + f".suppress(tg.Suppressed.until_window_closes({random.choice(BUFFERS)}))"
        return self.limited(code)

    def aggregate(self) -> str:
        column = self.random.choice(["x", "y"])
        ordered = ["min", "max"] if self.columns[column] not in NESTED else []
        which = self.random.choice(["count", "first", "last", "collect_list", *ordered])
        return f'tg.{which}("{column}")'

    def limited(self, code: str) -> str:
        random = self.random
        if chance(random, 40):
            return code
        buffer = random.choice([*BUFFERS, "tg.BufferConfig.max_records(1)"])
        return f'{code}.suppress(tg.Suppressed.until_time_limit("5 ms", {buffer}, clock="stream"))'

    def lookup(self) -> str:
        random, history = self.random, chance(self.random, 50)
        right = self.source("table", "other", "OTHER", ', history="1 day"' if history else "")
        grace = ', grace="3 ms"' if history and chance(random, 50) else ""
        left = self.source("stream", "one", "ONE")
        return f"{left}.join({right}, how={random.choice(['inner', 'left'])!r}{grace})"

    def streams(self) -> str:
        sides = (("one", "ONE"), ("other", "OTHER"))
        left, right = (self.source("stream", *side, ', stream_time="max"') for side in sides)
        windows = f'tg.JoinWindows.of_time_difference_and_grace("5 ms", "{self.random.choice([0, 4])} ms")'
        how = self.random.choice(["inner", "left", "outer"])
        return f'{left}.join({right}.map_values({{"z": "z"}}), {windows}, {how!r})'

    def batches(self, plan: Plan) -> list[Batch]:
        random, now, made = self.random, 0, []
        keys = [random.choice(TYPES[self.key][1]) for _ in range(2)]
        nulls = {name: random.choice([0, 2, 5]) for name in ("k", *plan.columns)}
        for _ in range(random.randint(2, 7)):
            name, records = random.choice(plan.inputs), []
            for _ in range(random.choice([1, 1, 2, 4])):
                now = max(0, now + random.choice([0, 1, 2, 5, -3, 20]))
                record: Row = {"ts": now, "k": random.choice(keys), "gone": chance(random, 15)}
                for column in ("x", "y") if name == "one" else ("z",):
                    record[column] = random.choice([None, *TYPES[plan.columns[column]][1]])
                for column in record.keys() & nulls.keys():
                    if nulls[column] > 0 and (column != "k" or chance(random, 30)):
                        record[column] = None
                    nulls[column] -= 1
                records.append(record)
            made.append(Batch(name, records, 0))
        return made


@settings(max_examples=settings.default.max_examples // 2)
@pytest.mark.parametrize("family", ["windows", "table", "tables", "lookup", "streams"])
@given(random=st.randoms(use_true_random=False), data=st.data())
def test_columns_that_are_null_at_first(family: str, random: Random, data: Any) -> None:
    draw = Draw(random)
    plan = draw.plan(family)
    batches = draw.batches(plan)
    restarts = data.draw(st.sets(st.sampled_from(range(len(batches)))))
    wanted = rows_of(plan.made(learned=False), batches)
    tuning = data.draw(st.sampled_from([DEFAULT, SMALL]))
    got = rows_of(plan.made(learned=True), batches, restarts=restarts, tuning=tuning)
    assert_same_rows(plan, batches, got, wanted)


@pytest.mark.parametrize("windowed", [False, True])
def test_a_part_that_becomes_known_beside_a_list_with_parts_of_no_type(windowed: bool) -> None:
    part = {"s": {"n": 1, "v": None}}
    values = [
        {"a": None, "c": [part] * 3},
        {"a": None, "c": [part] * 2},
        {"a": 1, "c": [part] * 5},
        {"a": 2, "c": [part]},
    ]
    grouped = tg.stream("events", key="k", timestamp="ts").group_by_key()
    if windowed:
        grouped = grouped.windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    table = grouped.agg(last=tg.last("v"), every=tg.collect_list("v"))
    driver = TopologyTestDriver(table.suppress(eval(CLOSES)) if windowed else table)
    for n, (key, value) in enumerate(zip("AABA", values, strict=True)):
        driver.pipe_input({"k": key, "ts": 6 * n, "v": value})
    driver.drain()
    found = {(row["k"], row["last"]["a"]): row["every"] for row in driver.read_output()}
    a, b, other, c = values
    wanted = {("A", None): [a, b], ("B", 1): [other], ("A", 2): [c] if windowed else [a, b, c]}
    assert found == wanted
