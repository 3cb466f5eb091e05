package flaremq.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** The commands that append. */
final class Puts {
    private Puts() {
    }

    /** put: every message by itself, in order; a refused one does not stop those behind it. */
    static Object put(DefaultMessageStore store, Args args) throws Exception {
        JSONArray results = new JSONArray();
        for (Args fields : args.only("messages").list("messages")) {
            fields.only("topic", "queueId", "flag", "sysFlag", "bornTimestamp", "bornHost", "storeHost",
                "reconsumeTimes", "preparedTransactionOffset", "properties", "body");
            Inner message = new Inner();
            fill(message, fields);
            message.setPreparedTransactionOffset(fields.number("preparedTransactionOffset"));
            String properties = fields.utf8("properties");
            MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(properties));
            message.setPropertiesString(properties);
            message.setTagsCode(Inner.tagsString2tagsCode(null, message.getProperty(MessageConst.PROPERTY_TAGS)));
            results.add(result(store.putMessage(message)));
        }
        return results;
    }

    /** putBatch: a body in the wire form of a batch, as many records or (inner) as one. */
    static Object putBatch(DefaultMessageStore store, Args args) throws Exception {
        args.only("topic", "queueId", "flag", "sysFlag", "bornTimestamp", "bornHost", "storeHost",
            "reconsumeTimes", "properties", "body", "inner");
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, args);
        MessageAccessor.setProperties(batch, MessageDecoder.string2messageProperties(args.utf8("properties")));
        boolean inner = args.flag("inner", false);
        return result(inner ? Version.putInnerBatch(store, batch) : store.putMessages(batch));
    }

    private static void fill(MessageExt message, Args fields) throws Exception {
        message.setTopic(fields.text("topic"));
        message.setQueueId(fields.integer("queueId"));
        message.setFlag(fields.integer("flag"));
        message.setSysFlag(fields.integer("sysFlag"));
        message.setBornTimestamp(fields.number("bornTimestamp"));
        message.setBornHost(fields.address("bornHost"));
        message.setStoreHost(fields.address("storeHost"));
        message.setReconsumeTimes(fields.integer("reconsumeTimes"));
        message.setBody(fields.bytes("body"));
    }

    private static JSONObject result(PutMessageResult put) {
        JSONObject out = new JSONObject(true);
        out.put("status", put.getPutMessageStatus().name());
        AppendMessageResult append = put.getAppendMessageResult();
        if (append != null && append.isOk()) {
            out.put("physicalOffset", append.getWroteOffset());
            out.put("size", append.getWroteBytes());
            out.put("queueOffset", append.getLogicsOffset());
            out.put("storeTimestamp", append.getStoreTimestamp());
            out.put("messageId", append.getMsgId());
            out.put("count", append.getMsgNum());
        }
        return out;
    }
}
