"""mqadmin's names with mqadmin's options, and the same output as our own commands."""

from __future__ import annotations

import json
import time

import pytest
import typer
from tests.admin.member import Member
from tests.cli.commands import Ended
from tests.cli.conftest import Ask

from flaremq.cli.aliases.brokers import repeated
from flaremq.testing.embedded import EmbeddedThread

CLUSTER = ("-c", "DefaultCluster")


def sent(ask: Ask, topic: str, *words: object) -> dict[str, str]:
    found: dict[str, str] = json.loads(ask("sendMessage", "-t", topic, *words, "--json").out)
    return found


def test_topics(ask: Ask) -> None:
    queues = ("-r", 3, "-w", 2)
    made = ask(
        "updateTopic", "-t", "old", *CLUSTER, *queues, "-p", 6, "-a", "+message.type=FIFO", "-o", "true"
    )
    assert made.status == 0, made.err
    shown = ask("topic", "show", "old", "--json").document
    assert ask("updateOrderConf", "-t", "old", "-m", "get").out == "broker-a:2;broker-b:2\n"
    assert shown["brokers"]["broker-a"] == {
        "read_queues": 3,
        "write_queues": 2,
        "perm": 6,
        "order": True,
        "attributes": {"message.type": "FIFO"},
    }
    assert ask("updateTopicPerm", "-t", "old", "-p", 4, *CLUSTER).status == 0
    assert ask("topic", "show", "old", "--json").document["brokers"]["broker-a"]["perm"] == 4
    assert ask("topicRoute", "-t", "old").out == ask("topic", "route", "old").out
    assert ask("topicStatus", "-t", "old").lines[0] == ask("topic", "stats", "old").lines[0]
    assert ask("topicList").out == ask("topic", "list", "--all").out
    assert ask("topicClusterList", "-t", "old", "--json").document["clusters"] == ["DefaultCluster"]
    assert "'nowhere'" in ask("topicClusterList", "-t", "nowhere").complaint
    assert ask("updateOrderConf", "-t", "old", "-m", "put", "-v", "broker-a:1").status == 0
    assert ask("updateOrderConf", "-t", "old", "-m", "get").out == "broker-a:1\n"
    assert ask("updateOrderConf", "-t", "old", "-m", "delete").status == 0
    assert ask("allocateMQ", "-t", "old", "-i", "a,b").out == ask("topic", "allocate", "old", "a", "b").out
    assert ask("statsAll", "-t", "old").out == ask("topic", "rates", "old").out
    assert ask("deleteTopic", "-t", "old", *CLUSTER).status == 0
    assert "'old'" in ask("topicRoute", "-t", "old").complaint


def test_attributes_can_be_taken_away(ask: Ask) -> None:
    ask("updateTopic", "-t", "bare", *CLUSTER, "-a", "+message.type=FIFO")
    ask("updateTopic", "-t", "bare", *CLUSTER, "-a", "-message.type")
    assert ask("topic", "show", "bare", "--json").document["brokers"]["broker-b"]["attributes"] == {}


