"""The module that Spark's Python processes run at their start: the pyspark they import, and sitecustomize of others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tidegate.runtime.spark.session import config

FOLDER = config.COMPILED[config.PATH]
INSTALLED = Path(pyspark.__file__).parent
LIB = INSTALLED / "python" / "lib"
TOLD = """
import sys, pyspark, py4j
print(pyspark.__file__, py4j.__file__, [entry for entry in sys.path if entry.endswith(".zip")], sep="\\n")
"""


def printed(path: list[Path | str], program: str = TOLD) -> list[str]:
    """Output of a process that starts as Spark starts one: with this path in front of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def zips() -> list[Path]:
    found = sorted(LIB.glob("py*.zip"))
    if not found:
        pytest.skip("this pyspark has no zips")
    return found


def test_without_it_python_imports_from_the_zip(zips: list[Path]) -> None:
    assert printed([*zips])[0].startswith(str(LIB / "pyspark.zip"))


def test_the_installed_package_comes_before_its_zip(zips: list[Path]) -> None:
    pyspark_file, py4j_file, at_the_end = printed([*zips, FOLDER])
    assert pyspark_file == str(INSTALLED / "__init__.py")
    assert ".zip" not in py4j_file
    # Modules that are not installed are still found in the zips.
    assert all(repr(str(each)) in at_the_end for each in zips)


def test_a_zip_of_another_spark_stays_in_front(tmp_path: Path, zips: list[Path]) -> None:
    lib = tmp_path / "another" / "pyspark" / "python" / "lib"
    lib.mkdir(parents=True)
    for each in zips:
        shutil.copy(each, lib)
    others = [lib / each.name for each in zips]
    assert printed([*others, FOLDER])[0].startswith(str(lib / "pyspark.zip"))


def test_a_zip_by_another_name_of_its_folder_is_known(tmp_path: Path, zips: list[Path]) -> None:
    (tmp_path / "home").symlink_to(INSTALLED)
    linked = [tmp_path / "home" / "python" / "lib" / each.name for each in zips]
    assert printed([*linked, FOLDER])[0] == str(INSTALLED / "__init__.py")


def test_the_sitecustomize_of_another_folder_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.of_mine = __name__, __file__\n")
    program = "import sys, sitecustomize; print(*sys.of_mine, sitecustomize.__file__)"
    file = str(tmp_path / "sitecustomize.py")
    assert printed([FOLDER, tmp_path], program) == [f"sitecustomize {file} {file}"]


def test_an_error_in_that_one_is_told_as_python_tells_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("1 / 0\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([FOLDER, str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", "print(1)"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert "ZeroDivisionError" in done.stderr


def test_a_process_without_any_zip_starts_as_it_does() -> None:
    assert printed([FOLDER])[0] == str(INSTALLED / "__init__.py")
