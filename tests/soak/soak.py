"""Runs a pipeline for a long time at a steady rate, with disorder, restarts and a slow sink, and samples its resources.

Each sampled resource must stay flat, and every final result must be there once in the end.
"""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from crash.feed import Compared, Feed
from crash.kills import Pipeline
from soak.flat import Series

PERIOD_S = 3.0
"""Seconds between files,"""
MOST_WAITING = 20
"""unless this many files wait: on a busy machine the pipeline sets the rate."""
SAMPLE_S = 5.0
PAGE_S, PAGE_DATA = 2.0, ("queries.json", "history.json")
"""The page of `tidegate watch` is open: its script asks for these files, at this interval."""
LIFE_S, FEWEST_LIVES = 900, 2
WARM_UP_S, WARM_UP_SHARE = 120, 0.4
"""The beginning of a life is not judged: caches and pools fill, Python workers start."""
MIB = 1 << 20

WATCHED = {
    "heap": ("driver JVM: heap in use after a collection", "MiB", 0.15, MIB),
    "jvm": ("driver JVM: resident memory", "MiB", 0.15, MIB),
    "python": ("Python workers: resident memory, all", "MiB", 0.15, MIB),
    "driver": ("driver's Python, which serves the open page: resident memory", "MiB", 0.15, MIB),
    "state": ("state: bytes of what waits", "KiB", 0.15, 1 << 10),
    "files": ("files in the checkpoint", "files", 0.15, 1),
    # These times include other programs on the machine.
    "page_seconds": ("time to give the page its data, history and all", "s", 0.50, 1),
    "batch_seconds": ("time per batch, without the sink's pauses", "s", 0.30, 1),
}


@dataclass
class Verdict:
    """Result of a soak; `seconds` is the time that the pipeline ran."""

    seconds: float
    restarts: int
    batches: int
    series: list[Series]
    compared: Compared
    unanswered: int

    @property
    def right(self) -> bool:
        return self.compared.right and not self.unanswered and all(one.flat(self.seconds) for one in self.series)

    def __str__(self) -> str:
        lines = [self.of(one) for one in self.series]
        head = f"{self.seconds / 60:.0f} minutes, {self.restarts} restarts, {self.batches} batches; {self.compared}"
        head += f"; the open page got no answer {self.unanswered} times"
        return "\n".join([*lines, head, "flat, and every result once" if self.right else "NOT flat, or wrong results"])

    def of(self, one: Series) -> str:
        growth = one.growth(self.seconds)
        said = "too few samples" if growth is None else f"{growth:+.1%} over the run"
        flat = "flat" if one.flat(self.seconds) else "NOT FLAT"
        return f"{one.name}: median {one.median:,.1f} {one.unit}, {said} (at most {one.tolerance:+.0%}): {flat}"


@dataclass
class Soak:
    """A pipeline in a folder of its own, for `seconds` seconds."""

    folder: Path
    seconds: float
    seed: int = 1
    say: Callable[[str], None] = lambda _line: None
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in WATCHED})
    starts: list[float] = field(default_factory=list)
    unanswered: int = 0
    """Requests of the open page without an answer while the pipeline ran."""

    def run(self) -> Verdict:
        feed = Feed(self.folder, random.Random(self.seed))
        pipeline = Pipeline(self.folder, module="soak.pipeline")
        began = time.time()
        try:
            for number in range(self.lives):
                self._live(pipeline, feed, began + self.seconds * (number + 1) / self.lives)
                self.say(f"life {number + 1} of {self.lives}: {len(feed.files)} files, {pipeline.committed()} batches")
        finally:
            pipeline.end()
        ran = time.time() - began
        feed.write(1, closing=True)
        assert pipeline.to_the_end() == 0, pipeline.log()
        self._hear()
        result = self.folder / "result.parquet"
        tables = [pq.read_table(path) for path in sorted((self.folder / "out").glob("[0-9]*.parquet"))]
        pq.write_table(pa.concat_tables(tables), result)
        return Verdict(ran, self.lives - 1, len(tables), self.series(), feed.compared(result), self.unanswered)

    @property
    def lives(self) -> int:
        return max(FEWEST_LIVES, round(self.seconds / LIFE_S))

    @property
    def warm_up(self) -> float:
        return min(WARM_UP_S, WARM_UP_SHARE * self.seconds / self.lives)

    def _live(self, pipeline: Pipeline, feed: Feed, until: float) -> None:
        """One life: from a start over the state that the last `kill -9` left, to its own `kill -9`."""
        self.folder.joinpath("page").unlink(missing_ok=True)
        pipeline.start()
        over = threading.Event()
        page = threading.Thread(target=self._keep_open, args=(over,), daemon=True)
        page.start()
        next_file = next_sample = time.time()
        self.starts.append(next_file)
        while (now := time.time()) < until:
            assert pipeline.runs, pipeline.log()
            if now >= next_file and len(feed.files) - pipeline.committed() < MOST_WAITING:
                feed.write(1)
                next_file = max(next_file + PERIOD_S, now - PERIOD_S)
            if now >= next_sample:
                self._look(pipeline, now)
                next_sample = now + SAMPLE_S
            time.sleep(0.2)
        over.set()
        pipeline.end()
        page.join()

    def _keep_open(self, over: threading.Event) -> None:
        """Ask for the page, and then for its data again and again, like a browser that shows it."""
        at = self.folder / "page"
        while not over.wait(1) and not at.exists():
            pass
        asked = ["", *PAGE_DATA]
        while not over.is_set():
            try:
                began = time.time()
                for name in asked:
                    with urllib.request.urlopen(at.read_text() + name, timeout=30) as answer:
                        answer.read()
            except OSError:
                self.unanswered += not over.is_set()
            else:
                if asked == list(PAGE_DATA):
                    self.samples["page_seconds"].append((began, time.time() - began))
                asked = list(PAGE_DATA)
            over.wait(PAGE_S)

    def _look(self, pipeline: Pipeline, now: float) -> None:
        jvm = sum(_resident(each) for each in pipeline.family() if _name(each) == "java")
        python = sum(_resident(each) for each in pipeline.python_workers())
        driver = _resident(psutil.Process(pipeline.process.pid)) if pipeline.process is not None else 0
        files = sum(1 for path in pipeline.folder.joinpath("checkpoint").rglob("*") if path.is_file())
        for name, value in (("jvm", jvm), ("python", python), ("driver", driver), ("files", files)):
            if value:
                self.samples[name].append((now, value))

    def _hear(self) -> None:
        """Read the pipeline's measurements."""
        for line in (self.folder / "told").read_text().splitlines():
            try:
                told = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut off by a kill
            for name in told.keys() & self.samples.keys():
                self.samples[name].append((told["time"], told[name]))

    def series(self) -> list[Series]:
        """The judged samples: each life after its warm-up."""
        found = []
        for name, (title, unit, tolerance, scale) in WATCHED.items():
            ends = [*self.starts[1:], float("inf")]
            lives = [
                [(at, value / scale) for at, value in self.samples[name] if start + self.warm_up <= at < end]
                for start, end in zip(self.starts, ends, strict=True)
            ]
            found.append(Series(title, unit, tolerance, lives))
        return found


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""
