package tidegate.peers;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** The values of a pair, or of a left record without a partner. */
record Joined(long amount, Long price) {
    Joined(Amounts.Amount left, Amounts.Amount right) {
        this(left.amount(), right == null ? null : (Long) right.amount());
    }

    static final Serde<Joined> AS_JSON = Serdes.serdeFrom(
            (topic, of) -> of == null
                    ? null
                    : ("{\"amount\":" + of.amount + ",\"price\":" + of.price + "}").getBytes(StandardCharsets.UTF_8),
            (topic, bytes) -> {
                throw new UnsupportedOperationException("they are only written");
            });
}
