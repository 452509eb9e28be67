"""The settings that `tg.configure` sets, keeps and refuses; no Spark is started."""

from __future__ import annotations

import errno
import os
import socket
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.runtime.spark.hadoop import local_files
from tidegate.runtime.spark.session import config, installed, socket_files

PLATFORMS = "com.platform.state.RocksDBStateStoreProvider"
SAVING = config.ONE_POOL | config.LARGER_BATCHES
BY_DEFAULT = config.NEEDED | SAVING
ELSEWHERE = "spark://host:7077"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Java 21, recognized by its release file, no setting of the workers' Python, and no JVM that runs."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    of_session = {*config.PYTHON_OF_WORKERS, *config.MASTER_MAY_COME_FROM, "SPARK_REMOTE", "SPARK_CONNECT_MODE"}
    for name in (*of_session, local_files.ON_THE_CLASS_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))


class Conf(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


class Session:
    """A session with no more than configure reads."""

    def __init__(self, **settings: str) -> None:
        self.version, self.conf = pyspark.__version__, Conf(settings)


def options(builder: Any) -> dict[str, str]:
    """The settings of a builder, without those that depend on the place of its Spark."""
    of_place = {config.DAEMON, config.PATH, socket_files.ENABLED, *local_files.CLASSES}
    return {name: value for name, value in builder._options.items() if name not in of_place}


def test_it_sets_sparks_own_rocksdb_store() -> None:
    assert options(tg.configure(SparkSession.builder)) == BY_DEFAULT
    assert tg.configure(Session()).conf == BY_DEFAULT


def test_a_number_of_rows_that_somebody_chose_stays() -> None:
    chosen = {config.ARROW_ROWS: "2000"}
    assert options(tg.configure(SparkSession.builder.config(config.ARROW_ROWS, "2000"))) == BY_DEFAULT | chosen
    assert tg.configure(Session(**chosen)).conf == BY_DEFAULT | chosen
    of_spark = {config.ARROW_ROWS: config.SPARKS_DEFAULT_ARROW_ROWS}
    assert tg.configure(Session(**of_spark)).conf == BY_DEFAULT


def test_a_number_of_rows_that_a_session_or_the_defaults_of_spark_have_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = config.NEEDED | config.ONE_POOL
    with monkeypatch.context() as running:
        running.setattr(SparkSession, "getActiveSession", lambda: Session(**{config.ARROW_ROWS: "2000"}))
        assert options(tg.configure(SparkSession.builder)) == left
    with monkeypatch.context() as started:
        started.setenv("PYSPARK_SUBMIT_ARGS", f"--conf '{config.ARROW_ROWS}=2000' pyspark-shell")
        assert options(tg.configure(SparkSession.builder)) == left
    stopped(SparkSession.builder.config(config.ARROW_ROWS, "2000"))
    assert options(tg.configure(SparkSession.builder)) == left
    SparkContext._gateway = None
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for line, stays in (("{} 2000", True), ("  {}=2000", True), ("# {} 2000", False), ("{} 10000", False)):
        (tmp_path / "spark-defaults.conf").write_text("spark.master local\n" + line.format(config.ARROW_ROWS) + "\n")
        assert options(tg.configure(SparkSession.builder)) == (left if stays else BY_DEFAULT), line


def test_a_builder_that_asks_for_simplified_tracebacks_keeps_them() -> None:
    chosen = {config.SIMPLIFIED: "true"}
    assert options(tg.configure(SparkSession.builder.config(config.SIMPLIFIED, "true"))) == BY_DEFAULT | chosen
    assert tg.configure(Session(**chosen)).conf == BY_DEFAULT  # Spark's default looks the same


def test_wide_rows_make_no_large_batches_where_spark_counts_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.2")
    assert tg.configure(Session()).conf == config.NEEDED | config.ONE_POOL


def test_a_rocksdb_store_that_a_platform_brings_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {config.PROVIDER: PLATFORMS}
    # The settings that save time belong to Spark, not to the store.
    left = theirs | SAVING
    assert options(tg.configure(SparkSession.builder.config(config.PROVIDER, PLATFORMS))) == left
    assert tg.configure(Session(**theirs)).conf == left
    with monkeypatch.context() as started:
        started.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {config.PROVIDER}={PLATFORMS} pyspark-shell")
        assert options(tg.configure(SparkSession.builder)) == SAVING
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: Session(**theirs))
    assert options(tg.configure(SparkSession.builder)) == SAVING
    assert options(tg.configure(SparkSession.builder, faster=True)) == SAVING | config.FASTER
    elsewhere = tg.configure(SparkSession.builder.master(ELSEWHERE), faster=True)._options
    assert elsewhere.items() >= (SAVING | config.FASTER | config.FASTER_AT_START).items()


