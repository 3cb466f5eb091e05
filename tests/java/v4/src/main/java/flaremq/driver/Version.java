package flaremq.driver;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.logging.InternalLoggerFactory;
import org.apache.rocketmq.logging.inner.Level;
import org.apache.rocketmq.logging.inner.Logger;
import org.apache.rocketmq.logging.inner.LoggingBuilder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the 4.x store does differently from the 5.x store, behind the same names. */
final class Version {
    static final String NAME = "4.9.8";

    private Version() {
    }

    static void logToStderr() {
        InternalLoggerFactory.setCurrentLoggerType(InternalLoggerFactory.LOGGER_INNER);
        Logger root = Logger.getRootLogger();
        root.setLevel(Level.toLevel(System.getProperty("flaremq.log", "WARN")));
        root.addAppender(LoggingBuilder.newAppenderBuilder()
            .withConsoleAppender(LoggingBuilder.SYSTEM_ERR)
            .withLayout(LoggingBuilder.newLayoutBuilder().withDefaultLayout().build())
            .build());
    }

    /** mqadmin refuses to work without its log settings. */
    static void readyForAdmin() throws IOException {
        Path settings = Path.of(System.getProperty("rocketmq.home.dir"), "conf", "logback_tools.xml");
        Files.createDirectories(settings.getParent());
        Files.writeString(settings, "<configuration><root level=\"OFF\"/></configuration>");
    }

    static void heartbeat(MQClientInstance client) {
        client.sendHeartbeatToAllBrokerWithLock();
    }

    static String recallHandle(SendResult result) {
        return null;
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) {
        throw new IllegalArgumentException("4.x cannot recall a message");
    }

    static Message request(DefaultMQProducer producer, Message message, long timeoutMs) throws Exception {
        return producer.request(message, timeoutMs);
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, BrokerStatsManager stats, BrokerConfig broker,
        Map<String, Map<String, String>> topics) throws IOException {
        topics.forEach((name, attributes) -> {
            if (!attributes.isEmpty()) {
                throw new IllegalArgumentException("4.x has no topic attributes, " + name + " has " + attributes);
            }
        });
        return new DefaultMessageStore(config, stats, (topic, queue, offset, tags, time, bits, properties) -> { },
            broker);
    }

    static PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch) {
        throw new IllegalArgumentException("4.x has no inner batches");
    }

    static long offsetByTime(DefaultMessageStore store, String topic, int queueId, long timestamp, String boundary) {
        if (boundary != null) {
            throw new IllegalArgumentException("4.x searches by time without a boundary, not with " + boundary);
        }
        return store.getOffsetInQueueByTime(topic, queueId, timestamp);
    }

    /** Where in its queue the only message of an answer stands. */
    static long positionOfOnly(GetMessageResult result) {
        return result.getNextBeginOffset() - 1;
    }

    /** Every record below this physical offset has its queue unit and its index entries. */
    static long dispatchedTo(DefaultMessageStore store) {
        return store.getMaxPhyOffset() - store.dispatchBehindBytes();
    }

    static long flushedTo(DefaultMessageStore store) {
        return store.getMaxPhyOffset() - store.getCommitLog().remainHowManyDataToFlush();
    }
}
