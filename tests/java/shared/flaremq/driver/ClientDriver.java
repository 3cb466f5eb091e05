package flaremq.driver;

import java.util.HashMap;
import java.util.Map;

/**
 * Drives RocketMQ's clients and mqadmin by JSON lines. Producers and consumers have names, so that several of them
 * can be at work in one process; each gets an instance, and so a connection, of its own.
 */
public final class ClientDriver {
    private final Map<String, Runnable> stops = new HashMap<>();
    private final Producers producers = new Producers();
    private final PushConsumers pushes = new PushConsumers(producers);
    private final LiteConsumers lites = new LiteConsumers();
    private final PullConsumers pulls = new PullConsumers();
    private final Admin admin = new Admin();

    private ClientDriver() {
    }

    public static void main(String[] args) throws Exception {
        Lines.serve(new ClientDriver()::run);
    }

    private Object run(String command, Args args) throws Exception {
        return switch (command) {
            case "producer" -> started(args, producers.start(args));
            case "push" -> started(args, pushes.start(args));
            case "lite" -> started(args, lites.start(args));
            case "pull" -> started(args, pulls.start(args));
            case "stop" -> stop(args);
            case "stopAll" -> stopAll(args);
            case "send" -> producers.send(args);
            case "recall" -> producers.recall(args);
            case "request" -> producers.request(args);
            case "producerHeartbeat" -> producers.heartbeat(args);
            case "publishQueues" -> producers.queues(args);
            case "received" -> pushes.received(args);
            case "assigned" -> pushes.assigned(args);
            case "liteQueues" -> lites.queues(args);
            case "liteAssign" -> lites.assign(args);
            case "liteSeek" -> lites.seek(args);
            case "litePoll" -> lites.poll(args);
            case "liteCommit" -> lites.commit(args);
            case "liteOffset" -> lites.offset(args);
            case "pullQueues" -> pulls.queues(args);
            case "pullHeartbeat" -> pulls.heartbeat(args);
            case "pullFrom" -> pulls.pull(args);
            case "pullAwait" -> pulls.await(args);
            case "pullArrived" -> pulls.arrived(args);
            case "pullCommit" -> pulls.commit(args);
            case "pullOffset" -> pulls.offset(args);
            case "view" -> pulls.view(args);
            case "query" -> pulls.query(args);
            case "createTopic" -> admin.createTopic(args);
            case "awaitRoute" -> admin.awaitRoute(args);
            case "resumeHalf" -> admin.resumeHalf(args);
            case "mqadmin" -> admin.mqadmin(args);
            default -> throw new IllegalArgumentException("unknown command " + command);
        };
    }

    private Object started(Args args, Runnable stop) {
        stops.put(args.text("name"), stop);
        return null;
    }

    private Object stop(Args args) {
        args.only("name");
        Runnable stop = stops.remove(args.text("name"));
        if (stop == null) {
            throw new IllegalArgumentException("nothing runs under the name " + args.text("name"));
        }
        stop.run();
        return null;
    }

    private Object stopAll(Args args) {
        args.only();
        stops.values().forEach(Runnable::run);
        stops.clear();
        return null;
    }
}
