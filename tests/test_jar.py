"""The jar with tidegate's classes for Hadoop belongs to the sources beside it."""

from __future__ import annotations

import zipfile

import pytest

pytest.importorskip("pyspark")

from tools import jar
from tools.maven import MavenError

from tidegate.runtime.spark.hadoop.local_files import CLASSES, JAR


def test_it_names_the_hash_of_its_sources() -> None:
    with zipfile.ZipFile(JAR) as file:
        manifest = file.read(jar.MANIFEST).decode()
    assert f"{jar.SOURCES_HASH}: {jar.sources_hash()}" in manifest.splitlines(), "run: python -m tools.jar"


def test_it_has_the_classes_that_settings_name() -> None:
    with zipfile.ZipFile(JAR) as file:
        names = set(file.namelist())
    assert {f"{name.replace('.', '/')}.class" for name in CLASSES.values()} <= names


def test_its_sources_compile_to_its_classes() -> None:
    try:
        classes = jar.compiled()
    except MavenError as error:
        pytest.skip(str(error))
    if not jar.compiler_is_that_of_the_jar():
        pytest.skip("another compiler makes other bytes")
    with zipfile.ZipFile(JAR) as file:
        assert {name: file.read(name) for name in file.namelist() if name != jar.MANIFEST} == classes
