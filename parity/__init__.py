"""Random topologies and streams through Kafka Streams and through tidegate, compared row by row. Not shipped."""
