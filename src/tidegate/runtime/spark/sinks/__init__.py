"""Sinks that have each row exactly once: Delta tables and PostgreSQL, over `foreachBatch`.

`tg.sinks.delta(table, path)` and `tg.sinks.jdbc(table, url, name)` are writers of one table; `tg.sinks.write(outputs,
{"final": ..., "late": ...})` of several outputs, each into a sink of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.arguments import options_of
from tidegate.dsl import Result
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.runtime.spark.sinks.delta_table import Delta
from tidegate.runtime.spark.sinks.exactly_once import Batches, Function
from tidegate.runtime.spark.sinks.outputs import plan_number, rows_of
from tidegate.runtime.spark.sinks.postgres import Postgres

__all__ = ["Delta", "Postgres", "batches", "delta", "jdbc", "write"]

Sink = Delta | Postgres


def delta(
    table: Any,
    path: str | Path,
    *,
    mode: str | None = None,
    checkpoint: str | None = None,
    name: str | None = None,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """A writer of `table` into the Delta table at `path`, each row exactly once.

    The table is made if it is not there. The window is the columns `window_start` and `window_end`.

    Args:
        table: A table or a stream.
        path: A folder, or an address of a store that `deltalake` reaches.
        mode: "append": every row is added. "upsert": a row replaces the row of its key and window, and a tombstone
            deletes that row. Left out: append where each row is the last word (final results, late records, records of
            a join), upsert for updates.
        checkpoint: The folder for the query's checkpoint.
        name: Tells this query from others that write into the table; needed for a second query that appends.
        partition_by: Columns by which a table that is not there yet is partitioned.
        storage_options: As of deltalake: credentials and settings of the store.

    Returns:
        A writer: `.trigger(...)` and `.start()` it.

    Raises:
        TidegateError: deltalake is not installed, or the table cannot be made.
        DefinitionError: The columns of the table do not fit the rows, or the rows do not have the mode.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        query = tg.sinks.delta(final, "/data/visits", checkpoint="/data/checkpoints/visits").start()
        ```
    """
    stored = options_of(storage_options, "storage_options")
    return write(table, Delta(path, mode, name, partition_by, stored), checkpoint=checkpoint)


def jdbc(
    table: Any,
    url: str,
    dbtable: str | Sequence[str],
    *,
    mode: str | None = None,
    checkpoint: str | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """A writer of `table` into a table of PostgreSQL, each row exactly once.

    A row and the number of its batch are written in one transaction.

    Args:
        table: A table or a stream.
        url: "postgresql://host/database", with or without "jdbc:" before it, or another address that libpq takes.
        dbtable: "counts", "sales.counts", or the parts of a name that has dots in it.
        mode: As of `delta`.
        checkpoint: As of `delta`.
        name: As of `delta`.
        options: Other parameters of libpq: user, password, sslmode, ...

    Returns:
        A writer: `.trigger(...)` and `.start()` it.

    Raises:
        TidegateError: psycopg is not installed, or the server does not answer.
        DefinitionError: The columns of the table do not fit the rows, or the rows do not have the mode.
        DefinitionTypeError: An argument is of the wrong kind.

    Examples:
        ```python
        query = tg.sinks.jdbc(counts, "postgresql://localhost/shop", "visits", checkpoint="/data/checkpoints/v").start()
        ```
    """
    return write(table, Postgres(url, dbtable, mode, name, options_of(options)), checkpoint=checkpoint)


def write(table: Any, sinks: Sink | Mapping[str, Sink], *, checkpoint: str | None = None) -> DataStreamWriter:
    """A writer of `table` into a sink, or of several outputs, each into a sink of its own, exactly once.

    One job runs a batch for all of them.

    Args:
        table: A table, a stream, or several outputs (`tg.outputs`).
        sinks: A sink; or a sink for each output, by its name.
        checkpoint: The folder for the query's checkpoint.

    Returns:
        A writer: `.trigger(...)` and `.start()` it.

    Raises:
        DefinitionError: The input is static, or a sink does not fit its rows.
        DefinitionTypeError: `table` is no table, or a value of `sinks` is no sink.

    Examples:
        ```python
        raw, final_ = tg.sinks.Postgres("postgresql://localhost/shop", "visits"), tg.sinks.Delta("/data/visits")
        both = tg.outputs(raw=counts, final=final)
        query = tg.sinks.write(both, {"raw": raw, "final": final_}, checkpoint="/data/checkpoints/visits").start()
        ```
    """
    frame = table.to_df() if isinstance(table, Result) else None
    if frame is not None and not frame.isStreaming:
        raise DefinitionError(
            "`table` is of static DataFrames, and batches of a query are what a sink takes once. Write table.to_df() "
            "with Spark's own writer."
        )
    function = batches(table, sinks)  # makes the tables of the sinks
    assert frame is not None  # anything but a Result was refused
    writer = frame.writeStream.foreachBatch(function).outputMode("update")
    return writer if checkpoint is None else writer.option("checkpointLocation", checkpoint)


def batches(table: Any, sinks: Sink | Mapping[str, Sink]) -> Function:
    """The function that `write` gives to `foreachBatch`, for writers that `write` does not make.

    Args:
        table: As of `write`.
        sinks: As of `write`.

    Returns:
        A function of the rows and the number of a batch.

    Raises:
        DefinitionError: A sink does not fit its rows, or an output has none.
        DefinitionTypeError: `table` is no table, or a value of `sinks` is no sink.

    Examples:
        ```python
        save = tg.sinks.batches(final, tg.sinks.Delta("/data/visits"))
        tg.drain(final, "/data/checkpoints/v", lambda rows: rows.writeStream.outputMode("update").foreachBatch(save))
        ```
    """
    named: dict[str | None, Any] = dict(sinks.items()) if isinstance(sinks, Mapping) else {None: sinks}
    for each in named.values():
        if not isinstance(each, Delta | Postgres):
            raise DefinitionTypeError(
                f"{in_one_line(each)} is no sink. Use tg.sinks.Delta(path) or tg.sinks.Postgres(url, table), or one of "
                'them for each output by its name: {"final": tg.sinks.Delta(path), "late": ...}.'
            )
    rows = rows_of(table, {name: each.mode for name, each in named.items()})
    return Batches([named[name].target(each) for name, each in rows.items()], plan_number(table))
