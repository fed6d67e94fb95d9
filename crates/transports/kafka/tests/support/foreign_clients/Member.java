import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group, as Kafka's console consumer: it prints each value, a line, and commits
 * what it has printed. It leaves the group when standard input ends.
 */
public class Member {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(ConsumerConfig.GROUP_ID_CONFIG, arguments[2]);
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "true");
        properties.put(ConsumerConfig.AUTO_COMMIT_INTERVAL_MS_CONFIG, "500");
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(properties, text, text)) {
            consumer.subscribe(List.of(arguments[1]));
            while (System.in.available() == 0) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.print(record.value());
                }
                System.out.flush();
            }
        }
    }
}
