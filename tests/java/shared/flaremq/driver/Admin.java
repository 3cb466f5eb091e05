package flaremq.driver;

import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What an operator does: mqadmin's commands with what they print, and topics made ready for a test. */
final class Admin {
    private final Map<String, DefaultMQAdminExt> byNamesrv = new HashMap<>();

    /** Runs one command of mqadmin as its shell script would, and gives what it printed. */
    Object mqadmin(Args args) throws Exception {
        args.only("args");
        Version.readyForAdmin();
        String[] words = args.array("args").toArray(new String[0]);
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(words, null);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(out);
            System.setErr(err);
        }
        JSONObject answer = new JSONObject(true);
        answer.put("out", printed.toString(StandardCharsets.UTF_8));
        answer.put("err", complained.toString(StandardCharsets.UTF_8));
        return answer;
    }

    /** Makes a topic on one broker and waits until the NameServer knows of it there. */
    Object createTopic(Args args) throws Exception {
        args.only("namesrv", "broker", "brokerName", "topic", "queues", "timeoutMs");
        TopicConfig config = new TopicConfig(args.text("topic"));
        config.setReadQueueNums(args.integer("queues"));
        config.setWriteQueueNums(args.integer("queues"));
        admin(args).createAndUpdateTopicConfig(args.text("broker"), config);
        return waitForRoute(args);
    }

    Object awaitRoute(Args args) throws Exception {
        args.only("namesrv", "brokerName", "topic", "timeoutMs");
        return waitForRoute(args);
    }

    /** Has producers asked again about a parked transaction; mqadmin has no command for it. */
    Object resumeHalf(Args args) throws Exception {
        args.only("namesrv", "topic", "messageId");
        return admin(args).resumeCheckHalfMessage(args.text("topic"), args.text("messageId"));
    }

    private Object waitForRoute(Args args) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(args.number("timeoutMs"));
        while (!isRouted(args)) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("no route of " + args.text("topic") + " leads to "
                    + args.text("brokerName") + " after " + args.number("timeoutMs") + " ms");
            }
            Thread.sleep(10);
        }
        return null;
    }

    private boolean isRouted(Args args) throws Exception {
        try {
            return admin(args).examineTopicRouteInfo(args.text("topic")).getQueueDatas().stream()
                .anyMatch(queue -> queue.getBrokerName().equals(args.text("brokerName")));
        } catch (MQClientException unknown) {
            return false;
        }
    }

    private DefaultMQAdminExt admin(Args args) throws MQClientException {
        String namesrv = args.text("namesrv");
        if (!byNamesrv.containsKey(namesrv)) {
            DefaultMQAdminExt started = new DefaultMQAdminExt();
            started.setNamesrvAddr(namesrv);
            started.setInstanceName("admin-" + namesrv);
            started.start();
            byNamesrv.put(namesrv, started);
        }
        return byNamesrv.get(namesrv);
    }
}
