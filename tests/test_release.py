"""The package of a release: its files, its metadata, its news, and that it runs in an empty environment."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tools import address

import tidegate

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

TOPOLOGY = """
import sys
import tidegate as tg
from tidegate.testing import TopologyTestDriver

windowed = tg.stream("events", key="user", timestamp="ts").group_by_key()
windowed = windowed.windowed_by(tg.TimeWindows.of_size_with_no_grace("2 minutes"))
final = windowed.count().suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
driver = TopologyTestDriver(final)
for ts in (0, 240_000):
    driver.pipe_input({"user": "A", "ts": ts})
assert [row["count"] for row in driver.read_output()] == [1]
assert not {"pyspark", "pandas"} & sys.modules.keys()
print(tg.__file__)
"""


def _run(command: Sequence[str | Path], folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_every_fragment_is_in_the_news() -> None:
    news = _run([Path(sys.executable).with_name("towncrier"), "build", "--draft", "--version", "9.9.9"])
    fragments = sorted((ROOT / "changes").glob("*-*"))
    assert fragments
    assert {path.name.split(".", 1)[1] for path in fragments} == {"change.md"}
    entries = [line for line in news.splitlines() if line.startswith("* ")]
    assert len(entries) == len(fragments)
    for path in fragments:
        assert path.read_text().splitlines()[0] in news, path.name


ADDRESS, TAG = "https://forge.example/somebody/tidegate", "v9.9.9"


def test_a_release_has_the_urls_of_its_project() -> None:
    given = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(address.with_urls(given, ADDRESS, TAG))["project"]
    assert project["urls"]["Homepage"] == ADDRESS
    assert project["urls"]["Changelog"] == f"{ADDRESS}/blob/{TAG}/CHANGELOG.md"
    assert project["authors"]
    assert {**project, "urls": None} == {**tomllib.loads(given)["project"], "urls": None}
    with pytest.raises(ValueError, match="has URLs already"):
        address.with_urls(address.with_urls(given, ADDRESS, TAG), ADDRESS, TAG)


def test_every_link_of_the_readme_works_on_the_index() -> None:
    given = (ROOT / "README.md").read_text(encoding="utf-8")
    before = re.findall(r"\]\(([^)]+)\)", given)
    after = re.findall(r"\]\(([^)]+)\)", address.with_absolute_links(given, ADDRESS, TAG))
    assert len(before) > 20
    for link, absolute in zip(before, after, strict=True):
        assert absolute == (link if "://" in link or link.startswith("#") else f"{ADDRESS}/blob/{TAG}/{link}")
    kept = "[a](https://x.example/y) [b](#c) [d](mailto:a@b.example) `f](g)`"
    assert address.with_absolute_links(kept.replace("`f](g)`", ""), ADDRESS, TAG) == kept.replace("`f](g)`", "")


@pytest.mark.parametrize("arguments", [("", ""), (ADDRESS, "9.9.9"), ("https://forge.example", TAG)])
def test_an_address_that_is_none_changes_nothing(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert address.main(*arguments) == 2
    assert "give the address of a repository and a tag" in capsys.readouterr().out


def test_the_workflows_and_forms_are_what_they_say() -> None:
    """They parse, ask for what a report needs, and upload by Trusted Publishing with attestations."""
    files = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github").rglob("*.yml")}
    required = {field["id"] for field in files["bug"]["body"] if field.get("validations", {}).get("required")}
    assert required >= {"spark", "checkpoint", "versions"}
    assert "sink" in {field["id"] for field in files["bug"]["body"]}
    publish = files["release"]["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    assert publish["steps"][-1]["with"] == {"attestations": True}
    steps = [step.get("run", "") for step in files["release"]["jobs"]["build"]["steps"]]
    order = [
        next(i for i, step in enumerate(steps) if part in step) for part in (".ci/run", "tools.address", "package")
    ]
    assert order == sorted(order)
    matrix = files["tests"]["jobs"]["versions"]["strategy"]["matrix"]["include"]
    assert {"3.11", "3.12", "3.13", "3.14"} == {each["python"] for each in matrix}
    assert {"17", "21", "25"} == {each["java"] for each in matrix}
    assert {"4.1.*", "4.2.*", "4.3.*"} == {each["pyspark"] for each in matrix}
    runs = [step.get("run", "") for job in files["tests"]["jobs"].values() for step in job["steps"]]
    assert {"make test-lowest", "make test-with-spark SPARK=4.0.2", "make test-package"} <= set(runs)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["entry"].split()[0] for hook in hooks} == {
        f".venv/bin/{tool}" for tool in ("ruff", "mypy", "lint-imports")
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # Build the wheel from the source archive, as pip does without a wheel: this finds files that the archive lacks.
    _run([sys.executable, "-m", "build", "--outdir", folder, ROOT])
    return folder


@pytest.mark.slow
@pytest.mark.package
def test_wheel_and_archive_have_what_they_should(built: Path) -> None:
    _run([sys.executable, "-m", "twine", "check", "--strict", *sorted(built.iterdir())])
    (wheel,) = built.glob("*.whl")
    (archive,) = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        told = email.message_from_bytes(files.read(metadata))
    packed = {name for name in names if name.startswith("tidegate/")}
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "tidegate").rglob("*.py")}
    assert packed >= sources | {"tidegate/py.typed", "tidegate/runtime/spark/hadoop/local-files.jar"}
    assert {name.split("/")[0] for name in names} == {"tidegate", f"tidegate-{tidegate.__version__}.dist-info"}
    assert (told["Name"], told["Version"]) == ("tidegate", tidegate.__version__)
    assert set(PROJECT["optional-dependencies"]) == set(told.get_all("Provides-Extra"))
    with tarfile.open(archive) as files:
        inside = {name.split("/", 1)[1] for name in files.getnames() if "/" in name}
    assert inside >= {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "Makefile"}
    assert {f"src/{name}" for name in sources} <= inside


def _environment(built: Path, folder: Path, extra: str = "") -> Path:
    """The Python of an empty environment into which the wheel was installed."""
    (wheel,) = built.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}{extra}"])
    return python


@pytest.mark.slow
@pytest.mark.package
def test_the_wheel_runs_a_topology_where_nothing_else_is(built: Path, tmp_path: Path) -> None:
    python = _environment(built, tmp_path)
    installed = _run([python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"])
    assert {line.split("==")[0] for line in installed.split()} - {"pip", "setuptools"} == {
        "numpy",
        "pyarrow",
        "tidegate",
    }
    assert str(tmp_path) in _run([python, "-I", "-c", TOPOLOGY], tmp_path)
    assert tidegate.__version__ in _run([tmp_path / "venv" / "bin" / "tidegate", "--version"], tmp_path)


JOB = """
import tidegate as tg
from pyspark.sql import SparkSession, functions as F

