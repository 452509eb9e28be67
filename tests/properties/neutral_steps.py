"""Steps that change nothing: behind any object of a plan, its rows stay the same."""

from __future__ import annotations

from random import Random

from properties.composed_plans import UNBOUNDED, Place, Plan, chance

RETENTION = "500 ms"
"""Longer than windows of `composed_plans` need."""


def with_neutral_steps(random: Random, plan: Plan) -> Plan:
    """The plan with at least one step more that changes nothing."""
    able = places(plan)
    chosen = random.choice(able)
    for place in able:
        if place is chosen or chance(random, 40):
            plan = plan.behind(place, neutral(random, place))
    return plan


def places(plan: Plan) -> list[Place]:
    """The objects of a plan behind which such a step may stand."""
    return [place for place in plan.places if place.what != "store" or place.windowed]


def neutral(random: Random, place: Place) -> str:
    """Code for the object at `place` with a step that changes none of its rows."""
    if place.what == "store":
        return f'{place.name}.with_retention("{RETENTION}")'
    columns, types = place.values, dict(place.values)
    same = "lambda row: {" + ", ".join(f"{name!r}: row.get({name!r})" for name in columns) + "}"
    each = "{" + ", ".join(f"{name!r}: lambda row: row[{name!r}]" for name in columns) + "}"
    steps = [
        "filter(lambda row: True)",
        "filter(lambda key, row: True)",
        f"filter(pc.field({place.time!r}) == pc.field({place.time!r}))",
        f"map_values({ {name: name for name in columns}!r})",
        "map_values({" + ", ".join(f"{name!r}: pc.field({name!r})" for name in columns) + "})",
        f"map_values({same}, types={types!r})",
        f"map_values({each}, types={types!r})",
    ]
    if place.what == "table":
        limit = f'"0 ms", {UNBOUNDED}, clock={random.choice(["stream", "wall"])!r}'
        steps.append(f"suppress(tg.Suppressed.until_time_limit({limit}).with_name('now_{place.name}'))")
    else:
        steps.append(f"select_key({place.key!r})")
    step = random.choice(steps)
    return f"{place.name}.{step}"


def reorders(plan: Plan) -> bool:
    """Whether rows of different keys may leave a batch in another order: they waited, if only for no time."""
    return "now_" in repr(plan)
