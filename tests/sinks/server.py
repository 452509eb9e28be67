"""A real PostgreSQL for tests, on loopback at a free port, gone with its data afterwards.

Debian's package `postgresql` brings it. It refuses to run as root, so root runs it as the user of that package.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

USER = "postgres"
START_SECONDS = 60


class NoPostgresError(Exception):
    """PostgreSQL is not installed."""


def programs() -> Path:
    """The folder with `initdb` and `postgres`, of the newest installed version. Raises NoPostgresError."""
    found = shutil.which("initdb")
    if found and shutil.which("postgres"):
        return Path(found).resolve().parent
    folders = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if not folders:
        raise NoPostgresError("there is no initdb: apt-get install postgresql, or tools/require-postgres")
    return max(folders, key=lambda path: int(path.parent.name) if path.parent.name.isdecimal() else 0)


class Server:
    """The server, as a context; `url` is the address of its database."""

    def __enter__(self) -> Self:
        self._bin = programs()
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
        root = os.geteuid() == 0
        self._user = USER if root else None
        if root:
            shutil.chown(self._folder, USER)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        self._process = subprocess.Popen(
            [
                str(self._bin / "postgres"),
                *("-D", str(self._data), "-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-F"),
                *("-c", "TimeZone=America/New_York"),  # differs from the time zone of the rows
            ],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "log").open("wb"),
            start_new_session=True,
        )
        self._wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def crash(self) -> None:
        """Kill one process of the server, as the kernel does without memory: all connections end, and it recovers."""
        import psycopg

        def run(connection: Any) -> Any:
            return connection.execute("SELECT pg_backend_pid()").fetchone()[0]

        killed, witness = psycopg.connect(self.url), psycopg.connect(self.url, autocommit=True)
        os.kill(run(killed), signal.SIGKILL)
        end = time.monotonic() + START_SECONDS
        with contextlib.suppress(psycopg.OperationalError):
            while time.monotonic() < end:
                run(witness)
                time.sleep(0.05)
        killed.close()
        witness.close()
        self._wait()

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            user=self._user,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as tried:
                tried.settimeout(1)
                if tried.connect_ex(("127.0.0.1", self.port)) == 0 and self._answers():
                    return
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < end, (self._folder / "log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        done = subprocess.run(
            [str(self._bin / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"], check=False
        )
        return done.returncode == 0


def postgres() -> Server:
    """The server for a test, which is skipped where PostgreSQL is not installed."""
    try:
        programs()
    except NoPostgresError as error:
        pytest.skip(f"no PostgreSQL: {error}")
    return Server()
