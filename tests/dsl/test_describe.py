"""`describe()`: a topology as text."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg

WINDOWS = tg.TimeWindows.of_size_and_grace("2 minutes", "30 seconds")


def windowed(windows: Any = WINDOWS, **order: str) -> tg.TimeWindowedKStream:
    return tg.stream("events", key="user", timestamp="ts", **order).group_by_key().windowed_by(windows)


def closes(buffer: tg.StrictBuffer) -> Any:
    return tg.Suppressed.until_window_closes(buffer)


UPDATES = """\
WindowedAggregate aggregate
   columns  count = count()
   windows  TimeWindows of 2 minutes
   grace    30 seconds
   emits    the last update per key, window and micro-batch
   spark    mapInArrow (pre-aggregates), transformWithStateInPandas
└─ GroupBy user
   └─ Stream events
         key      user
         time     ts
         order    timestamps"""

SUPPRESSED = """\
Suppress hold
   when     until window closes, buffer unbounded
   spark    in the operator of the aggregation
└─ WindowedAggregate aggregate
      columns  count = count()
      windows  TimeWindows of 2 minutes
      grace    30 seconds
      emits    final results, once, when the window closes
      spark    mapInArrow (pre-aggregates), transformWithStateInPandas
   └─ GroupBy user
      └─ Stream events
            key      user
            time     ts
            order    partition p, offset o"""

ON_CLOSE = """\
WindowedAggregate shops
   columns  n = count(), x = first(v)
   windows  TimeWindows of 2 minutes, one every 1 minute
   grace    30 seconds
   emits    final results, once, when the window closes
   spark    mapInArrow (packs records), transformWithStateInPandas
└─ GroupBy shop, city
   └─ Stream events
         key      user
         time     ts
         order    timestamps"""

EVERY_UPDATE = """\
WindowedAggregate loudest
   columns  v = reduce(max, v)
   windows  TimeWindows of 2 minutes
   grace    30 seconds
   emits    every update
   spark    mapInArrow (packs records), transformWithStateInPandas
└─ GroupBy user
   └─ Stream events
         key      user
         time     ts
         order    timestamps"""

NO_WINDOWS = """\
Aggregate aggregate
   columns  total = sum(v)
   emits    the last update per key and micro-batch
   spark    mapInArrow (pre-aggregates), transformWithStateInPandas
