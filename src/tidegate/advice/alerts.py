"""Alerts that a grace changes: a predicate over final rows, on complete rows and on the rows of each grace."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.advice.counts import Tally
from tidegate.advice.results import Grouped
from tidegate.errors import AggregationError, DefinitionError, DefinitionTypeError, in_one_line
from tidegate.kernel.columns.arrays import Flags, Ints
from tidegate.kernel.columns.runs import expanded
from tidegate.kernel.rows.grouping import lift, merge
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.rows.results import finish
from tidegate.spec.columns import END, START, public_name
from tidegate.spec.steps import check_call, computed, is_expression, refusal_of, why_refused

Predicate = str | Callable[[pa.Table], Any] | Any
"""Text such as "n < 10 and region == 'EU'", an expression of pyarrow.compute, or a function of a table."""

_COMPARED = {
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
}
_COMPUTED = {ast.Add: pc.add, ast.Sub: pc.subtract, ast.Mult: pc.multiply, ast.Div: pc.divide}
_BOUNDS = ("start", "end")
"""The bounds of the window of a result, in the form of predicates."""
_LARGEST = 2**63 - 1
"""The largest number of a column of whole numbers."""


@dataclass(frozen=True)
class Alerting:
    """Final rows and the predicate over them. `layout` has the aggregates and the types of the columns."""

    layout: Layout
    predicate: Predicate

    def check(self) -> None:
        """Raise DefinitionError for an expression that cannot be computed over these rows."""
        if isinstance(self.predicate, str) or is_expression(self.predicate):
            self._of(_shown(self.layout, self.layout.result_schema.empty_table()))

    def raised(self, rows: pa.Table) -> Flags:
        """Whether each row (a state row of a result, with `start`) raises an alert; null is false."""
        return self._of(_shown(self.layout, finish(self.layout, rows)))

    def _of(self, shown: pa.Table) -> Flags:
        predicate = expression(self.predicate) if isinstance(self.predicate, str) else self.predicate
        if is_expression(predicate):
            if (problem := refusal_of(predicate, shown.schema)) is not None:
                raise DefinitionError(
                    f"`alert` is {str(self.predicate)!r}, which cannot be computed: {why_refused(problem)}. The "
                    f"columns of a result are {', '.join(shown.schema.names)}."
                )
            found: Any = computed(predicate, shown)
        else:
            found = self._called(predicate, shown)
        try:
            column = found if isinstance(found, pa.Array | pa.ChunkedArray) else pa.array(found, from_pandas=True)
        except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
            raise DefinitionError(
                f"`alert` gives {in_one_line(found)} for {shown.num_rows} results. It must give one boolean for each: "
                "compare a column with something."
            ) from error
        if not pa.types.is_boolean(column.type) or len(column) != shown.num_rows:
            raise DefinitionError(
                f"`alert` gives {len(column)} values of {column.type} for {shown.num_rows} results. It must give one "
                "boolean for each: compare a column with something."
            )
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), bool)

    def _called(self, predicate: Any, shown: pa.Table) -> Any:
        """The answer of a function. Raises AggregationError if it raises."""
        try:
            return predicate(shown)
        except Exception as error:
            raise AggregationError(
                f"`alert` raised {type(error).__name__}: {error}. It gets an Arrow table with the columns "
                f"{', '.join(shown.schema.names)}. Correct the function."
            ) from error


def _shown(layout: Layout, rows: pa.Table) -> pa.Table:
    """Final rows in the form of predicates: key columns, `start` and `end` (ms), aggregates."""
    names = {name: public_name(name) for name in layout.op.key} | dict(zip((START, END), _BOUNDS, strict=True))
    names |= {name: name for name, _ in layout.op.aggregations}
    return pa.table({shown: rows[name] for name, shown in names.items()})


def expression(text: str) -> Any:
    """Parse a text to an expression: names, numbers and strings with and, or, not, comparisons, + - * /.

    Raises DefinitionError for anything else.
    """
    try:
        return _read(ast.parse(text.strip(), mode="eval").body, text)
    except SyntaxError as error:
        raise _no_predicate(text, error.msg) from None
    except RecursionError:
        raise _no_predicate(text, "it is nested too deeply") from None


def _read(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        return pc.field(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        if isinstance(node.value, int) and node.value > _LARGEST:
            raise _no_predicate(text, f"{node.value} is more than a column of whole numbers holds")
        return pc.scalar(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return pc.negate(_read(node.operand, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return pc.invert(_read(node.operand, text))
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        left, right = _read(node.left, text), _read(node.right, text)
        # 1 / 2 is a half, not 0 as in integer division.
        left = left.cast(pa.float64()) if isinstance(node.op, ast.Div) else left
        return _COMPUTED[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARED for op in node.ops):
        sides = [_read(side, text) for side in (node.left, *node.comparators)]
        found = [_COMPARED[type(op)](*pair) for op, *pair in zip(node.ops, sides[:-1], sides[1:], strict=True)]
        return _all(found, pc.and_kleene)
    if isinstance(node, ast.BoolOp):
        how = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
        return _all([_read(value, text) for value in node.values], how)
    raise _no_predicate(text, f"{ast.unparse(node)!r} is none of these")


def _all(parts: list[Any], how: Callable[[Any, Any], Any]) -> Any:
    whole, *rest = parts
    for part in rest:
        whole = how(whole, part)
    return whole


def _no_predicate(text: str, why: str) -> DefinitionError:
    return DefinitionError(
        f"`alert` is {text!r}: {why}. Use names of columns, numbers, strings, comparisons, and, or, not, + - * /, for "
        "example \"count < 10 and region == 'EU'\"; or give a function of an Arrow table."
    )


def check_predicate(predicate: Predicate) -> None:
    """Raise DefinitionTypeError or DefinitionError if `predicate` is not a predicate."""
    if isinstance(predicate, str):
        expression(predicate)
    elif callable(predicate):
        check_call(predicate, "alert", ("results",))
    elif not is_expression(predicate):
        raise DefinitionTypeError(
            f'`alert` is {predicate!r} ({type(predicate).__name__}). Give a text such as "count < 10", an expression '
            "of pyarrow.compute, or a function of an Arrow table that gives a boolean for each row."
        )


def check_names(names: Iterable[str]) -> None:
    """Raise DefinitionError if a key column or an aggregate, among `names`, has the name of a bound of the window."""
    for name in names:
        if name in _BOUNDS:
            raise DefinitionError(
                f"`alert` would read two columns called {name!r}: a key column or an aggregate, and a bound of the "
                f"window ({', '.join(_BOUNDS)}). Rename the key column or the aggregate, for example to '{name}_in'."
            )


def count_alerts(
    alerting: Alerting, rows: pa.Table, seen: Ints, grouped: Grouped, graces: Sequence[int], end: int, exact: Ints
) -> Tally:
    """The counts of alerts that `advice.results` lists.

    rows   the records: k:, v: and ts columns, in the order of `seen` and of `grouped`
    end    stream time at the end of the recording (ms)
    """
    layout = alerting.layout
    tally = Tally(exact)
    close = grouped.close
    lifted = lift(layout, rows)
    complete = alerting.raised(_complete(layout, lifted, grouped))
    tally.number("alerts", int(complete.sum()))
    late = grouped.most >= close
    affected = np.flatnonzero(late)
    record, window = _pairs(grouped, late)
    need = np.maximum(seen[record] - close[window] + 1, 0)
    place = np.searchsorted(affected, window)
    taken = lifted.take(pa.array(record)).append_column("result", pa.array(place))
    taken = taken.append_column("start", pa.array(grouped.start[window]))
    for grace in graces:
        closed = close <= end - grace
        kept = taken.filter(pa.array(need <= grace))
        partial = np.zeros(len(affected), bool)
        if kept.num_rows:
            found = merge(layout, kept, ["result", "start", *layout.keys])
            partial[found["result"].to_numpy()] = alerting.raised(found)
        was = complete[affected]
        # A window that has lost a record has closed, unless the record is in time with this grace.
        shown = closed[affected]
        tally.number(f"alerts/{grace}", int((complete & closed & ~late).sum() + (partial & shown).sum()))
        tally.number(f"false/{grace}", int((partial & ~was & shown).sum()))
        tally.number(f"missed/{grace}", int((was & ~partial & shown).sum()))
    return tally


def _complete(layout: Layout, lifted: pa.Table, grouped: Grouped) -> pa.Table:
    """The state row of every result, with all of its records, in the order of `grouped`."""
    by_pane = merge(layout, lifted.append_column("pane_of", pa.array(grouped.pane)), ["pane_of", *layout.keys])
    at = np.empty(by_pane.num_rows, np.int64)
    at[by_pane["pane_of"].to_numpy()] = np.arange(by_pane.num_rows)
    pairs = by_pane.take(pa.array(at[grouped.of_pane])).append_column("result", pa.array(grouped.window))
    pairs = pairs.append_column("start", pa.array(grouped.start[grouped.window]))
    whole = merge(layout, pairs, ["result", "start", *layout.keys])
    return whole.take(pa.array(np.argsort(whole["result"].to_numpy())))


def _pairs(grouped: Grouped, chosen: Flags) -> tuple[Ints, Ints]:
    """The pairs (record, result) of the chosen results."""
    mine = chosen[grouped.window]
    of_pane, window = grouped.of_pane[mine], grouped.window[mine]
    order = np.argsort(grouped.pane, kind="stable")
    many = np.bincount(grouped.pane, minlength=int(grouped.of_pane.max(initial=-1)) + 1)
    first = np.cumsum(many) - many
    size = many[of_pane]
    return order[expanded(first[of_pane], size, 1)], np.repeat(window, size)
