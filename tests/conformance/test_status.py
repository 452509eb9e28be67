"""Every scenario file is either supported or listed with a reason."""

from __future__ import annotations

from collections import Counter

from conformance import runner
from conformance.status import GAPS, SUPPORTED

ISSUES = {"the joins issue", "explained", "never"}


def test_every_scenario_is_supported_or_listed_once() -> None:
    listed = Counter(SUPPORTED) + Counter(name for gap in GAPS for name in gap.scenarios)
    assert set(listed) == set(runner.names())
    assert [name for name, times in listed.items() if times > 1] == []


def test_every_gap_has_an_issue_and_a_reason() -> None:
    for gap in GAPS:
        assert gap.issue in ISSUES
        assert gap.reason
        assert gap.scenarios


def test_the_families_of_time_windows_have_no_gap() -> None:
    gaps = {name for gap in GAPS for name in gap.scenarios}
    promised = ("time_windows", "blog_figure", "emit_strategy", "definition__TimeWindows")
    assert [name for name in gaps if name.startswith(promised)] == []


def test_a_scenario_that_says_it_differs_from_kafka_holds_what_kafka_does() -> None:
    for name in runner.names():
        data = runner.load(name).data
        assert ("differs_from_kafka" in data) == ("kafka" in data), name