def test_groups(ask: Ask, servers: EmbeddedThread) -> None:
    policy = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":9000,"multiplier":2}}'
    made = ask("updateSubGroup", "-g", "old_group", *CLUSTER, "-r", 7, "-d", "true", "-p", policy)
    assert made.status == 0, made.err
    shown = ask("getConsumerConfig", "-g", "old_group", "--json").document["brokers"]["broker-b"]
    assert (shown["retryMaxTimes"], shown["consumeBroadcastEnable"], shown["consumeFromMinEnable"]) == (
        7,
        True,
        False,
    )
    assert shown["groupRetryPolicy"]["exponentialRetryPolicy"]["max"] == 9000

    ask("topic", "create", "read", "-q", 1)
    for broker in ("broker-a", "broker-b"):
        sent(ask, "read", "-p", "x", "-b", broker, "-i", 0)
    reset = ("resetOffsetByTime", "-g", "old_group", "-t", "read")
    assert ask(*reset, "-s", "2001-01-01#00:00:00:000").status == 0
    assert ask("consumerProgress", "-g", "old_group", "--json").document["lag"] == 2
    assert "old_group" in ask("consumerProgress").out
    assert ask(*reset, "-s", "now", "-b", servers.addresses[0], "-q", 0, "-o", 1).status == 0
    assert ask("consumerProgress", "-g", "old_group", "-t", "read", "--json").document["lag"] == 1
    assert ask("skipAccumulatedMessage", "-g", "old_group", "-t", "read").status == 0
    assert ask("consumerProgress", "-g", "old_group", "--json").document["lag"] == 0

    ask("updateSubGroup", "-g", "new_group", *CLUSTER)
    assert ask("cloneGroupOffset", "-s", "old_group", "-d", "new_group", "-t", "read").status == 0
    assert len(ask("consumerProgress", "-g", "new_group", "--json").document["queues"]) == 2
    assert "new_group" in ask("consumerConnection", "-g", "new_group").complaint
    assert ask("producerConnection", "-g", "p", "-t", "read", "--json").document["clients"] == []
    assert ask("deleteSubGroup", "-g", "old_group", *CLUSTER, "-r", "true").status == 0
    assert "'old_group'" in ask("getConsumerConfig", "-g", "old_group").complaint


def test_members(ask: Ask, servers: EmbeddedThread) -> None:
    ask("topic", "create", "member", "-q", 1)
    receipt = sent(ask, "member", "-p", "x")

    async def joined() -> Member:
        member = Member()
        await member.join(servers.addresses, "members", "member")
        return member

    member = servers.run(joined())
    try:
        assert member.client_id in ask("consumerConnection", "-g", "members").out
        assert member.client_id in ask("consumerStatus", "-g", "members").out
        assert "a stack" in ask("consumerStatus", "-g", "members", "-i", member.client_id, "-s").out
        assert "CR_LATER" in ask("queryMsgById", "-i", receipt["offset_id"], "-g", "members").out
    finally:
        servers.run(member.__aexit__())


def bodies(ended: Ended) -> list[str]:
    return [json.loads(line)["body"] for line in ended.lines]


def test_messages(ask: Ask) -> None:
    ask("topic", "create", "letters", "-q", 1, "-b", "broker-a")
    one = sent(ask, "letters", "-p", "one", "-k", "k1 k2", "-c", "TagA")
    two = sent(ask, "letters", "-p", "two", "-c", "TagB", "-b", "broker-a", "-i", 0)
    assert ask("queryMsgById", "-i", one["offset_id"], "--json").document["body"] == "one"
    assert ask("queryMsgById", "-t", "letters", "-i", one["message_id"], "--json").document["keys"] == [
        "k1",
        "k2",
    ]
    both = ask("queryMsgById", "-i", f"{one['offset_id']},{two['offset_id']}", "--json").document["messages"]
    assert [each["body"] for each in both] == ["one", "two"]
    assert (
        ask("queryMsgByUniqueKey", "-t", "letters", "-i", two["message_id"], "--json").document["body"]
        == "two"
    )
    copies = ask("queryMsgByUniqueKey", "-t", "letters", "-i", two["message_id"], "-a", "--json").document
    assert len(copies["messages"]) == 1
    assert len(ask("queryMsgByKey", "-t", "letters", "-k", "k2", "--json").document["messages"]) == 1
    at = ask("queryMsgByOffset", "-t", "letters", "-b", "broker-a", "-i", 0, "-o", 1, "--json").document
    assert at["body"] == "two"
    assert bodies(ask("printMsg", "-t", "letters", "--json")) == ["one", "two"]
    assert bodies(ask("printMsg", "-t", "letters", "-s", "TagB", "--json")) == ["two"]
    assert "one" not in ask("printMsg", "-t", "letters", "-d", "false").out
    by_queue = ("printMsgByQueue", "-t", "letters", "-a", "broker-a", "-i", 0)
    assert bodies(ask(*by_queue, "-p", "true", "--json")) == ["one", "two"]
    assert ask(*by_queue, "-f", "true", "--json").document == [
        {"tags": "TagA", "messages": 1},
        {"tags": "TagB", "messages": 1},
    ]
    read = ask("consumeMessage", "-t", "letters", "-b", "broker-a", "-i", 0, "-o", 1, "-c", 5, "--json")
    assert [each["body"] for each in read.document["messages"]] == ["two"]


