"""Kafka Streams' own TopologyTestDriver in one JVM: a line of JSON per question, one per answer."""

from __future__ import annotations

from pathlib import Path

from tools.jvm import Json, Jvm

JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

ANSWER_SECONDS = 60
"""A JVM that takes longer for one case is stuck."""


class Kafka(Jvm):
    """The JVM, as a context."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).parent, "tidegate.parity.Main", JVM)

    def case(self, topology: Json, records: tuple[Json, ...]) -> Json:
        """The JVM's answer: `raw` and `suppressed` rows by record, `dropped`, `failed_at` (a record, or None)."""
        answer = self.ask({"topology": topology, "records": records}, ANSWER_SECONDS)
        if answer["failed_at"] is not None and "buffer exceeded its max capacity" not in answer["error"]:
            raise RuntimeError(f"Kafka failed at record {answer['failed_at']}: {answer['error']}")
        return answer
