"""The function of `foreachBatch`: every batch goes to every sink once, however often it is run.

A sink remembers the newest batch of a query in the same transaction as its rows. Spark runs a batch again, with the
same number and the same rows, until its own checkpoint says that it is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame

from tidegate.errors import CheckpointError, TidegateError
from tidegate.runtime.spark.sinks.outputs import Rows, without_tombstones
from tidegate.runtime.spark.sinks.staging import Lane, Staged, staged
from tidegate.runtime.spark.worker.processor import QUERY_ID


@dataclass(frozen=True)
class Batch:
    """A batch of a query, and the plan that computes it, as a number."""

    query: str
    number: int
    plan: int


@dataclass(frozen=True)
class Written:
    """The newest batch of a query that a sink has, and the plan that computed it."""

    number: int
    plan: int


class Target(ABC):
    """A place that rows go to: it knows its batches, and takes each in one transaction.

    place    its name in errors
    name     tells the query from others that write there
    emptied  the command that removes all of its rows
    """

    def __init__(self, rows: Rows, place: str, name: str | None, emptied: str) -> None:
        self.rows, self.place, self.emptied = rows, place, emptied
        self.name = name or "rows"

    @property
    def identity(self) -> str:
        """The name that a query's batches are remembered by: two outputs of one query may go to one place."""
        return self.name if self.rows.output is None else f"{self.name}/{self.rows.output}"

    @abstractmethod
    def lane(self, frame_columns: Sequence[str], batch: Batch) -> tuple[list[Column], Lane]:
        """The columns of the frame that the target takes of a batch, and their lane."""

    @abstractmethod
    def begin(self, query: str) -> None:
        """Called before the first batch of a run.

        Rows that are only appended are of one query of a name. If another query has written, the target raises
        CheckpointError if it has rows; if it has none, this query takes the place of the other one.
        """

    @abstractmethod
    def written(self, query: str) -> Written | None:
        """The newest batch of the query that the target has, None if it has none."""

    @abstractmethod
    def commit(self, batch: Batch, rows: Staged) -> None:
        """Take the rows and remember the batch, both or neither; do nothing if the target has the batch already.

        Raises CheckpointError if rows are only appended and another query has written since this one began.
        """

    def has(self, batch: Batch) -> bool:
        """Whether the target has the batch. Raises CheckpointError if another plan computed it there, or if the target
        has later ones: then the checkpoint is an older one, and its next batches may be cut in another way.
        """
        written = self.written(batch.query)
        if written is None or written.number < batch.number:
            return False
        if written.number > batch.number:
            raise self._refuse_older(batch, written)
        if written.plan != batch.plan:
            raise CheckpointError(
                f"{self.place} has batch {batch.number} already, as another plan computed it, and the checkpoint does "
                "not have it: the query ended between the two. Rows that the new plan gives in this batch would be "
                "lost. Run the query once more as it was, with trigger(availableNow=True), then start the new plan."
            )
        return True

    def refuse_another(self) -> CheckpointError:
        """The error if a query writes and another one has written under its name."""
        return CheckpointError(
            f"{self.place} has rows of another query with the name {self.name!r}, which had another checkpoint. If "
            "this query reads its input from the start, those rows would be there twice: give the checkpoint of that "
            f"query, or stop that query and remove all rows of the table, {self.emptied}, then start this one. If this "
            "query goes on where that one ended, or runs beside it, or if you have removed the rows of that one alone, "
            f'give this one a name of its own: name="{self.name}-2".'
        )

    def _refuse_older(self, batch: Batch, written: Written) -> CheckpointError:
        rows = f"remove the rows that batches from {batch.number} on wrote, then give"
        if self.rows.upserts:
            rows = "its rows replace those that are there: give"
        return CheckpointError(
            f"{self.place} has batch {written.number} of this query, and its checkpoint runs batch {batch.number} now: "
            "it is an older copy, or a part of it was removed. Its batches may be cut in another way than before, so "
            "rows of theirs would be lost. Put the newest checkpoint back. If there is none, let the query go on from "
            f'this one under a name of its own; {rows} it name="{self.name}-2".'
        )


class Batches:
    """The function of `foreachBatch` for a table with these targets."""

    def __init__(self, targets: Sequence[Target], plan: int) -> None:
        self._targets, self._plan = tuple(targets), plan
        self._begun: set[str] = set()

    def __call__(self, frame: DataFrame, number: int) -> None:
        batch = Batch(_query_of(frame), number, self._plan)
        if batch.query not in self._begun:
            for target in self._targets:
                target.begin(batch.query)
        self._begun.discard(batch.query)  # if this batch fails, the next call begins anew
        missing = [target for target in self._targets if not target.has(batch)]
        lanes = [target.lane(frame.columns, batch) for target in missing]
        frame = without_tombstones(frame, [target.rows for target in missing])
        for target, rows in zip(missing, _run(frame, lanes, number), strict=True):
            if rows.count:
                target.commit(batch, rows)
        self._begun.add(batch.query)


def _run(frame: DataFrame, lanes: Sequence[tuple[Sequence[Column], Lane]], number: int) -> list[Staged]:
    """`staged`; raises TidegateError with Spark's reason if the batch fails.

    Not with a Py4JJavaError, nor with one as its cause. Spark 4 reads the text behind its name by a regular expression
    that needs a frame of the stack for each character: its thread ends with a StackOverflowError, and the query, which
    still counts as active, neither goes on nor ends.
    """
    try:
        return staged(frame, lanes)
    except Py4JJavaError as error:
        raise TidegateError(
            f"Spark could not run batch {number}, and its rows are not written. Start the query again: it goes on with "
            f"this batch. Spark says: {error.java_exception.toString()}"
        ) from None


def _query_of(frame: DataFrame) -> str:
    """The id of the query whose batch this is: the same after a restart, another one with a new checkpoint."""
    try:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except Exception as error:  # Spark Connect has no SparkContext, and says so in its own ways
        raise TidegateError(
            "tg.sinks asks Spark for the id of the query, which Spark Connect does not tell. Use a session without it."
        ) from error
    if not query:
        raise TidegateError(
            "This is no batch of a streaming query, so there is no id to remember it by. Give the function to "
            "foreachBatch of a streaming query."
        )
    return query


Function = Callable[[DataFrame, int], None]
