"""docs/state-tables.md: every table of every operator, from the declarations in `kernel/state/tables.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from tidegate.kernel.choice import OPERATORS
from tidegate.kernel.state.tables import (
    OLD_VALUE_TABLES,
    RETENTION_TABLES,
    TIME_LIMIT_TABLES,
    TableSpec,
    buffered_old_values,
    time_limit_tables,
)

INTRODUCTION = """\
# What a checkpoint stores: the tables of every operator

<!-- Made from the declarations in the code by `python -m tools.pages` (make docs). -->

Each task of an operator has a store of its own. The store holds numbered partitions; each partition is a list of Arrow
segments. A table owns a range of numbers. An index gives, for each partition, its size and one bound that says when the
partition must be looked at. Beside its tables a task stores two frames: the meta frame (identity of the plan, number of
tasks, stream time, the top of each index) and the description, from which a reader learns the columns without the plan.

Columns: `k:` is a key, `v:` a value, `s:i:j` the state column j of the aggregate i; `ts` is a timestamp in epoch
milliseconds. `kernel/state/tables.py:TableSpec` is where a table is declared.
"""

OF_A_BOUND = """\
Of a buffer with a bound one frame beside the tables, `buffer`, has every row that waits: the columns of results,
`tidegate:buffer_time` (ms), `tidegate:size` (bytes), and where the bound counts bytes `tidegate:prior:...`, the value
that the row replaces."""

OTHERS = (
    ("With `Materialized.with_retention`", RETENTION_TABLES),
    ("With rows that replace other rows: grouped tables, buffers that count bytes", OLD_VALUE_TABLES),
    ("With `until_time_limit` behind the operator", TIME_LIMIT_TABLES, OF_A_BOUND),
    (
        "With a second `until_time_limit`; those of each further one lie 2^50 lower, its old values 2^40",
        (*time_limit_tables(1), buffered_old_values(1)),
    ),
)


def page() -> str:
    """The text of docs/state-tables.md."""
    parts = [INTRODUCTION]
    for operator in OPERATORS:
        text = (inspect.getdoc(operator) or "").splitlines()[0]
        parts.append(_section(f"`{operator.__name__}`", operator.tables, text))
    parts += [_section(title, tables, *text) for title, tables, *text in OTHERS]
    return "\n".join(parts)


def _section(title: str, tables: Iterable[TableSpec], text: str = "") -> str:
    lines = [f"## {title}", ""]
    if text:
        lines += [text, ""]
    rows = [
        f"| {table.name} | {_range(table)} | {table.partitioned_by} | {', '.join(table.columns)} | {table.bound} |"
        for table in tables
    ]
    if rows:
        lines += ["| table | numbers | partitioned by | columns | bound |", "|---|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _range(table: TableSpec) -> str:
    return f"from {table.top} {'up' if table.ascending else 'down'}"
