package flaremq.driver;

import com.alibaba.fastjson.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** One DefaultMessageStore on one directory, from load() to shutdown(). */
final class StoreHandle {
    final DefaultMessageStore store;
    final boolean lastExitOk;
    private final Path directory;
    private final BrokerStatsManager stats;

    /** How a store is to be opened: its directory, both configuration beans, and attributes by topic. */
    record Setup(Path directory, JSONObject options, JSONObject broker, Map<String, Map<String, String>> topics) {
    }

    StoreHandle(Setup setup) throws Exception {
        directory = setup.directory().toAbsolutePath();
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("driver");
        Options.apply(broker, setup.broker());
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory.toString());
        config.setStorePathCommitLog(directory.resolve("commitlog").toString());
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);
        Options.apply(config, setup.options());
        lastExitOk = !Files.exists(abort());
        stats = new BrokerStatsManager(broker.getBrokerClusterName(), false);
        store = Version.newStore(config, stats, broker, setup.topics());
    }

    /** Loads and recovers, and says how long that took; nothing runs yet. */
    long loadNanos() {
        long begin = System.nanoTime();
        boolean loaded = store.load();
        long nanos = System.nanoTime() - begin;
        if (!loaded) {
            stats.shutdown();
            throw new IllegalStateException("load() of " + directory + " answered false; the log says why");
        }
        return nanos;
    }

    void start() throws Exception {
        try {
            store.start();
        } catch (Exception e) {
            stats.shutdown();
            throw e;
        }
    }

    /**
     * Shuts down and says whether the store calls that a clean exit, that is, whether abort is gone.
     *
     * <p>shutdown() first sleeps for up to three seconds so that its scheduled tasks may end. An interrupt set
     * beforehand cuts only this sleep short; every later step runs as ever.
     */
    boolean close(boolean patient) {
        if (!patient) {
            Thread.currentThread().interrupt();
        }
        store.shutdown();
        Thread.interrupted();
        stats.shutdown();
        return !Files.exists(abort());
    }

    /** Returns once every appended byte has been dispatched (under SYNC_FLUSH of 5.x, flushed before that). */
    void awaitDispatched(long timeoutMs) throws InterruptedException, TimeoutException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        while (Version.dispatchedTo(store) < store.getMaxPhyOffset() || store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("dispatched to " + Version.dispatchedTo(store) + " of "
                    + store.getMaxPhyOffset() + " after " + timeoutMs + " ms");
            }
            Thread.sleep(1);
        }
    }

    Path abort() {
        return directory.resolve("abort");
    }
}
