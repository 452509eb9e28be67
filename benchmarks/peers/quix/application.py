"""The Quix Streams application, run in an environment of its own: counts and sums of tumbling windows, when they close.

Arguments: servers, input, output, group, folder of its state, size and grace in ms. Prints the number of processed
records and the time (ms) now and then.
"""

from __future__ import annotations

import sys
import time

from quixstreams import Application
from quixstreams.dataframe.windows import Count, Sum

TELL_EVERY = 1_000
QUIET_S = 10.0
"""Time without a record after which the topic counts as read to its end."""


class Progress:
    """Prints the number of processed records, and the time of the last one (ms)."""

    def __init__(self) -> None:
        self._records = self._last_ns = 0

    def processed(self, *_of: object) -> None:
        self._records += 1
        self._last_ns = time.time_ns()
        if self._records % TELL_EVERY == 1:
            self.say()

    def say(self) -> None:
        print(self._records, self._last_ns // 1_000_000, flush=True)


def main() -> None:
    servers, source, target, group, state, size_ms, grace_ms = sys.argv[1:]
    progress = Progress()
    app = Application(
        broker_address=servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=state,
        loglevel="WARNING",
        on_message_processed=progress.processed,
        # Its page "Configuration": both go to librdkafka. Changelogs, at least once and commits every five seconds are
        # its defaults.
        consumer_extra_config={"fetch.min.bytes": 65_536, "max.partition.fetch.bytes": 4_194_304},
        producer_extra_config={"linger.ms": 100, "batch.size": 262_144, "compression.type": "lz4"},
    )
    records = app.dataframe(app.topic(source, key_deserializer="str", value_deserializer="json"))
    windows = records.tumbling_window(int(size_ms), int(grace_ms)).agg(count=Count(), total=Sum("amount"))
    # Its page "Windowing": with "key", the default, a window waits for the next record of its own key.
    windows.final(closing_strategy="partition").to_topic(
        app.topic(target, key_serializer="str", value_serializer="json")
    )
    app.run(timeout=QUIET_S, collect=False)
    progress.say()


if __name__ == "__main__":
    main()
