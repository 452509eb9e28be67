"""The DSL: `stream(...).group_by_key().windowed_by(...).count().suppress(...)`.

Every call returns a new value and only builds a plan. A runtime runs the plan.
"""

from tidegate.dsl.grouped_streams import CogroupedKStream, KGroupedStream
from tidegate.dsl.grouped_tables import KGroupedTable
from tidegate.dsl.late_records import KLateRecords
from tidegate.dsl.named_outputs import KOutputs, outputs, outputs_by_name, to_df
from tidegate.dsl.result import Result
from tidegate.dsl.sources import stream, table
from tidegate.dsl.streams import KStream
from tidegate.dsl.tables import KTable
from tidegate.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

__all__ = [
    "CogroupedKStream",
    "KGroupedStream",
    "KGroupedTable",
    "KLateRecords",
    "KOutputs",
    "KStream",
    "KTable",
    "Result",
    "SessionWindowedKStream",
    "TimeWindowedKStream",
    "outputs",
    "outputs_by_name",
    "stream",
    "table",
    "to_df",
]
