"""A Python whose processes for a stateful operator and for a source in Python are forked, with all imports done.

Spark starts a process for each stateful operator of a query, which declares its state and ends, and one for each
source that is written in Python, which reports the available data. Half a second of a processor goes into the imports
of each, a sixth of the time of a test's query. `forking` gives Spark a program that asks a server for a fork instead.
Everything else that Spark starts with it is the Python of this process.

Tests that start a Spark of their own (`apart`) start these processes as Spark does.
"""

from __future__ import annotations

import gc
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

OPERATOR, SOURCE = FORKED = (
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
"""Modules that Spark runs for the start of a stateful operator, and for a source."""

IMPORTED = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    "tidegate.runtime.spark.worker.processor",
    "tidegate.runtime.spark.files.source",
)
"""Modules that these processes import."""

ASKING = """\
import marshal, os, sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
module = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "-m" else None
if module not in {modules!r}:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket(AF_UNIX, SOCK_SEQPACKET)
server.connect({address!r})
files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2))
server.sendmsg([marshal.dumps((module, os.getcwd(), dict(os.environ)))], [(SOL_SOCKET, SCM_RIGHTS, files)])
os._exit((server.recv(1) or b"\\1")[0])
"""
"""It ends with the exit code of the fork, and with 1 if the fork is killed."""


READY, THREADS = b"ready\n", b"threads\n"
"""First line of the server: it waits for requests, or it cannot fork."""


@contextmanager
def forking() -> Iterator[Path]:
    """The program, until the end of the block.

    It is the Python of this process outside Linux, and if the imports start threads.
    """
    if sys.platform != "linux":
        yield Path(sys.executable)
        return
    # The path of a socket must be short, and no other user may connect.
    with TemporaryDirectory() as folder:
        address, asking, program = (Path(folder, name) for name in ("socket", "asking.py", "python3"))
        asking.write_text(ASKING.format(python=sys.executable, modules=FORKED, address=str(address)))
        # -IS: without the environment and the site, which take a tenth of a start.
        program.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -IS {quote(str(asking))} "$@"\n')
        program.chmod(0o755)
        # -P: forks find no module of the tests; Spark's own processes find none either.
        command = [sys.executable, "-P", __file__, str(address)]
        # By default Arrow and numpy start threads.
        environment = {**os.environ, "JE_ARROW_MALLOC_CONF": "background_thread:false", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            said = server.stdout.readline()
            assert said in (READY, THREADS), "the server of forks did not start"
            try:
                yield program if said == READY else Path(sys.executable)
            finally:
                # It ends when this process does, too.
                server.stdin.close()


def serve(address: str) -> None:
    """Fork for each request at `address`, until the standard input ends."""
    # An interrupt of the tests reaches this process too, and it must outlive the Spark that they then stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in IMPORTED:
        import_module(module)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        # A fork has no other thread, but keeps that thread's locks. The imports of PySpark 4.0 start a thread.
        sys.stdout.buffer.write(THREADS)
        return
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.bind(address)
        asked.listen()
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        while sys.stdin not in select.select([sys.stdin, asked], [], [])[0]:
            connection, _ = asked.accept()
            if os.fork() == 0:
                asked.close()
                os._exit(run(connection))
            connection.close()
            reap()


def reap() -> None:
    """Wait for the forks that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def run(connection: socket.socket) -> int:
    """Become the process that asked: take its folder, its environment and its files; returns its exit code."""
    code = 1
    request, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    module, folder, environment = marshal.loads(request)
    for file, ours in zip(files, (0, 1, 2), strict=True):
        os.dup2(file, ours)
        os.close(file)
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        paths = [folder, *environment.get("PYTHONPATH", "").split(os.pathsep)]
        sys.path[:0] = [path for path in paths if path and path not in sys.path]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else end.code is not None
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(bytes([code & 255]))
    return code & 255


if __name__ == "__main__":
    serve(sys.argv[1])
