package tidegate.peers;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records into a topic. Binary numbers on stdin: the number of records, then the partition, the number of the
 * user, the time and the amount of each record. Arguments: servers, topic, the name of the amount in the values.
 */
public final class Load {
    private static final int RECORD = 20; // bytes of a record on stdin

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "linger.ms", "50",
                "batch.size", "262144",
                "buffer.memory", "67108864");
        AtomicReference<Exception> failed = new AtomicReference<>();
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, RECORD << 12));
                KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            byte[] bytes = new byte[RECORD];
            ByteBuffer one = ByteBuffer.wrap(bytes);
            for (long left = in.readLong(); left > 0; left--) {
                in.readFully(bytes);
                one.rewind();
                int partition = one.getInt();
                byte[] user = name(one.getInt());
                long time = one.getLong();
                byte[] value = ("{\"" + args[2] + "\":" + one.getInt() + "}").getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(args[1], partition, time, user, value), (to, error) -> {
                    if (error != null) {
                        failed.set(error);
                    }
                });
            }
        }
        if (failed.get() != null) {
            throw failed.get();
        }
    }

    /** The name of a user, such as user-0000042: as benchmarks/inputs.py:key_names. */
    private static byte[] name(int number) {
        byte[] name = "user-0000000".getBytes(StandardCharsets.UTF_8);
        for (int at = name.length - 1; number > 0; at--, number /= 10) {
            name[at] = (byte) ('0' + number % 10);
        }
        return name;
    }
}
