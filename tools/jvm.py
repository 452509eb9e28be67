"""A Java program that answers requests: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.maven import build, program

Json = dict[str, Any]


class Jvm:
    """Runs the main class of a Maven project as a context; builds it if necessary. Raises MavenError."""

    def __init__(self, project: Path, main: str, flags: Sequence[str]) -> None:
        command = [program("java"), *flags, "-cp", build(project), main]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._log.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: Json, seconds: float) -> Json:
        """The answer; RuntimeError with the end of the log if there is none within `seconds`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        watch = threading.Timer(seconds, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()
        watch.cancel()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the JVM is gone or was stuck, at {question}:\n{self._log.read()[-3000:]}")
        answer: Json = json.loads(line)
        return answer
