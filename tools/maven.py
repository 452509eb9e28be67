"""Java from Maven: fetches and compiles, once, the jars of tests, parity and benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class MavenError(Exception):
    """Maven cannot fetch or compile here; the message has the reason."""


def program(name: str) -> str:
    """The path of the program `name`, in JAVA_HOME first, then on the PATH. Raises MavenError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        raise MavenError(f"{name} is not on the PATH")
    return found


def run(pom: Path, *goals: str, timeout: float = 300) -> None:
    """Run `mvn goals` for the project of `pom`. Raises MavenError."""
    try:
        done = subprocess.run(
            [program("mvn"), "-q", "-B", "-f", str(pom), *goals],
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


def jars(pom: Path, target: Path, timeout: float = 300, **properties: str) -> list[Path]:
    """The runtime jars of `pom` with these properties, fetched into `target` once. Raises MavenError."""
    name = "-".join([pom.stem, *properties.values()])
    folder, stamp = target / name, target / f"{name}.fetched"
    if not stamp.exists() or stamp.read_text() != pom.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        run(pom, *goal, *(f"-D{key}={value}" for key, value in properties.items()), timeout=timeout)
        stamp.write_text(pom.read_text())
    return sorted(folder.glob("*.jar"))


def build(project: Path, timeout: float = 300) -> str:
    """Compile the project in a folder and fetch its jars, if it changed; returns the class path. Raises MavenError."""
    pom, target = project / "pom.xml", project / "target"
    sources = [pom, *(project / "src").rglob("*.java")]
    stamp = target / "built"
    if not stamp.exists() or any(source.stat().st_mtime >= stamp.stat().st_mtime for source in sources):
        run(pom, "process-classes", timeout=timeout)
        stamp.touch()
    return os.pathsep.join((str(target / "classes"), str(target / "lib" / "*")))
