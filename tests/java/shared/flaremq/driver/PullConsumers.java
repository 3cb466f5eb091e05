package flaremq.driver;

import com.alibaba.fastjson.JSONObject;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/** The old pull consumers by name: each call goes to the broker. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private final Map<String, DefaultMQPullConsumer> started = new HashMap<>();
    private final Map<String, CompletableFuture<PullResult>> arrivals = new HashMap<>();

    Runnable start(Args args) throws Exception {
        args.only("name", "group", "namesrv", "options");
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.text("group"));
        consumer.setNamesrvAddr(args.text("namesrv"));
        consumer.setInstanceName(args.text("name"));
        Options.apply(consumer, args.object("options"));
        consumer.start();
        started.put(args.text("name"), consumer);
        return consumer::shutdown;
    }

    /** Makes itself known to the brokers it has talked to, and learns their versions, without waiting for its turn. */
    Object heartbeat(Args args) throws InterruptedException {
        args.only("name");
        MQClientInstance client = named(args).getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        Version.heartbeat(client);
        return null;
    }

    Object queues(Args args) throws Exception {
        args.only("name", "topic");
        return Messages.queues(named(args).fetchSubscribeMessageQueues(args.text("topic")));
    }

    Object pull(Args args) throws Exception {
        args.only("name", "queue", "offset", "max", "tags", "sql", "block");
        MessageQueue queue = queueOf(args);
        long offset = args.number("offset");
        int max = args.integer("max");
        PullResult result = args.flag("block", false)
            ? named(args).pullBlockIfNotFound(queue, args.text("tags", "*"), offset, max)
            : args.has("sql") ? named(args).pull(queue, MessageSelector.bySql(args.text("sql")), offset, max)
                : named(args).pull(queue, args.text("tags", "*"), offset, max);
        return json(result);
    }

    /** Begins a pull that stands at the broker until something comes; `arrived` gives what it brought. */
    Object await(Args args) throws Exception {
        args.only("name", "queue", "offset", "max");
        CompletableFuture<PullResult> arrival = new CompletableFuture<>();
        named(args).pullBlockIfNotFound(queueOf(args), "*", args.number("offset"), args.integer("max"),
            new PullCallback() {
                @Override
                public void onSuccess(PullResult result) {
                    arrival.complete(result);
                }

                @Override
                public void onException(Throwable e) {
                    arrival.completeExceptionally(e);
                }
            });
        arrivals.put(args.text("name"), arrival);
        return null;
    }

    Object arrived(Args args) throws Exception {
        args.only("name", "timeoutMs");
        return json(arrivals.remove(args.text("name")).get(args.number("timeoutMs"), TimeUnit.MILLISECONDS));
    }

    private static JSONObject json(PullResult result) {
        JSONObject out = new JSONObject(true);
        out.put("status", result.getPullStatus().name());
        out.put("nextOffset", result.getNextBeginOffset());
        out.put("minOffset", result.getMinOffset());
        out.put("maxOffset", result.getMaxOffset());
        out.put("messages", Messages.messages(
            result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList()));
        return out;
    }

    /** Tells the broker how far the group has come, and waits for its answer. */
    Object commit(Args args) throws Exception {
        args.only("name", "queue", "offset");
        named(args).getDefaultMQPullConsumerImpl().getOffsetStore()
            .updateConsumeOffsetToBroker(queueOf(args), args.number("offset"), false);
        return null;
    }

    Object offset(Args args) throws Exception {
        args.only("name", "queue", "what", "timestamp");
        MessageQueue queue = queueOf(args);
        return switch (args.text("what")) {
            case "committed" -> named(args).getDefaultMQPullConsumerImpl().getOffsetStore()
                .readOffset(queue, ReadOffsetType.READ_FROM_STORE);
            case "min" -> named(args).minOffset(queue);
            case "max" -> named(args).maxOffset(queue);
            case "earliest" -> named(args).earliestMsgStoreTime(queue);
            case "time" -> named(args).searchOffset(queue, args.number("timestamp"));
            default -> throw new IllegalArgumentException("no offset is called " + args.text("what"));
        };
    }

    Object view(Args args) throws Exception {
        args.only("name", "topic", "messageId");
        return Messages.json(named(args).viewMessage(args.text("topic"), args.text("messageId")));
    }

    Object query(Args args) throws Exception {
        args.only("name", "topic", "key", "max", "begin", "end");
        QueryResult result = named(args).queryMessage(args.text("topic"), args.text("key"), args.integer("max"),
            args.number("begin"), args.number("end"));
        return Messages.messages(result.getMessageList());
    }

    private static MessageQueue queueOf(Args args) {
        return Messages.queue(new Args(args.object("queue")));
    }

    private DefaultMQPullConsumer named(Args args) {
        return started.get(args.text("name"));
    }
}
