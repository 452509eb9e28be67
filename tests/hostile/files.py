"""The files of a source: Parquet for Spark's reader, or files of any format for `tg.files.source`, in both orders.

Settings of the writers are drawn too, and so is what Spark does with the rows of its reader.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

import tidegate as tg
from hostile.case import Case, Row, Source
from hostile.scenario import Scenario
from spark.replay import FIRST_FILE_S
from tidegate.plan import RESULT_COLUMNS
from tidegate.runtime.spark.files.source import TAKEN
from tidegate.runtime.spark.frames.arrow import spark_schema

READERS = 2
"""Files of a batch; each file is read by a map task of its own."""
STAMP = pa.timestamp("us", "UTC")
PLAIN_YEARS = range(-2_208_988_800_000, 7_258_118_400_000)
"""Milliseconds of the years 1900 to 2199: a text says such a time as every reader understands it."""
SPARKS, PARQUET, ORC, JSON, CSV, DELTA = "Spark's reader", "parquet", "orc", "json", "csv", "delta"
MOVES = ("", "", "repartition", "many tasks", "coalesce", "union", "filter")
"""Transformations of the rows of Spark's reader; after some of them no task has all rows of a file."""
_BY_WORKERS = (PARQUET, PARQUET, ORC, JSON, CSV, DELTA)


@dataclass(frozen=True)
class Door:
    """The way of a source's records into Spark.

    format    SPARKS: Parquet that Spark reads; otherwise the format of files that the workers read
    in_order  whether the files are the order, instead of the columns with partition and offset
    epoch     whether the event time of a line is a number of milliseconds
    null      the text of a null in CSV: Spark reads an empty text as null too, unless another text is null
    moved     what Spark does with the rows before tidegate has them, one of MOVES
    """

    format: str
    in_order: bool = False
    epoch: bool = False
    null: str = ""
    moved: str = ""

    @property
    def suffix(self) -> str:
        return PARQUET if self.format in (SPARKS, DELTA) else self.format


def door(what: Case, side: int) -> Door:
    """The way that is drawn for a source of a case."""
    source = what.sources[side]
    random = Random(f"door {what.seed} {side}")
    if random.random() < 0.5:
        # Rows without an order have that of their file.
        return Door(SPARKS, moved="" if source.order is None else random.choice(MOVES))
    in_order = random.random() < 0.6 and _can_be_in_order(what)
    times = [record[source.timestamp] for record in _records(what, side) if record[source.timestamp] is not None]
    plain = all(time in PLAIN_YEARS for time in times)
    format = random.choice([format for format in _BY_WORKERS if _can_be(format, source, in_order, plain)])
    empty = any(value == "" for record in _records(what, side) for value in record.values())
    null = "\\N" if format == CSV and (empty or random.random() < 0.5) else ""
    return Door(format, in_order, format in (JSON, CSV) and (random.random() < 0.5 or not plain), null)


def _can_be(format: str, source: Source, in_order: bool, plain: bool) -> bool:
    """Whether files of a format can have the records of a source. Parquet can, in the order of columns at least."""
    names, kinds = _names(source, in_order), [str(column.type) for column in source.schema()]
    if format != PARQUET and has_spans(source):
        return False
    if format == DELTA:
        # Times without a zone need a feature of the table.
        return in_order and not any("timestamp[us]" in kind for kind in kinds)
    if format != PARQUET and not in_order and (source.order is None or set(names) & set(RESULT_COLUMNS)):
        return False
    if format in (JSON, CSV) and "_corrupt_record" in names:
        return False  # Spark's parsers put malformed lines in such a column
    if format == ORC:
        return plain
    return format != CSV or not any("<" in kind or kind == "binary" for kind in kinds)


def has_spans(source: Source) -> bool:
    """Whether a column has durations, for which only Parquet has values."""
    return any("duration" in kind for _, kind in (*source.keys, *source.columns))


def _can_be_in_order(what: Case) -> bool:
    """Whether the order of files can be that of the records: they are in one partition, and no row has the order."""
    if not isinstance(what, Scenario) or what.order is None or any(out.kind == "late" for out in what.outputs):
        return False
    partitions = {record[what.order[0]] for record in _records(what, 0)}
    return len(partitions) <= 1 and not set(_names(what.sources[0], True)) & set(TAKEN)


def _records(what: Case, side: int) -> list[Row]:
    return [
        record
        for number, batch in enumerate(what.batches)
        for place, record in enumerate(batch)
        if what.side_of(number, place) == side
    ]


def _names(source: Source, in_order: bool = False) -> list[str]:
    order = source.order if in_order and source.order else ()
    return [name for name in source.schema().names if name not in order]


