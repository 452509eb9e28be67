"""`python -m tidegate doctor` reports the installation, and a remedy for each thing that is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest

from tidegate.cli.main import main
from tidegate.errors import TidegateError
from tidegate.runtime.spark.session import installed


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Java 21 that cannot be started: its version stands in its release file."""
    program(tmp_path, "java", "exit 1")
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return tmp_path


def test_all_is_well(capsys: pytest.CaptureFixture[str], java: Path) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert f"ok    Java               21 ({java}/bin/java)\n" in shown
    assert f"ok    Spark              {pyspark.__version__}\n" in shown
    assert f"spark-sql-kafka-0-10_2.13:{pyspark.__version__}\n" in shown
    assert shown.endswith("Everything a query needs is here.\n")


def test_an_old_java_is_named_with_the_fix(capsys: pytest.CaptureFixture[str], java: Path) -> None:
    (java / "release").write_text('JAVA_VERSION="11.0.2"\n')
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert f"FIX   Java               11 ({java}/bin/java)\n" in shown
    assert "Spark needs Java 17 or later" in " ".join(shown.split())
    assert shown.endswith("1 of 7 parts need something.\n")


def test_no_java(capsys: pytest.CaptureFixture[str], java: Path) -> None:
    (java / "bin" / "java").unlink()
    assert main(["doctor"]) == 1
    assert "FIX   Java               none\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 0.0.1 3 8", "where tidegate and Python are '0.0.1 3 8'"),
        ("echo 'No module named tidegate' >&2; exit 1", "where tidegate and Python are 'No module named tidegate'"),
        ("exit 0", "where tidegate and Python are 'it printed nothing'"),
    ],
)
def test_workers_with_another_python(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, message: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(program(tmp_path, "python3", script)))
    assert main(["doctor"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert message in shown
    assert f"Unset PYSPARK_PYTHON, or set it to {sys.executable}." in shown


def test_a_python_of_workers_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python9"))
    assert main(["doctor"]) == 1
    assert "and there is no such program" in " ".join(capsys.readouterr().out.split())


def test_the_python_of_this_process_is_the_one_of_workers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert main(["doctor"]) == 0
    assert f"ok    Python of workers  {sys.executable}\n" in capsys.readouterr().out


def test_an_old_spark_on_a_new_java(monkeypatch: pytest.MonkeyPatch, java: Path) -> None:
    (java / "release").write_text('JAVA_VERSION="25"\n')
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    with pytest.raises(TidegateError, match=r"Java 25, and Spark 4.1.1 does not run on it.*Use Java 17 or 21"):
        installed.require_java()
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    installed.require_java()


def test_a_spark_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.4")
    with pytest.raises(TidegateError, match=r"pyspark is 3.5.4: tidegate needs 4.0 or later"):
        installed.require_spark()
