package tidegate.peers;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** A count and a sum. */
record Totals(long count, long total) {
    static final Totals NONE = new Totals(0, 0);

    Totals plus(long amount) {
        return new Totals(count + 1, total + amount);
    }

    /** Two numbers of eight bytes: state is read and written for every record, and JSON would cost much more. */
    static final Serde<Totals> IN_STATE = Serdes.serdeFrom(
            (topic, of) -> of == null
                    ? null
                    : ByteBuffer.allocate(16).putLong(of.count).putLong(of.total).array(),
            (topic, bytes) -> {
                if (bytes == null) {
                    return null;
                }
                ByteBuffer from = ByteBuffer.wrap(bytes);
                return new Totals(from.getLong(), from.getLong());
            });

    /** The values that contestants write into their topics. */
    static final Serde<Totals> AS_JSON = Serdes.serdeFrom(
            (topic, of) -> of == null
                    ? null
                    : ("{\"count\":" + of.count + ",\"total\":" + of.total + "}").getBytes(StandardCharsets.UTF_8),
            (topic, bytes) -> {
                throw new UnsupportedOperationException("they are only written");
            });
}
