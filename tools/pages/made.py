"""Every file of docs/ that is made, and what makes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.pages import DOCS, parity, scenarios

FILES: dict[Path, Callable[[], str]] = {
    DOCS / "parity.md": parity.page,
    DOCS / "scenarios.md": scenarios.page,
}
"""By path, a function that gives the text it must have."""
