"""A folder as a catalog (`listed.Catalog`): its files in the order of modification time and name.

A file is known by its path in the folder, and taken once. An offset names the files of its batch, so a batch that is
run again has the same files. The process that lists knows the hashes of all files that were taken before. For a
restart the offset has hashes of the last `RECENT` of them and of files with times ahead of theirs, and for older ones
the place up to which all were taken.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from tidegate.errors import InputError, warn
from tidegate.instants import show_instant
from tidegate.kernel.columns.arrays import Hashes
from tidegate.runtime.spark.files.glob import names_like
from tidegate.runtime.spark.files.listed import Listed, Offset
from tidegate.runtime.spark.files.stores import Root

RECENT = 4096
"""Taken files that are known one by one after a restart: some 40 kB in each offset."""

_HASH_BYTES = 8
_NULL = "__HIVE_DEFAULT_PARTITION__"
_SINKS_LOG = "_spark_metadata"


class Found(NamedTuple):
    """A file in the folder; files sort in their order."""

    mtime_ns: int
    path: str
    size: int

    @property
    def place(self) -> tuple[int, str]:
        return self.mtime_ns, self.path


@dataclass
class Folder:
    """The files of a folder.

    pattern    pattern of names (`glob`)
    recursive  whether files of all folders below are read; otherwise of folders with a value, such as day=2026-01-01
    """

    root: Root
    pattern: str | None = None
    recursive: bool = False
    _taken: Hashes | None = field(default=None, init=False, repr=False)
    _at: Offset = field(default_factory=dict, init=False, repr=False)
    _sizes: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _last: list[Found] | None = field(default=None, init=False, repr=False)
    _gone: tuple[Any, ...] | None = field(default=None, init=False, repr=False)
    """Up to this place files were taken that may come back: none was there at the restart."""

    def initial(self) -> Offset:
        return {"taken": 0, "files": [], "recent": "", "horizon": None, "older": 0}

    def latest(self, start: Offset, limit: int | None) -> Offset:
        found = self.files() if self._last is None else self._last
        taken = self._taken_before(start, found)
        self._warn_changed(found)
        hashes = [_hash(each.path) for each in found]
        known = np.isin(_numbers(hashes), taken)
        new = [each for each, is_known in zip(found, known.tolist(), strict=True) if not is_known]
        self._check_not_back(start, new)
        return self._behind(start, new[:limit], dict(zip(hashes, found, strict=True))) if new else start

    def stop_here(self) -> None:
        self._last = self.files()

    def between(self, start: Offset, end: Offset) -> Sequence[Listed]:
        files = end["files"] if start != end else []
        number = end["taken"] - len(files)
        if start != end and number != start["taken"]:
            raise InputError(
                f"The checkpoint has {start['taken']} files before a batch that begins with file {number}: is a file "
                "of its folder `offsets` missing? Begin with a new checkpoint."
            )
        return [Listed(path, number + at, size, self.values(path)) for at, (path, size) in enumerate(files)]

    def files(self) -> list[Found]:
        """All files that are there, in their order."""
        store, folder = self.root.located()
        try:
            return sorted(self._below(store, folder.rstrip("/"), ""))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.root.uri} has a file or a folder whose name is not UTF-8, {bytes(error.object)!r}: Arrow does "
                "not read such names. Rename it, and start the query again."
            ) from error
        except OSError as error:
            way = "Is it there, is it no file, and can it be read?"
            if "*" in self.root.uri:
                way = "Give the folder alone, and a pattern of names as options={'pathGlobFilter': '*.json'}."
            raise InputError(f"There is no folder {self.root.uri}: {error}. {way}") from error

    def values(self, path: str) -> dict[str, str | None]:
        """The values in the names of a file's folders, by name; empty if all folders are read."""
        pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part and not self.recursive)
        return {unquote(name): None if value == _NULL else unquote(value) for name, value in pairs}

    def _below(self, store: Any, root: str, inside: str) -> list[Found]:
        from pyarrow import fs

        found = []
        # A folder within may be removed while it is listed.
        below = fs.FileSelector(f"{root}/{inside}".rstrip("/") or "/", allow_not_found=bool(inside))
        for info in store.get_file_info(below):
            name, kind = info.base_name, info.type  # Arrow makes a value of its enumeration anew each time
            if kind == fs.FileType.Directory:
                if name == _SINKS_LOG:
                    raise InputError(
                        f"{self.root.named(inside)} was written by Spark's own streaming sink, whose log says which of "
                        "the files count, and tg.files does not read it. Use tg.stream over spark.readStream, which "
                        "does, or a Delta table."
                    )
                if not _hidden(name) and (self.recursive or "=" in name):
                    found += self._below(store, root, f"{inside}{name}/")
            elif kind == fs.FileType.File and not _hidden(name) and self._wanted(name):
                found.append(Found(info.mtime_ns or 0, inside + name, info.size))
        return found

    def _wanted(self, name: str) -> bool:
        return self.pattern is None or names_like(self.pattern).fullmatch(name) is not None

    def _taken_before(self, start: Offset, found: list[Found]) -> Hashes:
        """The hashes of the paths that were taken up to `start`, perhaps without older files that are not there."""
        if self._taken is not None and start["taken"] - len(start["files"]) == self._at["taken"]:
            self._taken = np.append(self._taken, _numbers(_hash(path) for path, _ in start["files"]))
            there = {each.path for each in found}
            sizes = [*self._sizes.items(), *start["files"]]
            self._sizes = {path: size for path, size in sizes if path in there}
        elif self._taken is None or start != self._at:
            self._warn_another(start)
            self._taken = self._known(start, found)
        self._at = start
        return self._taken

    def _warn_changed(self, found: list[Found]) -> None:
        """Warn once of each file that has another size than when it was taken."""
        for each in found:
            if (size := self._sizes.get(each.path, each.size)) != each.size:
                del self._sizes[each.path]
                warn(
                    f"The file {self.root.named(each.path)} had {size} bytes when it was listed, and has {each.size} "
                    "now: a file is read once, so what was written since may be missing. Write files elsewhere, and "
                    "move them into the folder when they are whole."
                )

    def _check_not_back(self, start: Offset, new: list[Found]) -> None:
        """Raise InputError if new files of a folder that was empty at a restart are as old as files that were taken."""
        gone = self._gone
        if gone is not None and (back := [each for each in new if each.place <= gone]):
            raise InputError(
                f"{self.root.uri} was empty when the query was started, and has {len(back)} files now that were "
                f"modified up to {_shown(gone)}, as were {start['older']} files that were read: are they the same, and "
                "was their disk not there? Then start the query again, which knows them. If they are new, give them a "
                "later modification time before (touch)."
            )

    def _warn_another(self, start: Offset) -> None:
        """Warn of an offset of another folder. Earlier versions did not note the folder."""
        if (folder := start.get("folder", self.root.uri)) != self.root.uri:
            warn(
                f"The checkpoint is of the folder {folder}, and the query reads {self.root.uri} now. A file is known "
                "by its path in the folder, so files with the names of those that were read there are not read here. "
                "If the folder was moved, all is well. If it is another one, begin with a new checkpoint."
            )

    def _known(self, start: Offset, found: list[Found]) -> Hashes:
        """The hashes of files that were taken, by the offset `start`: recent ones, and older ones that are found."""
        recent = set(_hashes(start["recent"]))
        horizon = None if start["horizon"] is None else tuple(start["horizon"])
        self._gone = None if found else horizon
        old = (_hash(each.path) for each in found if horizon is not None and each.place <= horizon)
        older = {each for each in old if each not in recent}
        if horizon is not None and len(older) > start["older"]:
            raise InputError(
                f"{self.root.uri} has {len(older)} files that were modified up to {_shown(horizon)}, and "
                f"{start['older']} of that age were read: the others came while the query was stopped, with an old "
                "modification time, and cannot be told from the files that were read. Put them aside, start the query, "
                "and put them back while it runs."
            )
        return _numbers([*older, *recent])

    def _behind(self, start: Offset, new: list[Found], found: Mapping[bytes, Found]) -> Offset:
        """The offset behind new files, given all files by the hashes of their paths."""
        hashes = [*_hashes(start["recent"]), *(_hash(each.path) for each in new)]
        older, recent = hashes[:-RECENT], hashes[-RECENT:]
        gone, horizon = older, start["horizon"]
        if older:
            places = {each: list(found[each].place) for each in hashes if each in found}
            there = sorted(places[each] for each in recent if each in places)
            middle = there[len(there) // 2] if there else []
            # A file that is newer than most recent ones stays known by its name (at most as many do): files yet to come
            # are older than it, and would be taken for files that were read.
            ahead = [each for each in older if places.get(each, middle) > middle][-RECENT:]
            kept = set(ahead)
            gone = [each for each in older if each not in kept]
            recent = [*ahead, *recent]
            left = [places[each] for each in gone if each in places]
            horizon = max([*left, *([] if horizon is None else [horizon])], default=None)
        return {
            "taken": start["taken"] + len(new),
            "files": [[each.path, each.size] for each in new],
            "recent": b64encode(b"".join(recent)).decode(),
            "horizon": horizon,
            "older": start["older"] + len(gone),
            "folder": self.root.uri,
        }


def _shown(place: tuple[Any, ...]) -> str:
    """The modification time of a place."""
    return show_instant(place[0] // 1_000_000)


def _hash(path: str) -> bytes:
    return blake2b(path.encode(errors="surrogateescape"), digest_size=_HASH_BYTES).digest()


def _numbers(hashes: Iterable[bytes]) -> Hashes:
    """Hashes as numbers: eight bytes for each of all the files that a process takes."""
    return np.frombuffer(b"".join(hashes), np.uint64)


def _hashes(text: str) -> list[bytes]:
    data = b64decode(text)
    return [data[at : at + _HASH_BYTES] for at in range(0, len(data), _HASH_BYTES)]


def _hidden(name: str) -> bool:
    """Whether Spark skips a file or folder of this name."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
