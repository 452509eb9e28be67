package tidegate.peers;

import com.fasterxml.jackson.annotation.JsonAlias;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;

/** The values of a topic, {"amount":42} or {"price":42}, read by Jackson as in an application. */
final class Amounts implements Serde<Amounts.Amount> {
    record Amount(@JsonAlias("price") long amount) {}

    /** Eight bytes: a join writes each record into its state, and reads the partners of each. */
    static final Serde<Amount> IN_STATE = Serdes.serdeFrom(
            (topic, of) -> of == null
                    ? null
                    : ByteBuffer.allocate(8).putLong(of.amount).array(),
            (topic, bytes) -> bytes == null ? null : new Amount(ByteBuffer.wrap(bytes).getLong()));

    private final ObjectReader reader = new ObjectMapper().readerFor(Amount.class);

    @Override
    public Deserializer<Amount> deserializer() {
        return (topic, bytes) -> {
            try {
                return bytes == null ? null : reader.readValue(bytes);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    @Override
    public Serializer<Amount> serializer() {
        throw new UnsupportedOperationException("they are only read");
    }
}
