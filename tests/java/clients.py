"""The real RocketMQ clients from Python: `with JavaClients(toolchain, "5.3.3") as java: java.producer()`.

One JVM holds as many producers and consumers as a test wants, each with a connection of its own. The header
that they speak is a setting of the whole JVM. Everything comes back as plain values.
"""

import itertools
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from tests.java.jvm import CLIENT_DRIVER, QUICK, Jvm
from tests.java.toolchain import Toolchain
from tests.java.values import Json

LIMIT_S = 90.0
WAIT_MS = 30_000
ROUTE_MS = 60_000
"""A broker whose registration failed tries again after half a minute."""
CONSUMER_OPTIONS: Mapping[str, object] = MappingProxyType(
    {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "heartbeatBrokerInterval": 1000}
)
"""A 5.x client that gets new queues raises the version of its subscription, but leaves out the heartbeat that
says so if one is under way; until the next, in half a minute, brokers refuse its pulls as not the latest."""
Header = Literal["JSON", "ROCKETMQ"]
How = Literal["sync", "async", "oneway", "batch", "transaction"]
BEGIN, END = -1, -2
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> Json:
        return {"topic": self.topic, "brokerName": self.broker_name, "queueId": self.queue_id}

    @classmethod
    def from_json(cls, json: Json) -> Self:
        return cls(json["topic"], json["brokerName"], json["queueId"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to send: to a queue, or to the one that the hash of `shard` selects, or to any."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int | None = None
    timer: Mapping[str, str] = field(default_factory=dict)
    """For example TIMER_DELAY_MS."""
    queue: Queue | None = None
    shard: str | None = None

    def to_json(self) -> Json:
        return {
            "topic": self.topic,
            "body": b64encode(self.body).decode(),
            "tags": self.tags,
            "keys": self.keys,
            "flag": self.flag,
            "properties": dict(self.properties),
            "delayLevel": self.delay_level,
            "timer": dict(self.timer),
            "queue": self.queue and self.queue.to_json(),
            "shard": self.shard,
        }


@dataclass(frozen=True, slots=True)
class Sent:
    status: str
    message_id: str
    offset_message_id: str | None
    queue: Queue
    queue_offset: int
    recall_handle: str | None = None

    @classmethod
    def from_json(cls, json: Json) -> Self:
        return cls(
            json["status"],
            json["messageId"],
            json["offsetMessageId"],
            Queue.from_json(json["queue"]),
            json["queueOffset"],
            json.get("recallHandle"),
        )


@dataclass(frozen=True, slots=True)
class Received:
    """A message as a consumer got it; `accepted` is what its listener answered."""

    queue: Queue
    queue_offset: int
    message_id: str
    offset_message_id: str | None
    keys: str | None
    tags: str | None
    flag: int
    reconsume_times: int
    store_timestamp: int
    properties: Mapping[str, str]
    body: bytes
    accepted: bool

    @classmethod
    def from_json(cls, json: Json) -> Self:
        return cls(
            Queue(json["topic"], json["brokerName"], json["queueId"]),
            json["queueOffset"],
            json["messageId"],
            json["offsetMessageId"],
            json["keys"],
            json["tags"],
            json["flag"],
            json["reconsumeTimes"],
            json["storeTimestamp"],
            json["properties"],
            b64decode(json["body"]),
            json.get("accepted", True),
        )


@dataclass(frozen=True, slots=True)
class Pulled:
    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Received]

    @classmethod
    def from_json(cls, json: Json) -> Self:
        messages = [Received.from_json(message) for message in json["messages"]]
        return cls(json["status"], json["nextOffset"], json["minOffset"], json["maxOffset"], messages)


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command of mqadmin wrote; nothing goes to `err` unless it failed."""

    out: str
    err: str

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines() if line.strip()]

    def rows(self) -> list[list[str]]:
        """The words of each line, but for the heading, which begins with #."""
        return [line.split() for line in self.lines() if not line.startswith("#")]


def bodies(messages: Iterable[Received]) -> list[str]:
    """In text, and sorted: queues are consumed side by side."""
    return sorted(message.body.decode() for message in messages)


class Client:
    """Something that was started under a name."""

    def __init__(self, jvm: Jvm, name: str, group: str) -> None:
        self._jvm = jvm
        self.name = name
        self.group = group

    def stop(self) -> None:
        """Shut it down in order: it commits, says good-bye to the brokers and closes its connections."""
        self._ask("stop")

    def _ask(self, command: str, **fields: object) -> object:
        return self._jvm.ask(command, LIMIT_S, name=self.name, **fields)

    def _queues(self, command: str, topic: str) -> list[Queue]:
        answer = self._jvm.ask(command, LIMIT_S, name=self.name, topic=topic)
        return [Queue.from_json(queue) for queue in answer]


class Producer(Client):
    def heartbeat(self) -> None:
        """Be known to the brokers now, and not when its turn comes, up to 30 s later."""
        self._ask("producerHeartbeat")

    def send(self, messages: Sequence[Draft], how: How = "sync") -> list[Sent]:
        """A batch gives one result, one-way sends none."""
        drafts = [message.to_json() for message in messages]
        answer = self._jvm.ask("send", LIMIT_S, name=self.name, how=how, messages=drafts)
        return [Sent.from_json(result) for result in answer]

    def request(self, message: Draft, timeout_ms: int = WAIT_MS) -> str:
        """The body of the reply."""
        fields = {"message": message.to_json(), "timeoutMs": timeout_ms}
        answer = self._jvm.ask("request", LIMIT_S, name=self.name, **fields)
        assert isinstance(answer, str)
        return answer

    def recall(self, topic: str, handle: str) -> str:
        """Cancel a timer message; its id."""
        answer = self._jvm.ask("recall", LIMIT_S, name=self.name, topic=topic, handle=handle)
        assert isinstance(answer, str)
        return answer

    def queues(self, topic: str) -> list[Queue]:
        return self._queues("publishQueues", topic)


class PushConsumer(Client):
    def received(self, count: int, timeout_ms: int = WAIT_MS) -> list[Received]:
        """All deliveries so far, once there are so many; fewer only after the time is up."""
        answer = self._jvm.ask("received", LIMIT_S, name=self.name, count=count, timeoutMs=timeout_ms)
        return [Received.from_json(message) for message in answer]

    def received_all(self, wanted: Iterable[str]) -> set[str]:
        """The bodies of all deliveries, once the wanted ones are among them. Some may have come twice."""
        wanted, found, deliveries = set(wanted), set[str](), 0
        for _ in range(WAIT_MS // 1000):
            if wanted <= found:
                break
            messages = self.received(deliveries + 1, 1000)
            found, deliveries = {message.body.decode() for message in messages}, len(messages)
        return found

    def assigned(self, topic: str, count: int) -> list[Queue]:
        """Its queues of a topic, once they are so many."""
        fields = {"topic": topic, "count": count, "timeoutMs": WAIT_MS}
        answer = self._jvm.ask("assigned", LIMIT_S, name=self.name, **fields)
        return [Queue.from_json(queue) for queue in answer]


class LiteConsumer(Client):
    def queues(self, topic: str) -> list[Queue]:
        return self._queues("liteQueues", topic)

    def assign(self, queues: Iterable[Queue]) -> None:
        self._ask("liteAssign", queues=[queue.to_json() for queue in queues])

    def seek(self, queue: Queue, offset: int) -> None:
        """To an offset, or to BEGIN or END."""
        self._ask("liteSeek", queue=queue.to_json(), offset=offset)

    def poll(self, timeout_ms: int = 1000) -> list[Received]:
        answer = self._jvm.ask("litePoll", LIMIT_S, name=self.name, timeoutMs=timeout_ms)
        return [Received.from_json(message) for message in answer]

    def poll_until(self, count: int) -> list[Received]:
        """Poll until so many came, or until half a minute of polls brought no more of them."""
        found: list[Received] = []
        for _ in range(WAIT_MS // 1000):
            if len(found) >= count:
                break
            found += self.poll()
        return found

    def commit(self, queues: Iterable[Queue]) -> None:
        self._ask("liteCommit", queues=[queue.to_json() for queue in queues])

    def committed(self, queue: Queue) -> int:
        return int(str(self._ask("liteOffset", queue=queue.to_json())))

    def offset_at(self, queue: Queue, timestamp: int) -> int:
        return int(str(self._ask("liteOffset", queue=queue.to_json(), timestamp=timestamp)))


class PullConsumer(Client):
    def heartbeat(self) -> None:
        """Be known to the brokers, and know them, now and not within a second."""
        self._ask("pullHeartbeat")

    def queues(self, topic: str) -> list[Queue]:
        return self._queues("pullQueues", topic)

    def pull(self, queue: Queue, offset: int, max_count: int = 32, **more: object) -> Pulled:
        """`more` may be tags="A || B", sql="a > 1" or block=True."""
        fields = {"queue": queue.to_json(), "offset": offset, "max": max_count, **more}
        return Pulled.from_json(self._jvm.ask("pullFrom", LIMIT_S, name=self.name, **fields))

    def await_pull(self, queue: Queue, offset: int) -> None:
        """Begin a pull that stands at the broker until something comes."""
        self._ask("pullAwait", queue=queue.to_json(), offset=offset, max=32)

    def arrived(self, timeout_ms: int) -> Pulled:
        """What the pull that waits has brought."""
        return Pulled.from_json(self._jvm.ask("pullArrived", LIMIT_S, name=self.name, timeoutMs=timeout_ms))

    def commit(self, queue: Queue, offset: int) -> None:
        self._ask("pullCommit", queue=queue.to_json(), offset=offset)

    def offset(self, queue: Queue, what: Literal["committed", "min", "max", "earliest"]) -> int:
        return int(str(self._ask("pullOffset", queue=queue.to_json(), what=what)))

    def offset_at(self, queue: Queue, timestamp: int) -> int:
        return int(str(self._ask("pullOffset", queue=queue.to_json(), what="time", timestamp=timestamp)))

    def view(self, topic: str, message_id: str) -> Received:
        answer = self._jvm.ask("view", LIMIT_S, name=self.name, topic=topic, messageId=message_id)
        return Received.from_json(answer)

    def query(self, topic: str, key: str, *, begin: int = 0, end: int = 1 << 62) -> list[Received]:
        fields = {"topic": topic, "key": key, "max": 32, "begin": begin, "end": end}
        answer = self._jvm.ask("query", LIMIT_S, name=self.name, **fields)
        return [Received.from_json(message) for message in answer]


class JavaClients:
    """A JVM of clients of one version and one kind of header, for the servers behind one NameServer."""

    def __init__(
        self,
        toolchain: Toolchain,
        version: str,
        header: Header = "JSON",
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`properties` are of the whole JVM, by the names of Java's system properties."""
        self.version = version
        self.header = header
        self.namesrv = ""
        given = {"rocketmq.serialize.type": header, **properties}
        machine = replace(QUICK, log_level="ERROR", properties=given)
        self._jvm = Jvm(toolchain, version, machine, CLIENT_DRIVER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.kill()

    def producer(self, group: str = "", *, trace: str | None = None, **options: object) -> Producer:
        """`options` are those of RocketMQ's class, by the names of its setters; so are all below. `trace` is
        the topic for trace records."""
        return Producer(*self._start("producer", group, {"trace": trace}, options))

    def transactional(
        self,
        group: str,
        steps: Mapping[str, str],
        checks: Mapping[str, str] | None = None,
        trace: str | None = None,
    ) -> Producer:
        """How transactions end, and what is told when a broker asks, by the bodies of the messages."""
        how = {"steps": dict(steps), "checks": dict(checks or {}), "trace": trace}
        return Producer(*self._start("producer", group, how, {}))

    def push(
        self,
        topic: str,
        group: str = "",
        *,
        how: Mapping[str, object] | None = None,
        **options: Any,
    ) -> PushConsumer:
        """`how` may hold tags, sql, orderly, refuseFirst, retryLevel, replyBy and trace. Consumes from the
        first message unless told otherwise."""
        options = {**CONSUMER_OPTIONS, **options}
        return PushConsumer(*self._start("push", group, {"topic": topic, **(how or {})}, options))

    def lite(
        self,
        topic: str | None,
        group: str = "",
        *,
        tags: str | None = None,
        sql: str | None = None,
        **options: object,
    ) -> LiteConsumer:
        """Without a topic its queues are to be assigned."""
        options = {**CONSUMER_OPTIONS, **options}
        fields = {"topic": topic, "tags": tags, "sql": sql}
        return LiteConsumer(*self._start("lite", group, fields, options))

    def pull(self, group: str = "", **options: object) -> PullConsumer:
        return PullConsumer(*self._start("pull", group, {}, options))

    def kill(self) -> None:
        """End all of them without a farewell."""
        self._jvm.kill()

    def stop_all(self) -> None:
        self._jvm.ask("stopAll", LIMIT_S)

    def create_topic(self, topic: str, broker: str, broker_name: str, queues: int = 4) -> list[Queue]:
        """On one broker; back when the NameServer knows it."""
        self._jvm.ask(
            "createTopic",
            LIMIT_S,
            namesrv=self.namesrv,
            broker=broker,
            brokerName=broker_name,
            topic=topic,
            queues=queues,
            timeoutMs=ROUTE_MS,
        )
        return [Queue(topic, broker_name, queue_id) for queue_id in range(queues)]

    def await_route(self, topic: str, broker_name: str) -> None:
        """Wait until the NameServer knows that the broker has the topic."""
        fields = {"namesrv": self.namesrv, "topic": topic, "brokerName": broker_name, "timeoutMs": ROUTE_MS}
        self._jvm.ask("awaitRoute", LIMIT_S, **fields)

    def resume_half(self, topic: str, message_id: str) -> bool:
        """Have producers asked again about a parked transaction."""
        fields = {"namesrv": self.namesrv, "topic": topic, "messageId": message_id}
        return bool(self._jvm.ask("resumeHalf", LIMIT_S, **fields))

    def mqadmin(self, *words: str) -> Printed:
        answer = self._jvm.ask("mqadmin", LIMIT_S, args=[*words, "-n", self.namesrv])
        return Printed(answer["out"], answer["err"])

    def _start(
        self, kind: str, group: str, fields: Mapping[str, object], options: Mapping[str, object]
    ) -> tuple[Jvm, str, str]:
        number = next(_numbers)
        name, group = f"{kind}-{number}", group or f"group-{number}"
        self._jvm.ask(
            kind, LIMIT_S, name=name, group=group, namesrv=self.namesrv, options=dict(options), **fields
        )
        return self._jvm, name, group
