"""The settings that tidegate needs of a Spark session, set on request and checked before a plan runs."""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import SparkSession

from tidegate.arguments import has
from tidegate.errors import TidegateError, warn
from tidegate.runtime.spark.hadoop import local_files
from tidegate.runtime.spark.session import earlier, socket_files
from tidegate.runtime.spark.session.given import no_session
from tidegate.runtime.spark.session.installed import (
    LOCAL,
    PACKAGES,
    finds_tidegate,
    is_this_machine,
    require_connector,
    require_java,
    require_packages,
    require_spark,
    require_workers,
    spark_version,
    use_driver_python,
)

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ANY_ROCKSDB = "RocksDBStateStoreProvider"
"""The end of the name of every RocksDB store, also of stores that platforms bring."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PATTERNS = "spark.sql.parser.quotedRegexColumnNames"
PARTITIONS = "spark.sql.shuffle.partitions"
SPARKS_DEFAULT_PARTITIONS = 200
PARALLELISM = "spark.default.parallelism"
PYTHON_OF_WORKERS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
SHIPPED = {"spark.submit.pyFiles", "spark.files", "spark.archives"}
"""Settings that may bring packages that the Python of workers lacks."""
MASTER_MAY_COME_FROM = {"MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"}
"""Environment variables: without any of them a builder that names no master starts Spark on this machine."""
STATE_SERVER = "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
LARGEST_FUNCTION = "spark.broadcast.UDFCompressionThreshold"

NEEDED = {
    PROVIDER: ROCKSDB,
    # Uploads the changes of a batch instead of a snapshot of the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
SPARKS_DEFAULT_ARROW_ROWS = "10000"
SPARK_BOUNDS_ARROW_BYTES = (4, 1)
"""From this Spark on a batch of rows on its way to Python ends at 64 MiB too, however many rows it may have."""
# Larger batches save a sixth of the time that rows take to Python, and take a few MB more. If only the number of rows
# bounds a batch, wide rows would make it large: then Spark's default stays.
LARGER_BATCHES = {ARROW_ROWS: "50000"}
SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
# Spark pools Python workers by their environment, and a stateful task's environment lacks the variable of this setting:
# where the setting is on, a map task and a stateful task never use the same worker (decision 0046).
ONE_POOL = {SIMPLIFIED: "false"}
# Optional settings that a running session may change: a checksum file beside each checkpoint file costs two creations
# per task and batch. It guards against damaged storage, so it is a choice.
FASTER = {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}
# On this machine by default, where nothing needs TCP (`socket_files`); elsewhere a choice too, and only before Spark
# starts.
FASTER_AT_START = {socket_files.ENABLED: "true"}

DAEMON = "spark.python.daemon.module"
# Only before Spark starts, and only where workers surely find tidegate: without the module no worker starts at all.
PRELOADED = {DAEMON: "tidegate.runtime.spark.daemon"}
PATH = "spark.executorEnv.PYTHONPATH"
# Python processes of Spark import the installed pyspark instead of pyspark.zip (`startup.sitecustomize`). Only before
# Spark starts, so that all of its Python workers have the same environment, and with it one pool.
COMPILED = {PATH: str(Path(__file__).parents[1] / "startup")}

Session = TypeVar("Session")


def configure(spark_or_builder: Session, *, faster: bool = False) -> Session:
    """Set the settings that tidegate needs on a session or on a session builder, and return it.

    The state store is RocksDB with changelog checkpointing; a RocksDB store of a platform's own stays. Rows go to
    Python in batches of up to 50,000, unless the session has a number of its own. All tasks share one pool of Python
    workers: for it Spark's simplified tracebacks are off, unless a builder turns them on. A builder whose master is
    this machine gets workers that run the Python of this process (unless PYSPARK_PYTHON names another one), import the
    installed pyspark instead of its zip, are forked with everything imported, and talk to Spark through socket files;
    files of its checkpoints are written without programs. The function checks the versions of Spark, Java, pandas,
    pyarrow and protobuf, the Kafka connector among `spark.jars.packages`, and the Python of workers on this machine.
    `faster=True` adds settings that save time per batch and have a price: no checksum files beside checkpoint files,
    and, on a builder, socket files where they are no default.
    """
    require_spark()
    quiet_pandas()
    if has(spark_or_builder, "getOrCreate"):
        return _configure_builder(spark_or_builder, faster)
    spark: Any = spark_or_builder
    if not has(spark, "conf"):
        raise no_session(spark)
    require_packages()
    use_driver_python(spark)
    require_connector(_set_in(spark, PACKAGES), spark.version)
    for name, value in _settings(faster, _set_in(spark, PROVIDER), _set_in(spark, ARROW_ROWS)).items():
        spark.conf.set(name, value)
    return spark_or_builder


def _configure_builder(builder: Any, faster: bool) -> Any:
    require_packages()
    earlier.forget()
    options = dict(getattr(builder, "_options", {}))
    if not _is_remote(builder):
        require_java()
        require_connector(options.get(PACKAGES, ""), pyspark.__version__)
        named = os.environ.get(PYTHON_OF_WORKERS[0])
        ships = any(name in options or earlier.setting(name) for name in SHIPPED)
        here = is_this_machine(_master(options)) and not ships
        if named is not None and here:
            require_workers(named)
        if faster:
            builder = _with(builder, FASTER_AT_START)
        if here and not _starts_server(options):
            builder = _with(builder, _settings_here(options, named))
    if _starts_server(options) and not os.environ.keys() & PYTHON_OF_WORKERS:
        # The server's workers run the Python that its environment names, and it inherits the one of this process.
        earlier.set_variable(PYTHON_OF_WORKERS[0], sys.executable)
    given = partial(_given, options=options, remote=_is_remote(builder))
    settings = _settings(faster, given(PROVIDER), given(ARROW_ROWS))
    return _with(
        builder, {name: value for name, value in settings.items() if name != SIMPLIFIED or name not in options}
    )


def _settings_here(options: dict[str, Any], named: str | None) -> dict[str, str]:
    """Settings of a session whose workers run on this machine, without those that the user chose.

    named  the workers' Python that the environment names
    """
    chosen = _Chosen(options, _said_elsewhere())
    found = local_files.settings(chosen)
    found |= socket_files.settings(spark_version(), chosen, (*map(str, options.values()), chosen.texts))
    if _may_preload():
        if named is None:
            earlier.set_variable(PYTHON_OF_WORKERS[0], sys.executable)
        found |= PRELOADED | COMPILED
    return {name: value for name, value in found.items() if name not in chosen}


def _master(options: dict[str, Any]) -> str:
    """The master of a session with these options; "" if the environment may name one."""
    elsewhere = os.environ.keys() & MASTER_MAY_COME_FROM
    return str(options.get("spark.master") or earlier.setting("spark.master") or ("" if elsewhere else LOCAL))


def _may_preload() -> bool:
    """Whether every worker on this machine surely finds tidegate as this process does (decision 0050)."""
    python = shutil.which(os.environ.get(PYTHON_OF_WORKERS[0], sys.executable))
    return sys.platform == "linux" and python is not None and finds_tidegate(python)


@dataclass(frozen=True)
class _Chosen:
    """Names of settings that a user chose: those of a builder, of an earlier session, and those in texts."""

    options: dict[str, Any]
    texts: str

    def __contains__(self, name: object) -> bool:
        return name in self.options or str(name) in self.texts or earlier.setting(str(name)) is not None


def _given(name: str, options: dict[str, Any], *, remote: bool) -> str:
    """The value that a session of a builder with these options has for a setting without tidegate; "" if none is given.

    remote  whether it is a session of Spark Connect, which does not begin with the defaults of this machine
    """
    if name in options:
        return str(options[name])
    if (active := SparkSession.getActiveSession()) is not None:
        return _set_in(active, name)
    if remote:
        return ""
    found = re.findall(rf"(?m)(?:^|--conf)[\s=\"']*{re.escape(name)}[\s=:]+([^\s\"']+)", _said_elsewhere())
    return found[-1] if found else earlier.setting(name) or ""


def _set_in(spark: SparkSession, name: str) -> str:
    """The value of a setting in a session; "" if it has none."""
    return spark.conf.get(name, None) or ""  # Spark refuses "" as the default of a setting that is a number


def _said_elsewhere() -> str:
    """The texts of this Spark's defaults, environment and start arguments: a setting that they name stays."""
    home = os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent))
    folder = Path(os.environ.get("SPARK_CONF_DIR", Path(home, "conf")))
    files = [each for each in (folder / "spark-defaults.conf", folder / "spark-env.sh") if each.is_file()]
    return "\n".join([*(each.read_text(errors="replace") for each in files), os.environ.get("PYSPARK_SUBMIT_ARGS", "")])


