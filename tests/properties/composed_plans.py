"""Plans of several operators, drawn at random as code that a reader can run.

Any operators follow each other: aggregations, joins, merges, cogroups, tables that are grouped again, changes of a
table that are aggregated again, with steps and time limits between them. Aggregates do not depend on the order of
records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import settings
from hypothesis import strategies as st

import tidegate as tg

KINDS = ("aggregation", "merge", "cogroup", "streams", "lookup", "tables", "groups")
"""Operators that plans begin with; `lookup` joins a stream with a table."""

RANDOMS = st.randoms(use_true_random=False)
FEW = settings(max_examples=settings.default.max_examples // 5)
"""A plan of many operators runs as long as many plans of one."""

ORDER = [("p", pa.int32()), ("o", pa.int64())]
RECORDS = pa.schema([("u", pa.string()), ("ts", pa.int64()), ("c", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
CHANGES = pa.schema(
    [("u", pa.string()), ("ts", pa.int64()), ("tc", pa.string()), ("tv", pa.int64()), ("gone", pa.bool_())]
)

WINDOWS = (
    'tg.TimeWindows.of_size_and_grace("10 ms", "{grace} ms")',
    'tg.TimeWindows.of_size_and_grace("10 ms", "{grace} ms").advance_by("5 ms")',
    'tg.SessionWindows.of_inactivity_gap_and_grace("4 ms", "{grace} ms")',
    'tg.SlidingWindows.of_time_difference_and_grace("6 ms", "{grace} ms")',
)
UNBOUNDED = "tg.BufferConfig.unbounded()"
BUFFERS = (
    UNBOUNDED,
    UNBOUNDED,
    "tg.BufferConfig.max_records(2)",
    "tg.BufferConfig.max_records(1).spill_to_disk_when_full()",
    "tg.BufferConfig.max_records(5_000).shut_down_when_full()",
)
CLOSES = f"tg.Suppressed.until_window_closes({UNBOUNDED})"
CLOCKS = ('stream_time="max"', 'stream_time="min_partition"', 'stream_time="min_partition", idle_after="20 ms"')


@dataclass(frozen=True)
class Place:
    """An object of a plan, which the code calls `name`.

    what      "stream", "table" or "store"
    key       the key column, and `key_type` its type
    values    the value columns, with their types
    time      the column with the timestamps
    windowed  whether its rows have windows
    """

    name: str
    what: str
    key: str = ""
    key_type: str = "string"
    values: Mapping[str, str] = field(default_factory=dict)
    time: str = "timestamp"
    windowed: bool = False

    def of_type(self, kind: str) -> list[str]:
        """The value columns of a type."""
        return [name for name, mine in self.values.items() if mine == kind]


@dataclass(frozen=True, repr=False)
class Plan:
    """A plan as code.

    lines    code, with the object that it makes
    inputs   the names of the streams and tables that it reads
    ordered  whether records have partition and offset
    end      the object whose rows are the result
    outputs  objects that may be several outputs, of the last operator
    late     the object whose late records may be an output; None if there is none
    """

    lines: tuple[tuple[str, Place], ...]
    inputs: tuple[str, ...]
    ordered: bool
    end: Place
    outputs: tuple[Place, ...]
    late: Place | None

    def __repr__(self) -> str:
        return "\n".join(f"{place.name} = {code}" for code, place in self.lines)

    @property
    def places(self) -> list[Place]:
        """The objects of the plan."""
        return [place for _, place in self.lines]

    def behind(self, place: Place, code: str) -> Plan:
        """The same plan, in which `code` takes the place of the object in all that follows."""
        at = self.places.index(place) + 1
        return replace(self, lines=(*self.lines[:at], (code, place), *self.lines[at:]))

    def made(self, what: str = "", *, learned: bool = False) -> Any:
        """The result, or the value of the expression `what`; `learned`: no stream and no table declares a schema."""
        schemas = [pa.schema([*one, *ORDER] if self.ordered else [*one]) for one in (RECORDS, CHANGES)]
        records, changes = [None, None] if learned else schemas
        space: dict[str, Any] = {"tg": tg, "pc": pc, "RECORDS": records, "CHANGES": changes}
        exec(repr(self), space)
        return eval(what or self.end.name, space)


def chance(random: Random, percent: int) -> bool:
    """True in so many cases of a hundred; a smaller case has False."""
    return random.randrange(100) >= 100 - percent


@st.composite
def plans(draw: Any, kind: str) -> Plan:
    """Plans that begin with an operator of this kind."""
    return Composer(draw(RANDOMS)).plan(kind)


class Composer:
    """Draws the lines of a plan one by one."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[tuple[str, Place]] = []
        self.inputs: list[str] = []
        self.ordered = chance(random, 50)
        self.clock = random.choice(CLOCKS) if self.ordered else CLOCKS[0]
        self.root: Place | None = None
        self.late: Place | None = None

    def plan(self, kind: str) -> Plan:
        """A plan that begins with an operator of this kind."""
        begin: dict[str, Callable[[], Place]] = {
            "aggregation": lambda: self.aggregated(self.stream_steps(self.stream("a"))),
            "merge": self.merged,
            "cogroup": self.cogrouped,
            "streams": self.joined_streams,
            "lookup": self.joined_with_table,
            "tables": self.joined_tables,
            "groups": lambda: self.grouped(self.table_steps(self.table("t"))),
        }
        end = self.table_steps(begin[kind]())
        for _ in range(self.random.randrange(3)):
            if end.what == "table" and chance(self.random, 50):
                end = self.table_steps(self.grouped(end))
            else:
                end = self.table_steps(self.aggregated(self.stream_steps(self.changes(end))))
        outputs = (end, self.table_steps(self.root)) if end.what == "table" and self.root is not None else ()
        if end.what == "table" and chance(self.random, 40):
            end = self.stream_steps(self.changes(end))
        return Plan(tuple(self.lines), tuple(self.inputs), self.ordered, end, outputs, self.late)

    def add(self, code: str, what: str, **properties: Any) -> Place:
        """A line; the object gets a name of its own."""
        place = Place(f"{what}{len(self.lines)}", what, **properties)
        self.lines.append((code, place))
        return place

    def step(self, place: Place, code: str, **changed: Any) -> Place:
        """A step behind the object at `place`."""
        new = replace(place, name=f"{place.what}{len(self.lines)}", **changed)
        self.lines.append((f"{place.name}.{code}", new))
        return new

    def name(self, prefix: str) -> str:
        """A column that no object of the plan has yet."""
        return f"{prefix}{len(self.lines)}"

    # -- sources ---------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> Place:
        self.inputs.append(name)
        order = ', partition="p", offset="o"' if self.ordered else ""
        code = f'tg.stream({name!r}, key="u", timestamp="ts", schema=RECORDS{order}, {self.clock})'
        return self.add(code, "stream", key="u", values={"c": "string", "v": "long", "w": "long"}, time="ts")

    def table(self, name: str, history: str = "") -> Place:
        self.inputs.append(name)
        order = ', partition="p", offset="o"' if self.ordered else ""
        code = f'tg.table({name!r}, key="u", timestamp="ts", deleted="gone", schema=CHANGES{order}{history})'
        return self.add(code, "table", key="u", values={"tc": "string", "tv": "long"})

    # -- steps -----------------------------------------------------------------------------------------------------

    def stream_steps(self, place: Place) -> Place:
        """Up to two steps, and maybe another key."""
        for _ in range(self.random.randrange(3)):
            place = self.filter_or_map(place)
            if chance(self.random, 30):
                place = self.keyed(place)
        return place

    def keyed(self, place: Place) -> Place:
        """The stream with another key: a column, or a function of the old key."""
        old, texts = place.key, place.of_type("string")
        by_column = texts and chance(self.random, 50)
        key = self.random.choice(texts) if by_column else self.name("k")
        values = {name: kind for name, kind in place.values.items() if name != key} | {old: place.key_type}
        function = f"lambda row: None if row[{old!r}] is None else str(row[{old!r}]).lower()"
        code = f"select_key({key!r})" if by_column else f"select_key({function}, name={key!r})"
        return self.step(place, code, key=key, key_type="string", values=values)

    def table_steps(self, place: Place) -> Place:
        """Up to three steps, time limits or final results of a table."""
        if place.what != "table":
            return place
        for _ in range(self.random.randrange(4)):
            which = self.random.choice(["step", "step", "limit", "limit", "close"])
            if which == "limit":
                place = self.limited(place)
            elif which == "close" and place.windowed:
                place = self.step(place, f"suppress({CLOSES})")
            else:
                place = self.filter_or_map(place)
        return place

    def limited(self, place: Place) -> Place:
        random = self.random
        starts = ["first_update", "latest_update", *["window_start"] * place.windowed]
        clock, since = random.choice(["stream", "wall"]), random.choice(starts)
        limit = f'"{random.choice([1, 5, 12])} ms", {random.choice(BUFFERS)}, clock={clock!r}, measured_from={since!r}'
        return self.step(place, f"suppress(tg.Suppressed.until_time_limit({limit}).with_name({self.name('limit')!r}))")

    def filter_or_map(self, place: Place) -> Place:
        random, numbers = self.random, place.of_type("long")
        if not numbers:
            return place
        column, least = random.choice(numbers), random.choice([-1, 0, 0, 1, 2])
        which = random.choice(["filter", "filter by an expression", "map"])
        if which == "filter":
            return self.step(place, f"filter(lambda row: (row[{column!r}] or 0) > {least})")
        if which == "filter by an expression":
            return self.step(place, f"filter(pc.field({column!r}) > {least})")
        kept = {name: kind for name, kind in place.values.items() if chance(random, 70)}
        made, values = self.name("m"), "".join(f"{name!r}: pc.field({name!r}), " for name in kept)
        code = f"map_values({{{values}{made!r}: pc.field({column!r}).cast('int64') + {least}}})"
        return self.step(place, code, values=kept | {made: "long"})

    # -- operators -------------------------------------------------------------------------------------------------

    def aggregated(self, place: Place) -> Place:
        """A stream, aggregated by its key or by a column."""
        random, texts = self.random, place.of_type("string")
        key = random.choice(texts) if texts and chance(random, 30) else place.key
        grouped = f"{place.name}.group_by({key!r})" if key != place.key else f"{place.name}.group_by_key()"
        windows = random.choice(["", *WINDOWS]).format(grace=random.choice([0, 3, 10]))
        grouped += f".windowed_by({windows})" if windows else ""
        if windows and chance(random, 30):
            grouped += ".emit_strategy(tg.EmitStrategy.on_window_close())"
        numbers = place.of_type("long")
        code, values = self.aggregates(numbers, self.store(bool(windows)), "Session" in windows)
        kind = place.key_type if key == place.key else "string"
        made = self.add(grouped + code, "table", key=key, key_type=kind, values=values, windowed=bool(windows))
        # The late records of a merge, of rows of joins and of changes are not asked for.
        self.root, self.late = made, made if self.inputs == ["a"] and self.root is None else None
        return made

    def aggregates(self, numbers: list[str], store: str, merges: bool) -> tuple[str, dict[str, str]]:
        """The call that aggregates these columns, and the columns of the result."""
        first, second = self.name("n"), self.name("t")
        which = self.random.choice(["count", "sum", "max", "function", "reduce"]) if numbers else "count"
        if which == "count":
            return f".count({first!r}, materialized={store})", {first: "long"}
        column = self.random.choice(numbers)
        if which == "reduce":
            most = "lambda one, other: max(one or 0, other or 0)"
            return f".reduce({most}, {column!r}, {first!r}, materialized={store})", {first: "long"}
        if which == "function":
            merger = ", merger=lambda key, one, other: one + other" if merges else ""
            add = f"lambda key, row, sum: sum + (row[{column!r}] or 0) + 1"
            return f'.aggregate(int, {add}, type="long", name={first!r}, materialized={store}{merger})', {first: "long"}
        other = f"tg.{which}({column!r})"
        return f".agg({store}, {first}=tg.count(), {second}={other})", {first: "long", second: "long"}

    def store(self, windowed: bool) -> str:
        """The name of a store of its own."""
        caching = ".with_caching_disabled()" if chance(self.random, 40) else ""
        return self.add(f"tg.Materialized.as_({self.name('held')!r}){caching}", "store", windowed=windowed).name

    def grouped(self, place: Place) -> Place:
        """A table, grouped by a column."""
        types = {**place.values, place.key: place.key_type}
        key = self.random.choice([*types])
        numbers = [name for name in place.of_type("long") if name != key]
        store = self.store(False)
        first, second = self.name("n"), self.name("t")
        which = self.random.choice(["count", "sum", "function"]) if numbers else "count"
        column = self.random.choice(numbers) if numbers else ""
        values = {first: "long"}
        if which == "count":
            code = f".count({first!r}, materialized={store})"
        elif which == "sum":
            code = f".agg({store}, {first}=tg.count(), {second}=tg.sum({column!r}))"
            values[second] = "long"
        else:
            way = f"lambda key, row, sum: sum {{sign}} (row[{column!r}] or 0) {{sign}} 1"
            functions = ", ".join(way.format(sign=sign) for sign in "+-")
            code = f'.aggregate(int, {functions}, type="long", name={first!r}, materialized={store})'
        made = self.add(f"{place.name}.group_by({key!r}){code}", "table", key=key, key_type=types[key], values=values)
        self.root, self.late = made, None
        return made

    def changes(self, place: Place) -> Place:
        """The changes of a table; a stream stays as it is."""
        if place.what != "table":
            return place
        return self.add(
            f"{place.name}.to_stream()", "stream", key=place.key, key_type=place.key_type, values=place.values
        )

    def merged(self) -> Place:
        one, other = self.stream("a"), self.stream("b")
        if chance(self.random, 50):
            other = self.step(other, f'filter(pc.field("v") > {self.random.randrange(3)})')
        return self.aggregated(self.stream_steps(self.step(one, f"merge({other.name})")))

    def cogrouped(self) -> Place:
        one, other = self.stream_steps_that_keep("a"), self.stream_steps_that_keep("b")
        windows = self.random.choice(["", *WINDOWS]).format(grace=self.random.choice([0, 3, 10]))
        code = f'{one.name}.group_by_key().cogroup(lambda key, row, n: n + (row["v"] or 0))'
        code += f".cogroup({other.name}.group_by_key(), lambda key, row, n: n + 100)"
        code += f".windowed_by({windows})" if windows else ""
        if windows and chance(self.random, 30):
            code += ".emit_strategy(tg.EmitStrategy.on_window_close())"
        merger = ", merger=lambda key, one, other: one + other" if "Session" in windows else ""
        made, store = self.name("n"), self.store(bool(windows))
        code += f'.aggregate(int, type="long", name={made!r}, materialized={store}{merger})'
        self.root = self.add(code, "table", key="u", values={made: "long"}, windowed=bool(windows))
        return self.root

    def stream_steps_that_keep(self, name: str) -> Place:
        """A stream with a filter or without; it keeps its key and its columns."""
        place = self.stream(name)
        return self.step(place, 'filter(pc.field("w") < 5)') if chance(self.random, 30) else place

    def joined_streams(self) -> Place:
        random, left = self.random, self.stream("a")
        renamed = 'map_values({"bv": pc.field("v"), "bc": pc.field("c")})'
        right = self.step(self.stream("b"), renamed, values={"bv": "long", "bc": "string"})
        difference, grace = random.choice([2, 6]), random.choice([0, 4])
        windows = f'tg.JoinWindows.of_time_difference_and_grace("{difference} ms", "{grace} ms")'
        joiner, values = self.joiner(left, right)
        how = random.choice(["inner", "left", "outer"])
        return self.aggregated_maybe(
            self.add(f"{left.name}.join({right.name}, {windows}, {how!r}{joiner})", "stream", key="u", values=values)
        )

    def joined_with_table(self) -> Place:
        random, left, history = self.random, self.stream("a"), chance(self.random, 50)
        right = self.table("t", ', history="1 day"' if history else "")
        right = self.filter_or_map(right) if chance(random, 40) else right
        joiner, values = self.joiner(left, right)
        grace = ', grace="3 ms"' if history and chance(random, 50) else ""
        how = random.choice(["inner", "left"])
        code = f"{left.name}.join({right.name}, how={how!r}{grace}{joiner})"
        return self.aggregated_maybe(self.add(code, "stream", key="u", values=values))

    def aggregated_maybe(self, place: Place) -> Place:
        """Rows of a join with steps, mostly aggregated."""
        place = self.stream_steps(place)
        return self.aggregated(place) if chance(self.random, 60) else place

    def joined_tables(self) -> Place:
        random = self.random
        sides = [self.table("t", ', history="1 day"' if chance(random, 30) else "")]
        if chance(random, 30):
            other = self.table("s")
            renamed = 'map_values({"sv": pc.field("tv"), "sc": pc.field("tc")})'
            sides.append(self.step(other, renamed, values={"sv": "long", "sc": "string"}))
        else:
            counts, total = self.name("n"), self.name("t")
            code = f'.group_by_key().agg({{store}}, {counts}=tg.count(), {total}=tg.sum("v"))'
            stream = self.stream("a")
            code = stream.name + code.format(store=self.store(False))
            sides.append(self.add(code, "table", key="u", values={counts: "long", total: "long"}))
        sides = [self.filter_or_map(side) if chance(random, 40) else side for side in sides]
        left, right = sides if chance(random, 50) else sides[::-1]
        joiner, values = self.joiner(left, right)
        how, store = random.choice(["inner", "left", "outer"]), self.store(False)
        code = f"{left.name}.join({right.name}, {how!r}, materialized={store}{joiner})"
        self.root = self.add(code, "table", key="u", values=values)
        return self.root

    def joiner(self, left: Place, right: Place) -> tuple[str, dict[str, str]]:
        """Arguments of a join that choose values of both sides, and the values of its rows."""
        values = dict(left.values) | dict(right.values)
        which = self.random.choice(["none", "function", "expressions"])
        if which == "none":
            return "", values
        # At least the first number of each side.
        kept = {place.of_type("long")[0] for place in (left, right) if place.of_type("long")}
        values = {name: kind for name, kind in values.items() if name in kept or chance(self.random, 40)}
        sides = {name: "left" if name in left.values else "right" for name in values}
        if which == "function":
            code = ", ".join(f"{name!r}: ({side} or {{}}).get({name!r})" for name, side in sides.items())
            return f", value_joiner=lambda left, right: {{{code}}}, types={values!r}", values
        code = ", ".join(f"{name!r}: pc.field({side!r}, {name!r})" for name, side in sides.items())
        return f", value_joiner={{{code}}}", values
