"""Files in a known order: a source of Spark's whose rows are the paths of a micro-batch's files.

Spark's own source of files sorts them by modification time alone, in milliseconds. Files that share one are cut into
batches in whatever order the folder gave them. Here a catalog (`folder`, `delta`) has the files in their order. The
offsets that Spark keeps in the checkpoint are the catalog's, and name the files of a batch.
"""

from __future__ import annotations

import json
import pickle
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from tidegate.errors import InputError, TidegateError
from tidegate.runtime.spark.files.stores import Root, check_compression
from tidegate.runtime.spark.files.times import in_zone
from tidegate.runtime.spark.session import config

FORMAT = "tidegate_files"
_ALL = "secret"
"""The one option of the source has the catalog: Spark shows no option of that name."""

PATH, NUMBER, VALUES = "path", "number", "values"
"""Columns: path of a file in the folder, number of files before it, values of folders such as day=2026-01-01."""

LISTING = pa.schema([(PATH, pa.string()), (NUMBER, pa.int64()), (VALUES, pa.string())])
LISTING_FIELDS = f"{PATH} string, {NUMBER} long, {VALUES} string"

_TASKS = 2
"""Tasks of a batch where Spark does not say how many run at a time."""

_ZONED = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
_DAY = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)")
_PLUS = re.compile(r"\+(?=\d)")

Offset = dict[str, Any]
"""JSON, as the catalog writes it."""

_knowing: WeakSet[SparkSession] = WeakSet()
"""The sessions that know the source: Spark warns of one that is registered twice."""


@dataclass(frozen=True)
class Listed:
    """One file of a stream."""

    path: str
    number: int
    size: int
    folders: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def row(self) -> tuple[str, int, str | None]:
        """The file as a row of the listing."""
        return self.path, self.number, json.dumps(dict(self.folders)) if self.folders else None


class Catalog(Protocol):
    """The files of a source, in their order. It is pickled into the plan."""

    def initial(self) -> Offset:
        """The offset at which a query without a checkpoint begins."""

    def latest(self, start: Offset, limit: int | None) -> Offset:
        """The offset behind the next files, at most `limit` of them; `start` itself if there are none."""

    def stop_here(self) -> None:
        """Take no files from now on but those that are there now."""

    def between(self, start: Offset, end: Offset) -> Sequence[Listed]:
        """The files between two offsets of `initial` and `latest`; the same files at every call."""


Check = Callable[[Listed], None]
"""Raises InputError for a file that cannot be read, before a batch is planned with it (`Listing`)."""


@dataclass(frozen=True)
class Places:
    """Checks the names of a file and of its folders.

    folders  the types of the columns in names of folders
    zone     zone of times without a zone in names of folders
    in_files the columns in files
    cased    whether names that differ by case alone are different columns
    lines    whether the files have lines, and names that say how they are compressed
    """

    root: Root
    folders: Mapping[str, pa.DataType]
    zone: str
    in_files: frozenset[str]
    cased: bool
    lines: bool

    def __call__(self, listed: Listed) -> None:
        name = self.root.named(listed.path)
        if self.lines:
            check_compression(name)
        for folder, kind in self.folders.items():  # as for Spark's reader, whether the plan reads the value or not
            typed(value_in(listed.folders, folder, name), folder, kind, name, self.zone)
        in_files = self.in_files if self.cased else {each.lower() for each in self.in_files}
        for folder in listed.folders:
            if (folder if self.cased else folder.lower()) in in_files:
                raise InputError(
                    f"The file {name} lies in a folder {folder}=..., and no file did so when the stream was made: the "
                    "column would be read from the file. Start the query again, and it is the value in the name."
                )


def folder_values(values: str | None) -> Mapping[str, str | None]:
    """The values of folders in a row of the listing."""
    return json.loads(values) if values else {}


def value_in(folders: Mapping[str, str | None], folder: str, file: str) -> str | None:
    """The value in the name of a folder, whatever its case. Raises InputError if the file lies in no such folder."""
    if folder in folders:
        return folders[folder]
    for name, value in folders.items():
        if name.lower() == folder.lower():
            return value
    raise InputError(
        f"The file {file} lies in no folder {folder}=..., as the others do. Move it into one, or give `schema` without "
        f"{folder!r}, and start the query again."
    )


