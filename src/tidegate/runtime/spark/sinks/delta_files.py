"""Rows that tasks put aside as Parquet files below a Delta table, on a disk or in a store that `deltalake` reaches."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tidegate.errors import TidegateError


def package() -> Any:
    """The package `deltalake`; raises TidegateError if it is not there."""
    try:
        import deltalake
    except ImportError as error:
        raise TidegateError(
            "tg.sinks.delta needs the package deltalake: pip install 'tidegate[delta]', on the driver and the workers."
        ) from error
    return deltalake


@dataclass(frozen=True)
class Files:
    """A folder below a table, in which each attempt of a task has a file of its own."""

    table: str
    folder: str
    options: tuple[tuple[str, str], ...]
    schema: pa.Schema

    def open(self) -> _File:
        return _File(self)


class _File:
    def __init__(self, place: Files) -> None:
        self._name = f"{place.folder}/{uuid.uuid4().hex}.parquet"
        fs = _file_system(place.table, dict(place.options))
        fs.create_dir(place.folder, recursive=True)
        self._stream = fs.open_output_stream(self._name)
        self._writer = pq.ParquetWriter(self._stream, place.schema, compression="zstd")

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def finish(self) -> str:
        self._writer.close()
        self._stream.close()
        return self._name


@contextmanager
def at_hand(table: str, options: dict[str, str], names: Sequence[str]) -> Iterator[list[Path]]:
    """The files with these names, on a disk of the driver: deltalake must not read a store while it writes."""
    if "://" not in table:
        yield [Path(table, name) for name in names]
        return
    fs = _file_system(table, options)
    with tempfile.TemporaryDirectory(prefix="tidegate-sink-") as folder:
        files = [Path(folder, Path(name).name) for name in names]
        for name, file in zip(names, files, strict=True):
            with fs.open_input_file(name) as source, file.open("wb") as copy:
                shutil.copyfileobj(source, copy)
        yield files


def remove(table: str, options: dict[str, str], folder: str) -> None:
    """Remove a folder below a table, if it is there."""
    local = Path(table) / folder
    if local.is_dir():
        shutil.rmtree(local, ignore_errors=True)
    elif "://" in table:
        _file_system(table, options).delete_dir(folder)


def _file_system(table: str, options: dict[str, str]) -> pafs.FileSystem:
    """The store of a table, with paths relative to it."""
    if "://" not in table:
        return pafs.SubTreeFileSystem(table, pafs.LocalFileSystem())
    package()
    from deltalake.fs import DeltaStorageHandler

    class Handler(DeltaStorageHandler):  # type: ignore[misc, unused-ignore]
        """Turns Arrow's buffers into bytes: deltalake's own handler takes bytes alone."""

        def open_output_stream(self, path: str, metadata: Any = None) -> pa.NativeFile:
            return pa.PythonFile(_Bytes(self._handler.open_output_stream(path, metadata)), mode="w")

    return pafs.PyFileSystem(Handler(table, options))


class _Bytes:
    """A file of deltalake's, written by Arrow."""

    def __init__(self, file: Any) -> None:
        self._file, self.closed = file, False

    def write(self, data: Any) -> int:
        return int(self._file.write(bytes(data)))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()