def test_brokers_and_name_servers(ask: Ask, servers: EmbeddedThread) -> None:
    first = servers.addresses[0]
    assert ask("clusterList").lines[0] == ask("cluster", "brokers").lines[0]
    assert len(ask("brokerStatus", *CLUSTER, "--json").document["brokers"]) == 2
    assert len(ask("brokerStatus", "-b", first, "--json").document["brokers"]) == 1
    assert ask("haStatus", *CLUSTER).lines[0] == ask("cluster", "ha").lines[0]
    assert len(ask("haStatus", "-b", first).lines) == 2
    assert ask("updateBrokerConfig", "-b", first, "-k", "traceOn", "-v", "false").status == 0
    assert "traceOn=false" in ask("getBrokerConfig", "-b", first).lines
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert ask(name, *CLUSTER).status == 0
        assert ask(name, "-b", first).status == 0
    assert ask("wipeWritePerm", "-b", "broker-a").status == 0
    assert ask("addWritePerm", "-b", "broker-a").status == 0
    assert "enableTopicList=true" in ask("getNamesrvConfig").lines
    assert ask("updateNamesrvConfig", "-k", "enableTopicList", "-v", "true").status == 0
    assert ask("updateKvConfig", "-s", "space", "-k", "key", "-v", "value").status == 0
    assert ask("cluster", "kv", "get", "space", "key").out == "value\n"
    assert ask("deleteKvConfig", "-s", "space", "-k", "key").status == 0


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (2, ("updateTopic", "-t", "t"), "-b BROKER or -c CLUSTER"),
        (2, ("updateTopic", "-t", "t", *CLUSTER, "-o", "yes"), "true or false"),
        (2, ("updateTopic", "-t", "t", *CLUSTER, "-a", "message.type"), "+name=value"),
        (2, ("updateTopic", "-t", "t", *CLUSTER, "-p", "9"), "6, 4, 2, 0"),
        (2, ("updateOrderConf", "-t", "t", "-m", "put"), "-v"),
        (2, ("updateOrderConf", "-t", "t", "-m", "post"), "put, get or delete"),
        (2, ("updateSubGroup", "-g", "g"), "-b BROKER or -c CLUSTER"),
        (2, ("updateSubGroup", "-g", "g", *CLUSTER, "-p", "nonsense"), "nonsense"),
        (2, ("updateSubGroup", "-g", "g", *CLUSTER, "-p", "[]"), "JSON object"),
        (2, ("deleteSubGroup", "-g", "g"), "-b BROKER or -c CLUSTER"),
        (2, ("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "now", "-q", "1"), "-o OFFSET"),
        (2, ("brokerStatus",), "-b BROKER or -c CLUSTER"),
        (2, ("updateBrokerConfig", "-k", "a", "-v", "b"), "-b BROKER or -c CLUSTER"),
        (2, ("sendMessage", "-t", "t", "-p", "x", "-i", "1"), "both -b BROKER and -i QUEUE"),
    ],
)
def test_what_cannot_be_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask(*words).complaint_with(status)


def test_what_is_shown_again_and_again_goes_on_when_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, rests = list[int](), list[int]()

    def show() -> None:
        shown.append(len(shown))
        raise typer.Exit(1)

    def sleep(seconds: int) -> None:
        rests.append(seconds)
        if len(rests) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(typer.Exit):
        repeated(show, None)
    with pytest.raises(KeyboardInterrupt):
        repeated(show, 7)
    assert (shown, rests) == ([0, 1, 2], [7, 7])


def test_what_mqadmin_demands_is_demanded(ask: Ask) -> None:
    for words in (("updateTopic",), ("deleteTopic", "-t", "t"), ("sendMessage", "-t", "t"), ("topicRoute",)):
        assert ask(*words).status == 2
