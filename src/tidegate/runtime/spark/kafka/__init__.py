"""Kafka topics as inputs and outputs, over Spark's own connector `spark-sql-kafka-0-10`.

`tg.kafka.source(...)` is a stream, `tg.kafka.table(...)` a table from a changelog topic, `tg.kafka.sink(...)` a writer.
"""

from __future__ import annotations

from tidegate.runtime.spark.kafka.formats import Avro, Format, Json, Text, avro, json, text
from tidegate.runtime.spark.kafka.registered import schema_registry
from tidegate.runtime.spark.kafka.sink import records, sink
from tidegate.runtime.spark.kafka.source import KafkaStream, KafkaTable, source, table

__all__ = [
    "Avro",
    "Format",
    "Json",
    "KafkaStream",
    "KafkaTable",
    "Text",
    "avro",
    "json",
    "records",
    "schema_registry",
    "sink",
    "source",
    "table",
    "text",
]
