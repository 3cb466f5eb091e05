package flaremq.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers by name, and the ways to send. */
final class Producers {
    private static final long ASYNC_LIMIT_S = 30;
    private static final MessageQueueSelector BY_HASH = new SelectMessageQueueByHash();

    private final Map<String, DefaultMQProducer> started = new HashMap<>();

    Runnable start(Args args) throws Exception {
        args.only("name", "group", "namesrv", "options", "steps", "checks", "trace");
        DefaultMQProducer producer = args.has("steps") ? transactional(args)
            : new DefaultMQProducer(args.text("group"), args.has("trace"), args.text("trace", null));
        producer.setNamesrvAddr(args.text("namesrv"));
        producer.setInstanceName(args.text("name"));
        Options.apply(producer, args.object("options"));
        producer.start();
        started.put(args.text("name"), producer);
        return producer::shutdown;
    }

    Object queues(Args args) throws Exception {
        args.only("name", "topic");
        return Messages.queues(named(args).fetchPublishMessageQueues(args.text("topic")));
    }

    /** Makes itself known to the brokers it has talked to, without waiting for its turn. */
    @SuppressWarnings("deprecation")
    Object heartbeat(Args args) throws InterruptedException {
        args.only("name");
        Version.heartbeat(named(args).getDefaultMQProducerImpl().getmQClientFactory());
        return null;
    }

    Object send(Args args) throws Exception {
        args.only("name", "how", "messages");
        DefaultMQProducer producer = named(args);
        List<Args> drafts = args.list("messages");
        return switch (args.text("how")) {
            case "sync" -> inTurn(producer, drafts);
            case "async" -> allAtOnce(producer, drafts);
            case "oneway" -> oneway(producer, drafts);
            case "batch" -> batch(producer, drafts);
            case "transaction" -> inTransactions(producer, drafts);
            default -> throw new IllegalArgumentException("cannot send " + args.text("how"));
        };
    }

    /** Steps and checks by the body of a message: how each transaction ends, and what is told when asked. */
    @SuppressWarnings("deprecation")
    private static DefaultMQProducer transactional(Args args) {
        // Only this constructor is the same in all versions.
        TransactionMQProducer producer = new TransactionMQProducer(null, args.text("group"), null, args.has("trace"),
            args.text("trace", null));
        JSONObject steps = args.object("steps");
        JSONObject checks = args.object("checks");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object given) {
                return state(steps, message);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return state(checks, message);
            }
        });
        return producer;
    }

    private static LocalTransactionState state(JSONObject states, Message message) {
        String state = states.getString(new String(message.getBody(), StandardCharsets.UTF_8));
        return state == null ? LocalTransactionState.UNKNOW : LocalTransactionState.valueOf(state);
    }

    private static Object inTransactions(DefaultMQProducer producer, List<Args> drafts) throws Exception {
        JSONArray results = new JSONArray();
        for (Args draft : drafts) {
            results.add(Messages.json(producer.sendMessageInTransaction(Messages.message(draft), null)));
        }
        return results;
    }

    /** The body of the reply. */
    Object request(Args args) throws Exception {
        args.only("name", "message", "timeoutMs");
        Message message = Messages.message(new Args(args.object("message")));
        Message reply = Version.request(named(args), message, args.number("timeoutMs"));
        return new String(reply.getBody(), StandardCharsets.UTF_8);
    }

    DefaultMQProducer called(String name) {
        return started.get(name);
    }

    Object recall(Args args) throws Exception {
        args.only("name", "topic", "handle");
        return Version.recall(named(args), args.text("topic"), args.text("handle"));
    }

    private DefaultMQProducer named(Args args) {
        return started.get(args.text("name"));
    }

    private static MessageQueue queueOf(Args draft) {
        return draft.has("queue") ? Messages.queue(new Args(draft.object("queue"))) : null;
    }

    private static Object inTurn(DefaultMQProducer producer, List<Args> drafts) throws Exception {
        JSONArray results = new JSONArray();
        for (Args draft : drafts) {
            Message message = Messages.message(draft);
            SendResult result = draft.has("shard") ? producer.send(message, BY_HASH, draft.text("shard"))
                : draft.has("queue") ? producer.send(message, queueOf(draft)) : producer.send(message);
            results.add(Messages.json(result));
        }
        return results;
    }

    private static Object allAtOnce(DefaultMQProducer producer, List<Args> drafts) throws Exception {
        List<Answer> answers = new ArrayList<>();
        for (Args draft : drafts) {
            Message message = Messages.message(draft);
            Answer answer = new Answer();
            answers.add(answer);
            if (draft.has("shard")) {
                producer.send(message, BY_HASH, draft.text("shard"), answer);
            } else if (draft.has("queue")) {
                producer.send(message, queueOf(draft), answer);
            } else {
                producer.send(message, answer);
            }
        }
        JSONArray results = new JSONArray();
        for (Answer answer : answers) {
            results.add(answer.come.get(ASYNC_LIMIT_S, TimeUnit.SECONDS));
        }
        return results;
    }

    private static Object oneway(DefaultMQProducer producer, List<Args> drafts) throws Exception {
        for (Args draft : drafts) {
            Message message = Messages.message(draft);
            if (draft.has("shard")) {
                producer.sendOneway(message, BY_HASH, draft.text("shard"));
            } else if (draft.has("queue")) {
                producer.sendOneway(message, queueOf(draft));
            } else {
                producer.sendOneway(message);
            }
        }
        return new JSONArray();
    }

    private static Object batch(DefaultMQProducer producer, List<Args> drafts) throws Exception {
        List<Message> messages = new ArrayList<>();
        drafts.forEach(draft -> messages.add(Messages.message(draft)));
        MessageQueue queue = queueOf(drafts.get(0));
        JSONArray results = new JSONArray();
        results.add(Messages.json(queue == null ? producer.send(messages) : producer.send(messages, queue)));
        return results;
    }

    /** What became of an asynchronous send. */
    private static final class Answer implements SendCallback {
        final CompletableFuture<JSONObject> come = new CompletableFuture<>();

        @Override
        public void onSuccess(SendResult result) {
            come.complete(Messages.json(result));
        }

        @Override
        public void onException(Throwable e) {
            come.completeExceptionally(e);
        }
    }
}
