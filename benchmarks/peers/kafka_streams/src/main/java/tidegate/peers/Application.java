package tidegate.peers;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * Counts and sums per user and window, from the topic `input` into the topic `output`, until the last mark is reached;
 * or joins the topic `input` with the topic `right`, if the request has one.
 *
 * <p>A request has size_ms (tumbling windows) or difference_ms (sliding windows, joins), grace_ms, marks (numbers of
 * processed records), timeout_s, `final` (suppressed until the window closes; otherwise updates), and `settings`, which
 * Kafka Streams gets unchanged. The answer has the time at which each mark was reached.
 */
final class Application {
    private static final long LOOK_MS = 5;

    private final JsonNode asked;
    private final Properties settings = new Properties();
    private volatile Throwable failed;

    Application(JsonNode asked) {
        this.asked = asked;
        asked.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
    }

    record Told(List<Long> reached_ms) {}

    Told run() throws Exception {
        List<Long> reached = new ArrayList<>();
        try (KafkaStreams streams = new KafkaStreams(topology(), settings)) {
            streams.setUncaughtExceptionHandler(error -> {
                failed = error;
                return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
            });
            streams.start();
            long until = System.currentTimeMillis() + 1000 * asked.get("timeout_s").asLong();
            for (JsonNode mark : asked.get("marks")) {
                while (processed(streams) < mark.asLong()) {
                    if (failed != null) {
                        throw new IllegalStateException(failed);
                    }
                    if (System.currentTimeMillis() > until) {
                        throw new TimeoutException("at " + processed(streams) + " of " + mark + " records");
                    }
                    Thread.sleep(LOOK_MS);
                }
                reached.add(System.currentTimeMillis());
            }
            // Commits, which flushes the caches.
            if (!streams.close(Duration.ofMinutes(2))) {
                throw new TimeoutException("the application did not close");
            }
            streams.cleanUp();
        }
        removeInternalTopics();
        return new Told(reached);
    }

    private Topology topology() {
        return asked.has("right") ? join() : aggregation();
    }

    private Topology join() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Amounts.Amount> right = events(builder, "right");
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(of("difference_ms"), of("grace_ms"));
        events(builder, "input")
                .leftJoin(
                        right,
                        Joined::new,
                        windows,
                        StreamJoined.with(Serdes.String(), Amounts.IN_STATE, Amounts.IN_STATE))
                .to(asked.get("output").asText(), Produced.with(Serdes.String(), Joined.AS_JSON));
        return builder.build(settings);
    }

    private KStream<String, Amounts.Amount> events(StreamsBuilder builder, String topic) {
        return builder.stream(asked.get(topic).asText(), Consumed.with(Serdes.String(), new Amounts()));
    }

    private Duration of(String name) {
        return Duration.ofMillis(asked.get(name).asLong());
    }

    private Topology aggregation() {
        boolean sliding = asked.has("difference_ms");
        Duration size = of(sliding ? "difference_ms" : "size_ms");
        Duration grace = of("grace_ms");
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, Amounts.Amount> grouped =
                events(builder, "input").groupByKey(Grouped.keySerde(Serdes.String()));
        TimeWindowedKStream<String, Amounts.Amount> windowed = sliding
                ? grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
                : grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace));
        KTable<Windowed<String>, Totals> totals = windowed.aggregate(
                () -> Totals.NONE,
                (user, amount, sofar) -> sofar.plus(amount.amount()),
                Materialized.with(Serdes.String(), Totals.IN_STATE));
        if (asked.get("final").asBoolean()) {
            totals = totals.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
        }
        totals.toStream()
                .to(
                        asked.get("output").asText(),
                        Produced.with(
                                WindowedSerdes.timeWindowedSerdeFrom(String.class, size.toMillis()),
                                Totals.AS_JSON));
        return builder.build(settings);
    }

    /** Kafka Streams' own count of processed records: counting adds no cost to a record. */
    private static long processed(KafkaStreams streams) {
        double sum = 0;
        for (Metric metric : streams.metrics().values()) {
            if (metric.metricName().name().equals("process-total")
                    && metric.metricName().group().equals("stream-thread-metrics")) {
                sum += (Double) metric.metricValue();
            }
        }
        return (long) sum;
    }

    private void removeInternalTopics() throws Exception {
        Properties client = new Properties();
        client.put("bootstrap.servers", settings.get("bootstrap.servers"));
        String prefix = settings.get("application.id") + "-";
        try (Admin admin = Admin.create(client)) {
            Set<String> mine = admin.listTopics().names().get().stream()
                    .filter(name -> name.startsWith(prefix))
                    .collect(Collectors.toSet());
            admin.deleteTopics(mine).all().get();
        }
    }
}