builder = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.enabled", "false")
spark = tg.configure(builder).getOrCreate()
records = spark.range(300).select("id", F.timestamp_millis(F.col("id") * 1000).alias("ts"), F.lit(0).alias("p"))
records.coalesce(1).write.parquet("in")
events = spark.readStream.schema("id long, ts timestamp, p int").parquet("in")
stream = tg.stream(events, key="p", timestamp="ts", partition="p", offset="id")
windowed = stream.group_by_key().windowed_by(tg.TimeWindows.of_size_and_grace("1m", "10s"))
rows = windowed.emit_strategy(tg.EmitStrategy.on_window_close()).count().to_df()
query = rows.writeStream.format("memory").queryName("counts").trigger(availableNow=True).start()
query.awaitTermination(240)
print("counted", [row["count"] for row in spark.table("counts").orderBy("window").collect()])
"""


@pytest.mark.slow
@pytest.mark.package
@pytest.mark.spark
def test_a_job_runs_in_a_fresh_environment_that_nobody_activated(built: Path, tmp_path: Path) -> None:
    """No PYSPARK_PYTHON, and a `python3` on the PATH that has neither tidegate nor pyspark."""
    python = _environment(built, tmp_path, "[spark]")
    (tmp_path / "job.py").write_text(JOB)
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    done = subprocess.run([python, "job.py"], cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "counted [60, 60, 60, 60]" in done.stdout
    assert "Everything a query needs is here." in _run([tmp_path / "venv" / "bin" / "tidegate", "doctor"], tmp_path)
