"""The process that forks Spark's Python workers, with everything imported that the tasks of tidegate need.

Spark runs it as `python -m tidegate.runtime.spark.daemon` where `spark.python.daemon.module` names it (decision 0050).
Its workers share the pages of the imported modules, and start without importing them again.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

from pyspark.daemon import manager

from tidegate.runtime.spark import shared_files

MODULES = (
    "pyspark.worker",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "numpy.random",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "tidegate.runtime.spark.to_spark",
    "tidegate.runtime.spark.worker.state",
)
"""Modules that every worker would import at its first task."""

TASKS = "pyspark.worker"
"""The program of workers that run tasks; Spark has a daemon for each program of workers."""

PLAIN = "pyspark.daemon"
"""Spark's own daemon, which imports nothing before it forks."""

WITHOUT_THREAD = ("JE_ARROW_MALLOC_CONF", "background_thread:false")
"""Keeps Arrow from starting a thread at import: a fork inherits the locks of other threads, but not the threads."""


def main() -> None:
    """Import MODULES and fork workers as Spark's own daemon does; become Spark's daemon where this is not safe."""
    if sys.argv[1:] != [TASKS]:
        # Other workers, for example those that plan a source, run once and need none of the modules.
        manager()
        return
    # Outside Linux libraries of the system may start threads that cannot be counted here.
    if sys.platform != "linux" or not _imported():
        os.execv(sys.executable, [sys.executable, "-m", PLAIN, *sys.argv[1:]])  # noqa: S606 - the same Python
    shared_files.begin()
    gc.collect()
    # A collection in a worker would write to each object that it looks at, and so copy the shared pages.
    gc.freeze()
    manager()


def _imported() -> bool:
    """Import MODULES. Whether all could be imported, and this process still has one thread."""
    os.environ.setdefault(*WITHOUT_THREAD)
    # In pyspark 4.2 a worker that has state asks for numpy by a module of Spark's tests, which warns of pandas 3.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    # Spark reads the address of this process from its output, into which no module may print.
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        import pyarrow as pa

        # With its first array Arrow's own allocator reserves a GiB of addresses, and they count for
        # spark.executor.pyspark.memory. Behind that bound a worker reserves only what it uses.
        pool = pa.default_memory_pool()
        pa.set_memory_pool(pa.system_memory_pool())
        try:
            for module in MODULES:
                import_module(module)
        finally:
            pa.set_memory_pool(pool)
    except Exception as error:  # noqa: BLE001 - whatever it is, a worker meets it at its first task and says so
        sys.stderr.write(f"tidegate: {error!r} before the first worker; workers import by themselves\n")
        return False
    finally:
        sys.stdout.flush()
        os.dup2(output, 1)
        os.close(output)
    import numpy as np

    mine = os.getpid()

    def draws_anew() -> None:
        # Only in workers: a process that a worker forks keeps its random state, as without this daemon.
        if os.getppid() == mine:
            np.random.seed()  # noqa: NPY002 - the generator that all of a process share

    # Otherwise all workers would draw the same numbers; the module `random` seeds forks itself.
    os.register_at_fork(after_in_child=draws_anew)
    return len(list(Path("/proc/self/task").iterdir())) == 1


if __name__ == "__main__":
    main()
