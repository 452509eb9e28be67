"""Files on a local disk through tidegate's classes for Hadoop: the same as through Hadoop's own, and no programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegate.runtime.spark.hadoop.local_files import CLASSES
from tidegate.runtime.spark.session import socket_files
from tidegate.runtime.spark.session.config import check
from tidegate.runtime.spark.session.installed import checkpointing

HADOOPS = {
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
}
OURS = {name.removeprefix("spark.hadoop."): value for name, value in CLASSES.items()}
HADOOPS_PROGRAMS = {"chmod", "readlink", "stat", "ls"}

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class Disk:
    """The local disk by these classes, as Spark uses them for the files of a checkpoint."""

    def __init__(self, spark: SparkSession, classes: dict[str, str], folder: Path) -> None:
        context: Any = spark.sparkContext
        self.jvm, self.folder = context._jvm, folder
        self.settings = self.jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        for name, value in classes.items():
            self.settings.set(name, value)
        folder.mkdir()
        package: Any = self.jvm
        for part in checkpointing().split("."):
            package = getattr(package, part)
        self.manager = package.FileContextBasedCheckpointFileManager(self.path(""), self.settings)
        uri = self.path("").toUri()
        self.files = self.jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, self.settings)

    def path(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path((self.folder / name).as_uri())

    def write(self, name: str, content: bytes, again: bool = True) -> None:
        stream = self.manager.createAtomic(self.path(name), again)
        stream.write(bytearray(content))
        stream.close()

    def status(self, name: str, scheme: bool = True) -> tuple[bool, ...] | str:
        """Whether a name is a link, a folder and a file; or the name of the error."""
        path = self.path(name) if scheme else self.jvm.org.apache.hadoop.fs.Path(str(self.folder / name))
        try:
            status = self.files.getFileLinkStatus(path)
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return status.isSymlink(), status.isDirectory(), status.isFile()

    def found(self) -> dict[str, tuple[str, int, bytes]]:
        """Kind, mode and content of each file and folder."""
        entries: dict[str, tuple[str, int, bytes]] = {}
        for each in sorted(self.folder.rglob("*")):
            kind = "link" if each.is_symlink() else "folder" if each.is_dir() else "file"
            mode = each.lstat().st_mode & 0o7777
            name = re.sub(UUID, "uuid", str(each.relative_to(self.folder)))
            entries[name] = kind, mode, each.read_bytes() if each.is_file() else b""
        return entries


def used(disk: Disk) -> Iterator[Any]:
    """What a query does with a disk, and other programs with the same classes: each answer, and then the files."""
    permission = disk.jvm.org.apache.hadoop.fs.permission.FsPermission
    short = disk.jvm.java.lang.Short
    disk.write("0", b"first")
    disk.write("0", b"second")
    with pytest.raises(Py4JJavaError, match=r"(?i)exist"):
        disk.write("0", b"third", again=False)
    disk.manager.mkdirs(disk.path("state/0/é with space"))
    disk.write("state/0/é with space/1.delta", b"x" * 2000)
    yield disk.manager.exists(disk.path("state")), disk.manager.exists(disk.path("state/1"))
    # Links to a file, to a folder, and to nothing. Hadoop sees a link only in a path without a scheme.
    for link, target in (("of-file", "0"), ("of-folder", "state"), ("of-nothing", "nowhere")):
        (disk.folder / link).symlink_to(disk.folder / target)
        yield link, disk.status(link)
        yield link, disk.status(link, scheme=False)
    disk.write("of-file", b"instead of the link")
    disk.write("of-nothing", b"instead of the link to nothing")
    for name, mode in (("0", "600"), ("state", "750"), ("of-folder", "1777")):
        disk.files.setPermission(disk.path(name), permission(short.parseShort(mode, 8)))
    with pytest.raises(Py4JJavaError, match="missing"):
        disk.files.setPermission(disk.path("missing"), permission.getFileDefault())
    disk.manager.delete(disk.path("state/0/é with space/1.delta"))
    yield disk.found()


def test_files_are_those_that_hadoop_writes(spark: SparkSession, tmp_path: Path) -> None:
    ours, hadoops = (
        list(used(Disk(spark, {**classes, "fs.permissions.umask-mode": "027"}, tmp_path / name)))
        for name, classes in (("ours", OURS), ("hadoops", HADOOPS))
    )
    assert ours == hadoops
    assert ours[-1]["0"] == ("file", 0o600, b"second")
    assert ours[-1]["state/0"] == ("folder", 0o750, b"")


def programs(spark: SparkSession, recording: Path, run: Callable[[], object]) -> set[str]:
    """Names of the programs of HADOOPS_PROGRAMS that the JVM starts while `run` is called."""
    jvm: Any = spark.sparkContext._jvm
    recorded = jvm.jdk.jfr.Recording()
    recorded.enable("jdk.ProcessStart")
    recorded.start()
    run()
    recorded.stop()
    path = jvm.java.io.File(str(recording)).toPath()
    recorded.dump(path)
    recorded.close()
    events = jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(path)
    # Spark itself may delete the folder of an earlier test meanwhile, by `rm`.
    return {event.getString("command").split(" ")[0] for event in events} & HADOOPS_PROGRAMS


def test_no_program_is_started(spark: SparkSession, tmp_path: Path) -> None:
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    assert {name: settings.get(name) for name in OURS} == OURS, "tg.configure sets them for the tests' session"
    started = {}
    for name, classes in (("ours", OURS), ("hadoops", HADOOPS)):
        disk = Disk(spark, classes, tmp_path / name)
        started[name] = programs(spark, tmp_path / f"{name}.jfr", partial(disk.write, "0", b"first"))
    assert started == {"ours": set(), "hadoops": {"chmod", "readlink"}}


def to_delete(jvm: Any) -> set[str]:
    """The names of files that Java deletes when it ends."""
    files = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    files.setAccessible(True)
    return set(files.get(None).toString()[1:-1].split(", "))


def test_java_forgets_socket_files_that_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    """Spark lets it note one for each task of a stateful operator, and deletes the file itself."""
    jvm: Any = spark.sparkContext._jvm
    gone, there, other = (str(tmp_path / name) for name in (".gone.sock", ".there.sock", "gone.txt"))
    Path(there).touch()
    for name in (gone, there, other):
        jvm.java.io.File(name).deleteOnExit()
    assert to_delete(jvm) >= {gone, there, other}
    jvm.tidegate.hadoop.SocketFiles.forget()
    assert to_delete(jvm) & {gone, there, other} == {there, other}


def test_a_query_lets_java_forget_socket_files(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    for _ in range(2):
        check(spark)
    threads = [each.getName() for each in jvm.java.lang.Thread.getAllStackTraces().keySet()]
    assert threads.count("tidegate socket files") == (spark.conf.get(socket_files.ENABLED, "false") == "true")
