"""The input of `crash.sinks_pipeline`, and a comparison of its sinks with the rows of the test driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crash.feed import Compared, Feed, Row, compared, plain
from crash.pipeline import stream
from crash.sinks_pipeline import ADDRESS, topology
from sinks.server import Server

UPDATES = ("merged", "upserted")


@contextmanager
def database(folder: Path) -> Iterator[None]:
    """A PostgreSQL whose address is in the folder of the pipeline."""
    with Server() as server:
        (folder / ADDRESS).write_text(server.url)
        yield


class SinksFeed(Feed):
    """The files of `Feed`."""

    def topology(self) -> Any:
        return topology(stream("events"))

    def compared(self, result: Path) -> Compared:
        """Compares the rows of all sinks with the rows of the driver; of updates the last one per key and window."""
        wanted: Counter[Any] = Counter()
        newest: dict[Any, Any] = {}
        for row in self.driver().read_output():
            said = _said(row["output"], row | {"window_start": row["window"].start})
            if row["output"] in UPDATES:
                newest[said[:3]] = said
            else:
                wanted[said] += 1
        wanted.update(newest.values())
        got = Counter(_said(output, row) for output, rows in self._sinks().items() for row in rows)
        outputs = Counter(row[0] for row in wanted.elements())
        return compared(wanted, got, {f"rows of {output}": outputs[output] for output in (*UPDATES, "final", "late")})

    def _sinks(self) -> dict[str, list[Row]]:
        import psycopg
        from deltalake import DeltaTable
        from psycopg.rows import dict_row

        found = {name: DeltaTable(self.folder / name).to_pyarrow_table().to_pylist() for name in ("merged", "final")}
        with psycopg.connect((self.folder / ADDRESS).read_text(), row_factory=dict_row) as connection:
            for name in ("upserted", "late"):
                found[name] = connection.execute(f"SELECT * FROM {name}").fetchall()
        return found


def _said(output: str, row: Row) -> tuple[Any, ...]:
    """Columns of a row, comparable between a sink and the driver."""
    names = ("n", "total", "v", "offset", "partition", "reason", "late_by")
    places = (row["k"], plain(row["window_start"]), *(row.get(name) for name in names), plain(row["timestamp"]))
    return (output, *places)
