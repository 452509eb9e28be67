"""Invalid definitions raise an error at the line of the definition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line

WINDOWS = tg.TimeWindows.of_size_and_grace("2 minutes", "30 seconds")
RESERVED = ["window", "timestamp", "deleted", "output"]


def stream(**arguments: Any) -> tg.KStream:
    return tg.stream("events", **({"key": "user", "timestamp": "ts"} | arguments))


def table(**arguments: Any) -> tg.KTable:
    return tg.table("users", **({"key": "user", "timestamp": "ts"} | arguments))


def windowed(**arguments: Any) -> tg.TimeWindowedKStream:
    return stream(**arguments).group_by_key().windowed_by(WINDOWS)


def refuses(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == message


def test_partition_and_offset_come_together() -> None:
    refuses(
        lambda: stream(partition="p"),
        DefinitionError,
        "`partition` is given and `offset` is not: the order of records is known only by both. "
        "Give `offset` too, or neither.",
    )
    refuses(
        lambda: stream(offset="o"),
        DefinitionError,
        "`offset` is given and `partition` is not: the order of records is known only by both. "
        "Give `partition` too, or neither.",
    )
    assert stream(partition="p", offset="o").node.ordered
    assert not stream().node.ordered


@pytest.mark.parametrize("argument", ["timestamp", "partition", "offset"])
@pytest.mark.parametrize("value", [3, ""])
def test_a_column_is_named_by_a_string(argument: str, value: Any) -> None:
    refuses(
        lambda: stream(**({"partition": "p", "offset": "o"} | {argument: value})),
        DefinitionTypeError,
        f"`{argument}` is {value!r}, not the name of a column. "
        "Compute an expression with withColumn first and give its name.",
    )


def test_keys() -> None:
    assert stream(key="a").node.key == ("a",)
    assert stream(key=["a", "b"]).node.key == ("a", "b")
    for key in (stream().group_by("b", "a").key, stream().group_by(["b", "a"]).key, table().group_by(["b", "a"]).key):
        assert key == ("b", "a")
    refuses(lambda: stream(key=[]), DefinitionError, "`key` is empty. Name at least one column.")
    refuses(lambda: stream(key=["a", "a"]), DefinitionError, "`key` names a column twice: a, a.")
    refuses(
        lambda: stream(key=3),
        DefinitionTypeError,
        "`key` is 3. Use the name of a column, or a list of names.",
    )
    refuses(
        lambda: stream(key=["a", 3]),
        DefinitionTypeError,
        "`key` is 3, not the name of a column. Compute an expression with withColumn first and give its name.",
    )
    refuses(lambda: stream().group_by(), DefinitionError, "`columns` is empty. Name at least one column.")
    refuses(lambda: table().group_by([]), DefinitionError, "`columns` is empty. Name at least one column.")


class Column:
    """A stand-in for a column of PySpark: it has no hash, and `==` makes another column."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return Column()

    def __repr__(self) -> str:
        return "Column<'city'>"


NO_NAME = "not the name of a column. Compute an expression with withColumn first and give its name."
NO_NAMES = "Use the name of a column, or a list of names."


@pytest.mark.parametrize(
    ("grouped", "argument"),
    [
        (lambda *columns: stream().group_by(*columns), "columns"),
        (lambda *columns: stream().select_key(*columns), "key"),
        (lambda *columns: table().group_by(*columns), "columns"),
    ],
)
def test_a_key_by_a_column_of_pyspark_or_by_a_list_in_a_list_is_refused(
    grouped: Callable[..., Any], argument: str
) -> None:
    refuses(lambda: grouped(Column()), DefinitionTypeError, f"`{argument}` is Column<'city'>. {NO_NAMES}")
    refuses(lambda: grouped("a", Column()), DefinitionTypeError, f"`{argument}` is Column<'city'>, {NO_NAME}")
    refuses(lambda: grouped([["a"]]), DefinitionTypeError, f"`{argument}` is ['a'], {NO_NAME}")
    refuses(lambda: grouped(["a"], "b"), DefinitionTypeError, f"`{argument}` is ['a'], {NO_NAME}")


