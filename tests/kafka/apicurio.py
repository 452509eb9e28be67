"""A real schema registry for tests, Apicurio's, with its data in memory: on loopback, gone afterwards.

It speaks the protocol of Confluent's registry below `apis/ccompat`. It comes from Maven like the broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError

from tools import maven
from tools.maven import program

from kafka.broker import HERE, JVM, TARGET, end, free_ports

ARTIFACT = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"
"""The whole server. The newest that Java 17 runs and that could be had on 2026-11-25."""
START_SECONDS = 180
SETTINGS = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_MANAGEMENT_HOST": "127.0.0.1", "QUARKUS_LOG_LEVEL": "WARN"}


def runner(timeout: float = 600) -> Path:
    """The jar to run, fetched and unpacked if it is not there. Raises MavenError."""
    folder = TARGET / ARTIFACT.replace(":", "-")
    found = list(folder.glob("*-runner.jar"))
    if not found:
        maven.run(
            HERE / "broker.xml",
            "dependency:copy",
            f"-Dartifact={ARTIFACT}",
            f"-DoutputDirectory={folder}",
            timeout=timeout,
        )
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            archive.unlink()
        found = list(folder.glob("*-runner.jar"))
    return found[0]


class Apicurio:
    """The registry, as a context; `url` is its address. Raises MavenError where it cannot be had."""

    def __init__(self) -> None:
        self._jar = runner()
        self.url = ""

    def __enter__(self) -> Self:
        port, management = free_ports(2)
        self._log = Path(tempfile.mkdtemp(prefix="tidegate-registry-")) / "log"
        ports = {"QUARKUS_HTTP_PORT": str(port), "QUARKUS_MANAGEMENT_PORT": str(management)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [program("java"), *JVM, "-jar", str(self._jar)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                env={**os.environ, **SETTINGS, **ports},
            )
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        try:
            self._await()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end(self._process)
        shutil.rmtree(self._log.parent, ignore_errors=True)

    def _await(self) -> None:
        stop = time.monotonic() + START_SECONDS
        while time.monotonic() < stop and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(0.3)
        raise RuntimeError("the registry did not start:\n" + self._log.read_text()[-3000:])
