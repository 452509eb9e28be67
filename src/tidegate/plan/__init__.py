"""The plan: an immutable tree that the DSL builds (`nodes`) and the operators that compute it (`planner` makes
`physical` ones). `identity` is compared with a checkpoint. `text`, `diagram` and `drawn` show the plan as text, boxes
and a picture.
"""

from tidegate.plan.diagram import Box, boxes, boxes_of, flowchart, mermaid
from tidegate.plan.drawn import drawing, html, svg
from tidegate.plan.graph import Edge, Node, graph
from tidegate.plan.identity import order_of
from tidegate.plan.nodes import (
    DROP,
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
    check_records_alone,
    inputs_of,
    key_of_rows,
    merge_conflict,
    readable_columns,
    result_columns,
    root_of,
    windows_of,
)
from tidegate.plan.physical import Limit, Operation, Output, Repartition
from tidegate.plan.planner import operation, surprises, with_row_ids
from tidegate.plan.text import describe, headline

__all__ = [
    "DROP",
    "LATE_COLUMNS",
    "LATE_RECORDS",
    "RESULT_COLUMNS",
    "STATE_COLUMNS",
    "Box",
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
    "boxes",
    "boxes_of",
    "check_records_alone",
    "describe",
    "drawing",
    "flowchart",
    "graph",
    "headline",
    "html",
    "inputs_of",
    "key_of_rows",
    "merge_conflict",
    "mermaid",
    "operation",
    "order_of",
    "readable_columns",
    "result_columns",
    "root_of",
    "surprises",
    "svg",
    "windows_of",
    "with_row_ids",
]
