"""Materialized: how an aggregation keeps its state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.errors import DefinitionError, DefinitionTypeError


@dataclass(frozen=True)
class Materialized:
    """The name of a store and whether updates are cached between micro-batches.

    The name is part of the checkpoint: a query that changes it does not find its state again.
    """

    name: str
    caching: bool = True

    @classmethod
    def as_(cls, name: str) -> Materialized:
        """A store of this name. Raises DefinitionError if it is empty."""
        if not isinstance(name, str):
            raise DefinitionTypeError(f"`name` is {name!r}, not a string.")
        if not name:
            raise DefinitionError("`name` is empty: a store needs a name. Leave Materialized out for a derived one.")
        return cls(name)

    def with_caching_disabled(self) -> Materialized:
        """Forward every update instead of the last one per key (and window) of each micro-batch."""
        return replace(self, caching=False)

    def with_caching_enabled(self) -> Materialized:
        """Forward the last update per key (and window) of each micro-batch: the default."""
        return replace(self, caching=True)
