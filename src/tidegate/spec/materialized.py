"""Materialized: how an aggregation keeps its state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.instants import Duration, duration_ms, show_ms


@dataclass(frozen=True)
class Materialized:
    """The name of a store, whether updates are cached between micro-batches, and how long closed windows are kept.

    The name is part of the checkpoint: a query that changes it does not find its state again.
    """

    name: str
    caching: bool = True
    retention_ms: int | None = None

    @classmethod
    def as_(cls, name: str) -> Materialized:
        """A store of this name. Raises DefinitionError if it is empty."""
        if not isinstance(name, str):
            raise DefinitionTypeError(f"`name` is {name!r}, not a string.")
        if not name:
            raise DefinitionError("`name` is empty: a store needs a name. Leave Materialized out for a derived one.")
        return cls(name)

    def with_retention(self, retention: Duration) -> Materialized:
        """Keep the result of a window readable (`tg.read_state`) for this much stream time after it has closed.

        Raises DefinitionError if it is not larger than zero; an aggregation refuses one shorter than its windows need.
        """
        ms = duration_ms(retention, "retention")
        if ms <= 0:
            raise DefinitionError(
                f"`retention` is {show_ms(ms)}: it must be larger than zero. Leave it out to keep nothing longer than "
                'needed, or use for example "1 day".'
            )
        return replace(self, retention_ms=ms)

    def with_caching_disabled(self) -> Materialized:
        """Forward every update instead of the last one per key (and window) of each micro-batch."""
        return replace(self, caching=False)

    def with_caching_enabled(self) -> Materialized:
        """Forward the last update per key (and window) of each micro-batch: the default."""
        return replace(self, caching=True)
