"""The records of Kafka topics as a DataFrame, by Spark's connector or by librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegate.arguments import flag_of, is_one_of, options_of
from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateError, in_one_line
from tidegate.runtime.spark.kafka.handed_over import FirstWorker
from tidegate.runtime.spark.kafka.reading import STAMP, Made
from tidegate.runtime.spark.session.given import check_session
from tidegate.runtime.spark.session.installed import connector

CONSUMER = {
    # Spark asks the broker for the first and the last offset of a partition after each poll, so polls cost more than
    # in other programs: Kafka's default is 500 records.
    "kafka.max.poll.records": "2000",
    # A consumer that has polled the last record of a partition asks for the next ones at once. The broker answers the
    # questions of a consumer one after the other, so Spark's next question would wait for Kafka's default of 500 ms.
    "kafka.fetch.max.wait.ms": "10",
}
"""Settings of the consumer of Spark's connector (decision 0071)."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols of Kafka."""


@dataclass(frozen=True)
class Subscription:
    """The records to read, by any consumer; the fields are arguments of `source`."""

    spark: SparkSession
    servers: str
    topics: list[str]
    starting: str
    headers: bool
    streaming: bool
    options: Mapping[str, str]

    @staticmethod
    def of(
        spark: Any, servers: Any, topic: Any, starting: str, headers: bool, streaming: bool, options: Any
    ) -> Subscription:
        """The checked arguments."""
        check_session(spark)
        check_servers(servers)
        flags = flag_of(headers, "headers"), flag_of(streaming, "streaming")
        return Subscription(spark, servers, _topics(topic), starting, *flags, options_of(options))

    def by(self, consumer: str) -> tuple[DataFrame, Made | None]:
        """The records with the columns of Spark's own source; and the Made of another consumer, None for Spark's."""
        if not is_one_of(consumer, ("spark", "librdkafka")):
            raise DefinitionError(f'`consumer` is {in_one_line(consumer)}. Use "spark" or "librdkafka".')
        return (self.by_spark(), None) if consumer == "spark" else self.by_librdkafka()

    def by_spark(self) -> DataFrame:
        settings = {
            "startingOffsets": self.starting,
            **CONSUMER,
            **self.options,
            "kafka.bootstrap.servers": self.servers,
            "subscribe": ",".join(self.topics),
            "includeHeaders": str(self.headers).lower(),
        }
        return _loaded(self.spark.readStream if self.streaming else self.spark.read, settings)

    def by_librdkafka(self) -> tuple[DataFrame, Made]:
        try:
            from tidegate.runtime.spark.kafka.consumed import asked
        except ImportError as error:
            raise TidegateError(
                f'consumer="librdkafka" needs Spark 4.2 or later, and this is {pyspark.__version__}, where a source '
                f'in Python cannot bound its batches: use consumer="spark". Python says: {error}'
            ) from error
        if not self.streaming:
            raise DefinitionError('consumer="librdkafka" reads streams alone: leave it out where streaming=False.')
        found = asked(self.spark, self.servers, self.topics, self.starting, self.headers, self.options)

        def made(reader: FirstWorker, fields: StructType) -> DataFrame:
            return found.read_by(self.spark, reader, fields, {STAMP: "timestamp"})

        return found.frame(self.spark), made


def check_servers(servers: Any) -> None:
    """Raise DefinitionTypeError unless the brokers are a text, DefinitionError if one of them is an address of a topic.

    Kafka's clients accept a security protocol in front of a broker (`SSL://host:port`), and differ in how they take
    anything else.
    """
    if not isinstance(servers, str) or not servers:
        raise DefinitionTypeError(
            f'`servers` is {in_one_line(servers)}. Use the brokers as one text, "host:port" with commas between them.'
        )
    for broker in servers.split(","):
        scheme, behind, host = broker.strip().partition("://")
        if behind and scheme not in PROTOCOLS:
            raise DefinitionError(
                f"`servers` has the broker {broker.strip()!r}. A broker is a host and a port, without {scheme}:// and "
                f"without a topic: write {host.partition('/')[0]!r}, and the topic as `topic`."
            )


def check_connector(spark: SparkSession) -> None:
    """Raise TidegateError if Spark has no Kafka connector: a writer says so only when its query starts."""
    _loaded(spark.read, {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "any"})  # asks no broker


def _loaded(reader: Any, settings: Mapping[str, str]) -> DataFrame:
    """The DataFrame of Spark's Kafka source. Raises TidegateError if Spark has no Kafka connector."""
    try:
        frame: DataFrame = reader.format("kafka").options(**settings).load()
        frame.schema  # noqa: B018 - on Spark Connect nothing is looked up before
    except AnalysisException as error:
        raise _missing(error) from error
    return frame


def _topics(topic: Any) -> list[str]:
    topics = list(topic) if isinstance(topic, list | tuple) else [topic]
    if not topics or not all(isinstance(each, str) and each for each in topics):
        raise DefinitionTypeError(f"`topic` is {topic!r}. Use the name of a topic, or a list of names.")
    if any("," in each for each in topics):
        names = [name.strip() for each in topics for name in each.split(",") if name.strip()]
        raise DefinitionError(
            f"`topic` is {topic!r}, and the name of a topic has no comma. Give several topics as a list, {names!r}: "
            "their partitions then have names of their own."
        )
    return topics


def _missing(error: AnalysisException) -> Exception:
    if error.getCondition() not in ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1184") and "kafka" not in str(error):
        return error
    package = connector(pyspark.__version__)
    return TidegateError(
        "this Spark has no Kafka connector. Start the session with "
        f'.config("spark.jars.packages", "{package}"), or spark-submit with --packages {package}. '
        f"Spark says: {str(error).splitlines()[0]}"
    )
