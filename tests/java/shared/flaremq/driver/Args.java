package flaremq.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Set;

/** The fields of one command. A field that nobody knows, or that is missing, is an error that names it. */
final class Args {
    private final JSONObject fields;

    Args(JSONObject fields) {
        this.fields = fields;
    }

    /** Refuses a command that carries any other field: a misspelt option must not pass for a default. */
    Args only(String... names) {
        Set<String> known = Set.of(names);
        for (String name : fields.keySet()) {
            if (!known.contains(name) && !name.equals("command") && !name.equals("id")) {
                throw new IllegalArgumentException("unknown field " + name + ", known are " + List.of(names));
            }
        }
        return this;
    }

    boolean has(String name) {
        return fields.get(name) != null;
    }

    String text(String name) {
        return (String) required(name);
    }

    String text(String name, String fallback) {
        return has(name) ? text(name) : fallback;
    }

    long number(String name) {
        Object value = required(name);
        if (value instanceof Integer || value instanceof Long) {
            return ((Number) value).longValue();
        }
        throw new IllegalArgumentException("field " + name + " is no whole number: " + value);
    }

    long number(String name, long fallback) {
        return has(name) ? number(name) : fallback;
    }

    int integer(String name) {
        return Math.toIntExact(number(name));
    }

    int integer(String name, int fallback) {
        return has(name) ? integer(name) : fallback;
    }

    boolean flag(String name, boolean fallback) {
        return has(name) ? (Boolean) required(name) : fallback;
    }

    byte[] bytes(String name) {
        return Base64.getDecoder().decode(text(name));
    }

    /** Base64 of UTF-8. Malformed bytes are refused: Java would silently store others in their place. */
    String utf8(String name) throws CharacterCodingException {
        return StandardCharsets.UTF_8.newDecoder()
            .onMalformedInput(CodingErrorAction.REPORT)
            .decode(ByteBuffer.wrap(bytes(name)))
            .toString();
    }

    /** An "ip:port", where an IPv6 address may stand in brackets; never a name, so nothing is looked up. */
    InetSocketAddress address(String name) throws UnknownHostException {
        String text = text(name);
        int colon = text.lastIndexOf(':');
        String ip = text.substring(0, colon).replace("[", "").replace("]", "");
        if (!ip.matches("[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")) {
            throw new IllegalArgumentException("field " + name + " is no ip:port: " + text);
        }
        return new InetSocketAddress(InetAddress.getByName(ip), Integer.parseInt(text.substring(colon + 1)));
    }

    JSONObject object(String name) {
        return has(name) ? (JSONObject) required(name) : new JSONObject();
    }

    JSONArray array(String name) {
        return (JSONArray) required(name);
    }

    List<Args> list(String name) {
        List<Args> items = new ArrayList<>();
        for (Object item : array(name)) {
            items.add(new Args((JSONObject) item));
        }
        return items;
    }

    private Object required(String name) {
        Object value = fields.get(name);
        if (value == null) {
            throw new IllegalArgumentException("field " + name + " is missing");
        }
        return value;
    }
}
