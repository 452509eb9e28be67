"""The simulation of a large cluster measures all its parts, and its section of the page has a table and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import headers, page


def test_smoke(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "headers.json"
    assert headers.main(["--smoke", "--json", str(path)]) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert len(report["seconds"]) == len(headers.SMOKE) * len(headers.CLOCKS)
    assert all(one[name] > 0 for one in report["seconds"] for name in ("map", "first", "other", "mb"))
    assert capsys.readouterr().out.count("dealt in turns") == len(headers.CLOCKS)
    monkeypatch.setattr(page, "PICTURES", tmp_path)
    section = page._headers(report | {"day": "2026-11-28"})
    assert section.count("\n| ") == 2 + len(report["seconds"])
    assert (tmp_path / "headers.svg").read_text(encoding="utf-8").count("<circle") == 4
