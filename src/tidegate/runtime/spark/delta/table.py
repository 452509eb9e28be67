"""A Delta table as a catalog (`files.listed.Catalog`): its files in the order of versions, and of a commit's log."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from tidegate.errors import InputError
from tidegate.runtime.spark.delta.log import (
    Action,
    Commit,
    Log,
    check_protocol,
    partition_values,
    path_of,
)
from tidegate.runtime.spark.files.deletion_vector import DELETED, as_text
from tidegate.runtime.spark.files.listed import Listed, Offset

MAPPING, PHYSICAL = "delta.columnMapping.mode", "delta.columnMapping.physicalName"
ID = "delta.columnMapping.id"

_BEGAN = "began"
"""The version of `Table.initial` when batch 0 was planned, in each offset behind it."""

_PASSED = 100
"""After so many versions in a row without a new file the offset moves: the next batch is empty."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table as its log has them.

    physical    name of each column in the files
    partitions  columns whose values are in the log and not in the files
    ids         number of each column by its name in the files, if files have columns by number
    """

    fields: StructType
    physical: dict[str, str]
    partitions: tuple[str, ...]
    ids: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(metadata: Action, log: Log) -> Columns:
        """The columns of a table. Raises InputError for an unknown mapping of columns to files."""
        mode = (metadata.get("configuration") or {}).get(MAPPING, "none")
        if mode not in ("none", "name", "id"):
            raise InputError(
                f"{log.root.uri} has {MAPPING} = {mode}, which tidegate does not know. Use tg.stream over "
                "spark.readStream."
            )
        fields = StructType.fromJson(json.loads(metadata["schemaString"]))
        physical = {
            each.name: each.name if mode == "none" else str((each.metadata or {}).get(PHYSICAL, each.name))
            for each in fields.fields
        }
        ids = {}
        if mode == "id":
            ids = {physical[each.name]: int((each.metadata or {}).get(ID, 0)) for each in fields.fields}
            if not all(ids.values()):
                raise InputError(
                    f"{log.root.uri} has {MAPPING} = id, so its files have columns by number, and "
                    f"{next(name for name, number in ids.items() if not number)!r} has none in its log. Use tg.stream "
                    "over spark.readStream."
                )
        return Columns(fields, physical, tuple(metadata.get("partitionColumns") or ()), ids)

    def changed(self, to: Columns) -> list[str]:
        """A text for each of these columns that is another one in `to`, or is elsewhere: in the log or in the files."""
        found = []
        for field_ in self.fields.fields:
            name = field_.name
            if name not in to.physical:
                found.append(f"{name!r} is not there any more")
            elif to.physical[name] != self.physical[name]:
                found.append(f"{name!r} is another column of that name")
            elif (kind := to.fields[name].dataType.simpleString()) != field_.dataType.simpleString():
                found.append(f"{name!r} is {kind}, and was {field_.dataType.simpleString()}")
            elif (name in to.partitions) != (name in self.partitions):
                found.append(f"{name!r} is {_place(name in to.partitions)}, and was {_place(name in self.partitions)}")
        return found


@dataclass(frozen=True)
class Seen:
    """A commit that was read, and the stamp of its file (`Log.stamp`)."""

    commit: Commit
    stamp: tuple[int, int | None] | None


@dataclass
class Table:
    """The files of a table, from the snapshot of the newest version on, or from the commit `starting`.

    columns         columns of the plan, which was made at the version `planned`
    ignore_deletes  whether commits that only remove files are passed over
    skip_changes    whether commits that remove files are passed over, with the files that they add
    """

    log: Log
    table: str
    columns: Columns
    planned: int
    starting: int | None = None
    ignore_deletes: bool = False
    skip_changes: bool = False
    _last: int | None = field(default=None, init=False, repr=False)
    _snapshot: tuple[int, list[Action]] | None = field(default=None, init=False, repr=False)
    _commits: dict[int, Commit] = field(default_factory=dict, init=False, repr=False)
    _newest: Seen | None = field(default=None, init=False, repr=False)
    """The newest commit so far: as long as it stays the same, the log is that of this table."""

    def initial(self) -> Offset:
        version = self.planned if self.starting is None else self.starting
        return {"table": self.table, "version": version, "index": 0, "snapshot": self.starting is None, "taken": 0}

    def latest(self, start: Offset, limit: int | None) -> Offset:
        self._check(start)
        self._check_log(start)
        if start == self.initial():
            # Spark plans batch 0 now, even without files: its end says where the query begins.
            start = {**start, _BEGAN: start["version"]}
        end, left, passed = start, limit, 0
        for place, adds in self._stretches(start):
            there = len(adds) - place["index"]
            taken = there if left is None else min(there, left)
            passed = 0 if taken else passed + 1
            # Each question begins at `end`, so versions without files must not remain behind it for good.
            if taken or passed >= _PASSED:
                end = {**place, "index": place["index"] + taken, "taken": end["taken"] + taken}
                left = None if left is None else left - taken
            if left == 0:
                break
        if self._newest is not None and (newest := max(self._commits, default=-1)) > self._newest.commit.version:
            self._see(self._commits[newest])
        return end

    def stop_here(self) -> None:
        self._last = max(self.log.versions(), default=-1)

    def between(self, start: Offset, end: Offset) -> Sequence[Listed]:
        self._check(end)
        if start == self.initial():
            # If Spark runs batch 0 again after a restart, the table may have come further since the query began.
            # The end has the version with which the query began. Ends that an earlier tidegate planned lack it: then it
            # is known only if the end lies in the first snapshot.
            known = end["version"] if end["snapshot"] else start["version"]
            start = {**start, "version": end.get(_BEGAN, known)}
        found: list[Listed] = []
        if start == end:
            return found
        for place, adds in self._stretches(start):
            is_last = (place["version"], place["snapshot"]) == (end["version"], end["snapshot"])
            for add in adds[place["index"] : end["index"] if is_last else None]:
                found.append(self._listed(add, start["taken"] + len(found)))
            if is_last:
                break
        if start["taken"] + len(found) != end["taken"]:
            raise InputError(
                f"The log of {self.log.root.uri} has {len(found)} files where the checkpoint has "
                f"{end['taken'] - start['taken']}. Was the table made anew, or an option changed within a batch?"
            )
        return found

    def _stretches(self, start: Offset) -> Iterator[tuple[Offset, list[Action]]]:
        """The versions from a place on, one after the other: the place to begin at, and all files of the version.

        What is behind the place is not asked for any more, and would take memory for as long as the query runs.
        """
        place = start
        if not start["snapshot"]:
            self._snapshot = None
        self._commits = {number: each for number, each in self._commits.items() if number >= start["version"] - 1}
        while True:
            adds = self._of_snapshot(place["version"]) if place["snapshot"] else self._of_commit(place["version"])
            if adds is None:
                return
            yield place, adds
            place = {**place, "version": place["version"] + 1, "index": 0, "snapshot": False}
            if self._last is not None and place["version"] > self._last:
                return

    def _of_snapshot(self, version: int) -> list[Action]:
        if self._snapshot is None or self._snapshot[0] != version:
            self._snapshot = version, self.log.snapshot(version).in_order
        return self._snapshot[1]

    def _of_commit(self, version: int) -> list[Action] | None:
        """The files with new rows in a commit, None if there is no such version yet."""
        commit = self._commits.get(version) or self.log.commit(version)
        if commit is None:
            if self._passed(version) and self.log.commit(version) is None:
                raise self.log.lost(version)
            return None
        if version not in self._commits:
            self._check_commit(commit)
            # Keep the commits that a batch is made of, and the last one.
            self._commits = {number: each for number, each in self._commits.items() if number >= version - 1000}
            self._commits[version] = commit
        return [] if commit.removes and self.skip_changes else commit.adds

    def _passed(self, version: int) -> bool:
        """Whether the table has come to a version or further, as far as a look into its log says."""
        if not self._commits:
            return max(self.log.versions(), default=-1) >= version
        # Each look that finds nothing new reads one small file. A log loses commits in front of a checkpoint alone.
        return self.log.checkpointed() >= version

    def _check_commit(self, commit: Commit) -> None:
        """Raises InputError for a commit that does more than add rows, unless it may be passed over."""
        where = f"Version {commit.version} of {self.log.root.uri} ({commit.operation})"
        if (protocol := commit.last("protocol")) is not None:
            check_protocol(protocol, self.log.root)
        metadata = commit.last("metaData")
        if metadata is not None and metadata["id"] != self.table:
            raise InputError(f"{where} makes it another table. Begin with a new checkpoint.")
        # A plan has the newest columns of its time, and finds columns of older files by their names in the files.
        if metadata is not None and commit.version > self.planned:
            changed = self.columns.changed(Columns.of(metadata, self.log))
            if changed:
                raise InputError(
                    f"{where} changes columns: {', '.join(changed)}. Start the query again, which then has the new "
                    "ones; if the operator uses these columns, begin with a new checkpoint."
                )
        if commit.removes and not (self.skip_changes or (self.ignore_deletes and not commit.adds)):
            raise InputError(
                f"{where} removes {len(commit.removes)} files and adds {len(commit.adds)}: rows were deleted or "
                'changed, and a stream has new rows only. Use options={"skipChangeCommits": "true"} to pass over such '
                'commits, {"ignoreDeletes": "true"} over those that only delete, or begin with a new checkpoint.'
            )

    def _listed(self, add: Action, number: int) -> Listed:
        names = {self.columns.physical[name]: name for name in self.columns.partitions}
        self._check_partitions(add, names)
        values = partition_values(add, names)
        if vector := add.get("deletionVector"):
            values[DELETED] = as_text(vector)
        return Listed(path_of(add, self.log.root), number, add.get("size") or 0, values)

    def _check_partitions(self, add: Action, names: Mapping[str, str]) -> None:
        """Raises InputError for a file of a time when the table was partitioned by other columns."""
        values = add.get("partitionValues") or {}
        if values.keys() == names.keys():
            return  # as nearly every file
        called = {physical: name for name, physical in self.columns.physical.items()}
        given = {called[physical] for physical in values if physical in called}
        if given != set(names.values()):
            raise InputError(
                f"The file {path_of(add, self.log.root)} of {self.log.root.uri} is partitioned by "
                f"{_named(given)}, and the table now by {_named(names.values())}: a stream has one partitioning. Begin "
                'with a new checkpoint, and with options={"startingVersion": ...} behind the version that changed it.'
            )

    def _check(self, place: Offset) -> None:
        if place["table"] != self.table:
            raise InputError(
                f"The checkpoint is of the table {place['table']}, and the one at {self.log.root.uri} is {self.table}: "
                "it was made anew. Begin with a new checkpoint."
            )

    def _check_log(self, start: Offset) -> None:
        """Raises InputError if the log has other commits than those that were read up to `start`, under their numbers:
        the table was made anew, or an earlier state of it was put in its place.
        """
        if self._newest is None:
            self._check_reaches(start)
            return
        seen = self._newest.commit
        if self.log.stamp(seen.version) == self._newest.stamp:
            return
        now = self.log.commit(seen.version)
        if now is None and self.log.commit(0) is None:
            return  # a log loses its oldest versions first
        if now != seen:
            raise InputError(
                f"Version {seen.version} of {self.log.root.uri}, which the query has read, is "
                f"{'gone' if now is None else 'another one now'}: the table was made anew, or an earlier state of it "
                "was put in its place. Begin with a new checkpoint."
            )
        self._see(seen)

    def _check_reaches(self, start: Offset) -> None:
        """Raises InputError if the log ends in front of what was read up to `start`. Notes its newest commit."""
        newest = max(self.log.versions(), default=None)
        if newest is None:
            return
        # A query from the latest version on waits for the next one.
        waits = not start["snapshot"] and start["index"] == 0
        if start["version"] > newest + waits:
            raise InputError(
                f"The checkpoint has read {self.log.root.uri} up to version {start['version']}, and the table ends "
                f"with version {newest}: an earlier state of it was put in its place. Its next versions would pass for "
                "those that were read. Put the newest state back, or begin with a new checkpoint."
            )
        if (commit := self.log.commit(newest)) is not None:
            self._see(commit)

    def _see(self, commit: Commit) -> None:
        self._newest = Seen(commit, self.log.stamp(commit.version))


def _place(partitioned: bool) -> str:
    return "a column of the partitions" if partitioned else "a column of the files"


def _named(columns: Collection[str]) -> str:
    return ", ".join(map(repr, sorted(columns))) or "no column"
