"""Reads recordings from local files (Parquet, CSV, JSON lines) with Arrow, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.advice.question import Question
from tidegate.advice.recorded import as_time
from tidegate.arguments import is_one_of, location_of
from tidegate.errors import DefinitionError, InputError, in_one_line

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}

_FORMATS = tuple(dict.fromkeys(FORMATS.values()))

_TIMES = {"coerce_int96_timestamp_unit": "us"}
"""Spark writes times with 96 bits. As nanoseconds of 64 bits those before 1677 or behind 2262 would be others."""


def recording(question: Question, records: Any, format: str | None) -> Any:
    """The recording behind a path, with the columns that the question asks for; `records` itself if it is no path."""
    if not isinstance(records, str | PathLike):
        return records
    place = Path(location_of(records, "records"))
    return read(place, question.columns, format, values=question.skips_null_values, times=question.times)


def read(
    path: str | Path,
    columns: Sequence[str],
    format: str | None = None,
    *,
    values: bool = False,
    times: Collection[str] = (),
) -> pa.Table:
    """The columns `columns` of a file, or of all files in a folder, ordered by file name.

    format  "parquet", "csv" or "json"; None: by the ending of the file name
    values  whether all other columns are read too; these say only where they have a value: true there, else null
    times   columns of times, which may be written in another way in each file

    Raises DefinitionError for a column that no file has, InputError for a path that does not exist or a file that
    cannot be read.
    """
    if format is not None and not is_one_of(format, _FORMATS):
        raise DefinitionError(f"`format` is {in_one_line(format)}. Use one of {', '.join(map(repr, _FORMATS))}.")
    place = Path(path)
    try:
        if not place.exists():
            raise InputError(
                f"There is no file or folder {in_one_line(str(path))}. Name a Parquet, CSV or JSON lines file, or a "
                "folder of them."
            )
        files = _files(place, format)
    except OSError as error:  # a folder in it that nobody may list, or a name of more bytes than a file may have
        raise InputError(
            f"{in_one_line(str(path))} cannot be listed: {error.strerror} ({in_one_line(error.filename)}). Name a "
            "Parquet, CSV or JSON lines file, or a folder that holds nothing else."
        ) from None
    if not files:
        raise InputError(f"{str(path)!r} holds no file with an ending of {', '.join(FORMATS)}. Say format=.")
    formats = [format or _format(file) for file in files]
    # Spark writes an empty file for a partition without records.
    filled = [pair for pair in zip(files, formats, strict=True) if pair[1] == "parquet" or pair[0].stat().st_size]
    found = [_read(file, columns, of, values) for file, of in filled or zip(files[:1], formats[:1], strict=True)]
    known = list(dict.fromkeys(name for _, names in found for name in names))
    if missing := [name for name in columns if name not in known]:
        raise DefinitionError(f"{str(path)!r} has no column {missing[0]!r}. Its columns are {', '.join(known)}.")
    tables = [_with_instants(table, times) for table, _ in found]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"The files of {str(path)!r} have columns of different types: {error}") from None


def _with_instants(table: pa.Table, times: Collection[str]) -> pa.Table:
    """`table`, in which text, days and times without a zone are instants in columns of `times`.

    In JSON one fraction of a second decides whether Arrow finds times or text.
    """
    for at, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
        if name in times and (pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            column = as_time(name, table[name])
            table = table.set_column(at, name, column.cast(pa.timestamp(column.type.unit, "UTC")))
    return table


def format_of(path: str) -> str | None:
    """The format by the name of a file, or by those of the files in a local folder; None if these say none or two."""
    place = Path(path)
    formats = {FORMATS.get(_ending(file)) for file in (_files(place, None) if place.is_dir() else [place])}
    return formats.pop() if len(formats) == 1 else None


def _files(place: Path, format: str | None) -> list[Path]:
    """A file, or all files of a folder that hold records, ordered by name."""
    hidden = ("_", ".")
    return [place] if place.is_file() else sorted(p for p in place.rglob("*") if _counts(p, place, hidden, format))


def _counts(path: Path, folder: Path, hidden: tuple[str, str], format: str | None) -> bool:
    if not path.is_file() or any(part.startswith(hidden) for part in path.relative_to(folder).parts):
        return False
    return format is not None or _ending(path) in FORMATS


def _ending(path: Path) -> str:
    """The ending of a file name, without `.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _format(path: Path) -> str:
    found = FORMATS.get(_ending(path))
    if found is None:
        raise InputError(f"{str(path)!r} has none of the endings {', '.join(FORMATS)}. Say its format.")
    return found


def _read(path: Path, columns: Sequence[str], format: str, values: bool) -> tuple[pa.Table, list[str]]:
    """The existing columns of `columns`, and the names of all columns of a file. `values`: as of `read`."""
    from pyarrow import csv, json, parquet

    try:
        if format == "parquet" and values:
            with parquet.ParquetFile(path, **_TIMES) as file:
                _check_once(path, file.schema_arrow.names, columns)
                # The other columns may be large: they are reduced batch by batch.
                parts = [_reduced(pa.Table.from_batches([batch]), columns) for batch in file.iter_batches()]
                nothing = file.schema_arrow.empty_table()
            return pa.concat_tables([_reduced(nothing, columns), *parts]), nothing.schema.names
        if format == "parquet":
            names = parquet.read_schema(path).names
            _check_once(path, names, columns)
            wanted = [name for name in names if name in columns]
            return parquet.read_table(path, columns=wanted, partitioning=None, **_TIMES), names
        table = csv.read_csv(path) if format == "csv" else json.read_json(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{str(path)!r} cannot be read as {format}: {error}") from None
    names = table.schema.names
    _check_once(path, names, columns)
    if values:
        return _reduced(table, columns), names
    return table.select([name for name in names if name in columns]), names


def _check_once(path: Path, names: Sequence[str], columns: Sequence[str]) -> None:
    for name in columns:
        if names.count(name) > 1:
            raise InputError(f"{str(path)!r} has two columns {name!r}. Rename or drop one of them.")


def _reduced(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """A table whose columns say only where they have a value, unless `columns` has them."""
    missing = pa.scalar(None, pa.bool_())
    found = {
        name: column if name in columns else pc.if_else(column.is_valid(), True, missing)
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    return pa.table(found)
