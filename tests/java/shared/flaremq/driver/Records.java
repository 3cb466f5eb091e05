package flaremq.driver;

import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Base64;
import java.util.HexFormat;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Records of the commit log as JSON. */
final class Records {
    private static final int MAGIC_V2 = 0xDAA320AB;
    private static final int PHYSICAL_OFFSET_AT = 28;

    private Records() {
    }

    static byte[] bytes(ByteBuffer buffer) {
        ByteBuffer view = buffer.duplicate();
        byte[] copy = new byte[view.remaining()];
        view.get(copy);
        return copy;
    }

    static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    static long physicalOffset(byte[] record) {
        return ByteBuffer.wrap(record).getLong(PHYSICAL_OFFSET_AT);
    }

    /** The fields of a record as its own bytes give them: RocketMQ's decoder would parse the properties apart. */
    static JSONObject fields(byte[] record, boolean digest) throws NoSuchAlgorithmException {
        ByteBuffer in = ByteBuffer.wrap(record);
        JSONObject out = new JSONObject(true);
        out.put("size", in.getInt());
        int magic = in.getInt();
        in.getInt();
        out.put("queueId", in.getInt());
        in.getInt();
        out.put("queueOffset", in.getLong());
        out.put("physicalOffset", in.getLong());
        int sysFlag = in.getInt();
        in.getLong();
        skip(in, hostWidth(sysFlag, MessageSysFlag.BORNHOST_V6_FLAG));
        out.put("storeTimestamp", in.getLong());
        skip(in, hostWidth(sysFlag, MessageSysFlag.STOREHOSTADDRESS_V6_FLAG) + 4 + 8);
        byte[] body = take(in, in.getInt());
        out.put("topic", new String(take(in, magic == MAGIC_V2 ? in.getShort() : in.get()), StandardCharsets.UTF_8));
        out.put("properties", base64(take(in, in.getShort())));
        if (digest) {
            out.put("sha1", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(body)));
        } else {
            out.put("body", base64(body));
        }
        return out;
    }

    /** A message as RocketMQ's own decoder sees it. */
    static JSONObject decoded(MessageExt message) {
        JSONObject out = new JSONObject(true);
        out.put("topic", message.getTopic());
        out.put("queueId", message.getQueueId());
        out.put("size", message.getStoreSize());
        out.put("queueOffset", message.getQueueOffset());
        out.put("physicalOffset", message.getCommitLogOffset());
        out.put("flag", message.getFlag());
        out.put("sysFlag", message.getSysFlag());
        out.put("bornTimestamp", message.getBornTimestamp());
        out.put("bornHost", address(message.getBornHost()));
        out.put("storeTimestamp", message.getStoreTimestamp());
        out.put("storeHost", address(message.getStoreHost()));
        out.put("reconsumeTimes", message.getReconsumeTimes());
        out.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        out.put("bodyCrc", message.getBodyCRC());
        out.put("messageId", message.getMsgId());
        out.put("properties", message.getProperties());
        out.put("body", base64(message.getBody() == null ? new byte[0] : message.getBody()));
        return out;
    }

    private static String address(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    private static int hostWidth(int sysFlag, int v6Flag) {
        return (sysFlag & v6Flag) == 0 ? 8 : 20;
    }

    private static void skip(ByteBuffer in, int count) {
        in.position(in.position() + count);
    }

    private static byte[] take(ByteBuffer in, int count) {
        byte[] taken = new byte[count];
        in.get(taken);
        return taken;
    }
}
