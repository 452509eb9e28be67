package tidegate.parity;

import static java.time.Duration.ofMillis;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/** The join that a case describes, of the topics "left" and "right" (a self join: of "left"); its rows go to `out`. */
final class Joins {
    private final JsonNode spec;
    private final Consumer<Record<?, ?>> out;

    Joins(JsonNode spec, Consumer<Record<?, ?>> out) {
        this.spec = spec;
        this.out = out;
    }

    Topology build() {
        StreamsBuilder builder = new StreamsBuilder();
        var strings = Consumed.with(Serdes.String(), Serdes.String());
        KStream<String, String> left = builder.stream("left", strings);
        KStream<String, String> right = spec.get("self").asBoolean() ? left : builder.stream("right", strings);
        joined(left, right).process(() -> (Processor<String, String, Void, Void>) out::accept);
        return builder.build();
    }

    private KStream<String, String> joined(KStream<String, String> left, KStream<String, String> right) {
        // A missing side is null, which becomes the text "null".
        ValueJoiner<String, String, String> joiner = (a, b) -> a + "+" + b;
        return switch (spec.get("how").asText()) {
            case "inner" -> left.join(right, joiner, windows(), stores());
            case "left" -> left.leftJoin(right, joiner, windows(), stores());
            case "outer" -> left.outerJoin(right, joiner, windows(), stores());
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
            .withDslStoreSuppliers(
                spec.get("store").asText().equals("rocksdb")
                    ? BuiltInDslStoreSuppliers.ROCKS_DB
                    : BuiltInDslStoreSuppliers.IN_MEMORY)
            .withLoggingDisabled();
    }
}
