"""EmitStrategy: whether a windowed aggregation forwards updates or only final results (KIP-825)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EmitStrategy:
    """When a windowed aggregation forwards rows; `type` is "on_window_close" or "on_window_update"."""

    type: str

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """One row per key and window, once, when the window closes."""
        return cls("on_window_close")

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """A row for every update of a key's window (with caching: the last one per micro-batch)."""
        return cls("on_window_update")