def _settings(faster: bool, provider: str, arrow_rows: str) -> dict[str, str]:
    """Settings for a session with the state store `provider` and `arrow_rows` rows per batch; "" is Spark's default.

    A RocksDB store that a platform brings, and a number of rows that somebody chose, stay as they are.
    """
    needed = dict(ONE_POOL)
    if not provider.endswith(ANY_ROCKSDB) or provider == ROCKSDB:
        needed |= NEEDED
    if spark_version() >= SPARK_BOUNDS_ARROW_BYTES and arrow_rows in ("", SPARKS_DEFAULT_ARROW_ROWS):
        needed |= LARGER_BATCHES
    return needed | FASTER if faster else needed


def _with(builder: Any, settings: dict[str, str]) -> Any:
    """The builder with settings that no later session is to begin with."""
    earlier.note(settings)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def _is_remote(builder: Any) -> bool:
    return "SPARK_REMOTE" in os.environ or "spark.remote" in getattr(builder, "_options", {})


def _starts_server(options: dict[str, Any]) -> bool:
    """Whether this process starts the Spark Connect server that the session talks to."""
    remote = options.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    if remote is None and options.get("spark.api.mode", os.environ.get("SPARK_CONNECT_MODE")) in ("connect", "1"):
        remote = options.get("spark.master", "local")
    return remote is not None and remote.startswith("local")


