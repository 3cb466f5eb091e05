package flaremq.driver;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.StoreCheckpoint;

/**
 * Drives a DefaultMessageStore by JSON lines: one command a line in, one answer a line out, nothing else on stdout.
 *
 * <p>A command is {"id": n, "command": name, fields ...}; its answer {"id": n, "result": value} or
 * {"id": n, "error": text, "trace": text}. The first line out is {"ready": version}. The end of the input ends the
 * process at once, without a shutdown: a driver never outlives whoever started it.
 */
public final class StoreDriver {
    private static final int CRASH_STATUS = 137;

    private StoreHandle open;

    private StoreDriver() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Version.logToStderr();
        JSONObject ready = new JSONObject();
        ready.put("ready", Version.NAME);
        say(answers, ready);
        StoreDriver driver = new StoreDriver();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject command = JSON.parseObject(line);
            say(answers, driver.answer(command));
            if ("halt".equals(command.getString("command"))) {
                Runtime.getRuntime().halt(CRASH_STATUS);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void say(PrintStream answers, JSONObject answer) {
        answers.println(JSON.toJSONString(answer, SerializerFeature.DisableCircularReferenceDetect,
            SerializerFeature.WriteMapNullValue));
        answers.flush();
    }

    private JSONObject answer(JSONObject command) {
        JSONObject answer = new JSONObject(true);
        answer.put("id", command.get("id"));
        try {
            answer.put("result", run(command.getString("command"), new Args(command)));
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            answer.put("error", e.toString());
            answer.put("trace", trace.toString());
        }
        return answer;
    }

    private Object run(String command, Args args) throws Exception {
        return switch (command) {
            case "open" -> open(args);
            case "close" -> close(args);
            case "halt" -> null; // Only answered here; main() does it.
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
