import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own client, for one topic of one partition. Records are lines: milliseconds, key and
 * value in hexadecimal (- is null), then NAME=VALUE for each header, the value in hexadecimal.
 */
public class Plain {
    private static final HexFormat HEX = HexFormat.of();
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        if (arguments[2].equals("write")) {
            List<String> lines = List.of(arguments).subList(3, arguments.length);
            write(properties, arguments[1], lines);
        } else {
            read(properties, arguments[1], Integer.parseInt(arguments[3]));
        }
    }

    private static void write(Properties properties, String topic, List<String> lines)
            throws Exception {
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(properties, bytes, bytes)) {
            for (String line : lines) {
                String[] words = line.split(" ");
                long time = Long.parseLong(words[0]);
                byte[] key = parsed(words[1]);
                byte[] value = parsed(words[2]);
                var record = new ProducerRecord<>(topic, 0, time, key, value);
                for (int i = 3; i < words.length; i++) {
                    String[] header = words[i].split("=", 2);
                    record.headers().add(header[0], parsed(header[1]));
                }
                System.out.println(producer.send(record).get().offset());
            }
        }
    }

    private static void read(Properties properties, String topic, int count) {
        properties.put("isolation.level", "read_committed");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            var partition = List.of(new TopicPartition(topic, 0));
            consumer.assign(partition);
            consumer.seekToBeginning(partition);
            Instant until = Instant.now().plus(PATIENCE);
            int left = count;
            while (left > 0) {
                if (Instant.now().isAfter(until)) {
                    throw new IllegalStateException(left + " records are missing");
                }
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(line(record));
                    left--;
                }
            }
        }
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        var line = new StringBuilder();
        line.append(record.timestamp()).append(' ').append(shown(record.key()));
        line.append(' ').append(shown(record.value()));
        StreamSupport.stream(record.headers().spliterator(), false)
                .forEach(h -> line.append(' ').append(h.key()).append('=').append(shown(h.value())));
        return line.toString();
    }

    private static byte[] parsed(String text) {
        return text.equals("-") ? null : HEX.parseHex(text);
    }

    private static String shown(byte[] value) {
        return value == null ? "-" : HEX.formatHex(value);
    }
}
