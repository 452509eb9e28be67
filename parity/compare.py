"""Random cases through Kafka Streams and through tidegate: `make kafka-parity CASES=500`.

Exits with 0 if they agree except for the rules of rules.py and the deviations of deviations.py, 1 if not, 77 if
Kafka Streams cannot run here. joins.py and table_joins.py compare joins, this file compares all other cases.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator

from tools.maven import MavenError

import tidegate as tg
from parity import joins, ours, table_joins
from parity.cases import Case, Json, generate
from parity.kafka import Kafka
from parity.rules import Ask, Expected, RuleError, bounded, expected, is_final

NOT_RUN = 77
"""The exit code for "skipped" that test harnesses know."""


ONLY = ("joins", "table-joins", "aggregations")
"""Kinds of cases that may be drawn alone. joins: of two streams; table-joins: with a table; aggregations: the rest."""


def draw(seed: int, only: str | None) -> Case:
    """The case of a seed; a join is the same case if joins are drawn alone."""
    if only is None:
        only = "joins" if joins.is_drawn(seed) else "table-joins" if table_joins.is_drawn(seed) else "aggregations"
    return {"joins": joins.generate, "table-joins": table_joins.generate, "aggregations": generate}[only](seed)


def is_join(case: Case) -> bool:
    return bool(case.topology["kind"] == "stream_join")


def differences(case: Case, ask: Ask) -> list[str]:
    """Differences between tidegate and Kafka, one line each; empty if they agree."""
    if is_join(case):
        return joins.compared(case, ask).found
    if case.topology["kind"] in table_joins.KINDS:
        return table_joins.differences(case, ask)
    try:
        wanted = expected(case, ask)
    except RuleError as error:
        return [f"rule: {error}"]
    found: list[str] = []
    if not case.topology["suppress"] or case.topology["kind"] != "table" or "regroup" in case.topology:
        raw = ours.by_record(case, suppressed=False)
        shown = wanted.raw if wanted.failed_at is None else wanted.raw[: wanted.failed_at]
        found += _by_record("raw", shown, raw.rows[: len(shown)])
        if wanted.failed_at is None and raw.dropped != wanted.dropped:
            found.append(f"raw: Kafka dropped {wanted.dropped}, tidegate {raw.dropped}")
    if wanted.suppressed is not None:
        found += _suppressed(case, wanted.suppressed, wanted.dropped, wanted.failed_at)
        if case.topology["kind"] != "table" and not {"regroup", "steps"} & case.topology.keys():
            found += _side_by_side(case, wanted)
    told = wanted.suppressed if case.topology["suppress"] else wanted.raw
    if wanted.failed_at is None and told is not None:
        found += _batches(case, told, wanted.dropped)
    return found


def _suppressed(case: Case, wanted: list[list[Json]], dropped: int, failed_at: int | None) -> list[str]:
    mine = ours.by_record(case, suppressed=True)
    if mine.failed_at != failed_at:
        return [f"suppressed: Kafka's buffer is full at record {failed_at}, tidegate's at {mine.failed_at}"]
    # Kafka forwards rows of the failing record too; here they belong to a failed micro-batch, which emits nothing.
    found = _by_record("suppressed", wanted[: len(mine.rows)], mine.rows)
    if failed_at is None and mine.dropped != dropped:
        found.append(f"suppressed: Kafka dropped {dropped}, tidegate {mine.dropped}")
    return found


def _side_by_side(case: Case, wanted: Expected) -> list[str]:
    """Differences of updates and suppressed rows, as two outputs of one operator."""
    raw, held = ours.side_by_side(case)
    if held.failed_at != wanted.failed_at:
        return [f"side by side: Kafka's buffer is full at record {wanted.failed_at}, tidegate's at {held.failed_at}"]
    assert wanted.suppressed is not None
    found = _by_record("side by side, raw", wanted.raw[: len(raw.rows)], raw.rows)
    return found + _by_record("side by side, suppressed", wanted.suppressed[: len(held.rows)], held.rows)


def _batches(case: Case, wanted: list[list[Json]], dropped: int) -> list[str]:
    """Differences in rows that no cutting changes: final results, tables, and updates key by key (caching off)."""
    held = case.topology["suppress"]
    changes = case.topology["kind"] == "table" and "regroup" not in case.topology
    if is_final(case.topology) or case.topology.get("emit") == "close" or changes:
        if is_final(case.topology) and held and bounded(held):
            return []  # a bound counts all waiting entries, and a batch emits closed windows when it ends
        mine = ours.by_batch(case, caching=True)
        found = _same("batches", sum(wanted, []), sum(mine.rows, []))
    elif held is None:
        mine = ours.by_batch(case, caching=False)
        found = _same("batches", _by_key(wanted), _by_key(mine.rows))
    else:
        return []
    if mine.dropped != dropped:
        found.append(f"batches: Kafka dropped {dropped}, tidegate {mine.dropped}")
    return found


def _by_key(rows: list[list[Json]]) -> dict[str, list[Json]]:
    told: dict[str, list[Json]] = {}
    for row in sum(rows, []):
        told.setdefault(repr((row["key"], row.get("window_start_ms"), row.get("window_end_ms"))), []).append(row)
    return dict(sorted(told.items()))


def _by_record(name: str, wanted: list[list[Json]], mine: list[list[Json]]) -> list[str]:
    for at, (theirs, rows) in enumerate(zip(wanted, mine, strict=True)):
        if theirs != rows:
            return [f"{name}, record {at}:\n    Kafka    {_text(theirs)}\n    tidegate {_text(rows)}"]
    return []


def _same(name: str, wanted: object, mine: object) -> list[str]:
    return [] if wanted == mine else [f"{name}:\n    Kafka    {_text(wanted)}\n    tidegate {_text(mine)}"]


def _text(rows: object) -> str:
    return json.dumps(rows, ensure_ascii=False)


def minimal(case: Case, ask: Ask, seconds: float = 20) -> Case:
    """The case with the fewest records that still differ, or with as few as were reached in `seconds`."""
    until = time.monotonic() + seconds
    size = len(case.records) // 2
    while size and time.monotonic() < until:
        for smaller in _without(case, size):
            if differences(smaller, ask):
                case = smaller
                break
        else:
            size //= 2
    return case


def _without(case: Case, size: int) -> Iterator[Case]:
    for start in range(0, len(case.records), size):
        yield case.with_records(case.records[:start] + case.records[start + size :])


def family(case: Case) -> str:
    """Kind of the case, for the table at the end."""
    if is_join(case):
        return joins.family(case)
    if case.topology["kind"] in table_joins.KINDS:
        return table_joins.family(case)
    topology, held = case.topology, case.topology["suppress"]
    shape = topology["windows"]["type"] if topology["kind"] == "windowed" else topology["kind"]
    out = f", {held['kind']}" if held else ""
    more = "".join(f", {part}" for part in ("before", "steps", "regroup") if part in topology)
    bound = ", bytes" if held and "max_bytes" in held else ""
    bound += ", limits behind" if held and "behind" in held else ""
    return f"{shape}, {topology.get('emit', 'update')}{out}{bound}{more}"


def run(cases: int, seed: int, seconds: float, show: int, only: str | None = None) -> int:
    """Compare `cases` cases from `seed` on; returns the exit code. `seconds`: then stop, and print the state so far."""
    started = time.monotonic()
    families: Counter[str] = Counter()
    tally = joins.Tally()
    differing = done = 0
    with Kafka() as kafka:
        for number in range(seed, seed + cases):
            if time.monotonic() - started > seconds:
                print(f"stopped after {seconds:.0f} s, before seed {number}")
                break
            case = draw(number, only)
            families[family(case)] += 1
            done += 1
            if is_join(case):
                found = tally.take(joins.compared(case, kafka.case))
            else:
                found = differences(case, kafka.case)
            if not found:
                continue
            differing += 1
            if differing <= show:
                least = minimal(case, kafka.case)
                print(f"\n{least.shown()}\n" + "\n".join(f"  {line}" for line in differences(least, kafka.case)))
            else:
                print(f"seed {number} differs ({family(case)})")
    for name, count in sorted(families.items()):
        print(f"  {count:6} {name}")
    for line in tally.lines():
        print(line)
    print(f"seeds {seed} to {seed + done - 1}, {time.monotonic() - started:.0f} s")
    print(f"{done} cases, {differing} unexplained differences")
    return 1 if differing else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m parity.compare", description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: a random one, printed)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--show", type=int, default=10, help="how many differing cases to make minimal and print")
    parser.add_argument("--only", choices=ONLY, default=None, help="draw nothing else (default: all kinds)")
    given = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # print the findings even if the run is stopped
    # Random definitions are odd by intention.
    warnings.simplefilter("ignore", tg.TidegateWarning)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"from seed {seed} on")
    try:
        return run(given.cases, seed, given.seconds, given.show, given.only)
    except MavenError as error:
        print(f"Kafka Streams cannot be run here: {error}")
        return NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
