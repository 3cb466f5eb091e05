package flaremq.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, send results and queues as JSON, and back. */
final class Messages {
    private Messages() {
    }

    static Message message(Args args) {
        args.only("topic", "body", "tags", "keys", "flag", "delayLevel", "timer", "properties", "queue",
            "shard");
        Message message = new Message(args.text("topic"), args.text("tags", null), args.text("keys", null),
            args.integer("flag", 0), args.bytes("body"), true);
        args.object("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
        if (args.has("delayLevel")) {
            message.setDelayTimeLevel(args.integer("delayLevel"));
        }
        // Clients before 5.0 have no method for these.
        args.object("timer").forEach((name, value) -> MessageAccessor.putProperty(message, name, (String) value));
        return message;
    }

    static MessageQueue queue(Args args) {
        args.only("topic", "brokerName", "queueId");
        return new MessageQueue(args.text("topic"), args.text("brokerName"), args.integer("queueId"));
    }

    static JSONObject json(MessageQueue queue) {
        JSONObject out = new JSONObject(true);
        out.put("topic", queue.getTopic());
        out.put("brokerName", queue.getBrokerName());
        out.put("queueId", queue.getQueueId());
        return out;
    }

    static JSONArray queues(Collection<MessageQueue> queues) {
        JSONArray out = new JSONArray();
        queues.stream().sorted().forEach(queue -> out.add(json(queue)));
        return out;
    }

    static JSONObject json(SendResult result) {
        JSONObject out = new JSONObject(true);
        out.put("status", result.getSendStatus().name());
        out.put("messageId", result.getMsgId());
        out.put("offsetMessageId", result.getOffsetMsgId());
        out.put("queue", json(result.getMessageQueue()));
        out.put("queueOffset", result.getQueueOffset());
        out.put("recallHandle", Version.recallHandle(result));
        return out;
    }

    static JSONObject json(MessageExt message) {
        JSONObject out = new JSONObject(true);
        out.put("topic", message.getTopic());
        out.put("brokerName", message.getBrokerName());
        out.put("queueId", message.getQueueId());
        out.put("queueOffset", message.getQueueOffset());
        out.put("messageId", message.getMsgId());
        out.put("offsetMessageId",
            message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null);
        out.put("keys", message.getKeys());
        out.put("tags", message.getTags());
        out.put("flag", message.getFlag());
        out.put("reconsumeTimes", message.getReconsumeTimes());
        out.put("bornTimestamp", message.getBornTimestamp());
        out.put("storeTimestamp", message.getStoreTimestamp());
        out.put("properties", new JSONObject(new TreeMap<>(message.getProperties())));
        out.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        return out;
    }

    static JSONArray messages(List<MessageExt> messages) {
        JSONArray out = new JSONArray();
        messages.forEach(message -> out.add(json(message)));
        return out;
    }
}
