"""Dashboard, alert rules and docs/operations.md name metrics that exist, and their links lead to existing pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.pages.operations import PAGE, PANELS

import tidegate
from docs.pages import ROOT, anchors
from tidegate.kernel.inspect.totals import Totals
from tidegate.spec.metrics import GRACE_NEEDED, METRICS, OF_JOIN, OF_SESSIONS, OF_SLIDING, OF_TIME

OPS = Path(tidegate.__file__).parent / "ops"
DASHBOARD = json.loads((OPS / "grafana.json").read_text(encoding="utf-8"))
[GROUP] = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
RULES: list[dict[str, Any]] = GROUP["rules"]
EXPORTED = {f"tidegate_{metric.name}" for metric in METRICS} | {"tidegate_query_active"}
LABELS = {"query", "operator", "reason"}


def named(text: str) -> set[str]:
    return set(re.findall(r"\btidegate_\w+", text))


def test_every_metric_is_in_the_dashboard_or_is_a_rate_of_one() -> None:
    assert named(json.dumps(DASHBOARD)) <= EXPORTED
    shown = named(json.dumps(DASHBOARD)) | named(json.dumps(RULES))
    # Prometheus computes its own rates and averages; a metric that is always 0 needs no panel.
    derived = {f"tidegate_{metric.name}" for metric in METRICS if metric.kind == "rate"}
    derived |= {f"tidegate_suppression_buffer_{what}_avg" for what in ("count", "size")}
    assert EXPORTED - shown == derived | {"tidegate_expired_window_record_drop_total"}


def test_the_dashboard_can_be_imported() -> None:
    panels = DASHBOARD["panels"]
    assert [panel["title"] for panel in panels] == [title for title, _, _ in PANELS]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used == variables | {"__rate_interval"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_metrics_and_links_to_what_to_do(rule: dict[str, Any]) -> None:
    assert named(rule["expr"])
    assert named(rule["expr"]) <= EXPORTED
    assert set(re.findall(r"\$labels\.(\w+)", json.dumps(rule))) <= LABELS
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    assert ROOT / page == PAGE
    assert heading in anchors(PAGE)


HOUR = 3_600_000


@pytest.mark.parametrize("kind", [OF_TIME, OF_SLIDING, OF_SESSIONS, OF_JOIN])
@pytest.mark.parametrize(
    ("grace", "needed", "raised"),
    [
        (HOUR, {}, {"TidegateGraceLongerThanNeeded"}),
        (HOUR, {HOUR // 6: 40, 2 * HOUR: 1}, {"TidegateGraceLongerThanNeeded"}),
        (HOUR, {HOUR // 2: 40}, set()),
        (HOUR, {2 * HOUR: 2}, {"TidegateGraceTooShort"}),
        # Sessions took these records with a grace that is no round duration: no rule asks for the next round one.
        (25_000, {25_000: 40}, set()),
        (25_000, {26_000: 2}, {"TidegateGraceTooShort"}),
    ],
)
def test_the_rules_about_graces(kind: int, grace: int, needed: dict[int, int], raised: set[str]) -> None:
    """Metrics of two tasks for a batch of a thousand records."""
    totals = Totals("events", {GRACE_NEEDED: "collect_list"}, 0)
    flat = [number for one in needed.items() for number in one]
    totals.add({GRACE_NEEDED: [[kind, 0, 0, grace, 400], [kind, 0, 0, grace, 600, *flat]]}, 0)
    known = {f"tidegate_{name}": value for name, value in totals.values(0).items()} | {"tidegate_query_active": 1}
    rules = {rule["alert"]: rule["expr"] for rule in RULES if "Grace" in rule["alert"]}
    assert len(rules) == 2
    # Their expressions mean the same in Python.
    assert {name for name, rule in rules.items() if eval(rule, {}, known)} == raised


@pytest.mark.parametrize(
    ("waiting", "raised"),
    [
        ({"open_windows": 1}, True),
        ({"open_windows": 0, "suppression_buffer_count_current": 2}, True),
        ({"open_windows": 0}, False),
        ({"open_windows": 0, "open_left_records": 0, "open_right_records": 4, "grace": 0}, True),
        ({"open_windows": 0, "open_left_records": 0, "open_right_records": 0, "grace": 0}, False),
        # A join of tables keeps rows, and nothing waits. It has no grace.
        ({"open_windows": 0, "open_left_records": 3, "open_right_records": 4}, False),
    ],
)
def test_the_rule_about_a_time_that_stands_still(waiting: dict[str, int], raised: bool) -> None:
    (rule,) = (rule["expr"] for rule in RULES if rule["alert"] == "TidegateStreamTimeStandsStill")
    metrics = dict.fromkeys(EXPORTED, float("nan")) | {f"tidegate_{name}": value for name, value in waiting.items()}
    # `and` and `or` mean the same in Python.
    stands = rule.replace("changes(tidegate_stream_time[10m])", "0")
    assert bool(eval(stands, {}, metrics | {"tidegate_query_active": 1})) == raised


def test_there_is_a_rule_for_what_must_not_go_unnoticed() -> None:
    watched = set().union(*(named(rule["expr"]) for rule in RULES))
    asked = ("suppression_buffer_fill", "late_record_drop_total", "stream_time", "skipped_records_total")
    assert {f"tidegate_{name}" for name in asked} <= watched


def test_the_endpoint_exports_these_and_gives_the_files() -> None:
    pytest.importorskip("pyspark")
    from tidegate.runtime.spark.metrics.prometheus import exported

    of_stores = {name for name in exported() if name.startswith("tidegate_store_")}
    assert exported() - of_stores == EXPORTED
    assert {name.replace("_store_", "_") for name in of_stores} < EXPORTED
    assert "tidegate_store_suppression_buffer_count_current" in of_stores
    assert tidegate.metrics.DASHBOARD == OPS / "grafana.json"
    assert tidegate.metrics.ALERTS == OPS / "alerts.yml"
