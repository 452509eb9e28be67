"""docs/parity.toml against the code: names it calls supported exist, and names it calls missing do not."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import Any

import pytest
from tools.pages import COMMAND, ROOT, parity
from tools.pages.parity import DATA, Row

import tidegate as tg
from tidegate.testing import TopologyTestDriver

ROWS = [row for section in parity.sections() for row in section.rows]


def names() -> dict[str, Any]:
    """Names for the code of a probe."""
    events = tg.stream("events", key="k", timestamp="ts").group_by_key()
    return {
        "tg": tg,
        "unbounded": tg.BufferConfig.unbounded(),
        "counts": events.windowed_by(tg.TimeWindows.of_size_with_no_grace("1 second")).count(),
        "sessions": events.windowed_by(tg.SessionWindows.of_inactivity_gap_with_no_grace("1 second")).count(),
        "run": TopologyTestDriver,
    }


def is_there(row: Row) -> bool:
    if row.here.startswith("metrics: "):
        return row.here.removeprefix("metrics: ") in measured()
    if not row.probe:
        return reachable(row.here)
    try:
        eval(row.probe, names())
    except tg.DefinitionError as error:
        # The error of a known gap points to its page; any other error is a fault of the probe.
        assert "docs/notyet.md" in str(error), error
        return False
    return True


def measured() -> set[str]:
    """The metrics of final results, and of a table behind a time limit."""
    unbounded = tg.BufferConfig.unbounded()
    final = names()["counts"].suppress(tg.Suppressed.until_window_closes(unbounded))
    limited = tg.table("users", key="k", timestamp="ts").suppress(
        tg.Suppressed.until_time_limit("1 day", unbounded, clock="stream")
    )
    return {name for table in (final, limited) for name in TopologyTestDriver(table).metrics()}


def reachable(name: str) -> bool:
    """Whether tg.Class.method or tg.function(argument=) exists."""
    dotted, _, argument = name.rstrip("=)").partition("(")
    first, *rest = dotted.split(".")
    value: Any = importlib.import_module("tidegate.testing") if dotted.startswith("tidegate.testing.") else tg
    for part in rest[1:] if first == "tidegate" else rest:
        fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
        if part in fields:
            return True
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return not argument or argument in inspect.signature(value).parameters


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kafka)
def test_a_row_says_what_is(row: Row) -> None:
    where = f"{DATA.relative_to(ROOT)}:{row.line}"
    match row.status:
        case "supported":
            assert is_there(row), (
                f"{where} says that {row.here} is supported, and it is not there. If it was renamed, change `here` in "
                f"this line; if it was taken away, its status. Then run `{COMMAND}`."
            )
        case "not yet":
            assert row.note, f"{where}: `note` must say what to do until then"
            assert not is_there(row), (
                f'{row.here} is there now. In {where} change status = "not yet" to status = "supported" and put into '
                f"`note` how it differs from Kafka's {row.kafka} (or drop it), then run `{COMMAND}`."
            )
        case "never":
            assert row.note, f"{where}: `note` must give the reason"
            assert not row.here, f"{where}: what never comes has no name here"
        case other:
            pytest.fail(f"{where}: status is {other!r}, not one of {', '.join(parity.SHOWN)}")


def test_names_are_unique_so_that_a_row_can_be_found() -> None:
    kafka = [row.kafka for row in ROWS]
    assert len(kafka) == len(set(kafka)), [name for name in kafka if kafka.count(name) > 1]


SEEDS = """
ofSizeAndGrace gracePeriodMs until maintainMs segmentInterval grace withRetention suppress StrictBufferConfig
EagerBufferConfig maxRecords withMaxRecords maxBytes withMaxBytes unbounded withNoBound shutDownWhenFull
spillToDiskWhenFull emitEarlyWhenFull untilWindowCloses untilTimeLimit withName retention
emitStrategy EmitStrategy StrategyType type onWindowClose onWindowUpdate WindowCloseStrategy findSessions EmitConfig
BatchWindows ofSize size windowsFor
stream groupByKey windowedBy count aggregate toStream filter foreach
record-lateness-avg record-lateness-max late-record-drop expired-window-record-drop suppression-buffer-size
suppression-buffer-count suppression-emit intermediate-result-suppression-overtime emit-final-latency
emit-final-records
"""
"""The names that the interfaces, metrics and examples of the documents have."""


@pytest.mark.parametrize("name", SEEDS.split())
def test_every_name_of_the_documents_has_a_row(name: str) -> None:
    assert any(re.search(rf"(?<![\w-]){name}(?![a-zA-Z])", row.kafka) for row in ROWS)
