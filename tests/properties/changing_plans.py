"""Changes of composed plans: other durations, buffers, joins and caching; steps and limits that come and go."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from properties import neutral_steps
from properties.composed_plans import BUFFERS, Plan, chance

STEP = re.compile(r"(\w+)\.(filter|map_values|select_key|suppress)\(.*\)", re.DOTALL)
"""A line that is a step, with the object in front of it."""


def changed(random: Random, plan: Plan) -> Plan:
    """The plan with one or two changes; tidegate may refuse to define it, or to go on with it."""
    for _ in range(random.choice([1, 1, 2])):
        way = random.choice([other_durations, other_durations, other_words, without_a_step, with_a_step, with_a_limit])
        plan = way(random, plan)
    return plan


def other_durations(random: Random, plan: Plan) -> Plan:
    """A grace, a window, a limit or a history has another length."""
    return _rewritten(random, plan, r'"\d+ (ms|day)"', [f'"{ms} ms"' for ms in (0, 1, 3, 7, 12, 40, 100_000)])


def other_words(random: Random, plan: Plan) -> Plan:
    """A buffer has another bound, a join another kind, a store caching or none."""
    words = [
        (r"tg\.BufferConfig\.\w+\([\d_]*\)(\.\w+\(\))?", BUFFERS),
        (r"'(inner|left|outer)'", ("'inner'", "'left'", "'outer'")),
        (r"\.with_caching_disabled\(\)", ("",)),
        (r"(?<=tg\.Materialized\.as_\()'(\w+)'\)", (r"'\1').with_caching_disabled()",)),
        (r"'(first|latest)_update'", ("'first_update'", "'latest_update'")),
        (r"clock='\w+'", ("clock='wall'", "clock='stream'")),
        (r'stream_time="\w+"', ('stream_time="max"', 'stream_time="min_partition"')),
    ]
    return _rewritten(random, plan, *random.choice(words))


def _rewritten(random: Random, plan: Plan, pattern: str, words: tuple[str, ...] | list[str]) -> Plan:
    """The plan with another word in one of the lines that have such a word; streams have one clock."""
    found = [(n, match) for n, (code, _) in enumerate(plan.lines) for match in re.finditer(pattern, code)]
    if not found:
        return plan
    word, chosen, lines = random.choice(words), random.choice(found), [*plan.lines]
    for n, match in found if "stream_time" in pattern else [chosen]:
        code, place = lines[n]
        lines[n] = code[: match.start()] + match.expand(word) + code[match.end() :], place
    return replace(plan, lines=tuple(lines))


def without_a_step(random: Random, plan: Plan) -> Plan:
    found = [n for n, (code, _) in enumerate(plan.lines) if STEP.fullmatch(code)]
    if not found:
        return plan
    at = random.choice(found)
    lines = [(STEP.sub(r"\1", code) if n == at else code, place) for n, (code, place) in enumerate(plan.lines)]
    return replace(plan, lines=tuple(lines))


def with_a_step(random: Random, plan: Plan) -> Plan:
    """One more step, which changes no row."""
    place = random.choice(neutral_steps.places(plan))
    return plan.behind(place, neutral_steps.neutral(random, place))


def with_a_limit(random: Random, plan: Plan) -> Plan:
    tables = [place for place in plan.places if place.what == "table"]
    place = random.choice(tables or plan.places)
    if place.what != "table":
        return plan
    clock = "wall" if chance(random, 30) else "stream"
    limit = f'"{random.choice([1, 5, 12])} ms", {random.choice(BUFFERS)}, clock={clock!r}'
    named = "" if chance(random, 50) else f".with_name('more {place.name}')"
    return plan.behind(place, f"{place.name}.suppress(tg.Suppressed.until_time_limit({limit}){named})")
