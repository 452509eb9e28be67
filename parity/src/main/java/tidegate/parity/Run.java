package tidegate.parity;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.Record;

/** The records of one case through its topology, and what came out after each of them. */
final class Run {
    private final JsonNode asked;
    private final ObjectNode result;
    private final Path states;
    private ArrayNode raw;
    private ArrayNode suppressed;

    Run(JsonNode asked, ObjectMapper mapper, Path states) {
        this.asked = asked;
        this.result = mapper.createObjectNode();
        this.states = states;
    }

    ObjectNode result() {
        ArrayNode allRaw = result.putArray("raw");
        ArrayNode allSuppressed = result.putArray("suppressed");
        result.putNull("failed_at");
        try (var driver = new TopologyTestDriver(topology(), settings())) {
            Map<String, TestInputTopic<String, String>> topics = new HashMap<>();
            int at = 0;
            for (JsonNode record : asked.get("records")) {
                raw = allRaw.addArray();
                suppressed = allSuppressed.addArray();
                TestInputTopic<String, String> topic = topics.computeIfAbsent(
                    record.path("side").asText("events"),
                    name -> driver.createInputTopic(name, new StringSerializer(), new StringSerializer()));
                try {
                    topic.pipeInput(text(record, "key"), text(record, "value"), record.get("ts").asLong());
                } catch (RuntimeException error) {
                    result.put("failed_at", at);
                    result.put("error", root(error).toString());
                    break;
                }
                at++;
            }
            result.put("dropped", dropped(driver));
        }
        return result;
    }

    private Topology topology() {
        JsonNode spec = asked.get("topology");
        return spec.get("kind").asText().endsWith("_join")
            ? new Joins(spec, row -> raw.add(json(row))).build()
            : new Topologies(spec, row -> raw.add(json(row)), row -> suppressed.add(json(row))).build();
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "parity");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, states.toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        return settings;
    }

    private static long dropped(TopologyTestDriver driver) {
        double total = 0;
        for (var metric : driver.metrics().entrySet()) {
            if (metric.getKey().name().equals("dropped-records-total")) {
                total += ((Number) metric.getValue().metricValue()).doubleValue();
            }
        }
        return (long) total;
    }

    private ObjectNode json(Record<?, ?> row) {
        ObjectNode shown = result.objectNode();
        Object key = row.key();
        shown.put("key", key instanceof Windowed<?> w ? (String) w.key() : (String) key);
        if (row.value() instanceof Long number) {
            shown.put("value", number);
        } else {
            shown.put("value", Functions.GONE.equals(row.value()) ? null : (String) row.value());
        }
        shown.put("timestamp_ms", row.timestamp());
        if (key instanceof Windowed<?> w) {
            shown.put("window_start_ms", w.window().start());
            shown.put("window_end_ms", w.window().end());
        }
        return shown;
    }

    private static Throwable root(Throwable error) {
        return error.getCause() == null ? error : root(error.getCause());
    }

    private static String text(JsonNode record, String name) {
        return record.get(name).isNull() ? null : record.get(name).asText();
    }
}
