package flaremq.driver;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers by name. */
final class LiteConsumers {
    private final Map<String, DefaultLitePullConsumer> started = new HashMap<>();

    Runnable start(Args args) throws Exception {
        args.only("name", "group", "namesrv", "topic", "tags", "sql", "options");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.text("group"));
        consumer.setNamesrvAddr(args.text("namesrv"));
        consumer.setInstanceName(args.text("name"));
        Options.apply(consumer, args.object("options"));
        if (args.has("sql")) {
            consumer.subscribe(args.text("topic"), MessageSelector.bySql(args.text("sql")));
        } else if (args.has("topic")) {
            consumer.subscribe(args.text("topic"), args.text("tags", "*"));
        }
        consumer.start();
        started.put(args.text("name"), consumer);
        return consumer::shutdown;
    }

    Object queues(Args args) throws Exception {
        args.only("name", "topic");
        return Messages.queues(named(args).fetchMessageQueues(args.text("topic")));
    }

    Object assign(Args args) {
        args.only("name", "queues");
        List<MessageQueue> queues = args.list("queues").stream().map(Messages::queue).collect(Collectors.toList());
        named(args).assign(queues);
        return null;
    }

    /** To an offset, or to the beginning (-1) or the end (-2) of the queue. */
    Object seek(Args args) throws Exception {
        args.only("name", "queue", "offset");
        MessageQueue queue = Messages.queue(new Args(args.object("queue")));
        long offset = args.number("offset");
        if (offset == -1) {
            named(args).seekToBegin(queue);
        } else if (offset == -2) {
            named(args).seekToEnd(queue);
        } else {
            named(args).seek(queue, offset);
        }
        return null;
    }

    Object poll(Args args) {
        args.only("name", "timeoutMs");
        return Messages.messages(named(args).poll(args.number("timeoutMs")));
    }

    /** Commits what was polled, and waits until the broker knows it: by itself the client only tells it, later. */
    @SuppressWarnings("deprecation")
    Object commit(Args args) throws Exception {
        args.only("name", "queues");
        named(args).commitSync();
        OffsetStore offsets = named(args).getOffsetStore();
        for (Args each : args.list("queues")) {
            MessageQueue queue = Messages.queue(each);
            long offset = offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY);
            offsets.updateConsumeOffsetToBroker(queue, offset, false);
        }
        return null;
    }

    /** The committed offset of a queue, or the one that belongs to a time. */
    Object offset(Args args) throws Exception {
        args.only("name", "queue", "timestamp");
        MessageQueue queue = Messages.queue(new Args(args.object("queue")));
        return args.has("timestamp") ? named(args).offsetForTimestamp(queue, args.number("timestamp"))
            : named(args).committed(queue);
    }

    private DefaultLitePullConsumer named(Args args) {
        return started.get(args.text("name"));
    }
}