@pytest.mark.parametrize("value", [[["a"]], [Column()], ["a", {}]])
def test_a_key_of_what_has_no_hash_is_refused(value: Any) -> None:
    made: list[Callable[[], Any]] = [
        lambda: stream(key=value),
        lambda: table(key=value),
        lambda: table().group_by(key=value),
    ]
    for make in made:
        refuses(make, DefinitionTypeError, f"`key` is {value[-1]!r}, {NO_NAME}")


def test_a_declared_schema_is_checked() -> None:
    schema = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("amount", pa.int64())])
    windowed(schema=schema).agg(total=tg.sum("amount"))
    refuses(
        lambda: stream(schema=schema, key="usr"),
        DefinitionError,
        "`key` is 'usr', but the schema has no such column. Its columns are user, ts, amount.",
    )
    refuses(
        lambda: stream(schema=schema, timestamp="time"),
        DefinitionError,
        "`timestamp` is 'time', but the schema has no such column. Its columns are user, ts, amount.",
    )
    refuses(
        lambda: stream(schema=schema).group_by("shop"),
        DefinitionError,
        "`key` is 'shop', but the schema has no such column. Its columns are user, ts, amount.",
    )
    refuses(
        lambda: windowed(schema=schema).agg(total=tg.sum("amuont")),
        DefinitionError,
        "`total` reads the column 'amuont', which the stream does not have. Its columns are user, ts, amount.",
    )
    refuses(
        lambda: stream(schema={"user": "string"}),
        DefinitionTypeError,
        "`schema` is {'user': 'string'}, not a pyarrow.Schema. Use pyarrow.schema([...]).",
    )


@pytest.mark.parametrize("schema", [pa.struct([("user", pa.string()), ("ts", pa.int64())]), {"user": "string"}])
def test_a_schema_is_one_of_pyarrow(schema: Any) -> None:
    """Other things have names too, such as a struct, or a schema of Spark."""
    refuses(
        lambda: stream(schema=schema),
        DefinitionTypeError,
        f"`schema` is {schema!r}, not a pyarrow.Schema. Use pyarrow.schema([...]).",
    )


def test_a_schema_whose_columns_cannot_be_told_apart_or_cannot_be_keys() -> None:
    columns: list[tuple[str, pa.DataType]] = [
        ("user", pa.string()),
        ("ts", pa.int64()),
        ("tags", pa.list_(pa.string())),
    ]
    refuses(
        lambda: stream(schema=pa.schema([*columns, ("tags", pa.string())])),
        DefinitionError,
        "The schema has two columns 'tags'. Rename or drop one of them.",
    )
    schema = pa.schema(columns)
    for make in (
        lambda: stream(schema=schema, key="tags"),
        lambda: stream(schema=schema).group_by("tags"),
        lambda: stream(schema=schema).select_key("tags"),
        lambda: table(schema=schema, key=["user", "tags"]),
    ):
        refuses(
            make,
            DefinitionError,
            "The key column 'tags' is list<item: string> in the schema: a key must be of an atomic type. Give its "
            "parts as several key columns.",
        )


@pytest.mark.parametrize("types", ["long", [("x", "long")], pa.schema([("x", pa.int64())]), 5])
def test_types_are_given_by_column(types: Any) -> None:
    said = f"`types` is {in_one_line(types)}, not a dict. Give the type of each column by its name, for example "
    for make in (
        lambda: stream().map_values(dict, types=types),
        lambda: table().map_values({"x": "x"}, types=types),
        lambda: table().join(table(), types=types),
        lambda: stream().join(table(), value_joiner=lambda left, right: {}, types=types),
    ):
        refuses(make, DefinitionTypeError, said + 'types={"total": "long"}.')


