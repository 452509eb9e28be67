"""Installs a peer: a virtual environment of its own under `target/`, and jars if it has a `jars.xml`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools import maven

from benchmarks.options import say
from benchmarks.race import UnableError

HERE = Path(__file__).parent
TARGET = HERE / "target"
INSTALL_SECONDS = 1_800


def python(peer: str) -> Path:
    """The interpreter of `peer` with its requirements.txt installed. Raises UnableError."""
    folder, stamp = TARGET / peer, TARGET / f"{peer}.installed"
    requirements = HERE / peer / "requirements.txt"
    found = folder / "bin" / "python"
    # The stamp is written last: an incomplete installation is repeated.
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return found
    say(f"  {peer}: installing what its requirements.txt names (minutes, the first time)")
    shutil.rmtree(folder, ignore_errors=True)
    _run(peer, sys.executable, "-m", "venv", str(folder))
    _run(peer, str(found), "-m", "pip", "install", "--disable-pip-version-check", "-q", "-r", str(requirements))
    stamp.write_text(requirements.read_text())
    return found


def jars(peer: str) -> list[Path]:
    """The jars of `peer`'s jars.xml, none if there is no such file. Raises UnableError."""
    pom = HERE / peer / "jars.xml"
    if not pom.exists():
        return []
    try:
        return maven.jars(pom, TARGET / f"{peer}-maven", INSTALL_SECONDS)
    except maven.MavenError as error:
        raise UnableError(f"{peer}: its jars could not be fetched ({error}); see that mvn works, and repeat") from None


def _run(peer: str, *command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UnableError(f"{peer}: pip did not finish within {INSTALL_SECONDS} s; repeat the command") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnableError(
            f"{peer} could not be installed ({' '.join(said[-2:])}); see that pip reaches its index from here, "
            f"and that {HERE.name}/{peer}/requirements.txt has wheels for this Python"
        )
