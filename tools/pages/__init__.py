"""What in docs/ is made by code: tables from data, pictures from what the test driver gives."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMMAND = "python -m tools.pages"
"""Writes everything anew (`make docs`)."""