@dataclass(frozen=True)
class Folder:
    """The files of a source that the workers read."""

    spark: SparkSession
    path: Path
    door: Door
    source: Source

    def table(self, **more: Any) -> Any:
        """The rows as changes of a table: `tg.table` takes a DataFrame, which a stream of files has too."""
        order = {name: more.pop(name) for name in ("partition", "offset") if name in more}
        rows = self.stream(key=more["key"], timestamp=more["timestamp"], name=more["name"], **order).frame
        return tg.table(rows, **order, **more)

    def stream(self, **more: Any) -> Any:
        options = {"maxFilesPerTrigger": str(READERS)}
        if self.door.in_order:
            more = without_order(more)
        if self.door.format == DELTA:
            # The table as it is and then by version, or by version from the first one on.
            if Random(self.source.schema_code).random() < 0.5:
                options["startingVersion"] = "0"
            return tg.delta.source(self.spark, str(self.path), options=options, **more)
        if self.door.null:
            options["nullValue"] = self.door.null
        if self.door.in_order:
            more["ordered"] = True
        schema, format = schema_of(self.source, self.door), self.door.format
        return tg.files.source(self.spark, str(self.path), schema=schema, format=format, options=options, **more)


def without_order(more: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a stream without the columns of the order."""
    return {name: value for name, value in more.items() if name not in ("partition", "offset")}


def schema_of(source: Source, way: Door) -> StructType:
    """The schema of the files of a source."""
    fields = spark_schema(source.schema(STAMP)).fields
    fields = [field for field in fields if field.name in _names(source, way.in_order)]
    if way.epoch:
        fields = [StructField(each.name, LongType()) if each.name == source.timestamp else each for each in fields]
    return StructType(fields)


class WithSources:
    """The names of tidegate; `stream` takes a Folder or a topic of Kafka too, and `table` a Folder."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tg, name)

    @staticmethod
    def stream(source: Any, **more: Any) -> Any:
        return tg.stream(source, **more) if isinstance(source, DataFrame) else source.stream(**more)

    @staticmethod
    def table(source: Any, **more: Any) -> Any:
        return tg.table(source, **more) if isinstance(source, DataFrame) else source.table(**more)


def read(spark: SparkSession, path: Path, way: Door, source: Source) -> DataFrame | Folder:
    """The records of a source whose files are in the folder `path`."""
    if way.format != SPARKS:
        return Folder(spark, path, way, source)
    reader = spark.readStream.schema(schema_of(source, way))
    if way.moved == "union":
        parts = [reader.option("maxFilesPerTrigger", 1).parquet(str(path / str(part))) for part in range(READERS)]
        return reduce(DataFrame.union, parts)
    rows = reader.option("maxFilesPerTrigger", READERS).parquet(str(path))
    match way.moved:
        case "repartition":
            return rows.repartition(3)
        case "many tasks":
            return rows.repartition(24)
        case "coalesce":
            return rows.coalesce(1)
        case "filter":
            return rows.filter(F.rand(0) >= 0)
    return rows


def write(what: Case, side: int, records: Sequence[Row], folder: Path, first: int) -> None:
    """Write the records of a batch as files, whose numbers begin with `first`."""
    source, way = what.sources[side], door(what, side)
    half = len(records) // 2
    for reader in range(READERS):
        within = folder / str(reader) if way.moved == "union" else folder
        within.mkdir(parents=True, exist_ok=True)
        target = within / f"{first + reader:05}.{way.suffix}"
        hidden = within / f".{target.name}"
        if way.in_order:
            part = records[half:] if reader else records[:half]
        else:
            part = records[reader::READERS]
        if way.format in (JSON, CSV):
            hidden.write_text("".join(f"{line}\n" for line in lines(part, source, way)), encoding="utf-8")
        else:
            kept = _table(part, source).select(_names(source, way.in_order))
            write_columns = orc.write_table if way.format == ORC else pq.write_table
            write_columns(kept, str(hidden), **_writer(what, side, way))
        stamp = FIRST_FILE_S + first + reader
        os.utime(hidden, (stamp, stamp))
        hidden.rename(target)
        if way.format == DELTA:
            _commit(folder, schema_of(source, way), target, stamp)


def _commit(table: Path, schema: StructType, file: Path, stamp: int) -> None:
    """A version of a Delta table with one more file, as the protocol says; the first one has the schema too."""
    log = table / "_delta_log"
    log.mkdir(exist_ok=True)
    version = len(list(log.iterdir()))
    if version == 0:
        format: dict[str, Any] = {"provider": "parquet", "options": {}}
        of_table = {"id": table.name, "format": format, "schemaString": schema.json(), "partitionColumns": []}
        actions: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {**of_table, "configuration": {}, "createdTime": 0}},
        ]
    else:
        actions = []
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": stamp * 1_000}
    actions.append({"add": {**add, "dataChange": True}})
    hidden = table / f".{version}.json"
    hidden.write_text("".join(json.dumps(action) + "\n" for action in actions))
    hidden.rename(log / f"{version:020}.json")


