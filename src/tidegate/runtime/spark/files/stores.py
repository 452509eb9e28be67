"""Files in a store that both Spark and Arrow reach: their places, and their bytes, decompressed."""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tidegate.errors import MORE_MEMORY, InputError

# Hadoop's names of stores that Arrow knows under another one.
_STORES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}

_HADOOPS_OWN = (".snappy", ".lz4", ".lzo")
"""Endings of compressed files that Hadoop frames in a way of its own."""


@dataclass(frozen=True)
class Root:
    """A folder, by its name as Spark shows it: "file:/data/events", "s3a://bucket/events"."""

    uri: str

    def located(self) -> tuple[Any, str]:
        """The file system of Arrow, and the folder in it."""
        return located(self.uri)

    def named(self, inside: str) -> str:
        """A file of the folder, as errors and rows name it."""
        return f"{self.uri.rstrip('/')}/{inside}"

    def opened(self, inside: str) -> Any:
        """A file of the folder, for random access."""
        store, folder = self.located()
        return store.open_input_file(f"{folder.rstrip('/')}/{inside}")

    @contextmanager
    def bytes_of(self, inside: str) -> Iterator[Callable[[int], bytes]]:
        """A function that reads a file of the folder from its beginning, decompressed by the ending of its name."""
        with self.opened(inside) as file, _decompressed(file, self.named(inside)) as plain:
            yield plain.read


def too_large(file: str, error: MemoryError) -> InputError:
    """The error for a file that does not fit into the memory of a process."""
    return InputError(f"There is too little memory to read the file {file}: {error}. {MORE_MEMORY}.")


def located(path: str) -> tuple[Any, str]:
    """The file system of Arrow that has `path`, written as Spark writes it, and the path in it."""
    scheme, _, rest = path.partition(":")
    if scheme == "file":
        return _store("file", ""), re.sub("^/*", "/", rest)
    match = re.match("//([^/]*)(.*)", rest, re.DOTALL)
    authority, inside = match.groups() if match else ("", rest)
    try:
        store, start = _store(scheme, authority), inside.lstrip("/")
    except pa.ArrowInvalid as error:
        raise InputError(
            f"Arrow knows no store for {path}: {error}. Use tg.stream over spark.readStream, which reads through Spark."
        ) from error
    if scheme in ("hdfs", "viewfs"):
        return store, f"/{start}"
    bucket = authority.partition("@")[0]
    return store, f"{bucket}/{start}" if bucket else start


@cache
def _store(scheme: str, authority: str) -> Any:
    from pyarrow import fs

    if scheme == "file":
        return fs.LocalFileSystem()
    uri = f"{_STORES.get(scheme, scheme)}://{quote(authority, safe='@:.-_')}/"
    return fs.FileSystem.from_uri(uri)[0]


def check_compression(name: str) -> str:
    """The ending of a file's name, which says how the file is compressed. Raises InputError for a way of Hadoop's."""
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    if ending in _HADOOPS_OWN:
        raise InputError(
            f"The file {name} is compressed as {ending}, which only Hadoop reads. Write .gz, .bz2 or .zst, or use "
            "tg.stream over Spark's reader, spark.readStream."
        )
    return ending


@contextmanager
def _decompressed(file: Any, name: str) -> Iterator[Any]:
    ending = check_compression(name)
    if ending == ".gz":
        with gzip.GzipFile(fileobj=file) as plain:
            yield plain
    elif ending == ".bz2" and file.size():  # Python's reader takes an empty file for one that ends in the middle
        with bz2.BZ2File(file) as plain:
            yield plain
    elif ending == ".zst":
        with pa.CompressedInputStream(file, "zstd") as plain:
            yield plain
    elif ending == ".deflate":
        yield _Deflated(file)
    else:
        yield file


class _Deflated:
    """A reader of a file that zlib has compressed, in one piece or in several, one behind the other."""

    def __init__(self, file: Any) -> None:
        self._file, self._zlib, self._begun = file, zlib.decompressobj(), False

    def read(self, size: int) -> bytes:
        while data := self._zlib.unused_data or self._file.read(size):
            if self._zlib.eof:
                self._zlib = zlib.decompressobj()
            self._begun = True
            if plain := self._zlib.decompress(data):
                return plain
        if self._begun and not self._zlib.eof:
            raise EOFError("the file ends in the middle")
        return b""