def typed(value: str | None, folder: str, kind: pa.DataType, file: str, zone: str) -> pa.Scalar:
    """The value of a folder as `kind`; an instant without a zone is in `zone`. Raises InputError if it is none."""
    text = pa.scalar(value if value is None else _as_arrow_reads(value, kind), pa.string())
    try:
        if not pa.types.is_timestamp(kind) or value is None or _ZONED.search(value):
            return text.cast(kind)
        wall_clock = text.cast(pa.timestamp(kind.unit))
        if kind.tz is None:
            return wall_clock
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"The file {file} lies in a folder {folder}={value}, which is no {kind}: {error}. Rename the folder, "
            "or give `schema` with a type that all of them have, such as string."
        ) from error
    try:
        return in_zone(pa.repeat(wall_clock, 1), zone, asked=0)[0].cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"The file {file} lies in a folder {folder}={value}, a time without a zone, and Arrow does not know the "
            f"session's zone {zone}. Set spark.sql.session.timeZone to a name such as Europe/Paris or to +02:00."
        ) from error


def _as_arrow_reads(value: str, kind: pa.DataType) -> str:
    """A day such as 2026-1-5 and a whole number such as +5, which Spark reads, as Arrow reads them."""
    if pa.types.is_date(kind) and (day := _DAY.fullmatch(value)):
        return f"{day[1]}-{day[2]:>02}-{day[3]:>02}"
    return _PLUS.sub("", value, count=1) if pa.types.is_integer(kind) and value.startswith("+") else value


def streaming(spark: SparkSession, catalog: Catalog, limit: int | None, check: Check | None = None) -> DataFrame:
    """The files of `catalog` as a streaming DataFrame (`LISTING`), at most `limit` in a micro-batch, each checked.

    Raises TidegateError before Spark 4.2.
    """
    try:
        from tidegate.runtime.spark.files.listing import Listing
    except ImportError as error:
        raise TidegateError(
            "Files in order need Spark 4.2 or later, where a source in Python can bound its batches, and this is "
            f"{pyspark.__version__}. Write partition and offset into the files, and read them by tg.stream over "
            f'spark.readStream, with partition="partition", offset="offset". Python says: {error}'
        ) from error
    if spark not in _knowing:
        spark.dataSource.register(Source)
        _knowing.add(spark)
    made = b64encode(pickle.dumps((Listing, catalog, limit, config.cores(spark) or _TASKS, check))).decode()
    return spark.readStream.format(FORMAT).schema(LISTING_FIELDS).option(_ALL, made).load()


def static(spark: SparkSession, catalog: Catalog) -> DataFrame:
    """The files that are there now as a static DataFrame (`LISTING`)."""
    start = catalog.initial()
    files = catalog.between(start, catalog.latest(start, None))
    return spark.createDataFrame([each.row for each in files], LISTING_FIELDS)


class Source(DataSource):
    """The source of `spark.readStream.format(FORMAT)`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = pickle.loads(b64decode(options[_ALL]))  # noqa: S301 - our own, see `streaming`

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        reader, *given = self._given
        made: DataSourceStreamReader = reader(*given)
        return made


def stretches(files: Sequence[Listed], tasks: int) -> list[list[Listed]]:
    """The files for at most `tasks` tasks: each has files that follow one another, and about as many bytes."""
    total = sum(each.size for each in files) + len(files)
    assigned: list[list[Listed]] = []
    before, last = 0, -1
    for each in files:
        # The middle of the file lies in this task's part of all bytes.
        task = min(tasks - 1, int((before + (each.size + 1) / 2) * tasks / total))
        if task > last:
            assigned.append([])
        last = task
        assigned[-1].append(each)
        before += each.size + 1
    return assigned


def rows(files: Iterable[Listed]) -> pa.RecordBatch:
    """The listing of these files."""
    found = [each.row for each in files]
    return pa.record_batch([pa.array([row[i] for row in found], f.type) for i, f in enumerate(LISTING)], schema=LISTING)
