"""The log of a Delta table: its files at a version, and the files that each commit adds and removes.

By the protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md) commits are JSON, and a checkpoint has the
actions that are still in force of all commits up to its version. A checkpoint of the second kind, by the feature
v2Checkpoint, may name files beside it ("sidecars") that have the table's files; its own name may be of the first kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tidegate.errors import InputError
from tidegate.runtime.spark.files.all_rows import all_rows
from tidegate.runtime.spark.files.stores import Root, too_large

LOG = "_delta_log"
READABLE = ("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview")
READABLE_TOO = ("v2Checkpoint", "vacuumProtocolCheck", "variantType", "domainMetadata")
"""Features of readers under which files can be read."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_BY_UUID = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\.(?:json|parquet)")
"""The name of a checkpoint of the second kind only."""
SIDECARS = "_sidecars"
_IN_FORCE = ("add", "metaData", "protocol", "sidecar")
_ADD = ("path", "size", "modificationTime", "dataChange", "partitionValues", "deletionVector")

Action = dict[str, Any]


@dataclass(frozen=True)
class Commit:
    """The actions of one version."""

    version: int
    actions: tuple[Action, ...]

    @property
    def adds(self) -> list[Action]:
        """The files with new rows, in their order."""
        return [a["add"] for a in self.actions if "add" in a and a["add"].get("dataChange", True)]

    @property
    def removes(self) -> list[Action]:
        """The files whose rows were deleted, or are in other files now."""
        return [a["remove"] for a in self.actions if "remove" in a and a["remove"].get("dataChange", True)]

    @property
    def operation(self) -> str:
        """The writer's name of the operation, "?" if it has none."""
        return next((str(a["commitInfo"].get("operation", "?")) for a in self.actions if "commitInfo" in a), "?")

    def last(self, kind: str) -> Action | None:
        """The last action of a kind, such as metaData."""
        return next((a[kind] for a in reversed(self.actions) if kind in a), None)


@dataclass
class Snapshot:
    """A table at a version."""

    version: int = -1
    metadata: Action = field(default_factory=dict)
    protocol: Action = field(default_factory=dict)
    files: dict[tuple[str, str], Action] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> None:
        """Apply these actions."""
        for action in actions:
            if (removed := action.get("remove")) is not None:
                self.files.pop(_key(removed), None)
            elif (added := action.get("add")) is not None:
                self.files[_key(added)] = added
            elif (metadata := action.get("metaData")) is not None:
                self.metadata = metadata
            elif (protocol := action.get("protocol")) is not None:
                self.protocol = protocol

    @property
    def in_order(self) -> list[Action]:
        """The files by the time at which they were written, and by name."""
        return sorted(self.files.values(), key=lambda add: (add.get("modificationTime") or 0, add["path"]))


