"""Several outputs of one operator, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.dsl.late_records import KLateRecords
from tidegate.dsl.result import Result
from tidegate.dsl.streams import KStream
from tidegate.dsl.tables import KTable
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.plan import Join, Outputs, operation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def outputs(**tables: KTable | KStream | KLateRecords) -> KOutputs:
    """Several tables of one aggregation, computed together by one operator.

    For a join: its rows and its late records, `outputs(joined=joined, late=joined.late_records())`.

    Args:
        **tables: The tables, each by the name of its output.

    Returns:
        The outputs; `to_df` gives one DataFrame with a column `output`.

    Raises:
        DefinitionError: There is no table, or the tables are not of one aggregation.
        DefinitionTypeError: A value is no table.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
        >>> driver = TopologyTestDriver(tg.outputs(raw=counts, final=final))
        >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 12}])
        >>> [(row["output"], tuple(row["window"])) for row in driver.read_output()]
        [('raw', (0, 10)), ('raw', (10, 20)), ('final', (0, 10))]
    """
    if not tables:
        raise DefinitionError("There is no output. Name at least one, for example tg.outputs(raw=counts, final=final).")
    for name, table in tables.items():
        joined = isinstance(table, KStream) and isinstance(table.node.table, Join)
        if not isinstance(table, KTable | KLateRecords) and not joined:
            raise DefinitionTypeError(f"The output {name!r} is {table!r}, not a table. Use for example {name}=counts.")
    node = Outputs(tuple((name, table.node) for name, table in tables.items()))
    operation(node)
    return KOutputs(node)


def outputs_by_name(tables: Mapping[Any, Any]) -> KOutputs:
    """`outputs` of tables by name. Raises DefinitionTypeError for a name that is no text."""
    for name in tables:
        if not isinstance(name, str):
            raise DefinitionTypeError(
                f'An output is called {in_one_line(name)}. A name is a text, for example "final".'
            )
    return outputs(**tables)


def to_df(**tables: KTable | KStream | KLateRecords) -> DataFrame:
    """Several tables of one aggregation, or the rows of a join and its late records, as one DataFrame.

    One stateful operator computes them. The column `output` has the keyword of a row's table. The other columns are
    those of all tables; a column that the table of a row does not have is null.

    Args:
        **tables: The tables, each by the name of its output.

    Returns:
        The DataFrame.

    Raises:
        DefinitionError: There is no table, the tables are not of one aggregation, or a stream is not bound to a
            DataFrame.
        DefinitionTypeError: A value is no table.

    Examples:
        ```python
        rows = tg.to_df(raw=counts, final=final)
        ```
    """
    return outputs(**tables).to_df()


class KOutputs(Result):
    """Several tables of one aggregation. Their rows leave together and carry the name of their output.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> outputs = tg.outputs(counts=counts, late=counts.late_records())
    """
