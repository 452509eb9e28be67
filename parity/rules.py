"""Questions to Kafka, and tidegate's expected answers: the differences of SEMANTICS section 14 as rules.

Stores keep their data so long that section 9 plays no part, and there is no throttle (14.2, 14.4). The rest is

14.1  Kafka's suppress is a millisecond early for sliding windows and sessions: its emit-on-close is the measure.
14.3  A session is forgotten when it closes. Kafka does the same with a retention of gap + grace + 1 ms, but then hides
      closed sessions from its own emit-on-close too. So final sessions are read off Kafka's updates with that
      retention. If a longer retention changes no update, no closed session was ever found again, and Kafka's
      emit-on-close must give the same. Otherwise there is no measure for a time limit behind the sessions.
14.9  An entry of a buffer counts no topic and offset; parity.ours counts them for the comparison.

and the rules of sections 2.2 and 15 about rows that a table forwards:

15    Every change is forwarded. A filter of updates forwards a tombstone for each row that it takes out; Kafka's asks
      for old values if there are some, and then forwards none for a key that had nothing before. So Kafka is asked
      with the filter as a value that stands for "taken out", which is then read as a tombstone. Final results have no
      tombstones (6.1), so such a value is taken out before it can move the stream time of a limit behind them.
2.2   In Kafka's aggregations the value before a key's first record is initializer(), and a group that this value
      falls into loses it without ever having had it. Here a group only loses rows that it was given: Kafka's groups
      do not take the initial value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parity.cases import Case, Json
from parity.ours import taken

Ask = Callable[[Json, tuple[Json, ...]], Json]


@dataclass(frozen=True)
class Expected:
    """Rows after each record, without and with suppress; `failed_at`: the record at which its buffer is full."""

    raw: list[list[Json]]
    suppressed: list[list[Json]] | None
    dropped: int
    failed_at: int | None = None


class RuleError(AssertionError):
    """Kafka contradicts a rule of this file."""


def is_final(topology: Json) -> bool:
    """Whether rows leave when their window closes and only then."""
    held = topology["suppress"]
    return (topology.get("emit") == "close" and not held) or bool(held and held["kind"] == "until_window_closes")


def bounded(held: Json) -> bool:
    """Whether a buffer has a bound."""
    return held["max_records"] is not None or "max_bytes" in held


def expected(case: Case, ask: Ask) -> Expected:
    """Rows that tidegate must emit, derived from Kafka's answers."""
    topology, records = case.topology, case.records
    kind = topology["windows"]["type"] if topology["kind"] == "windowed" else None
    if kind == "session" and (is_final(topology) or topology["emit"] == "close"):
        return _final_sessions(case, ask)
    answer = ask(_asked(case), records)
    raw, suppressed = answer["raw"], answer["suppressed"] if topology["suppress"] else None
    if topology["suppress"] and is_final(topology):
        # 6.1: tombstones are dropped, and a filtered row is one.
        suppressed = [[row for row in rows if row["value"] is not None] for rows in answer["suppressed"]]
    if kind == "sliding" and is_final(topology) and topology["suppress"]:
        suppressed = ask(_asked(case, emit="close", suppress=None), records)["raw"]
        suppressed = [[row for row in rows if row["value"] is not None] for rows in suppressed]
    return Expected(raw, suppressed, answer["dropped"], answer["failed_at"])


def _final_sessions(case: Case, ask: Ask) -> Expected:
    forgetting = ask(_asked(case, emit="update", suppress=None), case.records)
    remembering = ask(_asked(case, emit="update", suppress=None, remember=True), case.records)
    final = _finals(case, forgetting["raw"])
    held = case.topology["suppress"]
    suppressed = final if held and is_final(case.topology) else None
    failed_at = None
    if forgetting == remembering:
        on_close = ask(_asked(case, emit="close", suppress=None), case.records)
        if on_close["raw"] != final or on_close["dropped"] != forgetting["dropped"]:
            raise RuleError(f"final sessions read off the updates are {final}, Kafka emits {on_close}")
        if held and suppressed is None:
            limited = ask(_asked(case), case.records)
            suppressed, failed_at = limited["suppressed"], limited["failed_at"]
    raw = final if case.topology["emit"] == "close" else forgetting["raw"]
    return Expected(raw, suppressed, forgetting["dropped"], failed_at)


def _asked(case: Case, *, remember: bool = False, **changes: object) -> Json:
    topology = {**case.topology, **changes}
    if topology["kind"] != "windowed" or topology["windows"]["type"] == "unlimited":
        return topology
    windows = topology["windows"]
    long = 2 * max((record["ts"] for record in case.records), default=0) + 100_000
    long += sum(value for name, value in windows.items() if name.endswith("_ms")) * 2
    if windows["type"] == "session" and topology["emit"] == "close":
        # In memory, sessions that end together leave by key and then start; SEMANTICS 5 is about the stores on disk.
        topology["store"] = "rocksdb"
    elif windows["type"] == "session" and not remember:
        long = windows["gap_ms"] + windows["grace_ms"] + 1
    return topology | {"retention_ms": long}


def _finals(case: Case, updates: list[list[Json]]) -> list[list[Json]]:
    """The sessions that close after each record, in the order (end, start, key), read off the updates."""
    windows = case.topology["windows"]
    stream_time = -1
    held: dict[tuple[int, int, bytes], Json] = {}
    finals = []
    for record, rows in zip(case.records, updates, strict=True):
        for row in rows:
            held[row["window_end_ms"], row["window_start_ms"], row["key"].encode()] = row
        if record["key"] is not None and taken(case.topology, record):
            stream_time = max(stream_time, record["ts"])
        closed = sorted(name for name in held if name[0] < stream_time - windows["grace_ms"] - windows["gap_ms"])
        leaving = [held.pop(name) for name in closed]
        finals.append([row for row in leaving if row["value"] is not None])
    return finals
