package tidegate.parity;

import static java.time.Duration.ofMillis;
import static java.time.Instant.ofEpochMilli;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** The topology that a case describes; its rows go to `raw` and, behind suppress, to `suppressed`. */
final class Topologies {
    private final JsonNode spec;
    private final Functions functions;
    private final Consumer<Record<?, ?>> raw;
    private final Consumer<Record<?, ?>> suppressed;

    Topologies(JsonNode spec, Consumer<Record<?, ?>> raw, Consumer<Record<?, ?>> suppressed) {
        this.spec = spec;
        this.functions = new Functions(spec.path("deletes").asBoolean(), initial(spec));
        this.raw = raw;
        this.suppressed = suppressed;
    }

    Topology build() {
        StreamsBuilder builder = new StreamsBuilder();
        var strings = Consumed.with(Serdes.String(), Serdes.String());
        if (spec.get("kind").asText().equals("table")) {
            finish(builder.table("events", strings, materialized(Serdes.String())));
        } else {
            finish(grouped(before(builder.stream("events", strings)).groupByKey(Grouped.with(Serdes.String(), Serdes.String()))));
        }
        return builder.build();
    }

    private KStream<String, String> before(KStream<String, String> stream) {
        for (JsonNode step : spec.path("before")) {
            stream = step.asText().equals("filter")
                ? stream.filter((key, value) -> Functions.passes(value))
                : stream.mapValues(value -> Functions.mapped(value));
        }
        return stream;
    }

    /** What an aggregation of this topology begins with, after its steps; null if it begins with nothing. */
    private static String initial(JsonNode spec) {
        String initial = switch (spec.path("aggregation").asText()) {
            case "count", "history" -> "0";
            default -> null;
        };
        for (JsonNode step : spec.path("steps")) {
            initial = initial == null || step.asText().equals("filter") ? initial : Functions.mapped(initial);
        }
        return initial;
    }

    private <K, V> void finish(KTable<K, V> table) {
        if (!spec.has("steps")) {
            finished(table);
            return;
        }
        KTable<K, String> stepped = table.mapValues(value -> String.valueOf(value));
        // A filter of updates gives a value that stands for a tombstone: see rules.py.
        boolean standing = !spec.has("regroup") && !spec.path("emit").asText().equals("close");
        for (JsonNode step : spec.path("steps")) {
            stepped = stepped(stepped, step.asText(), standing);
        }
        finished(stepped);
    }

    private <K, V> void finished(KTable<K, V> table) {
        if (spec.has("regroup")) {
            tell(regrouped(table));
        } else {
            tell(table);
        }
    }

    private static <K> KTable<K, String> stepped(KTable<K, String> table, String step, boolean standing) {
        if (step.equals("map")) {
            return table.mapValues(value -> Functions.GONE.equals(value) ? value : Functions.mapped(value));
        }
        if (!standing) {
            return table.filter((key, value) -> Functions.passes(value));
        }
        return table.mapValues(
            value -> Functions.GONE.equals(value) || !Functions.passes(value) ? Functions.GONE : value);
    }

    private <K, V> KTable<String, ?> regrouped(KTable<K, V> table) {
        var groups = table
            .mapValues(value -> String.valueOf(value))
            .groupBy(
                (key, value) -> KeyValue.pair(functions.group(value), value),
                Grouped.with(Serdes.String(), Serdes.String()));
        switch (spec.get("regroup").asText()) {
            case "count":
                return groups.count(this.<Long, KeyValueStore<Bytes, byte[]>>materialized("groups", Serdes.Long()));
            case "reduce":
                return groups.reduce(
                    (a, v) -> a + "+" + v,
                    (a, v) -> a + "-" + v,
                    this.<String, KeyValueStore<Bytes, byte[]>>materialized("groups", Serdes.String()));
            default:
                return groups.aggregate(
                    () -> "0",
                    (key, v, a) -> a + "+" + v,
                    (key, v, a) -> a + "-" + v,
                    this.<String, KeyValueStore<Bytes, byte[]>>materialized("groups", Serdes.String()));
        }
    }

    private <K, V> void tell(KTable<K, V> table) {
        table.toStream().process(() -> teller(raw));
        JsonNode held = spec.path("suppress");
        if (held.isObject()) {
            KTable<K, V> waiting = table.suppress(this.<K>suppress(held));
            if (held.path("kind").asText().equals("until_window_closes") && held.has("behind")) {
                // A tombstone would not leave here; what stands for one must not move the time of the limit behind.
                // A filter of the table would give one where the value before it passes.
                waiting = waiting.toStream().filter((key, value) -> !Functions.GONE.equals(value)).toTable();
            }
            for (JsonNode behind : held.path("behind")) {
                waiting = waiting.suppress(this.<K>suppress(behind));
            }
            waiting.toStream().process(() -> teller(suppressed));
        }
    }

    private static <K, V> Processor<K, V, Void, Void> teller(Consumer<Record<?, ?>> to) {
        return to::accept;
    }

