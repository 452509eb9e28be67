package tidegate.parity;

import static java.time.Duration.ofMillis;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The join that a case describes, of the topics "left" and "right" (a self join: of "left"); its rows go to `out`.
 *  Of a stream with a table the stream is left, the table right. */
final class Joins {
    private static final Consumed<String, String> STRINGS = Consumed.with(Serdes.String(), Serdes.String());
    /** A missing side is null, which becomes the text "null". */
    private static final ValueJoiner<String, String, String> JOINER = (left, right) -> left + "+" + right;

    private final StreamsBuilder builder = new StreamsBuilder();
    private final JsonNode spec;
    private final Consumer<Record<?, ?>> out;

    Joins(JsonNode spec, Consumer<Record<?, ?>> out) {
        this.spec = spec;
        this.out = out;
    }

    Topology build() {
        KStream<String, String> joined = switch (spec.get("kind").asText()) {
            case "stream_join" -> streams(stream("left"), spec.get("self").asBoolean() ? null : stream("right"));
            case "stream_table_join" -> streamAndTable(stream("left"), table("right"));
            case "table_table_join" -> tables(table("left"), table("right")).toStream();
            default -> throw new IllegalArgumentException("unknown join " + spec);
        };
        joined.process(() -> (Processor<String, String, Void, Void>) out::accept);
        return builder.build();
    }

    private KStream<String, String> stream(String topic) {
        return builder.stream(topic, STRINGS);
    }

    /** A table of the topic; with a history it keeps versions. */
    private KTable<String, String> table(String topic) {
        JsonNode history = spec.get("history_ms").path(topic);
        Materialized<String, String, KeyValueStore<Bytes, byte[]>> kept;
        if (history.isNumber()) {
            kept = Materialized.as(Stores.persistentVersionedKeyValueStore(topic, ofMillis(history.asLong())));
        } else {
            kept = Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(topic).withStoreType(storeType());
        }
        kept.withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withCachingDisabled().withLoggingDisabled();
        return builder.table(topic, STRINGS, kept);
    }

    /** right: null in a self join. */
    private KStream<String, String> streams(KStream<String, String> left, KStream<String, String> right) {
        KStream<String, String> other = right == null ? left : right;
        return switch (spec.get("how").asText()) {
            case "inner" -> left.join(other, JOINER, windows(), stores());
            case "left" -> left.leftJoin(other, JOINER, windows(), stores());
            case "outer" -> left.outerJoin(other, JOINER, windows(), stores());
            default -> throw new IllegalArgumentException("unknown join " + spec);
        };
    }

    private KStream<String, String> streamAndTable(KStream<String, String> left, KTable<String, String> right) {
        Joined<String, String, String> joined = Joined.with(Serdes.String(), Serdes.String(), Serdes.String());
        if (spec.get("grace_ms").isNumber()) {
            joined = joined.withGracePeriod(ms("grace_ms"));
        }
        return spec.get("how").asText().equals("left")
            ? left.leftJoin(right, JOINER, joined)
            : left.join(right, JOINER, joined);
    }

    private KTable<String, String> tables(KTable<String, String> left, KTable<String, String> right) {
        return switch (spec.get("how").asText()) {
            case "inner" -> left.join(right, JOINER);
            case "left" -> left.leftJoin(right, JOINER);
            case "outer" -> left.outerJoin(right, JOINER);
            default -> throw new IllegalArgumentException("unknown join " + spec);
        };
    }

    @SuppressWarnings("deprecation")
    private JoinWindows windows() {
        Duration before = ms("before_ms");
        Duration after = ms("after_ms");
        Duration grace = ms("grace_ms");
        // The larger reach first: a window may not end before it starts, in between either.
        Duration larger = before.compareTo(after) > 0 ? before : after;
        JoinWindows windows = spec.get("legacy").asBoolean()
            ? JoinWindows.of(larger).grace(grace)
            : JoinWindows.ofTimeDifferenceAndGrace(larger, grace);
        return windows.before(before).after(after);
    }

    private Duration ms(String name) {
        return ofMillis(spec.get(name).asLong());
    }

    private StreamJoined<String, String, String> stores() {
        return StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String())
            .withDslStoreSuppliers(storeType())
            .withLoggingDisabled();
    }

    private DslStoreSuppliers storeType() {
        return spec.get("store").asText().equals("rocksdb")
            ? BuiltInDslStoreSuppliers.ROCKS_DB
            : BuiltInDslStoreSuppliers.IN_MEMORY;
    }
}
