"""Builds the jar with tidegate's classes for Hadoop: `python -m tools.jar`, with a JDK and an installed pyspark.

The jar is part of the repository, because users need no compiler. It names the hash of its sources, and a test
compares.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from tidegate.runtime.spark.hadoop.local_files import JAR
from tools.maven import program

SOURCES = JAR.parent / "java"
RELEASE = "17"
"""The oldest Java that Spark 4 runs on; the jar in the repository is made by its compiler."""
MANIFEST = "META-INF/MANIFEST.MF"
SOURCES_HASH = "Sources-SHA-256"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of each entry: a jar of the same classes is the same file."""


def sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def sources_hash() -> str:
    found = hashlib.sha256()
    for each in sources():
        found.update(each.relative_to(SOURCES).as_posix().encode() + b"\0" + each.read_bytes() + b"\0")
    return found.hexdigest()


def compiler_is_that_of_the_jar() -> bool:
    """Whether this compiler is that of Java `RELEASE`: a later one may make other bytes."""
    said = subprocess.run([program("javac"), "-version"], capture_output=True, text=True, check=True).stdout
    return said.startswith(f"javac {RELEASE}.")


def compiled() -> dict[str, bytes]:
    """The class files, by their names in the jar. Raises MavenError without a compiler."""
    spark = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory() as folder:
        command = [program("javac"), "--release", RELEASE, "-proc:none", "-g:none", "-cp", f"{spark}/*", "-d", folder]
        subprocess.run([*command, *map(str, sources())], check=True)
        classes = sorted(Path(folder).rglob("*.class"))
        return {each.relative_to(folder).as_posix(): each.read_bytes() for each in classes}


def write(jar: Path, classes: dict[str, bytes]) -> None:
    manifest = f"Manifest-Version: 1.0\n{SOURCES_HASH}: {sources_hash()}\n\n"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {MANIFEST: manifest.encode(), **classes}.items():
            file.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    write(JAR, compiled())
    print(f"Written: {JAR}")