└─ GroupBy user
   └─ Stream events
         key      user
         time     ts
         order    timestamps"""


@pytest.mark.parametrize(
    ("table", "text"),
    [
        pytest.param(
            tg.stream("events", key="user", timestamp="ts").group_by_key().agg(total=tg.sum("v")),
            NO_WINDOWS,
            id="without windows",
        ),
        pytest.param(windowed().count(), UPDATES, id="updates"),
        pytest.param(
            windowed(partition="p", offset="o").count().suppress(closes(tg.BufferConfig.unbounded()).with_name("hold")),
            SUPPRESSED,
            id="suppressed",
        ),
        pytest.param(
            tg.stream("events", key="user", timestamp="ts")
            .group_by("shop", "city")
            .windowed_by(WINDOWS.advance_by("1 minute"))
            .emit_strategy(tg.EmitStrategy.on_window_close())
            .agg(n=tg.count(), x=tg.first("v"), materialized=tg.Materialized.as_("shops")),
            ON_CLOSE,
            id="on close, ordered aggregate, hopping, regrouped",
        ),
        pytest.param(
            windowed().reduce(max, "v", materialized=tg.Materialized.as_("loudest").with_caching_disabled()),
            EVERY_UPDATE,
            id="every update",
        ),
    ],
)
def test_a_topology_as_text(table: tg.KTable, text: str) -> None:
    assert table.describe() == text


def test_a_bounded_buffer_takes_records_one_by_one() -> None:
    held = windowed().count().suppress(closes(tg.BufferConfig.max_records(5).shut_down_when_full()))
    assert "when     until window closes, buffer at most 5 records, then shut_down" in held.describe()
    assert "spark    mapInArrow (packs records), transformWithStateInPandas" in held.describe()


def test_a_suppression_behind_emit_on_close_says_so() -> None:
    table = windowed().emit_strategy(tg.EmitStrategy.on_window_close()).count()
    with pytest.warns(tg.TidegateWarning, match="has nothing to do"):
        suppressed = table.suppress(closes(tg.BufferConfig.unbounded()))
    assert suppressed.describe().startswith("Suppress\n   when     until")
    assert "final results, once, when the window closes" in table.describe()


class Longer:
    def __init__(self, than: int) -> None:
        self.than = than

    def __call__(self, row: dict[str, Any]) -> bool:
        return len(row["page"]) > self.than


def keyed(prefix: str, row: dict[str, Any]) -> str:
    return prefix + row["page"]


def test_objects_that_are_functions_have_one_text_in_every_process() -> None:
    """A sink compares plans by it: an address would be another one after each restart."""
    views = tg.stream("views", key="user", timestamp="ts", stream_time="max")
    pages = views.filter(Longer(3)).map_values({"page": partial(keyed, "a"), "long": Longer(9)})
    by_page = pages.select_key(partial(keyed, "b")).group_by_key().count()
    steps = [line.strip(" └─") for line in by_page.describe().splitlines() if "(" in line and "= " not in line[:9]]
    assert steps[-3:] == [
        "select_key(partial(keyed))",
        "map_values(page = partial(keyed), long = Longer)",
        "filter(Longer)",
    ]
    windows = tg.JoinWindows.of_time_difference_with_no_grace("1 minute")
    joined = views.join(pages, windows, value_joiner=lambda left, right: {})
    again = views.join(pages, windows, value_joiner={"either": partial(keyed, "c")})
    for table in (by_page, joined.filter(Longer(3)), again):
        for text in (table.describe(), table.describe("mermaid"), repr(table)):
            assert "0x" not in text


def stream(name: str, value: str) -> tg.KStream:
    schema = pa.schema([("user", pa.string()), ("ts", pa.int64()), (value, pa.int64())])
    return tg.stream(name, key="user", timestamp="ts", stream_time="max", schema=schema)


def table(name: str, value: str = "v", **more: Any) -> tg.KTable:
    flags = [(flag, pa.bool_()) for flag in ("gone", "off")]
    schema = pa.schema([("user", pa.string()), ("ts", pa.int64()), (value, pa.int64()), *flags])
    return tg.table(name, key="user", timestamp="ts", schema=schema, **more)


def joined(**more: Any) -> tg.KTable:
    return table("one").join(table("other"), suffixes=("_x", "_y"), **more)


def test_plans_with_other_rows_have_other_texts() -> None:
    """A sink compares plans by it, and lost rows of a plan that it took for the one before."""
    left, right, final = pc.field("left", "a"), pc.field("right", "b"), tg.EmitStrategy.on_window_close()
    windows = tg.JoinWindows.of_time_difference_with_no_grace("1 minute")
    views, clicks = stream("views", "a"), stream("clicks", "b")
    values: list[Any] = [None, {"c": pc.add(left, right)}, {"c": pc.subtract(left, right)}, {"d": pc.add(left, right)}]
    latest, uncached = table("other"), tg.Materialized.as_("join").with_caching_disabled()
    kept = table("other", history="1 hour")
    for plans in (
        [views.join(clicks, windows, value_joiner=how) for how in values],
        [views.join(table("users", "b"), value_joiner=how) for how in values],
        [table("users", "a").join(table("others", "b"), suffixes=("_x", "_y"), value_joiner=how) for how in values[1:]],
        [joined(), joined(materialized=uncached), table("one").join(latest, suffixes=("_x", "_z"))],
        [joined(), table("one").join(kept, suffixes=("_x", "_y")), kept.join(table("one"), suffixes=("_x", "_y"))],
        [table("users", deleted=flag) for flag in (None, "gone", "off")],
        [views.join(table("users", "b", deleted=flag)) for flag in (None, "gone", "off")],
        [windowed().emit_strategy(final).count(expect_keys=keys) for keys in (None, ["A"])],
    ):
        texts = [plan.describe() for plan in plans]
        assert len(set(texts)) == len(texts), texts[0]
