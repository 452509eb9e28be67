"""The package that a release uploads: its files, its metadata, its news, and that it runs where nothing else is."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import tidegate

ROOT = Path(__file__).parents[1]

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # From the source archive, as pip builds where there is no wheel: what the archive lacks is found out.
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
    assert packed >= sources | {"tidegate/py.typed"}
    assert {name.split("/")[0] for name in names} == {"tidegate", f"tidegate-{tidegate.__version__}.dist-info"}
    assert (told["Name"], told["Version"]) == ("tidegate", tidegate.__version__)
    assert {"runtime", "spark", "kafka", "connect", "metrics", "demo"} == set(told.get_all("Provides-Extra"))
    with tarfile.open(archive) as files:
        inside = {name.split("/", 1)[1] for name in files.getnames() if "/" in name}
    assert inside >= {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "Makefile"}
    assert {f"src/{name}" for name in sources} <= inside


@pytest.mark.slow
@pytest.mark.package
def test_the_wheel_runs_a_topology_where_nothing_else_is(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel])
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
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[spark]"])
    (tmp_path / "job.py").write_text(JOB)
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    done = subprocess.run([python, "job.py"], cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "counted [60, 60, 60, 60]" in done.stdout
    assert "Everything a query needs is here." in _run([tmp_path / "venv" / "bin" / "tidegate", "doctor"], tmp_path)
