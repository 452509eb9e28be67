"""The tables of PostgreSQL in which tasks put rows aside, and the connection to the database."""

from __future__ import annotations

import io
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from tidegate.errors import TidegateError
from tidegate.runtime.spark.sinks.outputs import in_sql

PART = "tidegate:part"
"""The column with the part of a table to which a row belongs: the rows of one attempt of a task."""


def package() -> Any:
    """The package `psycopg`; raises TidegateError if it is not there."""
    try:
        import psycopg
    except ImportError as error:
        raise TidegateError(
            "tg.sinks.jdbc needs the package psycopg: pip install 'tidegate[postgres]', on the driver and the workers. "
            f"Python says: {error}"
        ) from error
    return psycopg


@dataclass(frozen=True)
class Connection:
    """The address of the database; it travels to the workers."""

    url: str = field(repr=False)
    options: tuple[tuple[str, str], ...] = field(repr=False)

    @contextmanager
    def transaction(self) -> Any:
        """A cursor whose changes are committed at the end of the block, all or none.

        Raises TidegateError if there is no connection.
        """
        psycopg = package()
        try:
            opened = psycopg.connect(self.url, **dict(self.options))
        except psycopg.Error as error:
            raise TidegateError(
                f"tg.sinks.jdbc has no connection to the database: {' '.join(str(error).split())}. See that the server "
                "runs and that driver and workers reach it, and correct `url` or `options`, which are those of libpq."
            ) from error
        with opened as connection, connection.cursor() as cursor:
            # Instants are read and written in UTC: a day is a day of 24 hours. Behind a lock a statement must see what
            # others have committed before. A parameter `options` of the connection would replace the options of the
            # address and of the environment.
            cursor.execute(
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
                "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL client_encoding = 'UTF8'"
            )
            yield cursor


@dataclass(frozen=True)
class Stages:
    """A table that takes the rows of tasks; a task with rows makes it if it is not there."""

    connection: Connection
    table: str
    made_by: str

    def open(self) -> _Aside:
        return _Aside(self)


class _Aside:
    """Rows of one attempt, under a name of their own, in a transaction of their own."""

    def __init__(self, stages: Stages) -> None:
        self._stages, self._part = stages, uuid.uuid4().hex
        with stages.connection.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('tidegate'))")
            cursor.execute(f"CREATE {stages.made_by}")

    def write(self, rows: pa.Table) -> None:
        with self._stages.connection.transaction() as cursor:
            copy_rows(cursor, self._stages.table, rows, self._part)

    def finish(self) -> str:
        return f"{self._part}/{self._stages.table}"


def table_and_part(name: str) -> tuple[str, str]:
    """The table and the part of a name that a task gave."""
    part, _, table = name.partition("/")
    return table, part


def copy_rows(cursor: Any, stage: str, rows: pa.Table, part: str) -> None:
    rows = rows.append_column(PART, pa.array([part] * rows.num_rows, pa.string()))
    options = pacsv.WriteOptions(include_header=False, quoting_style="all_valid")
    with cursor.copy(f"COPY {stage} ({listed(rows.schema.names)}) FROM STDIN (FORMAT csv)") as copy:
        for batch in rows.to_batches(max_chunksize=1 << 14):
            text = io.BytesIO()
            pacsv.write_csv(pa.Table.from_batches([batch]), text, options)
            copy.write(text.getbuffer())


def listed(names: Any) -> str:
    return ", ".join(map(in_sql, names))
