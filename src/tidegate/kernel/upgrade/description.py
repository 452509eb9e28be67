"""The description of a store: its rows can be read without the plan that wrote them.

A description is data: the computation of the plan as JSON, and the types of its columns and of a buffer's columns as
empty Arrow tables. It has no code of Python functions; a function's aggregate is a column like any other.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state import frames
from tidegate.kernel.state.state import State
from tidegate.kernel.state.store import Store
from tidegate.plan import Limit, Operation, Output, Stream
from tidegate.spec.aggregates import Aggregate, Aggregation, Fold, Reduce
from tidegate.spec.clock import Clock
from tidegate.spec.joined import JOINS, Joined, JoinValues
from tidegate.spec.suppressed import StrictBuffer, UntilTimeLimit
from tidegate.spec.windows import (
    BatchWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

LAYOUT = "layout"
"""The name of the description in a store."""

_WINDOWS: dict[str, Any] = {
    kind.__name__: kind for kind in (TimeWindows, SlidingWindows, SessionWindows, BatchWindows, UnlimitedWindows)
}
_JOINS = {kind.__name__: kind for kind in JOINS}
_FUNCTION = "s:0:0"
_OF_CLOCK = ("idle_after_ms", "idle_advance_ms")


def write(layout: Layout, state: State) -> None:
    """Put the description of `layout` into the store, unless it is there."""
    about, tables = _description(layout)
    digest = _digest(about, tables)
    if state.described != digest:
        state.store.put(LAYOUT, frames.encode(frames.META, about, *tables))
        state.described = digest


def describes(layout: Layout, state: State) -> bool:
    """Whether the description in the store is that of `layout`."""
    return state.described == _digest(*_description(layout))


def _digest(about: dict[str, Any], tables: list[pa.Table]) -> str:
    return hashlib.sha256(f"{about}{''.join(str(table.schema) for table in tables)}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Described:
    """A decoded description: a layout for reading rows, not for running, and the schemas of buffered rows.

    buffered  the schema of each time limit's rows, by its place; without a limit that of results that wait to close
    steps     the number of the table's steps that the rows of each time limit have taken
    """

    layout: Layout
    buffered: tuple[pa.Schema, ...]
    steps: tuple[int, ...]


def of(store: Store) -> Described | None:
    """The description of a store; None if nothing was stored yet."""
    frame = store.get(LAYOUT)
    return None if frame is None else read(frame)


def read(frame: bytes) -> Described:
    """Decode a description."""
    about, (types, *buffered) = frames.decode(frames.META, frame)
    op = about["operation"]
    kind = types.schema.field(_FUNCTION).type if _FUNCTION in types.schema.names else None
    layout = Layout(
        Operation(
            stream=Stream(
                name=op["stream"],
                key=tuple(op["key"]),
                timestamp=op["timestamp"],
                changes=op["changes"],
                forwarded=op["forwarded"],
                follows=op.get("follows"),
                clock=Clock(**{name: op.get(name) for name in _OF_CLOCK}),
            ),
            key=tuple(op["key"]),
            windows=None if op["windows"] is None else _WINDOWS[op["windows"][0]](**op["windows"][1]),
            aggregations=tuple((name, _aggregation(kind, **how)) for name, how in op["aggregations"]),
            emits=op["emits"],
            caching=op["caching"],
            buffer=StrictBuffer() if op["bounded"] else None,
            name=op["name"],
            buffer_name=op["buffer_name"],
            deleted=op["deleted"],
            outputs=tuple(Output(name, kind, _limits_of(limits)) for name, kind, limits in op["outputs"]),
            retention_ms=op["retention_ms"],
            joined=None if op["join"] is None else _joined(op["join"], tuple(op["key"])),
            sides=tuple(Stream(name, tuple(op["key"]), timestamp) for name, timestamp in op["sides"]),
        ),
        types.schema,
    )
    steps = tuple(limit["steps"] for _, _, limits in op["outputs"] for limit in limits)
    return Described(layout, tuple(table.schema for table in buffered), steps)


def _limits_of(described: list[dict[str, Any]]) -> tuple[Limit, ...]:
    return tuple(
        Limit(UntilTimeLimit(**limit["how"], buffer=StrictBuffer()), store=limit["store"], place=limit["place"])
        for limit in described
    )


def _buffered(layout: Layout) -> list[pa.Schema]:
    """The schemas of the rows that come to each suppression."""
    if not layout.op.all_limits:
        return [layout.so_far.result_schema]
    limits = [(output, n) for output in layout.op.all_outputs for n in range(len(output.limits))]
    return [layout.of_limit(output, n).result_schema for output, n in limits]


def _of_limits(output: Output) -> list[dict[str, Any]]:
    return [
        {
            "how": {what: getattr(limit.how, what) for what in ("limit_ms", "clock", "measured_from", "name")},
            "store": limit.store,
            "place": limit.place,
            "steps": len(output.steps_before(n)),
        }
        for n, limit in enumerate(output.limits)
    ]


def _description(layout: Layout) -> tuple[dict[str, Any], list[pa.Table]]:
    op = layout.op
    about = {
        "stream": op.stream.name,
        "key": op.key,
        "timestamp": op.stream.timestamp,
        "changes": op.stream.changes,
        "forwarded": op.stream.forwarded,
        "follows": op.follows,
        # Earlier versions did not say it.
        **{name: ms for name in _OF_CLOCK if (ms := getattr(op.stream.clock, name)) is not None},
        "windows": op.windows and [type(op.windows).__name__, asdict(op.windows)],
        "aggregations": [[name, _of_aggregation(aggregation)] for name, aggregation in op.aggregations],
        "emits": op.emits,
        "caching": op.caching,
        "bounded": op.buffer is not None,
        "name": op.name,
        "buffer_name": op.buffer_name,
        "deleted": op.deleted,
        "outputs": [[output.name, output.kind, _of_limits(output)] for output in op.all_outputs],
        "retention_ms": op.retention_ms,
        "join": op.joined and _of_join(op.joined),
        "sides": [[side.name, side.timestamp] for side in op.sides],
    }
    types = layout.schema
    if op.function is not None:
        types = types.append(pa.field(_FUNCTION, layout.function_type))
    schemas = [types.remove_metadata(), *_buffered(layout)]
    return {"operation": about}, [schema.empty_table() for schema in schemas]


def _of_join(joined: Joined) -> dict[str, Any]:
    return {
        "kind": type(joined).__name__,
        "how": joined.how,
        "suffixes": joined.suffixes,
        "self_join": joined.self_join,
        "structs": joined.values is not None,
        **joined.settings,
    }


def _joined(about: dict[str, Any], key: tuple[str, ...]) -> Joined:
    fields = dict(about)
    kind, suffixes, structs = (fields.pop(name) for name in ("kind", "suffixes", "structs"))
    return _JOINS[kind].of_settings(
        fields,
        suffixes=None if suffixes is None else tuple(suffixes),
        values=JoinValues(_not_here, key, ()) if structs else None,
    )


def _of_aggregation(aggregation: Aggregation) -> dict[str, Any]:
    if isinstance(aggregation, Fold):
        return {"function": "aggregate"}
    function = "reduce" if isinstance(aggregation, Reduce) else aggregation.function
    return {"function": function, "column": aggregation.column}


def _aggregation(kind: pa.DataType | None, function: str, column: str | None = None) -> Aggregation:
    if function == "aggregate":
        return Fold(_not_here, _not_here, kind)
    if function == "reduce":
        return Reduce(_not_here, column or "")
    return Aggregate(function, column)


def _not_here(*_: Any) -> Any:
    raise AssertionError("a description has no functions")
