"""Java from Maven: what tests, parity and benchmarks fetch and compile, once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class KafkaMissingError(Exception):
    """Kafka cannot be run here; the message says why."""


def program(name: str) -> str:
    """Where `name` is, that of JAVA_HOME first. Raises KafkaMissingError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        raise KafkaMissingError(f"{name} is not on the PATH")
    return found


def run(pom: Path, *goals: str, timeout: float = 300) -> None:
    """`mvn goals` for the project of `pom`. Raises KafkaMissingError."""
    try:
        done = subprocess.run(
            [program("mvn"), "-q", "-B", "-f", str(pom), *goals],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KafkaMissingError(f"mvn did not finish within {timeout:.0f} s") from None
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise KafkaMissingError("mvn failed: " + " ".join(said[:3]))


def build(project: Path, timeout: float = 300) -> str:
    """Compile the project in a folder, and fetch what is missing; the class path. Raises KafkaMissingError."""
    pom, target = project / "pom.xml", project / "target"
    sources = [pom, *(project / "src").rglob("*.java")]
    stamp = target / "built"
    if not stamp.exists() or any(source.stat().st_mtime >= stamp.stat().st_mtime for source in sources):
        run(pom, "process-classes", timeout=timeout)
        stamp.touch()
    return os.pathsep.join((str(target / "classes"), str(target / "lib" / "*")))
