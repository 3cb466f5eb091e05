package flaremq.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/** The commands that read, all through the doors that a broker uses. */
final class Reads {
    private static final String GROUP = "driver";

    private Reads() {
    }

    static Object get(DefaultMessageStore store, Args args) {
        args.only("topic", "queueId", "offset", "max");
        GetMessageResult found = getMessage(store, args.text("topic"), args.integer("queueId"), args.number("offset"),
            args.integer("max"));
        try {
            JSONObject out = new JSONObject(true);
            out.put("status", found.getStatus().name());
            out.put("nextOffset", found.getNextBeginOffset());
            out.put("minOffset", found.getMinOffset());
            out.put("maxOffset", found.getMaxOffset());
            out.put("records", records(found.getMessageBufferList()));
            return out;
        } finally {
            found.release();
        }
    }

    /**
     * scan: every message of the named queues from the lowest offset to the highest.
     *
     * <p>Without names, of all queues that ever held one: merely asking for a queue makes RocketMQ list it.
     */
    static Object scan(DefaultMessageStore store, Args args) throws Exception {
        args.only("queues", "digest");
        boolean digest = args.flag("digest", false);
        JSONArray out = new JSONArray();
        if (args.has("queues")) {
            for (Args queue : args.list("queues")) {
                queue.only("topic", "queueId");
                out.add(scanQueue(store, queue.text("topic"), queue.integer("queueId"), digest));
            }
            return out;
        }
        for (String topic : new TreeSet<>(store.getConsumeQueueTable().keySet())) {
            for (int queueId : new TreeSet<>(store.getConsumeQueueTable().get(topic).keySet())) {
                if (store.getMaxOffsetInQueue(topic, queueId) > 0) {
                    out.add(scanQueue(store, topic, queueId, digest));
                }
            }
        }
        return out;
    }

    private static JSONObject scanQueue(DefaultMessageStore store, String topic, int queueId, boolean digest)
        throws Exception {
        long min = store.getMinOffsetInQueue(topic, queueId);
        long max = store.getMaxOffsetInQueue(topic, queueId);
        JSONArray messages = new JSONArray();
        JSONArray gaps = new JSONArray();
        // One message a call: only so is its place in the queue certain in both versions.
        for (long offset = min, next; offset < max; offset = next) {
            GetMessageResult found = getMessage(store, topic, queueId, offset, 1);
            try {
                next = found.getNextBeginOffset();
                if (found.getStatus() == GetMessageStatus.FOUND) {
                    JSONObject message = Records.fields(Records.bytes(found.getMessageBufferList().get(0)), digest);
                    message.put("position", Version.positionOfOnly(found));
                    messages.add(message);
                } else {
                    gaps.add(gap(offset, next, found.getStatus()));
                }
            } finally {
                found.release();
            }
            if (next <= offset) {
                throw new IllegalStateException("reading " + topic + "/" + queueId + " at " + offset + " answered "
                    + found.getStatus() + " and to go on at " + next);
            }
        }
        JSONObject out = minMax(min, max);
        out.put("topic", topic);
        out.put("queueId", queueId);
        out.put("messages", messages);
        out.put("gaps", gaps);
        return out;
    }

    private static JSONObject gap(long offset, long next, GetMessageStatus status) {
        JSONObject out = new JSONObject(true);
        out.put("offset", offset);
        out.put("nextOffset", next);
        out.put("status", status.name());
        return out;
    }

    static Object byKey(DefaultMessageStore store, Args args) {
        args.only("topic", "key", "max", "begin", "end");
        QueryMessageResult found = store.queryMessage(args.text("topic"), args.text("key"), args.integer("max"),
            args.number("begin"), args.number("end"));
        try {
            JSONObject out = new JSONObject(true);
            out.put("records", records(found.getMessageBufferList()));
            out.put("indexTimestamp", found.getIndexLastUpdateTimestamp());
            out.put("indexPhysicalOffset", found.getIndexLastUpdatePhyoffset());
            return out;
        } finally {
            found.release();
        }
    }

    static Object byTime(DefaultMessageStore store, Args args) {
        args.only("topic", "queueId", "timestamp", "boundary");
        return Version.offsetByTime(store, args.text("topic"), args.integer("queueId"), args.number("timestamp"),
            args.text("boundary", null));
    }

    /** record: the message at a physical offset by RocketMQ's decoder; null if there is none. */
    static Object record(DefaultMessageStore store, Args args) {
        MessageExt message = store.lookMessageByOffset(args.only("physicalOffset").number("physicalOffset"));
        return message == null ? null : Records.decoded(message);
    }

    static Object minMax(DefaultMessageStore store, Args args) throws Exception {
        args.only("topic", "queueId");
        String topic = args.text("topic");
        int queueId = args.integer("queueId");
        return minMax(store.getMinOffsetInQueue(topic, queueId), store.getMaxOffsetInQueue(topic, queueId));
    }

    private static JSONObject minMax(long min, long max) {
        JSONObject out = new JSONObject(true);
        out.put("minOffset", min);
        out.put("maxOffset", max);
        return out;
    }

    private static GetMessageResult getMessage(DefaultMessageStore store, String topic, int queueId, long offset,
        int max) {
        GetMessageResult found = store.getMessage(GROUP, topic, queueId, offset, max, null);
        if (found == null) {
            throw new IllegalStateException("the store is shut down or not readable");
        }
        return found;
    }

    private static JSONArray records(List<ByteBuffer> buffers) {
        JSONArray out = new JSONArray();
        for (ByteBuffer buffer : buffers) {
            out.add(Records.base64(Records.bytes(buffer)));
        }
        return out;
    }
}
