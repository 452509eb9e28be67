"""The daemon that imports before it forks: state that its workers share or must not share, and Spark's own daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.runtime.spark import daemon
from tidegate.runtime.spark.session import config

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Spark's own daemon runs elsewhere")
TASKS = 2


def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row about this worker, sent when other tasks certainly have workers of their own."""
    import numpy as np

    for _ in batches:
        pass
    time.sleep(2)
    parent = Path("/proc", str(os.getppid()))
    row = {
        "pid": os.getpid(),
        "daemon": (parent / "cmdline").read_text().replace("\0", " "),
        "threads": len(list((parent / "task").iterdir())),
        "drawn": float(np.random.random()),  # noqa: NPY002 - the generator that all of a process share
    }
    yield pa.RecordBatch.from_pylist([row])


def test_workers_come_from_a_daemon_with_one_thread_and_draw_other_numbers(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get(config.DAEMON) == daemon.__name__
    frame = spark.range(0, TASKS, 1, TASKS).mapInArrow(told, "pid long, daemon string, threads long, drawn double")
    rows = frame.collect()
    assert len({row.pid for row in rows}) == TASKS
    assert all(f"-m {daemon.__name__} pyspark.worker" in row.daemon for row in rows)
    assert {row.threads for row in rows} == {1}
    assert len({row.drawn for row in rows}) == TASKS


STARTED = """
import sys
from tidegate.runtime.spark import daemon
sys.argv = ["daemon", "{program}"]
{before}
forks = daemon.manager
def told():
    sys.stderr.write(" ".join(["imported:", *sorted({{"numpy", "pandas", "pyarrow"}} & sys.modules.keys())]))
    forks()
daemon.manager = told
daemon.main()
"""
ALL = "imported: numpy pandas pyarrow"


def started(before: str = "", program: str = daemon.TASKS, **environment: str) -> tuple[str, str]:
    """The command line of a daemon that has sent its address, and its other output."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-c", STARTED.format(before=before, program=program)]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        address = process.stdout.read(4)
        line = Path("/proc", str(process.pid), "cmdline").read_text()
        # Spark ends a daemon by closing its standard input.
        output, errors = process.communicate(timeout=60)
    assert 1024 < int.from_bytes(address, "big") < 1 << 16, (address, errors)
    assert output == b""
    return line, errors.decode()


def test_it_stays_where_all_is_imported_with_one_thread() -> None:
    line, errors = started()
    assert "daemon.main()" in line
    assert ALL in errors


def test_workers_that_are_for_no_task_need_nothing() -> None:
    line, errors = started(program="pyspark.sql.worker.plan_data_source_read")
    assert "daemon.main()" in line
    assert errors.endswith("imported:")


def test_what_a_module_prints_is_no_address(tmp_path: Path) -> None:
    (tmp_path / "talks.py").write_text("import os\nprint('hello')\nos.system('echo from below')\n")
    line, errors = started(f"sys.path.append({str(tmp_path)!r}); daemon.MODULES += ('talks',)")
    assert "daemon.main()" in line
    assert ALL in errors
    assert "hello" in errors
    assert "from below" in errors


@pytest.mark.parametrize(
    ("before", "environment", "said"),
    [
        ("", {"JE_ARROW_MALLOC_CONF": "background_thread:true"}, ""),
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", {}, ""),
        ("daemon.MODULES += ('nowhere',)", {}, "No module named 'nowhere'"),
        ("sys.platform = 'darwin'", {}, ""),
    ],
    ids=["a thread of Arrow's", "a thread", "a module that is missing", "another system"],
)
def test_it_becomes_sparks_own_where_a_fork_is_not_safe(before: str, environment: dict[str, str], said: str) -> None:
    line, errors = started(before, **environment)
    assert line.split("\0")[1:-1] == ["-m", daemon.PLAIN, daemon.TASKS]
    assert said in errors


FORKING = """
import os, sys
import numpy as np
from tidegate.runtime.spark import daemon
def drawn(then=lambda: None):
    come, go = os.pipe()
    if os.fork() == 0:
        os.write(go, repr(np.random.random()).encode() + b" ")
        os.write(go, then().encode())
        os._exit(0)
    os.wait()
    return os.read(come, 99).decode()
def seeded():
    np.random.seed(7)
    return drawn()
def forks():
    print(drawn(), drawn(), drawn(seeded))
sys.argv, daemon.manager = ["daemon", daemon.TASKS], forks
np.random.seed(7)
daemon.main()
"""


def test_each_worker_draws_anew_and_what_a_worker_forks_goes_on() -> None:
    import numpy as np

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", FORKING], env=env, capture_output=True, text=True, check=True)
    first, second, third, below = map(float, done.stdout.split())
    seventh = np.random.RandomState(7).random_sample()
    assert len({first, second, third, seventh}) == 4
    assert below == seventh


BOUNDED = """
import resource, sys
from tidegate.runtime.spark import daemon
def works():
    import numpy as np
    import pyarrow as pa
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    print(pa.array(np.ones(20_000_000, np.int8)).cast(pa.int64()).nbytes, pa.default_memory_pool().backend_name)
sys.argv, daemon.manager = ["daemon", daemon.TASKS], works
daemon.main()
"""


def test_workers_have_room_within_the_memory_that_spark_gives_them() -> None:
    """Spark bounds the addresses of a worker; those that Arrow reserved at its import left none."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", BOUNDED], env=env, capture_output=True, text=True, check=False)
    size, pool = done.stdout.split() or ["0", done.stderr]
    # Asked in a process of its own: steps that ran in this one may have given it the pool of a worker.
    asked = "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"
    of_arrow = subprocess.run([sys.executable, "-c", asked], env=env, capture_output=True, text=True, check=True)
    assert (int(size), pool) == (160_000_000, of_arrow.stdout.strip())