@pytest.mark.parametrize("given", ["false", 1, None])
def test_faster_is_a_flag(given: Any) -> None:
    with pytest.raises(tg.DefinitionTypeError, match=rf"`faster` is {given!r}\. Use True or False\."):
        tg.configure(Session(), faster=given)


@pytest.mark.parametrize("given", [SparkSession, SparkSession.Builder])
def test_a_class_is_no_session(given: Any) -> None:
    with pytest.raises(tg.DefinitionTypeError, match=r"^`spark` is <class .*, not a SparkSession\. Use SparkSession\."):
        tg.configure(given)


def test_another_store_does_not_stay() -> None:
    other = config.ROCKSDB.replace("RocksDB", "HDFSBacked")
    assert tg.configure(Session(**{config.PROVIDER: other})).conf == BY_DEFAULT


@pytest.mark.parametrize(
    ("package", "problem"),
    [
        (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}", False),
        ("org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.1", True),
        (f"org.apache.spark:spark-sql-kafka-0-10_2.12:{pyspark.__version__}", True),
        ("org.apache.spark:spark-avro_2.12:3.5.1", False),
        ("", False),
    ],
)
def test_a_kafka_connector_of_another_spark_is_refused(package: str, problem: bool) -> None:
    packages = f"org.example:other:1.0, {package}"
    for of in (SparkSession.builder.config(installed.PACKAGES, packages), Session(**{installed.PACKAGES: packages})):
        if not problem:
            tg.configure(of)
            continue
        with pytest.raises(tg.TidegateError) as caught:
            tg.configure(of)
        assert str(caught.value) == (
            f"spark.jars.packages has {package}, and this is Spark {pyspark.__version__}: a connector of another Spark "
            "fails with NoSuchMethodError in the middle of a query. Use "
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}."
        )


def test_what_a_platform_adds_to_a_version_is_no_part_of_the_connector() -> None:
    assert installed.connector("4.1.1-amzn-0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"


def test_a_spark_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.4")
    with pytest.raises(tg.TidegateError, match=r"pyspark is 3.5.4: tidegate needs 4.0 or later"):
        tg.configure(SparkSession.builder)


@pytest.mark.parametrize(
    ("builder", "ours"),
    [
        (lambda: SparkSession.builder.config("spark.remote", "local[2]"), True),
        (lambda: SparkSession.builder.config("spark.api.mode", "connect"), True),
        (lambda: SparkSession.builder.config("spark.api.mode", "connect").master(ELSEWHERE), False),
        (lambda: SparkSession.builder.config("spark.remote", "sc://host:15002"), False),
        (lambda: SparkSession.builder.master(ELSEWHERE), False),
    ],
)
def test_a_server_of_ones_own_has_workers_with_this_python(builder: Any, ours: bool) -> None:
    tg.configure(builder())
    assert os.environ.get("PYSPARK_PYTHON") == (sys.executable if ours else None)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process with libraries of the system is not forked")
@pytest.mark.parametrize("builder", [SparkSession.builder, SparkSession.builder.master("local[2]")])
def test_workers_on_this_machine_are_forked_with_everything_imported(builder: Any) -> None:
    settings = tg.configure(builder)._options
    assert settings[config.DAEMON] == "tidegate.runtime.spark.daemon"
    assert Path(settings[config.PATH], "sitecustomize.py").is_file()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("builder", "environment"),
    [
        (SparkSession.builder.master(ELSEWHERE), {}),
        (SparkSession.builder, {"PYSPARK_GATEWAY_PORT": "7"}),
        (SparkSession.builder, {"SPARK_HOME": "spark"}),
        (SparkSession.builder.master("local[2]").config("spark.submit.pyFiles", "of_mine.py"), {}),
        (SparkSession.builder.config("spark.remote", "local[2]"), {}),
        (SparkSession.builder.config("spark.api.mode", "connect"), {}),
        (SparkSession.builder.master("local-cluster[2,1,1024]"), {}),
    ],
)
def test_nothing_is_imported_before_the_fork_where_workers_may_lack_tidegate(
    builder: Any, environment: dict[str, str]
) -> None:
    os.environ |= environment
    assert not {config.DAEMON, config.PATH} & tg.configure(builder)._options.keys()


