"""The choice of the operator that computes a plan. No other module makes this choice."""

from __future__ import annotations

from tidegate.kernel.joins.stream_stream import StreamStreamJoin
from tidegate.kernel.joins.stream_table import StreamTableJoin
from tidegate.kernel.joins.table_table import TableTableJoin
from tidegate.kernel.operator import Operator
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.windows.changelog import Changelog
from tidegate.kernel.windows.keyed import KeyedWindows
from tidegate.kernel.windows.unwindowed import Unwindowed
from tidegate.kernel.windows.window_log import WindowLog
from tidegate.kernel.windows.window_table import WindowTable
from tidegate.plan import Operation
from tidegate.spec.joined import Joined, StreamStream, StreamTable, TableTable
from tidegate.spec.windows import SessionWindows, SlidingWindows

OPERATORS: tuple[type[Operator], ...] = (
    Changelog,
    Unwindowed,
    KeyedWindows,
    WindowLog,
    WindowTable,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
)
_JOINS: dict[type[Joined], type[Operator]] = {
    StreamStream: StreamStreamJoin,
    StreamTable: StreamTableJoin,
    TableTable: TableTableJoin,
}


def operator_of(layout: Layout) -> Operator:
    """The operator of a layout."""
    return operator_class(layout.op)(layout)


def operator_class(op: Operation) -> type[Operator]:
    """The class of the operator that computes a plan.

    A join has two inputs. A table given as its changes is forwarded. An aggregation without windows keeps a row per
    key. Sliding and session windows depend on the stored windows of their key. For other windows a log is enough if
    the plan emits only final results and the order of records cannot change them; otherwise each window has a table
    that batches read and write.
    """
    if op.joined is not None:
        return _JOINS[type(op.joined)]
    if op.windows is None:
        return Unwindowed if op.plain else Changelog
    if isinstance(op.windows, SlidingWindows | SessionWindows):
        return KeyedWindows
    return WindowLog if op.append_only else WindowTable
