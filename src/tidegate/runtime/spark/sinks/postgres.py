"""Tables of PostgreSQL as sinks: rows and the number of the batch in one transaction.

Spark's own JDBC writer commits once per task, so a batch that fails in the middle is there in part, and it knows no
transaction that remembers the batch too. So the rows go by COPY into a table of their own, large batches from the
tasks, and one transaction takes them from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import DataType

from tidegate.arguments import options_of
from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateError, in_one_line
from tidegate.runtime.spark.sinks.exactly_once import Batch, Target, Written
from tidegate.runtime.spark.sinks.outputs import Rows, in_sql
from tidegate.runtime.spark.sinks.postgres_stages import (
    PART,
    Connection,
    Stages,
    copy_rows,
    listed,
    package,
    table_and_part,
)
from tidegate.runtime.spark.sinks.postgres_types import Carried, carried, holds
from tidegate.runtime.spark.sinks.staging import Lane, Staged

BATCHES = "tidegate_batches"
"""The table that remembers the newest batch of each query, beside the tables of the sinks."""
STAGE = "tidegate_stage_"
"""The prefix of the tables in which tasks put rows aside."""
MOST_NAME_BYTES = 63
"""PostgreSQL cuts longer names off."""
_GONE = "tidegate:deleted"
"""The staged column of tombstones."""


class _TableColumn(NamedTuple):
    """A column of a table in the database.

    needed    whether each row must give it a value
    computed  whether the database computes it, so that no row may give it a value
    exact     whether only the same text is equal
    """

    type: str
    needed: bool
    computed: bool
    exact: bool


@dataclass(frozen=True)
class Postgres:
    """A table of PostgreSQL.

    Attributes:
        url: "postgresql://host/database", with or without "jdbc:" before it, or any other address of libpq.
        table: The table's name, "counts" or "sales.counts"; names with dots as parts: ("sales", "my.counts").
        mode: "append" or "upsert"; left out, append where each row is the last word, upsert for updates.
        name: Tells this query from others that write into the table.
        options: Other parameters of libpq: user, password, sslmode, ...; the workers get them, as they get the url.

    Examples:
        ```python
        sink = tg.sinks.Postgres("postgresql://localhost/shop", "visits", options={"user": "writer"})
        ```
    """

    url: str
    table: str | Sequence[str]
    mode: str | None = None
    name: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Postgres(table={self.table!r})"  # no password

    def target(self, rows: Rows) -> Target:
        """The table, made if it is not there.

        Args:
            rows: The rows that go there.

        Returns:
            The target of a query.

        Raises:
            DefinitionError: The table cannot take these rows.

        Examples:
            ```python
            target = tg.sinks.Postgres("postgresql://localhost/shop", "visits").target(rows)
            ```
        """
        target = PostgresTarget(self._connection(), _parts(self.table), self.name, rows)
        target.make()
        return target

    def _connection(self) -> Connection:
        if not isinstance(self.url, str):
            raise DefinitionTypeError(
                f'`url` is {in_one_line(self.url)}. Use for example "postgresql://host/database".'
            )
        url = self.url.removeprefix("jdbc:")
        scheme = url.partition(":")[0]
        if self.url.startswith("jdbc:") and scheme != "postgresql":
            raise DefinitionError(
                f"`url` is of {scheme!r}, and tg.sinks.jdbc writes to PostgreSQL alone. Of other databases write "
                "foreachBatch yourself: replace what batch n wrote, in one transaction (docs/sinks.md)."
            )
        return Connection(url, tuple(options_of(self.options).items()))


def _parts(table: str | Sequence[str]) -> tuple[str, ...]:
    given = table.split(".") if isinstance(table, str) else table
    parts = tuple(given) if isinstance(given, list | tuple) else ()
    if not 1 <= len(parts) <= 2 or not all(isinstance(part, str) and part for part in parts):
        raise DefinitionError(
            f'`table` is {in_one_line(table)}. Use "counts", "sales.counts", or the parts of a name that has dots: '
            '("sales", "my.counts").'
        )
    for part in parts:
        _check_length(part, "`table`")
    return parts


def _check_length(name: str, what: str) -> None:
    if len(name.encode()) > MOST_NAME_BYTES:
        raise DefinitionError(
            f"{what} has the name {name!r} of {len(name.encode())} bytes, and PostgreSQL cuts names off behind "
            f"{MOST_NAME_BYTES}. Give it a shorter one."
        )


class PostgresTarget(Target):
    """A table and the rows that go there."""

    def __init__(self, connection: Connection, table: tuple[str, ...], name: str | None, rows: Rows) -> None:
        self._connection, self._table = connection, table
        super().__init__(rows, f"the table {'.'.join(table)!r}", name, f"TRUNCATE {self._target}")
        self._kinds = {each.name: self._carried(each.name, each.dataType) for each in rows.fields}

    def _carried(self, name: str, kind: DataType) -> Carried:
        _check_length(name, "A column of the rows")
        how = carried(kind)
        if how is None:
            raise DefinitionError(
                f"The column {name!r} is {kind.simpleString()}, for which PostgreSQL has no column here. Cast it, for "
                'example to "string" or "bigint".'
            )
        return how

    # The names of the tables, in SQL.

    @property
    def _target(self) -> str:
        return ".".join(in_sql(part) for part in self._table)

    @property
    def _batches(self) -> str:
        """The table of batches, for a query with parameters, in which a percent sign must be doubled."""
        return self._beside(BATCHES).replace("%", "%%")

    def _beside(self, name: str) -> str:
        return ".".join(in_sql(part) for part in (*self._table[:-1], name))

    def _stages_of(self, query: str) -> str:
        """The prefix of the tables in which tasks put rows of this query aside."""
        named = "/".join((*self._table, self.identity, query))
        return f"{STAGE}{sha256(named.encode()).hexdigest()[:12]}_"

    def make(self) -> None:
        """Make the tables that are not there, and check the target's columns and key."""
        columns = [f"{in_sql(name)} {how.column}" for name, how in self._kinds.items()]
        if self.rows.upserts:
            columns.append(f"PRIMARY KEY ({listed(self.rows.key)})")
        with self._connection.transaction() as cursor:
            # Two queries that begin at the same time would both make the tables.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('tidegate'))")
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._target} ({', '.join(columns)})")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._beside(BATCHES)} (target text, name text, query text, "
                "batch bigint NOT NULL, plan bigint NOT NULL, written timestamptz NOT NULL DEFAULT now(), "
                "PRIMARY KEY (target, name, query))"
            )
            self._check(cursor)
            if self.rows.upserts:
                self._check_unique(cursor)

    def _check(self, cursor: Any) -> None:
        """Raise DefinitionError if the columns of the table do not fit those of the rows."""
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '', "
            "attgenerated <> '' OR attidentity = 'a', coalesce(collisdeterministic, true) "
            "FROM pg_attribute LEFT JOIN pg_collation ON pg_collation.oid = attcollation "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (self._target,),
        )
        there = {name: _TableColumn(*about) for name, *about in cursor.fetchall()}
        for name, how in self._kinds.items():
            if name not in there:
                raise DefinitionError(
                    f"{self.place} has no column {name!r}. Its columns are {', '.join(there)}. Add it: ALTER TABLE "
                    f"{self._target} ADD COLUMN {in_sql(name)} {how.column}; or leave it out of the rows."
                )
            self._check_column(name, there[name])
        for name, column in there.items():
            if column.needed and name not in self._kinds:
                raise DefinitionError(
                    f"{self.place} has a column {name!r} that must not be null and has no default, and the rows do not "
                    "have it. Give it a default, or add it to the rows."
                )

    def _check_column(self, name: str, column: _TableColumn) -> None:
        """Raise DefinitionError if a column has another type, is computed, or takes keys of two rows for one."""
        how, spark = self._kinds[name], self.rows.kind(name)
        if not holds(column.type, spark):
            raise DefinitionError(
                f"{self.place} has the column {name!r} as {column.type}, which does not hold every value of the rows' "
                f"{spark.simpleString()}. It must be {' or '.join((how.column, *how.others))}: cast the column of "
                "the rows, or alter that of the table."
            )
        if column.computed:
            raise DefinitionError(
                f"{self.place} computes the column {name!r} itself (GENERATED ALWAYS), and takes no value of the "
                "rows for it. Leave it out of the rows, or make it a plain column."
            )
        if self.rows.upserts and name in self.rows.key and (column.type == "citext" or not column.exact):
            alike = "as citext" if column.type == "citext" else "with a collation that is not deterministic"
            raise DefinitionError(
                f"{self.place} has the key column {name!r} {alike}, where different texts such as 'a' and 'A' are "
                f"equal: rows of two keys would replace each other. Alter it: ALTER TABLE {self._target} ALTER "
                f'COLUMN {in_sql(name)} TYPE text COLLATE "default"; or use mode="append".'
            )

    def _check_unique(self, cursor: Any) -> None:
        """Raise DefinitionError if there is no unique index on the key."""
        cursor.execute(
            "SELECT (SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = i.indrelid "
            # Behind the columns of the key an index may include others.
            "AND attnum = ANY((i.indkey::int2[])[0:indnkeyatts - 1])) FROM pg_index i "
            "WHERE indrelid = %s::regclass AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL "
            "AND indimmediate",
            (self._target,),
        )
        if not any(set(names) == set(self.rows.key) for (names,) in cursor.fetchall()):
            raise DefinitionError(
                f"{self.place} has no unique index on the key of the rows, {', '.join(self.rows.key)}, by which a row "
                f"replaces another. Make one: CREATE UNIQUE INDEX ON {self._target} ({listed(self.rows.key)}); or use "
                'mode="append".'
            )

    def begin(self, query: str) -> None:
        with self._connection.transaction() as cursor:
            self._drop_stages(cursor, query)
            if self.rows.upserts or not self._is_of_another(cursor, query):
                return
            if self._has_rows(cursor):
                raise self.refuse_another()
            # The other query is forgotten. If it goes on, one of the two commits first, and the other one is refused.
            cursor.execute(
                f"DELETE FROM {self._batches} WHERE target = %s AND name = %s", (self._table[-1], self.identity)
            )

    def _is_of_another(self, cursor: Any, query: str) -> bool:
        """Whether the table remembers other queries of this name, and not this one.

        Queries of one name wait here for the end of each other's transaction: else two could commit first.
        """
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s::regclass::oid::bigint))",
            (self.identity, self._target),
        )
        cursor.execute(
            f"SELECT bool_or(query = %s) FROM {self._batches} WHERE target = %s AND name = %s",
            (query, self._table[-1], self.identity),
        )
        return cursor.fetchone()[0] is False

    def _has_rows(self, cursor: Any) -> bool:
        """Whether the table has rows, or the user of the database may not see them all."""
        cursor.execute("SET LOCAL row_security = off")  # an error instead of rows that a policy hides
        try:
            cursor.execute(f"SELECT EXISTS (SELECT FROM {self._target})")
        except package().errors.InsufficientPrivilege:
            return True
        return bool(cursor.fetchone()[0])

    def _drop_stages(self, cursor: Any, query: str) -> None:
        """Remove the tables of rows that an earlier run put aside and did not take."""
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname::text, %s) "
            "AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = %s::regclass)",
            (self._stages_of(query), self._target),
        )
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE IF EXISTS {self._beside(name)}")

    def written(self, query: str) -> Written | None:
        with self._connection.transaction() as cursor:
            cursor.execute(
                f"SELECT batch, plan FROM {self._batches} WHERE target = %s AND name = %s AND query = %s",
                (self._table[-1], self.identity, query),
            )
            found = cursor.fetchone()
        return None if found is None else Written(*found)

    def lane(self, frame_columns: Sequence[str], batch: Batch) -> tuple[list[Column], Lane]:
        columns = [how.sent(self.rows.column(name)) for name, how in self._kinds.items()]
        schema = pa.schema([(name, how.arrow) for name, how in self._kinds.items()])
        if self.rows.upserts:
            columns.append(self.rows.deleted(frame_columns))
            schema = schema.append(pa.field(_GONE, pa.bool_()))
        key = self.rows.key if self.rows.upserts else ()
        return columns, Lane(self.rows.output, schema, key, self._new_stages(batch.query), self.place)

    def _new_stages(self, query: str) -> Stages:
        """A table for the rows of one batch. The server writes no log of it, and empties it after a crash."""
        stage = self._beside(self._stages_of(query) + uuid.uuid4().hex[:12])
        return Stages(self._connection, stage, f"UNLOGGED TABLE IF NOT EXISTS {stage} ({self._staged_columns})")

    @property
    def _staged_columns(self) -> str:
        columns = [f"{in_sql(name)} {how.staged}" for name, how in self._kinds.items()]
        if self.rows.upserts:
            columns.append(f"{in_sql(_GONE)} boolean")
        return ", ".join([*columns, f"{in_sql(PART)} text"])

    def commit(self, batch: Batch, rows: Staged) -> None:
        with self._connection.transaction() as cursor:
            if not self.rows.upserts and self._is_of_another(cursor, batch.query):
                raise self.refuse_another()
            cursor.execute(
                f"INSERT INTO {self._batches} AS b (target, name, query, batch, plan) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (target, name, query) DO UPDATE SET batch = excluded.batch, plan = excluded.plan, "
                "written = now() WHERE b.batch < excluded.batch RETURNING batch",
                (self._table[-1], self.identity, batch.query, batch.number, batch.plan),
            )
            if cursor.fetchone() is None:
                return  # another driver of this query was faster
            self._check(cursor)  # somebody may have changed its columns since
            if self.rows.upserts:
                # Two queries that replace and delete rows of each other would wait for each other for ever.
                lock = "SELECT pg_advisory_xact_lock(hashtextextended('', %s::regclass::oid::bigint))"
                cursor.execute(lock, (self._target,))
            self._take(cursor, rows)

    def _take(self, cursor: Any, rows: Staged) -> None:
        """Put staged rows into the table."""
        parts = [table_and_part(name) for name in rows.aside]
        stage = parts[0][0] if parts else in_sql("tidegate:stage")
        if not parts:
            cursor.execute(f"CREATE TEMPORARY TABLE {stage} ({self._staged_columns}) ON COMMIT DROP")
        here = uuid.uuid4().hex
        if rows.inline:
            copy_rows(cursor, stage, rows.table, here)
        names = [here, *(part for _, part in parts)]
        taken = f"s.{in_sql(PART)} IN ({', '.join(map(repr, names))})"  # hexadecimal digits: nothing to quote
        if parts:
            cursor.execute(f"SELECT count(*) FROM {stage} s WHERE {taken}")
            (there,) = cursor.fetchone()
            if there != rows.count:
                raise TidegateError(
                    f"{self.place} gets {rows.count} rows in this batch, and the staging table {stage} has {there} of "
                    "them. PostgreSQL empties the staging table when it recovers from a crash or when a standby takes "
                    "over. Nothing of the batch is written: start the query again, and it repeats the batch."
                )
        values = ", ".join(self._value(name) for name in self._kinds)
        insert = f"INSERT INTO {self._target} ({listed(self._kinds)}) SELECT {values} FROM {stage} s WHERE {taken}"
        if self.rows.upserts:
            gone = f"s.{in_sql(_GONE)}"
            same = " AND ".join(f"t.{in_sql(name)} = {self._value(name)}" for name in self.rows.key)
            cursor.execute(f"DELETE FROM {self._target} t USING {stage} s WHERE {gone} AND {taken} AND {same}")
            insert += f" AND NOT {gone} {self._replacing}"
        cursor.execute(insert)
        if parts:
            cursor.execute(f"DROP TABLE {stage}")

    @property
    def _replacing(self) -> str:
        """The end of an INSERT that replaces the rows of its keys."""
        others = [name for name in self._kinds if name not in self.rows.key]
        changed = ", ".join(f"{in_sql(name)} = excluded.{in_sql(name)}" for name in others)
        # In the order of the key, so that two queries never wait for each other's rows.
        return (
            f"ORDER BY {', '.join('s.' + in_sql(name) for name in self.rows.key)} ON CONFLICT "
            f"({listed(self.rows.key)}) DO {f'UPDATE SET {changed}' if others else 'NOTHING'}"
        )

    def _value(self, name: str) -> str:
        return self._kinds[name].made(f"s.{in_sql(name)}")
