"""The properties of an operator that must equal the checkpoint's, so that a query can go on."""

from __future__ import annotations

from tidegate.instants import show_ms
from tidegate.plan.nodes import Stream
from tidegate.plan.physical import Operation
from tidegate.spec.aggregates import Aggregation, Fold, Reduce
from tidegate.spec.columns import public_key


def identity(op: Operation) -> dict[str, str]:
    """The properties that must equal the checkpoint's, by name; the bound of a buffer may change."""
    # Old rows do not depend on the key of the regrouping, so its key may change; without a regrouping none are kept.
    kept = {"old rows": "kept"} if op.regroup is not None and op.regroup.changes else {}
    if op.joined is not None:
        return _of_join(op) | (kept if all(op.joined.tables) else {}) | op.joined.identity
    return kept | {
        "key": ", ".join(public_key(op.key)),
        "timestamp": op.stream.timestamp,
        "order": order_of(op.stream),
        "windows": str(op.windows),
        "grace": show_ms(op.windows.grace_ms if op.windows else 0),
        "aggregation": ", ".join(f"{name}={_identify(a)}" for name, a in op.aggregations),
        # Final results beside updates are kept in the same state as updates alone.
        "emits": "final" if op.emits == "final" else "updates",
        "buffer": "unbounded" if op.buffer is None else "bounded",
        "limit": _limits(op),
        "store": op.name,
    }


def order_of(stream: Stream) -> str:
    """The order of the records of a stream."""
    return "partition and offset" if stream.ordered else "timestamps"


def _of_join(op: Operation) -> dict[str, str]:
    joined = op.joined
    assert joined is not None
    return {
        "key": ", ".join(public_key(op.key)),
        "timestamp": ", ".join(side.timestamp for side in op.sides),
        "order": ", ".join(map(order_of, op.sides)),
        "join": f"{joined.how}{' with itself' if joined.self_join else ''}",
        "limit": _limits(op),
        "store": op.name,
    }


def _limits(op: Operation) -> str:
    """The clocks of the time limits, in the order of the limits; of several outputs with their names."""
    if not op.all_limits:
        return "none"
    by = [
        (output.name, ", ".join(f"by {limit.how.clock} time" for limit in output.limits))
        for output in op.all_outputs
        if output.limits
    ]
    if len(op.all_limits) == 1:
        return by[0][1]
    return "; ".join(f"{name}: {clocks}" if name else clocks for name, clocks in by)


def _identify(aggregation: Aggregation) -> str:
    # Users may change the code of a function; the state only depends on its column and type.
    if isinstance(aggregation, Reduce):
        return f"reduce({aggregation.column})"
    if isinstance(aggregation, Fold):
        return f"aggregate as {aggregation.type}"
    return str(aggregation)
