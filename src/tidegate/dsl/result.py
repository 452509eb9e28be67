"""Result: the methods of every table and stream: description and DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tidegate.arguments import flag_of
from tidegate.dsl import frames
from tidegate.errors import DefinitionError, in_one_line
from tidegate.plan import Plan, describe, headline, html, inputs_of, mermaid, svg
from tidegate.spec.missing import Placed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WAYS_OF_ROWS = {
    name: f"Take the rows as a DataFrame first: to_df().{name}"
    for name in ("writeStream", "write", "show", "select", "where", "withColumn", "printSchema")
}
"""The ways to names that a DataFrame has (`spec.missing.Placed`)."""

_FORMATS: dict[Any, Callable[[Plan], str]] = {"text": describe, "mermaid": mermaid, "svg": svg}


@dataclass(frozen=True, repr=False)
class Result(Placed):
    """The rows of a topology.

    Examples:
        >>> print(events.group_by_key().count().describe().splitlines()[0])
        Aggregate aggregate
    """

    node: Plan

    _ways: ClassVar[Mapping[str, str]] = WAYS_OF_ROWS

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {headline(self.node)}>"

    def describe(self, format: Literal["text", "mermaid", "svg"] = "text") -> str:
        """The topology as a tree: every node with name, windows, grace, buffer and Spark operator.

        Args:
            format: "text"; "mermaid", a flowchart for Markdown; or "svg", a picture with the windows drawn to scale.

        Returns:
            The text, the flowchart or the picture.

        Raises:
            DefinitionError: There is no such format.

        Examples:
            >>> print(events.group_by_key().count().describe().splitlines()[-1])
                     order    timestamps
        """
        if not isinstance(format, str) or format not in _FORMATS:
            raise DefinitionError(f"`format` is {in_one_line(format)}. Use one of {', '.join(map(repr, _FORMATS))}.")
        return _FORMATS[format](self.node)

    def _repr_html_(self) -> str:
        """The picture of the topology for a notebook, in light and dark themes."""
        return html(self.node)

    def to_df(self, *, row_ids: bool = False) -> DataFrame:
        """The rows as a DataFrame: key columns, `window`, value columns, `timestamp`; with several outputs, `output`.

        If rows can be tombstones, there is a column `deleted`. The DataFrame is streaming if the input is. A static
        input is the whole stream: at its end every window closes.

        Args:
            row_ids: For a join, add a column `tidegate:row_id` with the ids of the records that a row was made from.
                `tg.kafka.sink` writes it as `row_id`.

        Returns:
            The DataFrame.

        Raises:
            DefinitionError: The stream is not bound to a DataFrame, or the records have no ids.

        Examples:
            ```python
            query = final.to_df().writeStream.outputMode("append").format("console").start()
            ```
        """
        return frame_of(self, flag_of(row_ids, "row_ids"))


def frame_of(result: Result, row_ids: bool, *, text_of_times: bool = False) -> DataFrame:
    """The rows of `Result.to_df`; `text_of_times`: with `window` and `timestamp` as text, as JSON shows them."""
    for stream in inputs_of(result.node):
        if stream.frame is None:
            raise DefinitionError(
                f"The stream {stream.name!r} is not bound to a DataFrame. Use tg.stream(dataframe, ...), "
                "or run the topology in tidegate.testing.TopologyTestDriver."
            )
    return frames.to_spark(result.node, row_ids, text_of_times)
