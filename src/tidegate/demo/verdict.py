"""The check of the demo: every row, count and alert against the direct computation."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from tidegate.demo.check import Expected, alert_differences, alerts_directly, count_differences, differences
from tidegate.demo.stream import Run


def problems(runs: list[Run], reports: pd.DataFrame, expected: Expected) -> list[str]:
    """Differences as sentences; empty if every run has the expected results and all runs have the same rows."""
    alerts = alerts_directly(reports, expected)
    found = []
    for run in runs:
        wrong = differences(run.rows, expected) + alert_differences(run.rows, alerts)
        wrong += count_differences(asdict(run.counts), expected)
        if run.counts.records != len(reports):
            wrong.append(f"the query read {run.counts.records} reports, but there are {len(reports)}")
        found += [f"in batches of {run.batch_size:,}: {text}" for text in wrong]
    if not all(run.rows.equals(runs[0].rows) for run in runs):
        found.append("the batch sizes gave different rows")
    return found
