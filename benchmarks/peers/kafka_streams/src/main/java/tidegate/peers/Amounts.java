package tidegate.peers;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;

/** The values of the topic, {"amount":42}, by Jackson as an application would have it. */
final class Amounts implements Serde<Amounts.Amount> {
    record Amount(long amount) {}

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