def check(spark: SparkSession, *, streaming: bool = True) -> None:
    """Raise TidegateError if `spark` cannot run a tidegate plan, and warn if the plan would run badly.

    Called when a plan becomes a DataFrame: a session may change its settings until the query starts, and Spark
    itself says nothing about tidegate when the state store is the wrong one.
    """
    require_packages()
    quiet_pandas()
    use_driver_python(spark)
    if spark.conf.get(PATTERNS, "false") == "true":
        raise TidegateError(
            f"{PATTERNS} is true: Spark takes quoted names for patterns, and tidegate quotes the names of its columns. "
            f'Call spark.conf.set("{PATTERNS}", "false") before the query is made.'
        )
    if not streaming:
        return
    quiet_state_server(spark)
    socket_files.forget_gone(spark)
    provider = spark.conf.get(PROVIDER) or ""
    if not provider.endswith(ANY_ROCKSDB):
        raise TidegateError(
            f"the state store of this session is {provider.rpartition('.')[2]}, which cannot hold tidegate's state: "
            "Spark needs the RocksDB provider for it. Call `tg.configure(spark)` before the query is made, "
            f"or set {PROVIDER} to {ROCKSDB}."
        )
    if int(spark.conf.get(PARTITIONS) or 0) == SPARKS_DEFAULT_PARTITIONS:
        warn(
            f"{PARTITIONS} is {SPARKS_DEFAULT_PARTITIONS}, Spark's default: each is a task with a state store of its "
            "own in every batch. Set it near the number of cores before the query first runs; "
            "its checkpoint keeps the number."
        )


def partitions(spark: SparkSession) -> int:
    """Number of shuffle partitions of this session."""
    return int(spark.conf.get(PARTITIONS) or SPARKS_DEFAULT_PARTITIONS)


def cores(spark: SparkSession) -> int | None:
    """Number of tasks that run at a time, as Spark knows it now; None where it does not, on Spark Connect.

    PARALLELISM comes first. Warns if a cluster has not given this session an executor yet: then Spark takes two.
    """
    try:
        context: Any = spark.sparkContext
    except PySparkAttributeError:
        given = spark.conf.get(PARALLELISM, None)
        return None if given is None else int(given)
    found = int(context.defaultParallelism)
    if not is_this_machine(context.master) and not spark.conf.get(PARALLELISM, None) and not _executors(context):
        warn(
            f"No executor of this session runs yet, so Spark knows of {found} cores, and a query reads this source in "
            f"at most {found} tasks a batch until it is started again. Set {PARALLELISM} to the number of cores "
            "before Spark starts, or make the stream when the executors run."
        )
    return found


def _executors(context: Any) -> int:
    """Number of executors that run; of their block managers one is the driver's."""
    try:
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001 - pyspark has no public way
    except Py4JError:
        return 1  # the platform does not tell, which is no reason to warn or to fail


def largest_function(spark: SparkSession) -> int | None:
    """Most bytes of a pickled function that Spark does not ship as a broadcast; None over Spark Connect."""
    try:
        context: Any = spark.sparkContext
        return int(context._jvm.PythonUtils.getBroadcastThreshold(context._jsc))  # noqa: SLF001 - as pyspark asks
    except (AttributeError, NotImplementedError, TypeError, Py4JError, PySparkException):
        return None


def quiet_pandas() -> None:
    """Keep the warning that Spark was not tested with pandas 3 off the screen: tidegate is tested with it."""
    for kind in (FutureWarning, UserWarning):
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=kind)


def quiet_state_server(spark: SparkSession) -> None:
    """Keep the warnings of Spark's state server in every batch off the screen of a local session.

    A key without a value and the end of a stream are no faults. A level that somebody chose stays.
    """
    try:
        context: Any = spark.sparkContext
        log4j = context._jvm.org.apache.logging.log4j  # noqa: SLF001 - Spark has no public way
        of = log4j.LogManager.getContext(False).getConfiguration().getLoggerConfig(STATE_SERVER)
        if of.getName() != STATE_SERVER and of.getLevel().toString() in ("INFO", "WARN"):
            log4j.core.config.Configurator.setLevel(STATE_SERVER, log4j.Level.ERROR)
    except (AttributeError, NotImplementedError, TypeError, Py4JError, PySparkException):
        return  # a Spark Connect session has no JVM, and another version may log otherwise
