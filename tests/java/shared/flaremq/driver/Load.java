package flaremq.driver;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageStatus;

/** Messages with a tag and a UNIQ_KEY for four queues, built once and put again and again. */
final class Load {
    static final String TOPIC = "BenchTopic";
    static final int QUEUES = 4;
    private static final int RING = 1 << 16;
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 5000);
    private static final InetSocketAddress STORE = new InetSocketAddress("127.0.0.1", 10911);

    private final int batchSize;
    private final byte[] body;
    private Inner[] singles;
    private MessageExtBatch[] batches;

    Load(int bodySize, int batchSize) {
        this.batchSize = batchSize;
        body = new byte[bodySize];
        Arrays.fill(body, (byte) 'x');
    }

    void putOneByOne(DefaultMessageStore store, long count) {
        Inner[] ring = singles();
        for (long i = 0; i < count; i++) {
            require(store.asyncPutMessage(ring[(int) (i % RING)]).join().getPutMessageStatus());
        }
    }

    void putInBatches(DefaultMessageStore store, long count) {
        MessageExtBatch[] ring = batches();
        if (count % batchSize != 0) {
            throw new IllegalArgumentException(count + " messages make no whole number of batches of " + batchSize);
        }
        for (long i = 0; i < count / batchSize; i++) {
            require(store.asyncPutMessages(ring[(int) (i % ring.length)]).join().getPutMessageStatus());
        }
    }

    private Inner[] singles() {
        if (singles == null) {
            singles = new Inner[RING];
            for (int i = 0; i < RING; i++) {
                String properties = propertiesText(i);
                Inner message = new Inner();
                fill(message, i);
                message.setBody(body);
                message.setPropertiesString(properties);
                MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(properties));
                singles[i] = message;
            }
        }
        return singles;
    }

    private MessageExtBatch[] batches() {
        if (batches == null) {
            batches = new MessageExtBatch[Math.max(QUEUES, RING / batchSize)];
            for (int i = 0; i < batches.length; i++) {
                MessageExtBatch batch = new MessageExtBatch();
                fill(batch, i);
                batch.setBody(wireBody(i * batchSize));
                MessageAccessor.setProperties(batch, MessageDecoder.string2messageProperties(""));
                batches[i] = batch;
            }
        }
        return batches;
    }

    /** Elements as a producer sends them: size, magic, crc, flag, body length, body, properties length, properties. */
    private byte[] wireBody(int first) {
        int elementSize = 22 + body.length + properties(first).length;
        ByteBuffer out = ByteBuffer.allocate(batchSize * elementSize);
        for (int i = 0; i < batchSize; i++) {
            byte[] properties = properties(first + i);
            out.putInt(elementSize).putInt(0).putInt(0).putInt(0).putInt(body.length).put(body);
            out.putShort((short) properties.length).put(properties);
        }
        return out.array();
    }

    private static void fill(MessageExt message, int number) {
        message.setTopic(TOPIC);
        message.setQueueId(number % QUEUES);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN);
        message.setStoreHost(STORE);
    }

    private static byte[] properties(int number) {
        return propertiesText(number).getBytes(StandardCharsets.UTF_8);
    }

    private static String propertiesText(int number) {
        return String.format("UNIQ_KEY\1%032X\2TAGS\1TagA\2", number);
    }

    private static void require(PutMessageStatus status) {
        if (status != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("a put answered " + status);
        }
    }
}
