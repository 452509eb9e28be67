"""Text files as lines, as Hadoop's reader has them: ended by LF, CR or both, without the byte order mark in front."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.errors import InputError
from tidegate.runtime.spark.files import place
from tidegate.runtime.spark.files.listed import NUMBER, PATH, VALUES, folder_values, typed, value_in
from tidegate.runtime.spark.files.stores import Root, too_large
from tidegate.runtime.spark.worker.memory import keep
from tidegate.spec.columns import OURS

CHUNK = 4 << 20
LONGEST = 512 << 20
"""Most bytes of a line: Arrow could not count beyond 2 GiB in a batch."""

VALUE, FILE = "value", OURS + "file"
_MARK = b"\xef\xbb\xbf"
_SPACE = 0x20
_SHOWN = 100
"""Letters of a header that are shown if it is no list of names."""


@dataclass(frozen=True)
class Skipped:
    """The lines of a file that are no records.

    blank    a line of these bytes alone is no record; None if each line is a record
    comment  a line that begins with it is no record
    header   names in the first line of a file; None if that line is a record; empty if nobody checks the names
    """

    blank: bytes | None = None
    comment: bytes | None = None
    header: tuple[str, ...] | None = None
    separator: str = ","
    quote: str = '"'

    def records(self, lines: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """A mask of the lines that are records; a header counts as one."""
        kept = np.ones(len(lines), bool)
        if self.blank is None:
            return kept
        starts = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1, lines.offset * 4)
        size = np.diff(starts)
        data = np.frombuffer(lines.buffers()[2] or b"", np.uint8)
        first = np.zeros(len(lines), np.uint8)
        first[size > 0] = data[starts[:-1][size > 0]]
        # Looks only at the few lines that begin with a byte that may be blank.
        for at in np.flatnonzero(first <= _SPACE):
            kept[at] = bool(bytes(data[starts[at] : starts[at + 1]]).strip(self.blank))
        if self.comment is not None:
            for at in np.flatnonzero(first == self.comment[0]):
                kept[at] &= not bytes(data[starts[at] : starts[at + 1]]).startswith(self.comment)
        return kept

    def _names_in(self, header: str) -> list[str]:
        if len(self.separator) == 1:
            try:
                return next(csv.reader([header], delimiter=self.separator, quotechar=self.quote or None), [])
            except csv.Error:  # a name is longer than Python takes
                return [f"{header[:_SHOWN]}..."]
        return [each.strip().strip(self.quote) for each in header.split(self.separator)]

    def check_header(self, line: bytes, file: str) -> None:
        """Raises InputError if the first line of a file has other names than the schema."""
        if not self.header:
            return
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode(errors="replace")
        found = self._names_in(text)
        if [name.strip().lower() for name in found] != [name.lower() for name in self.header]:
            raise InputError(
                f"The file {file} begins with the names {', '.join(found)}, and the columns of the stream are "
                f"{', '.join(self.header)}. CSV has no other names than those of its places: give `schema` in the "
                'order of the file; options={"enforceSchema": "true"} reads it as it is.'
            )


@dataclass(frozen=True)
class Lines:
    """Reads the lines of listed files, with the columns of `schema`.

    These may be VALUE, the bytes of a line; `partition` and `offset` (`place`); and FILE. Other columns are values in
    names of folders such as day=2026-01-01, as text.

    folders  the folder of each column with such a value
    kinds    the types to which Arrow can cast the text of such columns; of others the text is as in the name
    zone     zone of times without a zone in names of folders
    """

    root: Root
    schema: pa.Schema
    skipped: Skipped = field(default=Skipped())
    folders: Mapping[str, str] = field(default_factory=dict)
    chunk: int = CHUNK
    kinds: Mapping[str, pa.DataType] = field(default_factory=dict)
    zone: str = "UTC"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep()
        for batch in batches:
            for listed in batch.select([PATH, NUMBER, VALUES]).to_pylist():
                yield from self._of_file(listed[PATH], listed[NUMBER], folder_values(listed[VALUES]))

    def _of_file(self, path: str, number: int, folders: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
        name = self.root.named(path)
        try:
            with self.root.bytes_of(path) as read:
                yield from self._read(read, name, number, folders)
        except MemoryError as error:  # Arrow's too
            raise too_large(name, error) from error
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise InputError(
                f"The file {name} cannot be read: {error}. Put a good one in its place, under the same name, and start "
                "the query again: it goes on with this batch."
            ) from error

    def _read(
        self, read: Callable[[int], bytes], name: str, number: int, folders: Mapping[str, str | None]
    ) -> Iterator[pa.RecordBatch]:
        row, wants_header = 0, self.skipped.header is not None
        given = {
            column: self._text(column, folder, value_in(folders, folder, name), name)
            for column, folder in self.folders.items()
        }
        for lines in split(read, name, self.chunk):
            kept = self.skipped.records(lines)
            if wants_header and kept.any():
                at = int(kept.argmax())
                self.skipped.check_header(lines[at].as_py(), name)
                kept[at] = wants_header = False
            columns = {VALUE: lines, **place.order(number, row, len(lines))}
            row += len(lines)
            of_file = {FILE: name, **given}
            made = [columns[n] if n in columns else _same(of_file.get(n), len(lines)) for n in self.schema.names]
            batch = pa.record_batch(made, schema=self.schema)
            batch = batch if kept.all() else batch.filter(pa.array(kept))
            if batch.num_rows:
                yield batch

    def _text(self, column: str, folder: str, value: str | None, file: str) -> str | None:
        if (kind := self.kinds.get(column)) is None:
            return value
        found = typed(value, folder, kind, file, self.zone)
        made = pa.types.is_temporal(kind) or pa.types.is_integer(kind)
        return str(found.cast(pa.string())) if made and found.is_valid else value


def _same(text: str | None, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)


def split(read: Callable[[int], bytes], name: str = "", chunk: int = CHUNK) -> Iterator[pa.Array]:
    """The lines in the bytes of `read`, as arrays of bytes; the last line needs no line end."""
    # The line so far, and the bytes behind it that may go on as a line end, or as the mark.
    line, size, rest, first = list[bytes](), 0, b"", True
    while data := read(chunk):
        block = rest + data
        if first:
            if len(block) < len(_MARK) and _MARK.startswith(block):
                rest = block
                continue
            block, first = block.removeprefix(_MARK), False
        # A carriage return at the end may be half of a line end.
        rest = b"\r" if block.endswith(b"\r") else b""
        block = _with_one_end(block[: len(block) - len(rest)])
        cut = block.rfind(b"\n") + 1
        if cut:
            yield _lines(b"".join([*line, block[:cut]]))
            line, size = [], 0
        line.append(block[cut:])
        size += len(line[-1])
        if size > LONGEST:
            raise InputError(f"The file {name} has a line of more than {LONGEST:,} bytes. Is it a text file?")
    last = b"".join([*line, _with_one_end(rest)])
    if last:
        yield _lines(last if last.endswith(b"\n") else last + b"\n")


def _with_one_end(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block


def _lines(block: bytes) -> pa.Array:
    """The lines of a block that ends with a line end."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    starts = np.zeros(len(ends) + 1, np.int32)
    starts[1:] = ends - np.arange(len(ends))
    text = block.replace(b"\n", b"")
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(starts), pa.py_buffer(text)])