def test_arguments_that_contradict_each_other() -> None:
    refuses(
        lambda: stream().left_join(table(), "inner"),  # type: ignore[arg-type]
        DefinitionError,
        "`windows` is 'inner' in a join that is 'left': of the two only one can be meant. Use join(right, "
        "how='inner'), or leave it out.",
    )
    assert stream().join(table(), "left").node.table == stream().left_join(table(), "left").node.table  # type: ignore[arg-type]
    kept = tg.table("users", key="user", timestamp="ts", history="1 s")
    assert stream().join(kept, "left", "1 s").node.table == stream().left_join(kept, grace="1 s").node.table  # type: ignore[arg-type]
    refuses(
        lambda: table().group_by("city", key="shop"),
        DefinitionError,
        "`key` is 'shop', and there are columns besides: city. Give all of them as columns, or all of them as `key`.",
    )
    for made in (stream(), table()):
        refuses(
            lambda made=made: made.map_values({"x": lambda row: 1, "z": "v"}, types={"x": "long", "y": "long"}),
            DefinitionError,
            "`types` has a column 'y', which `mapper` does not give. It gives x, z.",
        )


@pytest.mark.parametrize("function", [tg.count, tg.sum, tg.first, tg.collect_list])
def test_an_aggregate_reads_a_column_that_has_a_name(function: Callable[[str], Any]) -> None:
    """`tg.count("")` counted records."""
    with pytest.raises(DefinitionTypeError, match=r"^tg\.\w+ takes the name of a column, not ''\."):
        function("")


@pytest.mark.parametrize("name", [5, b"x", ["a"], Column()])
def test_a_name_is_a_text(name: Any) -> None:
    for make in (stream, table):
        said = f'`name` is {name!r}, not a text. Use for example name="clicks".'
        refuses(lambda make=make: make(name=name), DefinitionTypeError, said)
    for suppressed in (
        tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()),
        tg.Suppressed.until_time_limit("1 minute", tg.BufferConfig.unbounded(), clock="wall"),
    ):
        refuses(
            lambda suppressed=suppressed: suppressed.with_name(name),
            DefinitionTypeError,
            f"`name` is {name!r}, not a string.",
        )


def test_what_is_no_window_or_strategy_or_store() -> None:
    refuses(
        lambda: stream().group_by_key().windowed_by("2 minutes"),  # type: ignore[arg-type]
        DefinitionTypeError,
        "`windows` is '2 minutes', not a kind of window. "
        'Use for example TimeWindows.of_size_and_grace("2 minutes", "30 seconds").',
    )
    refuses(
        lambda: windowed().emit_strategy("on_window_close"),  # type: ignore[arg-type]
        DefinitionTypeError,
        "`strategy` is 'on_window_close'. Use EmitStrategy.on_window_close() or another one.",
    )
    refuses(
        lambda: windowed().count(materialized="store"),  # type: ignore[arg-type]
        DefinitionTypeError,
        "`materialized` is 'store'. Use Materialized.as_(\"name\").",
    )
    users, pets = (tg.table(name, key="k", timestamp="ts") for name in ("users", "pets"))
    refuses(
        lambda: users.join(pets, materialized="store"),  # type: ignore[arg-type]
        DefinitionTypeError,
        "`materialized` is 'store'. Use Materialized.as_(\"name\").",
    )


def test_an_unlimited_window_never_closes() -> None:
    unlimited = stream().group_by_key().windowed_by(tg.UnlimitedWindows.start_on(0))
    refuses(
        lambda: unlimited.emit_strategy(tg.EmitStrategy.on_window_close()),
        DefinitionError,
        "The ON_WINDOW_CLOSE strategy is only supported for TimeWindows and SlidingWindows: an unlimited "
        "window never closes, so nothing would ever come out. Use EmitStrategy.on_window_update().",
    )


