"""A standalone cluster and a Spark Connect server for tests: processes on loopback, gone with their files afterwards.

They are started from the installed pyspark. `Bare` is a Python for executors that has everything but tidegate.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
START_SECONDS = 180
DAEMON = "org.apache.spark.deploy"


class Daemons:
    """Processes of Spark's own that end with the block, and a folder for what they write."""

    def __enter__(self) -> Self:
        self._processes: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-cluster-"))
        try:
            self._start_all()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # Executors end with their worker; any process left belongs to the sessions that the daemons began.
        for one in self._family():
            _send(one, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, name: str) -> str:
        """Output of a process."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start_all(self) -> None:
        raise NotImplementedError

    def _start(self, name: str, program: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        """Run a program of Spark's `bin`; `more` is for its environment."""
        # Nodes of a real cluster do not have these variables.
        ours = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_REMOTE")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        environment |= {
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        command = [str(Path(more.get("SPARK_HOME", SPARK), "bin", program)), *arguments]
        if orphan := shutil.which("setpriv"):
            # Also end if the process that started this one is killed: executors end with their worker.
            command = [orphan, "--pdeathsig", "TERM", *command]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=environment | more,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _await(self, name: str, process: subprocess.Popen[bytes], pattern: str) -> str:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and process.poll() is None:
            if found := re.search(pattern, self.log(name)):
                return found[1]
            time.sleep(0.2)
        raise RuntimeError(f"{name} did not start:\n{self.log(name)[-3000:]}")

    def _family(self) -> list[psutil.Process]:
        sessions = {process.pid for process in self._processes}
        return [one for one in psutil.process_iter() if _session(one.pid) in sessions]


class Cluster(Daemons):
    """A master and `workers`, each with `cores` and `memory`, as a context; `url` is the master's address."""

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._sizes = ["--cores", str(cores), "--memory", memory]
        self._n = workers
        self.url = ""

    def _start_all(self) -> None:
        address = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        master = self._start("master", "spark-class", f"{DAEMON}.master.Master", *address)
        self.url = self._await("master", master, r"Starting Spark master at (spark://\S+)")
        for number in range(self._n):
            name, folder = f"worker-{number}", str(self.folder / f"work-{number}")
            arguments = [*address, *self._sizes, "--work-dir", folder, self.url]
            worker = self._start(name, "spark-class", f"{DAEMON}.worker.Worker", *arguments)
            self._await(name, worker, "(Successfully registered) with master")

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors that run now."""
        return [one for one in self._family() if _runs(one, "CoarseGrainedExecutorBackend")]

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes that executors have started."""
        return [one for one in self._family() if _runs(one, "pyspark.daemon")]


class ConnectServer(Daemons):
    """A Spark Connect server with a Spark of its own, whose workers run `python`; `url` is for clients.

    `path` is its PYTHONPATH, `settings` are further ones of Spark, and `more` is for its environment.
    """

    def __init__(self, python: Path, path: str, settings: Mapping[str, str] | None = None, **more: str) -> None:
        self._environment = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": path, "SPARK_DAEMON_MEMORY": "1g"} | more
        self._settings = settings or {}
        self.url = ""

    def _start_all(self) -> None:
        settings = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": "0",
            "spark.ui.enabled": "false",
            **self._settings,
        }
        chosen = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        kind = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        server = self._start("server", "spark-submit", "--master", "local[2,4]", *chosen, *kind, **self._environment)
        port = self._await("server", server, r"Spark Connect server started at: \S*:(\d+)")
        self.url = f"sc://{HOST}:{port}"


def packed(folder: Path) -> Path:
    """The package as an archive that Python imports from, which is how docs/cluster.md ships it."""
    return Path(shutil.make_archive(str(folder / "tidegate"), "zip", ROOT / "src", "tidegate"))


class Bare:
    """An environment in `folder` with all the packages of this one except tidegate; `python` is its interpreter."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        target = folder / "lib" / version / "site-packages"
        for name in ("purelib", "platlib"):
            for package in Path(sysconfig.get_path(name)).iterdir():
                place = target / package.name
                if "tidegate" not in package.name and not place.exists():
                    place.symlink_to(package)


def _runs(process: psutil.Process, what: str) -> bool:
    try:
        return any(what in argument for argument in process.cmdline())
    except psutil.Error:
        return False


def _send(process: psutil.Process, sent: signal.Signals) -> None:
    try:
        process.send_signal(sent)
    except psutil.NoSuchProcess:
        return


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
