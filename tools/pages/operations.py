"""The table of metrics in docs/operations.md, and the dashboard for Grafana, from `spec.metrics`."""

from __future__ import annotations

import json
from typing import Any

from tidegate.spec.metrics import METRICS, Metric
from tools.pages import COMMAND, DOCS, ROOT

PAGE = DOCS / "operations.md"
DASHBOARD = ROOT / "src" / "tidegate" / "ops" / "grafana.json"
BEGIN = f"<!-- Made by `{COMMAND}` from spec/metrics.py: -->\n"
END = "<!-- end of what is made -->"

WIDTH, HEIGHT, COLUMNS = 8, 8, 3
_OF = '{query=~"$query", operator=~"$operator"}'
_WHO = "{{query}} {{operator}}"


def page() -> str:
    """The present page, with the table made anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + rest[rest.index(END) :]


def table() -> str:
    """A line per metric: its name, Kafka's name if there is one, its meaning and its unit."""
    head = "| metric | in the KIPs | | unit |\n|---|---|---|---|\n"
    return head + "".join(map(_line, METRICS))


def _line(metric: Metric) -> str:
    kafka = f"`{metric.kafka}`" if metric.kafka else ""
    return f"| `{metric.name}` | {kafka} | {metric.means} | {metric.unit} |\n"


def _all(*names: str) -> list[tuple[str, str]]:
    """Queries of gauges without a rate, each with the name of its gauge as legend."""
    return [(f"tidegate_{name}{_OF}", f"{_WHO} {name}") for name in names]


def _per_second(total: str, legend: str = _WHO) -> list[tuple[str, str]]:
    return [(f"rate(tidegate_{total}{_OF}[$__rate_interval])", legend)]


_SHARE = (
    f"rate(tidegate_late_record_drop_total{_OF}[$__rate_interval])"
    f" / rate(tidegate_records_total{_OF}[$__rate_interval])"
)

PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Records per second", "short", _per_second("records_total")),
    ("Rows out per second", "short", _per_second("emitted_total")),
    ("Dropped late, share of the records", "percentunit", [(_SHARE, _WHO)]),
    ("Skipped per second, by reason", "short", _per_second("skipped_records_total", f"{_WHO} {{{{reason}}}}")),
    ("Lateness", "ms", _all("record_lateness_avg", "record_lateness_max")),
    ("Grace, and what would have been enough", "ms", _all("grace", "grace_enough")),
    ("Stream time behind the wall clock", "ms", _all("stream_time_lag")),
    ("Stream time", "dateTimeAsIso", _all("stream_time")),
    ("Open windows", "short", _all("open_windows")),
    ("Joins: open records", "short", _all("open_left_records", "open_right_records")),
    ("Final results per second", "short", _per_second("emit_final_records_total")),
    ("Final results: latency", "ms", _all("emit_final_latency_avg", "emit_final_latency_max")),
    ("Suppressions: rows out per second", "short", _per_second("suppression_emit_total")),
    ("Waiting: rows", "short", _all("suppression_buffer_count_current", "suppression_buffer_count_max")),
    (
        "Waiting: bytes",
        "bytes",
        _all("suppression_buffer_size_current", "suppression_buffer_size_max", "spilled_bytes"),
    ),
    ("How full bounded buffers are", "percentunit", _all("suppression_buffer_fill")),
    (
        "Waiting after the last update",
        "ms",
        _all(
            "intermediate_result_suppression_overtime_min",
            "intermediate_result_suppression_overtime_avg",
        ),
    ),
]


def dashboard() -> str:
    """The dashboard as JSON for Grafana's import."""
    whole = {
        "title": "tidegate",
        "uid": "tidegate",
        "description": "docs/operations.md says what each metric means and what to do",
        "tags": ["tidegate"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source(), _variable("query"), _variable("operator")]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(whole, indent=1) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": f"label_values(tidegate_query_active, {label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, title: str, unit: str, targets: list[tuple[str, str]]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + n), "datasource": source, "expr": expr, "legendFormat": legend}
            for n, (expr, legend) in enumerate(targets)
        ],
    }