    @SuppressWarnings("unchecked")
    private <K> Suppressed<K> suppress(JsonNode held) {
        Suppressed.EagerBufferConfig bound = null;
        if (held.has("max_bytes")) {
            bound = BufferConfig.maxBytes(held.get("max_bytes").asLong());
        } else if (!held.get("max_records").isNull()) {
            bound = BufferConfig.maxRecords(held.get("max_records").asLong());
        }
        boolean strict = held.get("strict").asBoolean();
        if (held.get("kind").asText().equals("until_window_closes")) {
            var buffer = bound == null ? BufferConfig.unbounded() : bound.shutDownWhenFull();
            return (Suppressed<K>) Suppressed.untilWindowCloses(buffer.withLoggingDisabled());
        }
        var limit = ofMillis(held.get("limit_ms").asLong());
        if (bound == null) {
            return Suppressed.untilTimeLimit(limit, BufferConfig.unbounded().withLoggingDisabled());
        }
        return strict
            ? Suppressed.untilTimeLimit(limit, bound.shutDownWhenFull().withLoggingDisabled())
            : Suppressed.untilTimeLimit(limit, bound.withLoggingDisabled());
    }

    private KTable<?, ?> grouped(KGroupedStream<String, String> grouped) {
        if (!spec.has("windows")) {
            return this.<String, KeyValueStore<Bytes, byte[]>>aggregated(
                grouped::count, grouped::reduce, (first, add, merge, kept) -> grouped.aggregate(first, add, kept));
        }
        JsonNode windows = spec.get("windows");
        var grace = ofMillis(windows.path("grace_ms").asLong());
        var emit = spec.get("emit").asText().equals("close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        switch (windows.get("type").asText()) {
            case "time": {
                var shape = TimeWindows.ofSizeAndGrace(ofMillis(windows.get("size_ms").asLong()), grace)
                    .advanceBy(ofMillis(windows.get("advance_ms").asLong()));
                return windowed(grouped.windowedBy(shape).emitStrategy(emit));
            }
            case "unlimited": {
                var shape = UnlimitedWindows.of().startOn(ofEpochMilli(windows.get("start_ms").asLong()));
                return windowed(grouped.windowedBy(shape));
            }
            case "sliding": {
                var difference = ofMillis(windows.get("time_difference_ms").asLong());
                var shape = SlidingWindows.ofTimeDifferenceAndGrace(difference, grace);
                return windowed(grouped.windowedBy(shape).emitStrategy(emit));
            }
            case "session": {
                var gap = ofMillis(windows.get("gap_ms").asLong());
                var windowed = grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(gap, grace)).emitStrategy(emit);
                return this.<Windowed<String>, SessionStore<Bytes, byte[]>>aggregated(
                    windowed::count, windowed::reduce, windowed::aggregate);
            }
            default:
                throw new IllegalArgumentException("unknown windows " + windows);
        }
    }

    private KTable<?, ?> windowed(TimeWindowedKStream<String, String> windowed) {
        return this.<Windowed<String>, WindowStore<Bytes, byte[]>>aggregated(
            windowed::count, windowed::reduce, (first, add, merge, kept) -> windowed.aggregate(first, add, kept));
    }

    /** aggregate(), which takes a merger for sessions alone. */
    private interface Aggregate<K, S extends StateStore> {
        KTable<K, String> of(
            Initializer<String> first,
            Aggregator<String, String, String> add,
            Merger<String, String> merge,
            Materialized<String, String, S> kept);
    }

    private <K, S extends StateStore> KTable<K, ?> aggregated(
        Function<Materialized<String, Long, S>, KTable<K, Long>> count,
        BiFunction<Reducer<String>, Materialized<String, String, S>, KTable<K, String>> reduce,
        Aggregate<K, S> aggregate) {
        switch (spec.get("aggregation").asText()) {
            case "count":
                return count.apply(materialized(Serdes.Long()));
            case "reduce":
                return reduce.apply(functions::reduce, materialized(Serdes.String()));
            case "history":
                return aggregate.of(
                    () -> "0", functions::history, functions::mergeHistories, materialized(Serdes.String()));
            default:
                return aggregate.of(
                    () -> "", functions::collect, (key, a, b) -> a + b, materialized(Serdes.String()));
        }
    }

    private <V, S extends StateStore> Materialized<String, V, S> materialized(Serde<V> values) {
        return materialized("store", values);
    }

    private <V, S extends StateStore> Materialized<String, V, S> materialized(String name, Serde<V> values) {
        var kept = Materialized.<String, V, S>as(name).withKeySerde(Serdes.String()).withValueSerde(values);
        if (spec.has("retention_ms")) {
            kept.withRetention(ofMillis(spec.get("retention_ms").asLong()));
        }
        kept.withStoreType(
            spec.get("store").asText().equals("rocksdb")
                ? BuiltInDslStoreSuppliers.ROCKS_DB
                : BuiltInDslStoreSuppliers.IN_MEMORY);
        return kept.withCachingDisabled().withLoggingDisabled();
    }
}
