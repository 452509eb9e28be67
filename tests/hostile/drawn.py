"""The case of a seed."""

from __future__ import annotations

from random import Random

from hostile.case import Case
from hostile.draws import Draw
from hostile.joined_draws import JoinDraw


def scenario(seed: int, spark: bool = False) -> Case:
    """The case of a seed, of any family; `spark`: one that Spark can run."""
    family = Random(f"family {seed}").choices(("aggregation", "join"), (4, 1))[0]
    return JoinDraw(seed, spark).joining() if family == "join" else Draw(seed, spark).scenario()
