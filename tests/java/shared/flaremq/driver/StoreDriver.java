package flaremq.driver;

import com.alibaba.fastjson.JSONObject;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.StoreCheckpoint;

/** Drives a DefaultMessageStore by JSON lines. */
public final class StoreDriver {
    private StoreHandle open;

    private StoreDriver() {
    }

    public static void main(String[] args) throws Exception {
        Lines.serve(new StoreDriver()::run);
    }

    private Object run(String command, Args args) throws Exception {
        return switch (command) {
            case "open" -> open(args);
            case "close" -> close(args);
            case "halt" -> null; // Only answered here; Lines does it.
            case "bench" -> Bench.run(args);
            case "put" -> Puts.put(store(), args);
            case "putBatch" -> Puts.putBatch(store(), args);
            case "get" -> Reads.get(store(), args);
            case "scan" -> Reads.scan(store(), args);
            case "byKey" -> Reads.byKey(store(), args);
            case "byTime" -> Reads.byTime(store(), args);
            case "record" -> Reads.record(store(), args);
            case "minMax" -> Reads.minMax(store(), args);
            case "flush" -> flush(args);
            case "waitDispatched" -> waitDispatched(args);
            case "state" -> state(args);
            default -> throw new IllegalArgumentException("unknown command " + command);
        };
    }

    private DefaultMessageStore store() {
        if (open == null) {
            throw new IllegalStateException("no store is open");
        }
        return open.store;
    }

    private Object open(Args args) throws Exception {
        args.only("dir", "options", "broker", "topics");
        if (open != null) {
            throw new IllegalStateException("a store is open already");
        }
        Map<String, Map<String, String>> topics = new HashMap<>();
        args.object("topics").forEach((name, attributes) -> {
            Map<String, String> copy = new HashMap<>();
            ((JSONObject) attributes).forEach((key, value) -> copy.put(key, (String) value));
            topics.put(name, copy);
        });
        StoreHandle handle = new StoreHandle(new StoreHandle.Setup(Path.of(args.text("dir")), args.object("options"),
            args.object("broker"), topics));
        long nanos = handle.loadNanos();
        handle.start();
        open = handle;
        JSONObject out = new JSONObject(true);
        out.put("lastExitOk", handle.lastExitOk);
        out.put("minPhysicalOffset", store().getMinPhyOffset());
        out.put("maxPhysicalOffset", store().getMaxPhyOffset());
        out.put("loadMs", nanos / 1e6);
        return out;
    }

    private Object close(Args args) {
        args.only("patient");
        store();
        StoreHandle handle = open;
        open = null;
        return handle.close(args.flag("patient", false));
    }

    private Object flush(Args args) {
        args.only();
        store().flush();
        return Version.flushedTo(store());
    }

    private Object waitDispatched(Args args) throws Exception {
        args.only("timeoutMs");
        store();
        open.awaitDispatched(args.number("timeoutMs"));
        return Version.dispatchedTo(store());
    }

    private Object state(Args args) {
        args.only();
        StoreCheckpoint checkpoint = store().getStoreCheckpoint();
        JSONObject out = new JSONObject(true);
        out.put("minPhysicalOffset", store().getMinPhyOffset());
        out.put("maxPhysicalOffset", store().getMaxPhyOffset());
        out.put("flushedTo", Version.flushedTo(store()));
        out.put("dispatchedTo", Version.dispatchedTo(store()));
        out.put("confirmOffset", store().getConfirmOffset());
        out.put("runningFlags", store().getRunningFlags().getFlagBits());
        out.put("physicTimestamp", checkpoint.getPhysicMsgTimestamp());
        out.put("logicsTimestamp", checkpoint.getLogicsMsgTimestamp());
        out.put("indexTimestamp", checkpoint.getIndexMsgTimestamp());
        return out;
    }
}
