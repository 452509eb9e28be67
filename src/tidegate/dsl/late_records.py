"""The late and skipped records of an operator, as one more output."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.dsl.result import Result
from tidegate.plan import LateRecords


@dataclass(frozen=True, repr=False)
class KLateRecords(Result):
    """The late and skipped records of an aggregation or a join: whole records, with the reason.

    A row has the columns of the record, `timestamp`, `window` (of a join `side`), and these:

    * `reason`: "late", once per closed window; "null_key", "null_value", "bad_timestamp" or "future".
    * `late_by`: the stream time that the record saw minus its timestamp (ms); null if it was not late.
    * `stream_time`: the stream time that the record saw.

    Examples:
        >>> counts = events.group_by_key().windowed_by(tg.TimeWindows.of_size_with_no_grace("10 ms")).count()
        >>> driver = TopologyTestDriver(counts.late_records())
        >>> driver.pipe_batch([{"user": "A", "ts": 25}, {"user": "A", "ts": 3}])
        >>> [(row["reason"], row["late_by"]) for row in driver.read_output()]
        [('late', 22)]
    """

    node: LateRecords
