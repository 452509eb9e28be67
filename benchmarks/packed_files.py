"""Processor milliseconds of a worker to read and pack a Parquet file of W1, and MB of its blobs, now and in another
checkout.

`python -m benchmarks.packed_files --before FOLDER`, where FOLDER is a checkout of the version to compare with. A file
has 500,000 records, in one row group or in row groups of 20,000, with 100 to 200,000 keys in one of FORMS. Each turn
runs both versions, each in a process of its own and in alternating order. The table has the medians over the turns; the
milliseconds of a turn are the median of COUNTED times. Decisions 0075, 0079 and 0081 quote the table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import before

FORMS: dict[str, Callable[[int], str]] = {
    "user-0000123": lambda key: f"user-{key:07d}",
    "123": str,
    "d0e5a1c33f1b7e02": lambda key: f"{key * 0x9E37_79B9_7F4A_7C15 % 2**64:016x}",
}
"""Keys as the inputs of the other benchmarks have them; short numbers; and digits that all look random."""
KEYS = (100, 5_000, 50_000, 100_000, 200_000)
RECORDS, ROW_GROUP = 500_000, 20_000
SKIPPED, COUNTED = 2, 5
"""Number of times that a process reads a file: its first ones, and those that count."""


def measured(path: str) -> tuple[float, int]:
    """Seconds to read and pack the file, with the tidegate that this process imports, and bytes of the blobs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import tidegate as tg
    from tidegate.kernel.exchange.decoding import read
    from tidegate.kernel.rows.layout import Layout
    from tidegate.plan import operation
    from tidegate.runtime.spark.files.columnar import Files
    from tidegate.runtime.spark.files.listed import PATH
    from tidegate.runtime.spark.map_step import Packer
    from tidegate.runtime.spark.row_decoder import Counts

    pa.set_cpu_count(1)
    stream = tg.stream("events", key="user", timestamp="ts", partition="partition", offset="offset")
    windows = tg.TimeWindows.of_size_and_grace("2 minutes", "30 seconds")
    op = operation(stream.group_by_key().windowed_by(windows).agg(count=tg.count(), total=tg.sum("amount")).node)
    schema = pq.read_schema(path).remove_metadata()
    layout = Layout(op, read(op, op.stream, schema.empty_table()).schema, sorts=False)
    packer = Packer(layout, 2, branch=op.stream, row_decoder=Files(schema))
    seconds = []
    for _ in range(SKIPPED + COUNTED):
        began = time.process_time()
        size = sum(len(blob) for _, blob in packer(iter([pa.record_batch({PATH: [f"file:{path}"]})]), Counts()))
        seconds.append(time.process_time() - began)
    return median(seconds[SKIPPED:]), size


def write(path: Path, form: str, keys: int, records: int, row_group: int) -> None:
    """A file of records within a minute, in order, of one partition, with keys in one of FORMS."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.inputs import FIRST_MS, table

    rng, at = np.random.default_rng(2026), np.arange(records)
    user = pa.array(map(FORMS[form], range(keys))).take(pa.array(rng.integers(0, keys, records)))
    rows = table(user, FIRST_MS + at * 60_000 // records, rng.integers(1, 10_000, records), 0, 0)
    pq.write_table(rows, path, row_group_size=row_group)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of the other version")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="small enough for a test: are all the parts there?")
    parser.add_argument("--file", help="in this process: print the seconds and bytes of this file as JSON")
    options = parser.parse_args(argv)
    if options.file:
        print(json.dumps(measured(options.file)))
        return 0
    records = 2_000 if options.smoke else RECORDS
    sources = before.sources(options.before)
    shapes = [(form, keys, rows) for form in FORMS for keys in KEYS for rows in (records, ROW_GROUP)]
    heads = [f"{version} {unit}" for unit in ("ms", "MB") for version in sources]
    print(f"{'form':>18} {'keys':>8} {'row group':>10}" + "".join(f"{head:>12}" for head in heads))
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-packed-") as folder:
        for form, keys, row_group in shapes[:2] if options.smoke else shapes:
            path = Path(folder) / "records.parquet"
            write(path, form, keys, records, row_group)
            took: dict[str, list[float]] = {version: [] for version in sources}
            megabytes: dict[str, float] = {}
            for number in range(options.turns):
                for version in sorted(sources, reverse=number % 2 == 1):
                    one: Any = before.measured("benchmarks.packed_files", sources[version], ["--file", str(path)])
                    took[version].append(1000 * one[0])
                    megabytes[version] = one[1] / 1e6
            numbers = [f"{median(took[version]):12.0f}" for version in sources]
            numbers += [f"{megabytes[version]:12.2f}" for version in sources]
            print(f"{form:>18} {keys:8,} {row_group:10,}{''.join(numbers)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
