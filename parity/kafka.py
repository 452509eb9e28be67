"""Kafka Streams' own TopologyTestDriver in one JVM: a line of JSON per question, one per answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
TARGET = HERE / "target"
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

ANSWER_SECONDS = 60
"""A JVM that takes longer for one case is stuck."""

Json = dict[str, Any]


class KafkaMissingError(Exception):
    """Kafka Streams cannot be run here; the message says why."""


def build(timeout: float = 300) -> None:
    """Compile, and fetch what is missing. Raises KafkaMissingError."""
    sources = [HERE / "pom.xml", *(HERE / "src").rglob("*.java")]
    stamp = TARGET / "built"
    if stamp.exists() and all(source.stat().st_mtime < stamp.stat().st_mtime for source in sources):
        return
    mvn = _program("mvn")
    try:
        done = subprocess.run(
            [mvn, "-q", "-B", "process-classes"], cwd=HERE, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise KafkaMissingError(f"mvn did not finish within {timeout:.0f} s") from None
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise KafkaMissingError("mvn failed: " + " ".join(said[:3]))
    stamp.touch()


def _program(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name) or (shutil.which(name, path=f"{home}/bin") if home else None)
    if found is None:
        raise KafkaMissingError(f"{name} is not on the PATH")
    return found


class Kafka:
    """The JVM, as a context."""

    def __init__(self) -> None:
        build()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        classes = os.pathsep.join((str(TARGET / "classes"), str(TARGET / "lib" / "*")))
        self._jvm = subprocess.Popen(
            [_program("java"), *JVM, "-cp", classes, "tidegate.parity.Main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        self._jvm.wait(30)
        self._log.close()

    def ask(self, topology: Json, records: tuple[Json, ...]) -> Json:
        """Its answer: `raw` and `suppressed` rows by record, `dropped`, `failed_at` (a record, or None)."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps({"topology": topology, "records": records}) + "\n")
        self._jvm.stdin.flush()
        watch = threading.Timer(ANSWER_SECONDS, self._jvm.kill)
        watch.start()
        line = self._jvm.stdout.readline()
        watch.cancel()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the JVM is gone or was stuck, at {topology}:\n{self._log.read()[-3000:]}")
        answer: Json = json.loads(line)
        if answer["failed_at"] is not None and "buffer exceeded its max capacity" not in answer["error"]:
            raise RuntimeError(f"Kafka failed at record {answer['failed_at']}: {answer['error']}")
        return answer
