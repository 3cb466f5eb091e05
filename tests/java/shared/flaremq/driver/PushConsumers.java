package flaremq.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers by name. Each writes down what it is given, and refuses the first so many messages if told to. */
final class PushConsumers {
    private final Map<String, Record> started = new HashMap<>();
    private final Producers producers;

    PushConsumers(Producers producers) {
        this.producers = producers;
    }

    Runnable start(Args args) throws Exception {
        args.only("name", "group", "namesrv", "topic", "tags", "sql", "orderly", "refuseFirst", "retryLevel",
            "replyBy", "trace", "options");
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(args.text("group"), args.has("trace"), args.text("trace", null));
        consumer.setNamesrvAddr(args.text("namesrv"));
        consumer.setInstanceName(args.text("name"));
        Options.apply(consumer, args.object("options"));
        if (args.has("sql")) {
            consumer.subscribe(args.text("topic"), MessageSelector.bySql(args.text("sql")));
        } else {
            consumer.subscribe(args.text("topic"), args.text("tags", "*"));
        }
        Record record = new Record(consumer, args.integer("refuseFirst", 0));
        record.replier = args.has("replyBy") ? producers.called(args.text("replyBy")) : null;
        if (args.flag("orderly", false)) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                record.take(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            int retryLevel = args.integer("retryLevel", 0);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(retryLevel);
                return record.take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        started.put(args.text("name"), record);
        return consumer::shutdown;
    }

    /** All deliveries so far, once there are as many as wanted or the time is up. */
    Object received(Args args) throws Exception {
        args.only("name", "count", "timeoutMs");
        return started.get(args.text("name")).atLeast(args.integer("count"), args.number("timeoutMs"));
    }

    /** The queues of a topic that the consumer has, once they are as many as wanted or the time is up. */
    Object assigned(Args args) throws Exception {
        args.only("name", "topic", "count", "timeoutMs");
        Record record = started.get(args.text("name"));
        List<MessageQueue> queues = record.queues(args.text("topic"));
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(args.number("timeoutMs"));
        while (queues.size() != args.integer("count") && System.nanoTime() < end) {
            Thread.sleep(10);
            queues = record.queues(args.text("topic"));
        }
        return Messages.queues(queues);
    }

    /** What one consumer was given. */
    private static final class Record {
        private final DefaultMQPushConsumer consumer;
        private final JSONArray deliveries = new JSONArray();
        private int refusalsLeft;
        private DefaultMQProducer replier;

        Record(DefaultMQPushConsumer consumer, int refuseFirst) {
            this.consumer = consumer;
            this.refusalsLeft = refuseFirst;
        }

        synchronized boolean take(List<MessageExt> messages) {
            boolean accepted = refusalsLeft <= 0;
            refusalsLeft -= messages.size();
            for (MessageExt message : messages) {
                JSONObject delivery = Messages.json(message);
                delivery.put("accepted", accepted);
                deliveries.add(delivery);
                if (replier != null) {
                    reply(message);
                }
            }
            notifyAll();
            return accepted;
        }

        private void reply(MessageExt message) {
            try {
                String body = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
                replier.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)));
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        synchronized JSONArray atLeast(int count, long timeoutMs) throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            for (long left = timeoutMs; deliveries.size() < count && left > 0;) {
                wait(left);
                left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
            }
            return new JSONArray(List.copyOf(deliveries));
        }

        @SuppressWarnings("deprecation") // Nothing else tells which queues a push consumer has.
        List<MessageQueue> queues(String topic) {
            return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(topic))
                .collect(Collectors.toList());
        }
    }
}