def test_a_python_that_finds_another_tidegate_or_none_imports_nothing_before_the_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in ("None", "/of/another/tidegate/__init__.py", ""):
        python = tmp_path / f"python{len(given)}"
        python.write_text(f"#!/bin/sh\necho {given}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        assert config.DAEMON not in tg.configure(SparkSession.builder.master("local[2]"))._options
        assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.parametrize(("name", "other"), [(config.DAEMON, config.PATH), (config.PATH, config.DAEMON)])
def test_a_daemon_or_a_path_that_somebody_chose_stays(name: str, other: str) -> None:
    settings = tg.configure(SparkSession.builder.master("local[2]").config(name, "of mine"))._options
    assert settings[name] == "of mine"
    assert other in settings


def test_what_the_defaults_of_spark_or_its_arguments_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{config.PATH} /of/mine\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    settings = tg.configure(SparkSession.builder.master("local[2]"))._options
    assert config.PATH not in settings
    assert config.DAEMON in settings
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {config.DAEMON}=pyspark.daemon pyspark-shell")
    assert config.DAEMON not in tg.configure(SparkSession.builder.master("local[2]"))._options


def local_classes(builder: Any) -> dict[str, str]:
    """The settings of the classes for local files that `tg.configure` sets."""
    settings = tg.configure(builder)._options
    return {name: settings[name] for name in local_files.CLASSES if name in settings}


@pytest.mark.parametrize("builder", [SparkSession.builder, SparkSession.builder.master("local[2]")])
def test_files_of_a_checkpoint_on_this_machine_start_no_programs(builder: Any) -> None:
    os.environ[local_files.ON_THE_CLASS_PATH] = "/of/mine.jar"
    for _ in range(2):
        assert local_classes(builder) == local_files.CLASSES
        assert os.environ[local_files.ON_THE_CLASS_PATH].split(os.pathsep) == ["/of/mine.jar", str(local_files.JAR)]


@pytest.mark.parametrize(
    ("builder", "environment"),
    [
        (SparkSession.builder.master(ELSEWHERE), {}),
        (SparkSession.builder.master("local[2]"), {local_files.SUBMITTED: "7"}),
        (SparkSession.builder.config("spark.remote", "local[2]"), {}),
        (SparkSession.builder.master("local-cluster[2,1,1024]"), {}),
    ],
)
def test_hadoop_writes_local_files_alone_where_it_may_lack_the_jar(builder: Any, environment: dict[str, str]) -> None:
    os.environ |= environment
    assert local_classes(builder) == {}
    assert local_files.ON_THE_CLASS_PATH not in os.environ


class Java:
    """A JVM that runs, with or without the jar, and its system properties."""

    def __init__(self, *classes: str, properties: dict[str, str] | None = None) -> None:
        self.classes, self.properties = classes, properties or {}
        self.jvm = self.java = self.lang = self.Class = self.System = self

    def forName(self, name: str) -> None:
        if name not in self.classes:
            raise Py4JError(f"no class {name}")

    def getProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def clearProperty(self, name: str) -> None:
        del self.properties[name]


def test_a_jvm_that_runs_is_asked_for_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    for classes in ((), local_files.CLASSES.values()):
        monkeypatch.setattr(SparkContext, "_gateway", Java(*classes))
        assert local_classes(SparkSession.builder.master("local[2]")) == (local_files.CLASSES if classes else {})
        assert local_files.ON_THE_CLASS_PATH not in os.environ


def stopped(builder: Any, *, faster: bool = False) -> dict[str, str]:
    """The settings of a builder whose session started the JVM and has stopped: later sessions begin with them."""
    properties = dict(tg.configure(builder, faster=faster)._options)
    SparkContext._gateway = Java(*local_files.CLASSES.values(), properties=properties)
    return properties


def test_a_session_on_a_cluster_has_no_settings_of_an_earlier_one_on_this_machine() -> None:
    mine: dict[str, Any] = {"spark.app.name": "mine", config.PARALLELISM: "4"}
    properties = stopped(SparkSession.builder.master("local[2]").config(map=mine))
    assert properties.keys() & {config.DAEMON, config.PATH, socket_files.ENABLED, *local_files.CLASSES}
    settings = tg.configure(SparkSession.builder.master(ELSEWHERE))._options | properties
    assert not settings.keys() & {config.DAEMON, config.PATH, socket_files.ENABLED, *local_files.CLASSES}
    assert properties.items() >= mine.items()
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_faster_session_makes_no_later_one_faster() -> None:
    """It has no checksums beside the files of checkpoints."""
    properties = stopped(SparkSession.builder.master(ELSEWHERE), faster=True)
    settings = tg.configure(SparkSession.builder.master(ELSEWHERE))._options | properties
    assert not settings.keys() & {*config.FASTER, *config.FASTER_AT_START}


def test_a_session_that_runs_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = stopped(SparkSession.builder.master("local[2]"))
    before = dict(properties)
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    tg.configure(SparkSession.builder.master(ELSEWHERE))
    assert properties == before
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_what_a_user_chose_for_an_earlier_session_stays() -> None:
    idle, *_ = socket_files.NEED_TCP
    stopped(SparkSession.builder.master("local[2]").config(idle, "60").config(config.DAEMON, "of.mine"))
    settings = tg.configure(SparkSession.builder.master("local[2]"))._options
    assert not settings.keys() & {config.DAEMON, socket_files.ENABLED}
    assert settings.items() >= local_files.CLASSES.items()


@pytest.mark.parametrize(("name", "value"), [("spark.master", ELSEWHERE), ("spark.submit.pyFiles", "of_mine.py")])
def test_a_builder_has_the_master_and_the_files_of_an_earlier_session(name: str, value: str) -> None:
    stopped(SparkSession.builder.config(name, value))
    settings = tg.configure(SparkSession.builder)._options
    assert not settings.keys() & {config.DAEMON, config.PATH, socket_files.ENABLED, *local_files.CLASSES}


@pytest.mark.parametrize("name", local_files.CLASSES)
def test_a_class_for_local_files_that_somebody_chose_stays(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local_classes(SparkSession.builder.master("local[2]").config(name, "of.Mine")) == {name: "of.Mine"}
    (tmp_path / "spark-defaults.conf").write_text(f"{name} of.Mine\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert local_classes(SparkSession.builder.master("local[2]")) == {}


def test_a_class_path_that_sparks_own_environment_sets_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-env.sh").write_text(f"export {local_files.ON_THE_CLASS_PATH}=$(hadoop classpath)\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert local_classes(SparkSession.builder.master("local[2]")) == {}


@pytest.mark.parametrize("folder", ["missing", f"splits{os.pathsep}a-class-path"])
def test_a_jar_that_java_would_not_find_is_not_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / folder / "local-files.jar"
    if folder != "missing":
        jar.parent.mkdir()
        jar.touch()
    monkeypatch.setattr(local_files, "JAR", jar)
    assert local_classes(SparkSession.builder) == {}


def talks_through_files(builder: Any) -> str | None:
    said: str | None = tg.configure(builder)._options.get(socket_files.ENABLED)
    return said


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark and Python talk over TCP")
@pytest.mark.parametrize("builder", [SparkSession.builder, SparkSession.builder.master("local[2]")])
def test_spark_and_workers_on_this_machine_talk_through_socket_files(
    builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert talks_through_files(builder) == "true"
    monkeypatch.setattr(pyspark, "__version__", "4.0.2")
    assert talks_through_files(SparkSession.builder) is None


@pytest.mark.parametrize(
    ("builder", "environment"),
    [
        (SparkSession.builder.master(ELSEWHERE), {}),
        (SparkSession.builder, {"PYSPARK_GATEWAY_PORT": "7"}),
        (SparkSession.builder.config("spark.remote", "local[2]"), {}),
        *((SparkSession.builder.master("local[2]").config(name, "7"), {}) for name in socket_files.NEED_TCP),
        (SparkSession.builder.config("spark.driver.extraJavaOptions", "-Xmx2g -Djava.io.tmpdir=/long"), {}),
        (SparkSession.builder, {"PYSPARK_SUBMIT_ARGS": "--conf spark.python.worker.idleTimeoutSeconds=60"}),
        (SparkSession.builder.master("local[2]"), {"JAVA_TOOL_OPTIONS": "-Djava.io.tmpdir=/long"}),
        (SparkSession.builder.master("local[2]"), {"SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/long"}),
    ],
)
def test_they_talk_over_tcp_where_socket_files_may_not_do(builder: Any, environment: dict[str, str]) -> None:
    os.environ |= environment
    assert talks_through_files(builder) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark and Python talk over TCP")
def test_a_group_that_may_write_to_a_socket_file_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o002)
    try:
        monkeypatch.setattr(Path, "owner", lambda _: "ada")
        for group, said in (("ada", "true"), ("users", None)):
            monkeypatch.setattr(Path, "group", lambda _, group=group: group)
            assert talks_through_files(SparkSession.builder.master("local[2]")) == said
    finally:
        os.umask(before)


def test_a_choice_between_tcp_and_socket_files_stays() -> None:
    assert talks_through_files(SparkSession.builder.config(socket_files.ENABLED, "false")) == "false"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark and Python talk over TCP")
def test_where_no_socket_file_can_be_made_they_talk_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a test is longer than the name of a socket file may be.
    with tempfile.TemporaryDirectory(prefix="tidegate-", dir=socket_files.FOLDER) as folder:
        monkeypatch.setattr(socket_files, "FOLDER", Path(folder))
        assert talks_through_files(SparkSession.builder) == "true"
        assert list(Path(folder).iterdir()) == []
        for other in ("missing", "n" * 108):
            monkeypatch.setattr(socket_files, "FOLDER", Path(folder, other))
            assert talks_through_files(SparkSession.builder) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark and Python talk over TCP")
def test_on_a_read_only_disk_they_talk_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        # Linux says so for every change, also for the removal of a file that is not there.
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(socket.socket, "bind", refuses)
    monkeypatch.setattr(Path, "unlink", refuses)
    assert talks_through_files(SparkSession.builder.master("local[2]")) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark and Python talk over TCP")
@pytest.mark.parametrize(("umask", "said"), [(0o022, "true"), (0o077, "true"), (0o000, None)])
def test_nobody_else_can_write_to_a_socket_file(umask: int, said: str | None) -> None:
    before = os.umask(umask)
    try:
        assert talks_through_files(SparkSession.builder.master("local[2]")) == said
    finally:
        os.umask(before)


def test_a_python_of_workers_that_somebody_named_stays_or_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python"
    os.environ["PYSPARK_PYTHON"] = str(other)
    tg.configure(SparkSession.builder.config("spark.remote", "local[2]"))
    tg.configure(SparkSession.builder.master(ELSEWHERE))
    assert os.environ["PYSPARK_PYTHON"] == str(other)
    with pytest.raises(tg.TidegateError) as caught:
        tg.configure(SparkSession.builder.master("local[2]"))
    assert str(caught.value) == (
        f"PYSPARK_PYTHON is {str(other)!r}, and there is no such program. Unset it, or set it to {sys.executable}."
    )
    # An archive that is shipped to the workers may bring the program that their machine lacks.
    tg.configure(SparkSession.builder.master("local[2]").config("spark.archives", "environment.tar.gz"))


def test_the_warning_about_pandas_3_is_kept_off_the_screen() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        tg.configure(SparkSession.builder)
        warnings.warn("PySpark does not yet fully support pandas >= 3.0.0. Some", FutureWarning, stacklevel=1)
        warnings.warn("Another warning", FutureWarning, stacklevel=1)
    assert [str(each.message) for each in shown] == ["Another warning"]


def cluster(master: str, executors: int, **settings: str) -> Any:
    """A session whose Spark takes two cores as long as it has no executor with more."""
    managers = SimpleNamespace(size=lambda: executors + 1)
    jvm = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: managers))
    found = int(settings.get(config.PARALLELISM, max(2, 8 * executors)))
    context = SimpleNamespace(master=master, defaultParallelism=found, _jsc=jvm)
    return SimpleNamespace(sparkContext=context, conf=Conf(settings))


def test_a_cluster_without_executors_warns_that_few_tasks_read_a_source() -> None:
    with pytest.warns(tg.TidegateWarning, match="at most 2 tasks a batch until it is started again. Set spark.default"):
        assert config.cores(cluster(ELSEWHERE, 0)) == 2


def refuse() -> None:
    raise Py4JError("not allowed here")


def test_the_cores_that_spark_knows_or_is_told(recwarn: pytest.WarningsRecorder) -> None:
    settings = {config.PARALLELISM: "40"}
    assert config.cores(cluster(ELSEWHERE, 3)) == 24
    assert config.cores(cluster(ELSEWHERE, 0, **settings)) == 40
    assert config.cores(cluster("local[2]", 0)) == 2
    closed = cluster(ELSEWHERE, 0)
    closed.sparkContext._jsc = SimpleNamespace(sc=refuse)
    assert config.cores(closed) == 2
    assert not recwarn.list


class Remote(Session):
    """A session of Spark Connect."""

    @property
    def sparkContext(self) -> Any:
        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "x"})


def test_spark_connect_tells_no_cores_but_those_that_are_set() -> None:
    assert config.cores(Remote()) is None
    assert config.cores(Remote(**{config.PARALLELISM: "40"})) == 40
