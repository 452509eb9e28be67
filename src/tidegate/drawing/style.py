"""The colours of all pictures and pages, light and dark. They differ in brightness, so they also differ in grey."""

from __future__ import annotations

_LIGHT = {
    "ink": "#1b1f24",
    "quiet": "#59636e",
    "line": "#d1d9e0",
    "paper": "#fff",
    "soft": "#f6f8fa",
    "one": "#1f5fa8",
    "two": "#c2570c",
    "three": "#6e7781",
}
_DARK = {
    "ink": "#e6edf3",
    "quiet": "#9198a1",
    "line": "#3d444d",
    "paper": "#0d1117",
    "soft": "#161b22",
    "one": "#6cb0f5",
    "two": "#f0a35e",
    "three": "#9198a1",
}
FONT = 'system-ui,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif'


def variables(selector: str) -> str:
    """The colours as CSS variables of `selector`; the reader's device chooses light or dark ones."""
    return f"{selector}{{{_listed(_LIGHT)}}}\n@media (prefers-color-scheme:dark){{{selector}{{{_listed(_DARK)}}}}}\n"


def _listed(colors: dict[str, str]) -> str:
    return ";".join(f"--{name}:{color}" for name, color in colors.items())
