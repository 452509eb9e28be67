"""The generated files of docs/: tables from data, pictures from the output of the test driver."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMMAND = "python -m tools.pages"
"""The command that writes all generated files (`make docs`)."""
