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

/**
 * A driver's conversation: one command a line in, one answer a line out, nothing else on stdout.
 *
 * <p>A command is {"id": n, "command": name, fields ...}; its answer {"id": n, "result": value} or
 * {"id": n, "error": text, "trace": text}. The first line out is {"ready": version}. The end of the input ends the
 * process at once, without a shutdown: a driver never outlives whoever started it.
 */
final class Lines {
    private static final int CRASH_STATUS = 137;

    /** What a driver does for a command. */
    interface Commands {
        Object run(String command, Args args) throws Exception;
    }

    private Lines() {
    }

    static void serve(Commands commands) throws Exception {
        PrintStream answers = new PrintStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Version.logToStderr();
        JSONObject ready = new JSONObject();
        ready.put("ready", Version.NAME);
        say(answers, ready);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject command = JSON.parseObject(line);
            say(answers, answer(commands, command));
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

    private static JSONObject answer(Commands commands, JSONObject command) {
        JSONObject answer = new JSONObject(true);
        answer.put("id", command.get("id"));
        try {
            answer.put("result", commands.run(command.getString("command"), new Args(command)));
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            answer.put("error", e.toString());
            answer.put("trace", trace.toString());
        }
        return answer;
    }
}
