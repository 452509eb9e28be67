"""Names of columns on their way through Spark: a name may hold dots, backticks and anything else.

Spark reads a dot in the name of a column as a field of a struct, and pyspark looks the columns of a frame up by name
before it hands them to a Python function. So an expression quotes each name, and a frame that goes to a Python function
has columns that are numbered: c0, c1 ... The worker gives the batches their names back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.errors import DefinitionError

CASE_SENSITIVE = "spark.sql.caseSensitive"


def col(name: str) -> Column:
    """The column of exactly this name."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """The name as Spark's parser takes it."""
    return f"`{name.replace('`', '``')}`"


def spelled(name: str) -> str:
    """The name as a program writes it in an expression of Spark: quoted where it holds a dot or a backtick."""
    name = quoted(name) if set(name) & set(".`") else name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def free(name: str, taken: Container[str]) -> str:
    """The name, with `_in` behind it as often as it is one of those that are taken."""
    while name in taken:
        name += "_in"
    return name


def numbered(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """The frame with numbered columns, and the names that they had."""
    names = list(frame.columns)
    return frame.toDF(*numbers(names)), names


def numbers(names: Sequence[str]) -> list[str]:
    """The names c0, c1 ..., one for each of `names`."""
    return [f"c{i}" for i in range(len(names))]


def renamed(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches with their columns renamed to `names`."""
    for batch in batches:
        yield batch.rename_columns(list(names))


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names that differ by case alone are different columns to Spark."""
    return str(spark.conf.get(CASE_SENSITIVE)).lower() == "true"


def check_apart(names: Iterable[str], spark: SparkSession, what: str) -> None:
    """Raise DefinitionError if Spark cannot tell two of the columns apart; `what` begins the message."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[name.lower()].append(name)
    for same in alike.values():
        if len(same) == 1:
            continue
        if len(set(same)) < len(same):
            raise DefinitionError(f"{what} two columns {same[0]!r}. Rename or drop one of them.")
        if not is_case_sensitive(spark):
            raise DefinitionError(
                f"{what} the columns {' and '.join(map(repr, same))}, whose names differ by case alone: Spark "
                f'takes them for one. Rename one of them, or set spark.conf.set("{CASE_SENSITIVE}", "true").'
            )
