"""Materialized: the settings of the store of an aggregation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.errors import DefinitionError, DefinitionTypeError
from tidegate.instants import Duration, duration_ms, show_ms


@dataclass(frozen=True)
class Materialized:
    """The settings of a store: its name, whether updates are cached, and how long closed windows are kept.

    The name is part of the checkpoint: with another name a query does not find its state.

    Attributes:
        name: The name of the store.
        caching: Whether only the last update of a key in a micro-batch leaves.
        retention_ms: How long results of closed windows stay readable; None keeps no window longer than needed.

    Examples:
        >>> tg.Materialized.as_("visits").with_retention("1 day")
        Materialized(name='visits', caching=True, retention_ms=86400000)
    """

    name: str
    caching: bool = True
    retention_ms: int | None = None

    @classmethod
    def as_(cls, name: str) -> Materialized:
        """A store of this name.

        Args:
            name: The name, for `tg.read_state` and for the checkpoint.

        Returns:
            The settings of the store.

        Raises:
            DefinitionError: The name is empty.
            DefinitionTypeError: The name is no text.

        Examples:
            >>> table = events.group_by_key().count(materialized=tg.Materialized.as_("visits"))
        """
        if not isinstance(name, str):
            raise DefinitionTypeError(f"`name` is {name!r}, not a string.")
        if not name:
            raise DefinitionError("`name` is empty: a store needs a name. Leave Materialized out for a derived one.")
        return cls(name)

    def with_retention(self, retention: Duration) -> Materialized:
        """Keep the result of a window readable (`tg.read_state`) for this much stream time after it has closed.

        Args:
            retention: How long.

        Returns:
            The settings of the store.

        Raises:
            DefinitionError: It is not larger than zero. An aggregation rejects one shorter than its windows need.
            DefinitionTypeError: `retention` is no duration.

        Examples:
            >>> tg.Materialized.as_("visits").with_retention("1 day").retention_ms
            86400000
        """
        ms = duration_ms(retention, "retention")
        if ms <= 0:
            raise DefinitionError(
                f"`retention` is {show_ms(ms)}: it must be larger than zero. Leave it out to keep nothing longer than "
                'needed, or use for example "1 day".'
            )
        return replace(self, retention_ms=ms)

    def with_caching_disabled(self) -> Materialized:
        """Forward every update instead of the last one per key (and window) of each micro-batch.

        Returns:
            The settings of the store.

        Examples:
            >>> store = tg.Materialized.as_("visits").with_caching_disabled()
            >>> driver = TopologyTestDriver(events.group_by_key().count(materialized=store))
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 2}])
            >>> [row["count"] for row in driver.read_output()]
            [1, 2]
        """
        return replace(self, caching=False)

    def with_caching_enabled(self) -> Materialized:
        """Forward the last update per key (and window) of each micro-batch: the default.

        Returns:
            The settings of the store.

        Examples:
            >>> store = tg.Materialized.as_("visits").with_caching_enabled()
            >>> driver = TopologyTestDriver(events.group_by_key().count(materialized=store))
            >>> driver.pipe_batch([{"user": "A", "ts": 1}, {"user": "A", "ts": 2}])
            >>> [row["count"] for row in driver.read_output()]
            [2]
        """
        return replace(self, caching=True)
