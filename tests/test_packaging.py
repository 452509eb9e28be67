"""Promises of pyproject.toml that other files repeat."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tidegate

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = [
        *PROJECT["dependencies"],
        *(
            each
            for extra in ("runtime", "spark", "delta", "demo", "kafka", "metrics", "postgres")
            for each in extras[extra]
        ),
    ]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", each).groups() for each in wanted if ">=" in each)
    pinned = dict(
        line.split("==") for line in (ROOT / "requirements" / "lowest.txt").read_text().splitlines() if "==" in line
    )

    assert set(pinned) == set(bounds)
    for name, bound in bounds.items():
        assert f"{pinned[name]}.".startswith(f"{bound}."), name


def test_the_extras_of_the_lowest_lane_admit_its_versions() -> None:
    """Otherwise pip finds no versions for `make test-lowest`."""
    [line] = re.findall(r"^LOWEST_EXTRAS = '\.\[(.*)\]'$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = PROJECT["optional-dependencies"]
    lines = (ROOT / "requirements" / "lowest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    admitted = {
        extra
        for extra, needed in extras.items()
        if all(each.name not in pinned or pinned[each.name] in each.specifier for each in map(Requirement, needed))
    }
    assert admitted - {"runtime", "spark"} == set(line.split(","))


def test_version_is_said_once_more() -> None:
    assert PROJECT["version"] == tidegate.__version__


def test_no_upper_cap_on_what_platforms_bring() -> None:
    extras = PROJECT["optional-dependencies"]
    assert not any("<" in each for each in [*PROJECT["dependencies"], *extras["runtime"], *extras["spark"]])


def _fake(folder: Path, version_line: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    java.chmod(0o755)
    return folder


def _require_java(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "tools" / "require-java")],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
        ('openjdk version "11.0.22" 2024-01-16', "it is version 11.0.22"),
        ('java version "1.8.0_402"', "it is version 1.8.0_402"),
        ("not a version at all", "it is version unknown"),
    ],
)
def test_java_is_looked_at_before_spark_is_started(tmp_path: Path, line: str, message: str | None) -> None:
    home = _fake(tmp_path / "jdk", line)
    done = _require_java({"JAVA_HOME": str(home)})

    assert (done.returncode == 0) is (message is None), done.stderr
    assert (message or "") in done.stderr


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    done = _require_java({"JAVA_HOME": str(tmp_path)})

    assert done.returncode == 1
    assert "there is no bin/java in it" in done.stderr
    assert "openjdk-17" in done.stderr


def test_an_old_python_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.18" && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / "tools" / "make-venv"), str(tmp_path / "venv")],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(old)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "needs Python 3.11 or newer; found: Python 3.8.18" in done.stderr