def _writer(what: Case, side: int, way: Door) -> dict[str, Any]:
    """Settings of the writer of files: those of Arrow, or for files that the workers read any."""
    if way.format == SPARKS:
        return {}
    random = Random(f"writer {what.seed} {side}")
    of_parquet = {
        "use_dictionary": [True, True, False],
        "dictionary_pagesize_limit": [1, 40],
        # Arrow does not read some lists in tiny pages (`files.all_rows`).
        **({} if _has_lists(what.sources[side]) else {"data_page_size": [1, 64]}),
        "row_group_size": [1, 2, 5],
        "data_page_version": ["1.0", "2.0"],
        "version": ["1.0", "2.6"],
        "compression": ["none", "snappy", "zstd"],
        "store_schema": [True, False],
    }
    of_orc = {
        "file_version": ["0.11", "0.12"],
        "batch_size": [1, 3],
        "stripe_size": [1, 64],
        "compression": ["uncompressed", "snappy", "zlib", "zstd"],
        "dictionary_key_size_threshold": [0.0, 1.0],
    }
    drawn: dict[str, list[Any]] = of_orc if way.format == ORC else of_parquet
    return {name: random.choice(choices) for name, choices in drawn.items() if random.random() < 0.4}


def _has_lists(source: Source) -> bool:
    return any("list_" in kind or "map_" in kind for _, kind in source.columns)


def _table(records: Sequence[Row], source: Source) -> pa.Table:
    schema = source.schema(STAMP)
    columns = []
    for column in schema:
        values = [record[column.name] for record in records]
        if column.name == source.timestamp:
            columns.append(pa.array([v if v is None else v * 1_000 for v in values], pa.int64()).cast(STAMP))
        else:
            columns.append(pa.array(values, column.type))
    return pa.table(columns, schema=schema)


# -- lines ---------------------------------------------------------------------------------------------------------


def lines(records: Sequence[Row], source: Source, way: Door) -> list[str]:
    """The records as lines of JSON or CSV, without the ends of lines."""
    schema = source.schema()
    kinds = {name: schema.field(name).type for name in _names(source, way.in_order)}
    made = []
    for record in records:
        values = {name: record[name] for name in kinds}
        if not way.epoch and values[source.timestamp] is not None:
            values[source.timestamp] = _instant(values[source.timestamp])
        if way.format == CSV:
            made.append(",".join(way.null if value is None else _in_csv(value) for value in values.values()))
            continue
        told = {name: _in_json(value, kinds[name]) for name, value in values.items()}
        # A column without a value is null, or is not there.
        random = Random(repr(values))
        told = {name: value for name, value in told.items() if value != "null" or random.random() < 0.5}
        gap = random.choice(["", " "])
        made.append("{" + f",{gap}".join(f"{json.dumps(name)}:{gap}{value}" for name, value in told.items()) + "}")
    return made


def _instant(ms: int) -> str:
    """An instant as ISO 8601 says it, in one of several ways."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return (
        at.replace(tzinfo=None).isoformat(timespec=Random(ms).choice(["auto", "milliseconds", "microseconds"]))
        + ("Z", "+00:00")[ms % 2]
    )


def _in_csv(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return _special(value) or repr(value)
        case str():
            return f'"{value}"'
        case date():
            return value.isoformat()
    return str(value)


def _special(value: float) -> str:
    """The names that Spark has for numbers that JSON lacks; empty for others."""
    if math.isnan(value):
        return "NaN"
    return "" if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _in_json(value: Any, kind: pa.DataType) -> str:
    """A value as JSON, as Spark's `to_json` writes it."""
    match value:
        case None:
            return "null"
        case float():
            return json.dumps(_special(value)) if _special(value) else repr(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case date():
            return json.dumps(value.isoformat())
    if pa.types.is_map(kind):
        return "{" + ",".join(f"{json.dumps(k)}:{_in_json(v, kind.item_type)}" for k, v in value) + "}"
    if pa.types.is_list(kind):
        return "[" + ",".join(_in_json(one, kind.value_type) for one in value) + "]"
    if pa.types.is_struct(kind):
        return "{" + ",".join(f"{json.dumps(f.name)}:{_in_json(value[f.name], f.type)}" for f in kind) + "}"
    return json.dumps(value)
