"""The plan: an immutable tree that the DSL builds (`nodes`), the operators that compute it (`planner` makes `physical`
ones), what a checkpoint must agree with (`identity`), and the plan as text (`text`).
"""

from tidegate.plan.graph import Edge, Node, graph
from tidegate.plan.nodes import (
    DROP,
    KEEP,
    LATE_COLUMNS,
    LATE_RECORDS,
    RESULT_COLUMNS,
    STATE_COLUMNS,
    Changelog,
    Join,
    LateRecords,
    MapFilter,
    Outputs,
    Plan,
    Stream,
    Suppress,
    Table,
    WindowedAggregate,
    available_columns,
    inputs_of,
    key_of_rows,
    merge_conflict,
    root_of,
    windows_of,
)
from tidegate.plan.physical import Limit, Operation, Output, Repartition
from tidegate.plan.planner import operation, surprises, with_row_ids
from tidegate.plan.text import describe, headline

__all__ = [
    "DROP",
    "KEEP",
    "LATE_COLUMNS",
    "LATE_RECORDS",
    "RESULT_COLUMNS",
    "STATE_COLUMNS",
    "Changelog",
    "Edge",
    "Join",
    "LateRecords",
    "Limit",
    "MapFilter",
    "Node",
    "Operation",
    "Output",
    "Outputs",
    "Plan",
    "Repartition",
    "Stream",
    "Suppress",
    "Table",
    "WindowedAggregate",
    "available_columns",
    "describe",
    "graph",
    "headline",
    "inputs_of",
    "key_of_rows",
    "merge_conflict",
    "operation",
    "root_of",
    "surprises",
    "windows_of",
    "with_row_ids",
]
