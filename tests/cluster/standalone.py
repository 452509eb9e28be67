"""A real standalone cluster for tests: a master and workers as processes on loopback, gone with their files afterwards.

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


class Cluster:
    """A master and `workers`, each with `cores` and `memory`, as a context; `url` is the master's."""

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._sizes = ["--cores", str(cores), "--memory", memory]
        self._n = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-cluster-"))
        try:
            master = self._start("master", f"{DAEMON}.master.Master", "--port", "0")
            self.url = self._await("master", master, r"Starting Spark master at (spark://\S+)")
            for number in range(self._n):
                self._worker(number)
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
        # Executors end with their worker; whatever has not is of the sessions that began with the daemons.
        for one in self._family():
            _send(one, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors that run now."""
        return [one for one in self._family() if _runs(one, "CoarseGrainedExecutorBackend")]

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes that executors have started."""
        return [one for one in self._family() if _runs(one, "pyspark.daemon")]

    def log(self, name: str) -> str:
        """What "master" or "worker-0" has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def executor_log(self, most: int = 4000) -> str:
        """The ends of what executors have said, the latest last."""
        logs = sorted(self.folder.glob("work-*/app-*/*/stderr"), key=lambda path: path.stat().st_mtime)
        return "\n".join(path.read_text(errors="replace")[-most:] for path in logs[-2:])

    def _worker(self, number: int) -> None:
        name = f"worker-{number}"
        folder = ["--work-dir", str(self.folder / f"work-{number}")]
        process = self._start(name, f"{DAEMON}.worker.Worker", "--port", "0", *self._sizes, *folder, self.url)
        self._await(name, process, "(Successfully registered) with master")

    def _start(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        # Nobody who uses a cluster has these set on its nodes.
        ours = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_REMOTE")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        environment |= {
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        command = [str(SPARK / "bin" / "spark-class"), kind, "--host", HOST, "--webui-port", "0", *arguments]
        if orphan := shutil.which("setpriv"):
            # Also where whoever started it is killed: executors end with their worker.
            command = [orphan, "--pdeathsig", "TERM", *command]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
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
