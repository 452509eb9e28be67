"""The case of a seed."""

from __future__ import annotations

from random import Random

from hostile.case import Case
from hostile.chained_draws import ChainDraw
from hostile.draws import Draw
from hostile.joined_draws import JoinDraw
from hostile.tables_draws import TableDraw


def scenario(seed: int, spark: bool = False) -> Case:
    """The case of a seed, of any family; `spark`: one that Spark can run."""
    family = Random(f"family {seed}").choices(("aggregation", "join", "table", "chain"), (8, 2, 1, 2))[0]
    if family == "chain":
        return ChainDraw(seed, spark).chained()
    if family == "join":
        return JoinDraw(seed, spark).joining()
    return TableDraw(seed, spark).changes() if family == "table" else Draw(seed, spark).scenario()
