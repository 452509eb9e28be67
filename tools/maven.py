"""Jars through Maven, into a folder of one's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class MavenError(Exception):
    """Jars cannot be had here; the message says why."""


def jars(pom: Path, target: Path, timeout: float = 300) -> list[Path]:
    """What the runtime of `pom` needs, fetched into `target` unless it is there. Raises MavenError."""
    folder, stamp = target / pom.stem, target / f"{pom.stem}.fetched"
    if not stamp.exists() or stamp.read_text() != pom.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                [program("mvn"), "-q", "-B", "-f", str(pom), *goal],
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MavenError(f"mvn did not finish within {timeout:.0f} s") from None
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            raise MavenError("mvn failed: " + " ".join(said[:3]))
        stamp.write_text(pom.read_text())
    return sorted(folder.glob("*.jar"))


def program(name: str) -> str:
    """Where `name` is: in JAVA_HOME, or on the PATH. Raises MavenError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        raise MavenError(f"{name} is not on the PATH")
    return found
