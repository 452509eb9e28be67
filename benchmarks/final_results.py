"""How fast final window results leave: tidegate against Spark's own aggregation, on the same input in one session.

The contestants take turns (A B C A B C), each over the same Parquet files into a sink that drops its rows. The first
two micro-batches of a run are not counted. `make bench` is the whole measurement, `make bench BENCH_ARGS=--smoke` a
trial.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

import tidegate as tg
from benchmarks import agreement
from benchmarks.contestants import CONTESTANTS, Contestant
from benchmarks.inputs import GRACE_MS, SIZE_MS, Shape, write
from benchmarks.measure import QUIET_PERCENT, WARM_UP, Run, run

PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "protobuf")
SPARKS_OWN = ("spark_memory", "spark_rocksdb")
OURS = {"tidegate": "", "tidegate_files": ", reading the files itself,"}


@dataclass(frozen=True)
class Result:
    """One contestant with one number of keys, over all its runs."""

    contestant: Contestant
    runs: list[Run]

    @property
    def rows_per_s(self) -> float:
        return median(rate for each in self.runs for rate in each.timed_rates)

    @property
    def sustained_rows_per_s(self) -> float:
        return median(each.rate for each in self.runs)

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.contestant.label,
            "rows_per_s_median_batch": round(self.rows_per_s),
            "rows_per_s_sustained": round(self.sustained_rows_per_s),
            "peak_jvm_mib": round(max(each.jvm_mib for each in self.runs)),
            "peak_python_mib": round(max(each.python_mib for each in self.runs)),
            "runs": [asdict(each) for each in self.runs],
        }


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-input-") as scratch:
        folder = options.data or Path(scratch)
        spark = session(options)
        try:
            report = measure(spark, options, folder)
        finally:
            spark.stop()
    report["seconds"] = round(time.monotonic() - began)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    say(f"\nWhole run: {report['seconds']} s. All numbers, versions and settings: {options.json}")
    return 0


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 2_000_000], help="numbers of keys")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a micro-batch")
    parser.add_argument("--batches", type=int, default=10, help="micro-batches of a run")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each contestant")
    names = [each.name for each in CONTESTANTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="contestants")
    parser.add_argument("--smoke", action="store_true", help="small enough for a test: are all the parts there?")
    parser.add_argument("--data", type=Path, help="keep the generated input here for the next time")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/final_results.json"))
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    parser.add_argument("--memory", default="8g", help="of the driver's JVM")
    options = parser.parse_args(argv)
    if options.smoke:
        options.keys, options.rows, options.batches, options.repeat = [1_000], 20_000, WARM_UP + 1, 1
    if options.batches <= WARM_UP:
        parser.error(f"--batches is {options.batches}, but the first {WARM_UP} are not counted: give more")
    return options


def session(options: argparse.Namespace) -> SparkSession:
    # Workers run the `python3` of the PATH unless told which.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(options.master)
        .appName("tidegate-bench")
        .config("spark.driver.memory", options.memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark: SparkSession = tg.configure(builder, faster=True).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # The second row is there to show what leaving out partition and offset means; it need not be told.
    warnings.filterwarnings("ignore", category=tg.TidegateWarning)
    return spark


def measure(spark: SparkSession, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    say("Do all contestants give the same rows? (small input, against a direct computation)")
    agreed = agreement.check(spark, Shape(keys=500, rows=4_000, batches=3, batch_span_ms=SIZE_MS), folder)
    for name, sentence in agreed.items():
        say(f"  {name}: {sentence}")
    results = {}
    for keys in options.keys:
        found = race(spark, options, Shape(keys, options.rows, options.batches), folder)
        results[str(keys)] = {each.contestant.name: each.as_json() for each in found}
        results[str(keys)]["ratios"] = {ours: ratios(found, ours) for ours in OURS}
        show(keys, found)
    return {"agreement": agreed, "results": results, "settings": settings(options), "versions": versions(spark)}


def race(spark: SparkSession, options: argparse.Namespace, shape: Shape, folder: Path) -> list[Result]:
    say(f"\n{shape.keys:,} keys, {shape.batches} micro-batches of {shape.rows:,} rows: writing the input")
    files = write(shape, folder)
    contestants = [each for each in CONTESTANTS if each.name in options.only]
    runs: dict[str, list[Run]] = {each.name: [] for each in contestants}
    for turn in range(1, options.repeat + 1):
        for contestant in contestants:
            one = run(spark, contestant, files)
            runs[contestant.name].append(one)
            say(
                f"  turn {turn}/{options.repeat}  {contestant.label:38} {sum(one.seconds):7.1f} s"
                f"  {one.median_rate / 1e6:6.3f} M rows/s"
                f"  (JVM {one.jvm_mib:,.0f} MiB, Python {one.python_mib:,.0f} MiB){_disturbed(one)}"
            )
    return [Result(each, runs[each.name]) for each in contestants]


def _disturbed(one: Run) -> str:
    if one.busy_before_percent <= QUIET_PERCENT:
        return ""
    return f"  the CPU was {one.busy_before_percent:.0f} % busy before"


def ratios(found: list[Result], ours: str = "tidegate") -> dict[str, float]:
    """Of `ours` to the others within a turn, the median over the turns: what disturbs a turn disturbs all in it."""
    mine = next((each for each in found if each.contestant.name == ours), None)
    if mine is None:
        return {}
    out = {}
    for other in found:
        pairs = zip(mine.runs, other.runs, strict=True)
        out[other.contestant.name] = round(median(a.median_rate / b.median_rate for a, b in pairs), 2)
    native = [out[name] for name in SPARKS_OWN if name in out]
    if native:
        out["faster_spark_store"] = min(native)
    return out


def show(keys: int, found: list[Result]) -> None:
    compared = ratios(found)
    say(f"\n{keys:,} keys, windows of {SIZE_MS // 1000} s, grace {GRACE_MS // 1000} s; M rows/s")
    say(f"  {'':38} {'median':>8} {'sustained':>10} {'tidegate is':>12} {'JVM MiB':>9} {'Python MiB':>11}")
    for each in found:
        numbers = each.as_json()
        ratio = compared.get(each.contestant.name)
        say(
            f"  {each.contestant.label:38} {each.rows_per_s / 1e6:8.3f} {each.sustained_rows_per_s / 1e6:10.3f}"
            f" {'' if ratio is None else f'{ratio:.2f} x':>12}"
            f" {numbers['peak_jvm_mib']:9,} {numbers['peak_python_mib']:11,}"
        )
    if any(_disturbed(one) for each in found for one in each.runs):
        say("  Something else was using the CPU: measure again on a quiet machine before you quote these.")
    for ours, how in OURS.items():
        if "faster_spark_store" in (compared := ratios(found, ours)):
            say(f"  tidegate{how} is {compared['faster_spark_store']:.2f} times as fast as Spark's faster store")


def settings(options: argparse.Namespace) -> dict[str, Any]:
    chosen = {name: value for name, value in vars(options).items() if name not in ("json", "data")}
    return {**chosen, "warm_up_batches": WARM_UP, "size_ms": SIZE_MS, "grace_ms": GRACE_MS, "shuffle_partitions": 2}


def versions(spark: SparkSession) -> dict[str, str]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "python": platform.python_version(),
        "java": told.splitlines()[0],
        "tidegate": tg.__version__,
        "spark": spark.version,
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        **{name: version(name) for name in PACKAGES},
    }


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