@pytest.mark.parametrize("name", RESERVED)
def test_names_that_results_use(name: str) -> None:
    taken = (
        f"`{name}` is the name of an aggregate, but a result row has another column of that name "
        f"(its key, or window, timestamp, deleted, output). Choose another name, for example {name}_value=..."
    )
    refuses(lambda: windowed().count(name), DefinitionError, taken)
    refuses(lambda: windowed().agg(**{name: tg.count()}), DefinitionError, taken)
    refuses(lambda: windowed().reduce(max, name), DefinitionError, taken)
    refuses(lambda: windowed().reduce(max, "x", name), DefinitionError, taken)
    refuses(lambda: windowed().aggregate(int, max, type="long", name=name), DefinitionError, taken)
    for make in (lambda: windowed(key=name).count(), lambda: stream().group_by(name).windowed_by(WINDOWS).count()):
        refuses(
            make,
            DefinitionError,
            f"The column {name!r} has a name that rows of a result use themselves (window, timestamp, deleted, output)."
            f' Rename it first: df.withColumnRenamed("{name}", "{name}_in").',
        )


def test_an_aggregate_may_not_have_the_name_of_the_key() -> None:
    with pytest.raises(DefinitionError, match=r"`user` is the name of an aggregate.*Choose another name, for example "):
        windowed().agg(user=tg.count())


def test_aggregations_that_cannot_be() -> None:
    refuses(
        lambda: windowed().agg(),
        DefinitionError,
        '`agg` got no aggregate. Name at least one, for example agg(total=tg.sum("amount")).',
    )
    refuses(
        lambda: windowed().agg({"amount": "sum"}),  # type: ignore[arg-type]
        DefinitionError,
        "`agg` got {'amount': 'sum'} and no aggregate with a name. Name at least one, for example "
        'agg(total=tg.sum("amount")).',
    )
    refuses(
        lambda: windowed().agg(total="amount"),  # type: ignore[arg-type]
        DefinitionTypeError,
        "`total` is 'amount', not an aggregate. Use for example total=tg.sum(\"amount\").",
    )
    refuses(lambda: windowed().reduce(3, "x"), DefinitionTypeError, "`fn` is 3, not a function.")  # type: ignore[arg-type]
    refuses(
        lambda: windowed().reduce(max, 3),  # type: ignore[arg-type]
        DefinitionTypeError,
        "`column` is 3, not the name of a column. Compute an expression with withColumn first and give its name.",
    )
    functions = {"initializer": int, "aggregator": max, "merger": max}
    for argument in functions:
        refuses(
            lambda given=functions | {argument: 3}: windowed().aggregate(**given, type="long"),  # type: ignore[misc]
            DefinitionTypeError,
            f"`{argument}` is 3, not a function.",
        )


