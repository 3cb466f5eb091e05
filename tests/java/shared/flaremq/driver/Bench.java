package flaremq.driver;

import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Measures the Java store on this machine, so that ours is compared with nothing but this.
 *
 * <p>Each kind runs once for the compiler, discarded, and once for the clock. Messages are prepared beforehand: what
 * is timed is the store alone.
 */
final class Bench {
    private static final long DISPATCH_LIMIT_MS = 600_000;

    private final Path directory;
    private final long messages;
    private final long warmup;
    private final JSONObject options;
    private final Load load;

    private Bench(Args args) throws IOException {
        directory = Files.createDirectories(Path.of(args.text("dir")));
        try (Stream<Path> found = Files.list(directory)) {
            if (found.findAny().isPresent()) {
                throw new IllegalArgumentException(directory + " is not empty");
            }
        }
        messages = args.number("messages");
        warmup = args.number("warmup", messages);
        options = args.object("options");
        load = new Load(args.integer("bodySize"), args.integer("batch", 64));
    }

    static Object run(Args args) throws Exception {
        args.only("what", "dir", "messages", "warmup", "bodySize", "batch", "options");
        Bench bench = new Bench(args);
        String what = args.text("what");
        return switch (what) {
            case "append" -> bench.append(bench.load::putOneByOne);
            case "appendBatch" -> bench.append(bench.load::putInBatches);
            case "dispatch" -> bench.recover(List.of("consumequeue", "index", "checkpoint"));
            case "recover" -> bench.recover(List.of());
            default -> throw new IllegalArgumentException("nothing to measure is called " + what);
        };
    }

    /** Puts this many messages, from this thread; throws unless each is stored. */
    interface Appender {
        void put(DefaultMessageStore store, long count);
    }

    private Object append(Appender appender) throws Exception {
        Path warm = directory.resolve("warm");
        if (warmup > 0) {
            appendOnce(warm, appender, warmup);
            delete(warm);
        }
        return appendOnce(directory.resolve("timed"), appender, messages);
    }

    private JSONObject appendOnce(Path path, Appender appender, long count) throws Exception {
        StoreHandle handle = newHandle(path);
        handle.loadNanos();
        handle.start();
        long begin = System.nanoTime();
        appender.put(handle.store, count);
        long appended = System.nanoTime();
        handle.awaitDispatched(DISPATCH_LIMIT_MS);
        long dispatched = System.nanoTime();
        JSONObject out = figures(count, appended - begin);
        out.put("dispatchedSeconds", (dispatched - begin) / 1e9);
        out.put("bytes", handle.store.getMaxPhyOffset());
        requireClean(handle.close(false));
        return out;
    }

    /** Times load() after a crash, with what is named missing; the whole log is scanned while it fits one file. */
    private Object recover(List<String> missing) throws Exception {
        Path path = directory.resolve("timed");
        StoreHandle built = newHandle(path);
        built.loadNanos();
        built.start();
        load.putInBatches(built.store, messages);
        built.awaitDispatched(DISPATCH_LIMIT_MS);
        requireClean(built.close(false));
        if (warmup > 0) {
            recoverOnce(path, missing);
        }
        return recoverOnce(path, missing);
    }

    private JSONObject recoverOnce(Path path, List<String> missing) throws Exception {
        for (String name : missing) {
            delete(path.resolve(name));
        }
        StoreHandle handle = newHandle(path);
        Files.writeString(handle.abort(), "1");
        JSONObject out = figures(messages, handle.loadNanos());
        out.put("bytes", handle.store.getMaxPhyOffset());
        handle.start();
        long found = 0;
        for (int queueId = 0; queueId < Load.QUEUES; queueId++) {
            found += handle.store.getMaxOffsetInQueue(Load.TOPIC, queueId);
        }
        if (found != messages) {
            throw new IllegalStateException("recovered " + found + " of " + messages + " messages");
        }
        requireClean(handle.close(false));
        return out;
    }

    private StoreHandle newHandle(Path path) throws Exception {
        return new StoreHandle(new StoreHandle.Setup(path, options, new JSONObject(), Map.of()));
    }

    private static JSONObject figures(long count, long nanos) {
        Runtime runtime = Runtime.getRuntime();
        JSONObject out = new JSONObject(true);
        out.put("messages", count);
        out.put("seconds", nanos / 1e9);
        out.put("rate", count / (nanos / 1e9));
        out.put("heapUsedBytes", runtime.totalMemory() - runtime.freeMemory());
        out.put("heapMaxBytes", runtime.maxMemory());
        return out;
    }

    private static void requireClean(boolean clean) {
        if (!clean) {
            throw new IllegalStateException("the store left abort behind");
        }
    }

    private static void delete(Path path) throws IOException {
        if (!Files.exists(path)) {
            return;
        }
        try (Stream<Path> found = Files.walk(path)) {
            for (Path each : found.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(each);
            }
        }
    }
}
