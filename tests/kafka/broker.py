"""A real Kafka broker for tests: one node, KRaft, on loopback at a free port, gone with its data afterwards.

It comes from Kafka's own Maven artifacts, fetched once into `target/`. Spark's connector comes the same way.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from tools import maven
from tools.maven import program

HERE = Path(__file__).parent
TARGET = HERE / "target"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
START_SECONDS = 120

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
# Whoever stops all processes for a while (a debugger, a laptop's lid) finds the broker alive.
broker.session.timeout.ms=600000
# A broker deletes by the timestamps of records, and these are long ago. What remains of a partition that lost all its
# records knows no producer any more, and refuses the next ones of an idempotent one, out of sequence, for ever.
log.retention.ms=-1
"""

FOR_TESTS = """\
# Compaction within the time of a test.
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=4194304
"""


def jars(part: str, timeout: float = 300) -> list[Path]:
    """The jars of `part`, "broker" or "connector", fetched if they are not there. Raises MavenError."""
    spark = version("pyspark")
    older = {"connector": spark} if part == "connector" and spark < "4.2" else {}
    return maven.jars(HERE / f"{part}.xml", TARGET, timeout, **older)


def free_ports(n: int) -> list[int]:
    """Ports that are free right now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks a server to end, and kills it if it does not."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Broker:
    """The broker, as a context; `servers` is its address. Raises MavenError where it cannot be had.

    jvm         flags of its Java; unless said, small and quick to start
    properties  lines of its configuration besides those that every broker here has
    """

    def __init__(self, jvm: Sequence[str] = JVM, properties: str = FOR_TESTS) -> None:
        self._classes = os.pathsep.join(str(jar) for jar in jars("broker"))
        self._jvm, self._more = jvm, properties
        self.servers = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def data(self) -> Path:
        """The folder with a folder for each partition of a topic."""
        return self._folder / "data"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-kafka-"))
        port, controller = free_ports(2)
        properties = self._folder / "server.properties"
        told = PROPERTIES.format(port=port, controller=controller, data=self.data)
        properties.write_text(told + self._more)
        self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(properties)).communicate()
        self._process = self._java("kafka.Kafka", str(properties))
        try:
            self._await(port)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.servers = f"127.0.0.1:{port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            command = [program("java"), *self._jvm, "-cp", self._classes, *arguments]
            # JAVA_TOOL_OPTIONS of other JVMs of a test (`spark.session.quick`) may ask for another collector.
            environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def _await(self, port: int) -> None:
        stop = time.monotonic() + START_SECONDS
        while time.monotonic() < stop and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise RuntimeError("the broker did not start:\n" + (self._folder / "log").read_text()[-3000:])