@dataclass(frozen=True)
class Log:
    """The log of the table at `root`."""

    root: Root

    def commit(self, version: int) -> Commit | None:
        """The commit of a version, None if there is no such version."""
        try:
            return Commit(version, tuple(self._of_lines(f"{version:020}.json")))
        except FileNotFoundError:
            return None

    def stamp(self, version: int) -> tuple[int, int | None] | None:
        """Size and modification time of the commit of a version; None if there is no such version."""
        store, folder = self.root.located()
        (info,) = store.get_file_info([f"{folder.rstrip('/')}/{LOG}/{version:020}.json"])
        return (info.size, info.mtime_ns) if info.is_file else None

    def versions(self) -> list[int]:
        """The versions whose commits are there."""
        return sorted(int(match[1]) for match in map(_COMMIT.fullmatch, self._names()) if match)

    def checkpointed(self) -> int:
        """The version of the newest checkpoint by the file that names it; -1 if there is no such file."""
        try:
            (about,) = self._of_lines("_last_checkpoint")
            return int(about["version"])
        except (FileNotFoundError, InputError, ValueError, KeyError, TypeError):  # a hint, and no more
            return -1

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The table at a version, or at the newest one. Raises InputError if the log lacks a version for it."""
        names = self._names()
        commits = [int(match[1]) for match in map(_COMMIT.fullmatch, names) if match]
        checkpoints = _checkpoints(names)
        newest = max([*commits, *checkpoints], default=None)
        if newest is None:
            raise InputError(f"{self.root.uri} is no Delta table: its log {LOG} has no version.")
        version = newest if version is None else version
        start = max((each for each in checkpoints if each <= version), default=-1)
        found = Snapshot(start)
        for part in checkpoints.get(start, []):
            found.apply(self._of_checkpoint(part))
        while found.version < version:
            commit = self.commit(found.version + 1)
            if commit is None:
                raise self.lost(found.version + 1)
            found.apply(commit.actions)
            found.version += 1
        if not found.metadata:
            raise InputError(
                f"The log of {self.root.uri} does not have the columns of version {version}: a file of it is empty or "
                "ends in the middle. Put a whole one in its place, and start the query again."
            )
        return found

    def lost(self, version: int) -> InputError:
        """The error of a version that is not there any more."""
        return InputError(
            f"The log of {self.root.uri} has no version {version} any more, and no checkpoint of the table has it. "
            "Begin with a new checkpoint; delta.logRetentionDuration says how long versions stay."
        )

    def _names(self) -> list[str]:
        from pyarrow import fs

        store, folder = self.root.located()
        try:
            found = store.get_file_info(fs.FileSelector(f"{folder.rstrip('/')}/{LOG}"))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError(f"{self.root.uri} is no Delta table: it has no folder {LOG}.") from error
        return [info.base_name for info in found]

    def _of_checkpoint(self, name: str) -> Iterator[Action]:
        """The actions of a file of a checkpoint, and of the files that it names."""
        for action in self._of_file(name):
            if (sidecar := action.get("sidecar")) is None:
                yield action
                continue
            beside = f"{SIDECARS}/{unquote(sidecar['path'].rpartition('/')[2])}"
            try:
                yield from self._of_file(beside)
            except FileNotFoundError as error:
                raise InputError(
                    f"The checkpoint {self.root.named(f'{LOG}/{name}')} needs the file {beside} in {LOG}, which is not "
                    "there. Write a checkpoint of the table anew, and start the query again."
                ) from error

    def _of_file(self, name: str) -> Iterator[Action]:
        """The actions of a file of a checkpoint that say something of the table's files."""
        import pyarrow.parquet as pq

        if name.endswith(".json"):
            yield from (action for action in self._of_lines(name) if not action.keys().isdisjoint(_IN_FORCE))
            return
        try:
            with self.root.opened(f"{LOG}/{name}") as source, pq.ParquetFile(source) as file:
                columns = [*(f"add.{each}" for each in _ADD), "metaData", "protocol", "sidecar.path"]
                batches = file.iter_batches(1 << 14, columns=columns)
                for batch in all_rows(batches, file.metadata.num_rows, f"{LOG}/{name}"):
                    for row in batch.to_pylist():
                        yield {kind: _plain(of) for kind, of in row.items() if of is not None}
        except FileNotFoundError:
            raise
        except MemoryError as error:  # Arrow's too
            raise too_large(self.root.named(f"{LOG}/{name}"), error) from error
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"The file {self.root.named(f'{LOG}/{name}')} of a checkpoint of the table cannot be read: {error}. "
                "Put a whole one in its place, or write a checkpoint anew, and start the query again."
            ) from error

    def _of_lines(self, name: str) -> Iterator[Action]:
        """The actions of a file with one in each line. Raises FileNotFoundError, and InputError for other lines."""
        with self.root.bytes_of(f"{LOG}/{name}") as read:
            data = b"".join(iter(lambda: read(1 << 20), b""))
        try:
            yield from [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError as error:
            raise InputError(f"{self.root.named(f'{LOG}/{name}')} has a line that is no JSON: {error}.") from error


def path_of(add: Action, root: Root) -> str:
    """The path of a file in the table's folder. Raises InputError for a file that lies elsewhere."""
    path = unquote(add["path"])
    if "://" in path or path.startswith(("/", "file:")):
        raise InputError(
            f"{root.uri} has the file {path}, which lies elsewhere: it is a shallow clone. Use tg.stream over "
            "spark.readStream, or a table of its own."
        )
    return path


def check_protocol(protocol: Action, root: Root) -> None:
    """Raise InputError for a table whose protocol has features that are not read here."""
    features = protocol.get("readerFeatures") or []
    unknown = [each for each in features if each not in (*READABLE, *READABLE_TOO)]
    if unknown or (protocol.get("minReaderVersion") or 1) > 3:
        raise InputError(
            f"{root.uri} has reader version {protocol.get('minReaderVersion')} with {', '.join(unknown) or 'more'}, "
            f"which tidegate does not read: it knows {', '.join((*READABLE, *READABLE_TOO))}. Use tg.stream over "
            "spark.readStream."
        )


def partition_values(add: Action, names: Mapping[str, str]) -> dict[str, str | None]:
    """The values of partition columns by name; `names` has the name of each column by its name in the log."""
    given = dict(add.get("partitionValues") or {})
    return {name: given.get(physical) or None for physical, name in names.items()}


def _checkpoints(names: Collection[str]) -> dict[int, list[str]]:
    """The files of each whole checkpoint."""
    found: dict[tuple[int, int], dict[int, str]] = {}
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        found.setdefault((int(match[1]), int(match[3] or 1)), {})[int(match[2] or 1)] = match[0]
    whole = {}
    for (version, parts), given in sorted(found.items()):
        if all(part in given for part in range(1, parts + 1)):
            whole[version] = [given[part] for part in range(1, parts + 1)]
    for match in filter(None, map(_BY_UUID.fullmatch, names)):
        whole.setdefault(int(match[1]), [match[0]])
    return whole


def _key(action: Action) -> tuple[str, str]:
    """The file of an action: two writers may encode one path in two ways."""
    vector = action.get("deletionVector") or {}
    deleted = f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}@{vector.get('offset')}"
    return unquote(action["path"]), deleted


def _plain(action: Any) -> Any:
    """An action of a checkpoint as it is in a commit: maps are lists of pairs to Arrow."""
    if not isinstance(action, dict):
        return action
    pairs = ("partitionValues", "configuration", "options")
    return {name: dict(value or ()) if name in pairs else _plain(value) for name, value in action.items()}
