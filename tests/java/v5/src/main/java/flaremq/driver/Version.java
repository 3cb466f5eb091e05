package flaremq.driver;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the 5.x store does differently from the 4.x store, behind the same names. */
final class Version {
    /** As in 5.3.3, of the jars that are there: V5_3_3 is what they call themselves. */
    static final String NAME = MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).substring(1).replace('_', '.');

    private Version() {
    }

    static void logToStderr() {
        // rmq.logback-test.xml on the class path does it.
    }

    static void readyForAdmin() {
        // mqadmin needs no files of its own.
    }

    /** Another heartbeat may be under way already; then this one does nothing until that is over. */
    static void heartbeat(MQClientInstance client) throws InterruptedException {
        for (int tries = 0; !client.sendHeartbeatToAllBrokerWithLock() && tries < 500; tries++) {
            Thread.sleep(10);
        }
    }

    static String recallHandle(SendResult result) {
        return result.getRecallHandle();
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) throws Exception {
        return producer.recallMessage(topic, handle);
    }

    /** Of the ways to ask, this is one that works in 5.3.3. */
    static Message request(DefaultMQProducer producer, Message message, long timeoutMs) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, new SelectMessageQueueByHash(), "any", new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                if (answer != null) { // Some versions call it at the send as well.
                    reply.complete(answer);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, timeoutMs);
        return reply.get(timeoutMs, TimeUnit.MILLISECONDS);
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, BrokerStatsManager stats, BrokerConfig broker,
        Map<String, Map<String, String>> topics) throws IOException {
        ConcurrentHashMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        topics.forEach((name, attributes) -> {
            TopicConfig topic = new TopicConfig(name);
            topic.setAttributes(attributes);
            table.put(name, topic);
        });
        return new DefaultMessageStore(config, stats, (topic, queue, offset, tags, time, bits, properties) -> { },
            broker, table);
    }

    /** Stores a batch as one record, the way a 5.x broker does for topics with queue.type=BatchCQ. */
    static PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch) {
        batch.setSysFlag(batch.getSysFlag() | MessageSysFlag.NEED_UNWRAP_FLAG | MessageSysFlag.INNER_BATCH_FLAG);
        batch.setInnerBatch(true);
        int count = MessageDecoder.countInnerMsgNum(ByteBuffer.wrap(batch.getBody()));
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_INNER_NUM, String.valueOf(count));
        batch.setPropertiesString(MessageDecoder.messageProperties2String(batch.getProperties()));
        return store.putMessage(batch);
    }

    static long offsetByTime(DefaultMessageStore store, String topic, int queueId, long timestamp, String boundary) {
        return boundary == null
            ? store.getOffsetInQueueByTime(topic, queueId, timestamp)
            : store.getOffsetInQueueByTime(topic, queueId, timestamp, BoundaryType.valueOf(boundary));
    }

    /** Where in its queue the only message of an answer stands. */
    static long positionOfOnly(GetMessageResult result) {
        return result.getMessageQueueOffset().get(0);
    }

    /** Every record below this physical offset has its queue unit and its index entries. */
    static long dispatchedTo(DefaultMessageStore store) {
        return store.getReputFromOffset();
    }

    static long flushedTo(DefaultMessageStore store) {
        return store.getFlushedWhere();
    }
}
