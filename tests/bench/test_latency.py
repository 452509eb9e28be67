"""Files of W10 come on time, and none is replaced while a query reads it."""

from __future__ import annotations

import threading
from pathlib import Path

from benchmarks.workloads import latency


def test_each_file_is_written_once(tmp_path: Path) -> None:
    done = latency.produce(tmp_path, 1, threading.Event())
    first = tmp_path / "000000.parquet"
    written = first.stat()
    arrived = done()
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert len(list(tmp_path.iterdir())) == len(arrived) == 1000 // latency.EVERY_MS
    assert arrived == sorted(arrived)
