import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What Java's client does per second: the same work as benches/clients.py gives to ours. */
public class ClientBench {
    private static final int BODY_SIZE = 128;

    public static void main(String[] args) throws Exception {
        String mode = args[0], namesrv = args[1], topic = args[2];
        double warm = Double.parseDouble(args[3]), seconds = Double.parseDouble(args[4]);
        long count = Long.parseLong(args[5]);
        int size = Integer.parseInt(args[6]);
        double rate;
        switch (mode) {
            case "push": rate = push(namesrv, topic, count); break;
            case "pull": rate = pull(namesrv, topic, count); break;
            default: rate = produce(mode, namesrv, topic, warm, seconds, size);
        }
        System.out.println("{\"rate\": " + rate + "}");
        System.exit(0);
    }

    private static double produce(String mode, String namesrv, String topic, double warm, double seconds, int size)
            throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PID_clients");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        run(mode, producer, topic, warm, size);
        double rate = run(mode, producer, topic, seconds, size);
        producer.shutdown();
        return rate;
    }

    private static double run(String mode, DefaultMQProducer producer, String topic, double seconds, int size)
            throws Exception {
        long begin = System.nanoTime(), end = begin + (long) (seconds * 1e9), sent = 0;
        byte[] body = new byte[BODY_SIZE];
        if (mode.equals("one")) {
            for (; System.nanoTime() < end; sent++) {
                producer.send(new Message(topic, "t", body));
            }
        } else if (mode.equals("batch")) {
            for (; System.nanoTime() < end; sent += size) {
                List<Message> batch = new ArrayList<>(size);
                for (int i = 0; i < size; i++) {
                    batch.add(new Message(topic, "t", body));
                }
                producer.send(batch);
            }
        } else {
            Semaphore window = new Semaphore(size);
            AtomicLong stored = new AtomicLong(), failed = new AtomicLong();
            while (System.nanoTime() < end) {
                window.acquire();
                producer.send(new Message(topic, "t", body), new SendCallback() {
                    public void onSuccess(SendResult result) {
                        stored.incrementAndGet();
                        window.release();
                    }

                    public void onException(Throwable error) {
                        failed.incrementAndGet();
                        window.release();
                    }
                });
            }
            window.acquire(size);
            if (failed.get() > stored.get() / 100) {
                throw new IllegalStateException(failed.get() + " of " + stored.get() + " sends failed");
            }
            sent = stored.get();
        }
        return sent / ((System.nanoTime() - begin) / 1e9);
    }

    private static double push(String namesrv, String topic, long count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("GID_push_" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        AtomicLong seen = new AtomicLong(), first = new AtomicLong(), last = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= count) {
                last.compareAndSet(0, System.nanoTime());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await(120, TimeUnit.SECONDS)) {
            throw new IllegalStateException(seen.get() + " of " + count + " came");
        }
        return count / ((last.get() - first.get()) / 1e9);
    }

    private static double pull(String namesrv, String topic, long count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("GID_pull_" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setPullBatchSize(32);
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        long seen = 0, begin = 0;
        while (seen < count) {
            List<MessageExt> messages = consumer.poll(10_000);
            if (messages.isEmpty()) {
                throw new IllegalStateException(seen + " of " + count + " came");
            }
            if (begin == 0) {
                begin = System.nanoTime();
            }
            seen += messages.size();
        }
        return seen / ((System.nanoTime() - begin) / 1e9);
    }
}
