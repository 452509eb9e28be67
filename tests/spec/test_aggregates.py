"""Aggregates, emit strategies and stores as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.spec.aggregates import Aggregate, Fold, Reduce

OF_A_COLUMN = [tg.sum, tg.min, tg.max, tg.mean, tg.first, tg.last, tg.collect_list, tg.approx_count_distinct]


def add(a: Any, b: Any) -> Any:
    return a + b


@pytest.mark.parametrize("factory", OF_A_COLUMN)
def test_an_aggregate_of_a_column(factory: Callable[[str], Aggregate]) -> None:
    name = factory.__name__
    assert (factory("x").function, factory("x").column, str(factory("x"))) == (name, "x", f"{name}(x)")


def test_count_of_records_and_of_values() -> None:
    assert (tg.count().column, str(tg.count())) == (None, "count()")
    assert (tg.count("x").column, str(tg.count("x"))) == ("x", "count(x)")


@pytest.mark.parametrize("factory", [tg.count, *OF_A_COLUMN])
def test_an_expression_is_not_a_column(factory: Callable[[Any], Aggregate]) -> None:
    with pytest.raises(DefinitionTypeError) as caught:
        factory(3)
    assert str(caught.value) == (
        f"tg.{factory.__name__} takes the name of a column, not 3. "
        "Compute an expression with withColumn before tg.stream and name it here."
    )


def test_which_aggregates_mind_the_order() -> None:
    ordered = {factory.__name__ for factory in OF_A_COLUMN if factory("x").ordered}
    assert ordered == {"first", "last", "collect_list"}
    assert not tg.count().ordered


def test_functions_as_text() -> None:
    assert str(Reduce(add, "x")) == "reduce(add, x)"
    assert str(Fold(list, add, "long")) == "aggregate(add) as long"


def test_emit_strategies_are_values() -> None:
    assert tg.EmitStrategy.on_window_close() == tg.EmitStrategy.on_window_close()
    assert tg.EmitStrategy.on_window_close().type == "on_window_close"
    assert tg.EmitStrategy.on_window_update().type == "on_window_update"


def test_a_store() -> None:
    store = tg.Materialized.as_("counts")
    assert (store.name, store.caching) == ("counts", True)
    assert store.with_caching_disabled() == tg.Materialized("counts", caching=False)
    assert store.with_caching_disabled().with_caching_enabled() == store


def test_a_store_needs_a_name() -> None:
    with pytest.raises(DefinitionError, match=r"`name` is empty: a store needs a name\. Leave Materialized out"):
        tg.Materialized.as_("")
    with pytest.raises(DefinitionTypeError, match=r"`name` is 3, not a string\."):
        tg.Materialized.as_(3)  # type: ignore[arg-type]