CALLS: dict[str, Callable[[], Any]] = {
    "predicate(row): too many positional arguments": lambda: stream().filter(lambda: True),
    "predicate(row): missing a required argument: 'a'": lambda: stream().filter(lambda row, a, b: True),
    "mapper(row): missing a required argument: 'a'": lambda: table().map_values(lambda row, a, b: {}),
    "mapper['x'](row): too many positional arguments": lambda: stream().map_values({"x": lambda: 1}),
    "key(row): too many positional arguments": lambda: stream().select_key(lambda: 1),
    "initializer(): missing a required argument: 'x'": lambda: windowed().aggregate(lambda x: x, max, type="long"),
    "aggregator(key, row, aggregate): too many positional arguments": lambda: windowed().aggregate(
        int, lambda row, aggregate: 1, type="long"
    ),
    "merger(key, one, other): too many positional arguments": lambda: windowed().aggregate(
        int, max, merger=lambda one, other: 1, type="long"
    ),
    "fn(aggregate, value): missing a required argument: 'c'": lambda: windowed().reduce(lambda a, b, c: 1, "x"),
    "subtractor(aggregate, value): too many positional arguments": lambda: (
        table().group_by("x").reduce(max, lambda value: 1, "x")
    ),
    "adder(key, row, aggregate): too many positional arguments": lambda: (
        table().group_by("x").aggregate(int, lambda row: 1, max, type="long")
    ),
    "aggregator(key, row, aggregate): missing a required argument: 'd'": lambda: (
        stream().group_by_key().cogroup(lambda a, b, c, d: 1)
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_function_that_cannot_be_called_is_refused_where_it_is_given(call: str) -> None:
    """It would raise a TypeError at the first record."""
    with pytest.raises(DefinitionTypeError) as caught:
        CALLS[call]()
    assert f", which cannot be called as {call}. Give a function of these arguments." in str(caught.value)


def test_functions_with_more_ways_to_be_called() -> None:
    stream().filter(len).filter(lambda *row: True).filter(lambda row, more=1: True).filter(bool).select_key(str)
    windowed().aggregate(list, lambda *given: 1, type="long", merger=lambda key, *both: 1)
    windowed().aggregate(partial(int, "1"), partial(lambda more, *given: 1, 2), type="long")
    windowed().reduce(max, "x")


def test_the_type_of_an_aggregate_is_checked_when_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match=r"`type` is 'lnog', which is not a type known here\."):
        windowed().aggregate(int, max, type="lnog")
    with pytest.raises(DefinitionTypeError, match=r"`type` is <class 'int'>\. Use a Spark type string such as"):
        windowed().aggregate(int, max, type=int)


def test_suppressions_that_cannot_be() -> None:
    refuses(
        lambda: windowed().count().suppress(tg.BufferConfig.unbounded()),  # type: ignore[arg-type]
        DefinitionTypeError,
        f"`suppressed` is {tg.BufferConfig.unbounded()!r}. "
        "Use Suppressed.until_window_closes(BufferConfig.unbounded()).",
    )
    changes = tg.table("users", key="user", timestamp="ts")
    plain = tg.stream("events", key="user", timestamp="ts").group_by_key().count()
    for table in (changes, plain):
        refuses(
            lambda table=table: table.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded())),
            DefinitionError,
            "until_window_closes: Window close time is only defined for windowed computations, and this table "
            "has no windows. Use until_time_limit, or windowed_by(...) before the aggregation.",
        )
    limit = tg.Suppressed.until_time_limit("1 s", tg.BufferConfig.unbounded(), clock="stream")
    versions = tg.table("users", key="user", timestamp="ts", history="1 s")
    for table in (versions, versions.filter(lambda row: True).map_values({"city": "town"})):
        refuses(
            lambda table=table: table.suppress(limit),
            DefinitionError,
            "suppress: the table 'users' has a history of 1 second, and a limit holds the row that came last, whatever "
            "its timestamp. Suppress a table without a history: tg.table(...) once more, without `history`.",
        )
    versions.join(changes).suppress(limit)


def test_an_unbound_stream_has_no_dataframe() -> None:
    refuses(
        lambda: windowed(name="clicks").count().to_df(),
        DefinitionError,
        "The stream 'clicks' is not bound to a DataFrame. Use tg.stream(dataframe, ...), "
        "or run the topology in tidegate.testing.TopologyTestDriver.",
    )


def test_every_call_makes_a_new_value() -> None:
    before = windowed()
    before.emit_strategy(tg.EmitStrategy.on_window_close())
    assert before.emit == tg.EmitStrategy.on_window_update()
    counts = before.count()
    counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
    assert counts == before.count()


@pytest.mark.parametrize("asked", ["merge", "join", "join with a table"])
def test_a_stream_that_drops_late_records_has_none_behind_a_merge_or_a_join(asked: str) -> None:
    """Whichever of the two streams says so; an aggregation that keeps them goes before the stream."""
    kept = tg.stream("kept", key="k", timestamp="ts", stream_time="max")
    drops = tg.stream("drops", key="k", timestamp="ts", stream_time="max", late_records="drop")
    near = tg.JoinWindows.of_time_difference_with_no_grace("5 ms")
    windowed = kept.merge(drops).group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms"))
    late = {
        "merge": lambda: windowed.count().late_records(),
        "join": lambda: kept.join(drops, near).late_records(),
        "join with a table": lambda: drops.join(tg.table("users", key="k", timestamp="ts")).late_records(),
    }
    with pytest.raises(tg.DefinitionError, match='late_records="drop" says to drop them'):
        late[asked]()
    windowed.count(late_records="keep").late_records()
