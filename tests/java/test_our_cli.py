"""The flaremq command with --json and mqadmin, at the same cluster: the same facts, ours and Apache's."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cli.commands import flaremq
from tests.java.clients import Draft, JavaClients, Queue
from tests.java.peers import Apache, Flare, Kind, Peers, Server
from tests.java.toolchain import Toolchain

from flaremq.testing.cluster import eventually

pytestmark = pytest.mark.java

TOPIC, GROUP, BROKER = "orders", "billing", "broker-a"
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Eight messages, two in each queue of a topic, and a consumer of Java that has had them."""

    java: JavaClients
    namesrv: Server
    broker: Server

    def ours(self, *words: object) -> Any:
        return flaremq(*words, "-n", self.namesrv.address, "--json").document

    def theirs(self, *words: str) -> list[list[str]]:
        printed = self.java.mqadmin(*words)
        assert printed.err == "", printed.err
        return printed.rows()


@pytest.fixture(scope="module", params=["ours", "5.3.3", "5.5.0"])
def scene(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    kind: Kind = Flare() if request.param == "ours" else Apache(java_toolchain, version=request.param)
    clients = "5.3.3" if request.param == "ours" else request.param
    with (
        Peers(tmp_path_factory.mktemp("cli")) as peers,
        JavaClients(java_toolchain, clients) as java,
    ):
        namesrv = peers.namesrv(kind)
        broker = peers.broker(kind, namesrv.address)
        java.namesrv = namesrv.address
        found = Scene(java, namesrv, broker)
        wait("the NameServer knows the broker", lambda: bool(found.ours("cluster", "brokers")["brokers"]))
        words = ("topic", "create", TOPIC, "-q", 4, "-n", namesrv.address)
        assert flaremq(*words).status == 0
        drafts = [
            Draft(topic=TOPIC, body=f"body {n}".encode(), tags="A", keys=f"key-{n} all", queue=queue)
            for n, queue in enumerate([Queue(TOPIC, BROKER, n) for n in range(4)] * 2)
        ]
        java.producer("shop").send(drafts)
        assert len(java.push(TOPIC, GROUP).received(8)) == 8
        wait("the group has stored its offsets", lambda: found.ours("group", "progress", GROUP)["lag"] == 0)
        yield found


def wait(what: str, is_so: Callable[[], bool]) -> None:
    """For what Java does a moment late."""

    async def looked() -> bool:
        return await asyncio.to_thread(is_so)

    asyncio.run(eventually(what, looked, LIMIT_S))


def test_the_same_topics(scene: Scene) -> None:
    ours = {each["topic"] for each in scene.ours("topic", "list", "--all")}
    assert ours == {name for (name,) in scene.theirs("topicList")}
    assert {TOPIC, f"%RETRY%{GROUP}"} <= ours


def test_the_same_route(scene: Scene) -> None:
    printed = scene.java.mqadmin("topicRoute", "-t", TOPIC).out
    theirs = json.loads(re.sub(r"([{,])\s*(\d+):", r'\1"\2":', printed))
    ours = scene.ours("topic", "route", TOPIC)
    assert ours["queues"] == [
        {
            "broker": each["brokerName"],
            "read_queues": each["readQueueNums"],
            "write_queues": each["writeQueueNums"],
            "perm": each["perm"],
        }
        for each in theirs["queueDatas"]
    ]
    assert ours["brokers"] == {
        each["brokerName"]: {"cluster": each["cluster"], "addresses": each["brokerAddrs"]}
        for each in theirs["brokerDatas"]
    }


def test_the_same_queues_and_offsets(scene: Scene) -> None:
    ours = scene.ours("topic", "stats", TOPIC)
    theirs = [row for row in scene.theirs("topicStatus", "-t", TOPIC) if row[0] == BROKER]
    assert [row[:4] for row in theirs] == [
        [each["broker"], *(str(each[name]) for name in ("queue_id", "min_offset", "max_offset"))]
        for each in ours["queues"]
    ]
    assert ours["messages"] == 8
    local = [re.sub(r",(\d+)$", r".\1", " ".join(row[4:6])) for row in theirs]
    shown = flaremq("topic", "stats", TOPIC, "-n", scene.namesrv.address).out
    assert all(each in shown for each in local)


def test_the_same_brokers(scene: Scene) -> None:
    ((cluster, name, number, address, version, *_),) = scene.theirs("clusterList")
    (ours,) = scene.ours("cluster", "brokers")["brokers"]
    assert (ours["cluster"], ours["broker"], str(ours["id"])) == (cluster, name, number)
    assert (ours["address"], ours["runtime"]["version"]) == (address, version)
    ((*_, came, _),) = scene.theirs("clusterList", "-m")
    assert str(ours["runtime"]["put_today"]) == came == "8"


def test_the_same_progress(scene: Scene) -> None:
    printed = scene.java.mqadmin("consumerProgress", "-g", GROUP)
    theirs = sorted(row[:6] for row in printed.rows() if len(row) > 6 and row[1] == BROKER)
    ours = scene.ours("group", "progress", GROUP)
    names = ("topic", "broker", "queue_id", "broker_offset", "consumer_offset", "lag")
    assert theirs == sorted([str(each[name]) for name in names] for each in ours["queues"]), printed.out
    assert f"Diff Total: {ours['lag']}" in printed.out
    (line,) = [each for each in scene.ours("group", "list")["groups"] if each["group"] == GROUP]
    (row,) = [row for row in scene.theirs("consumerProgress") if row[0] == GROUP]
    assert row[1:3] == [str(line["members"]), line["version"]]
    assert (row[3:5], line["type"]) == (["PUSH", line["model"]], "CONSUME_PASSIVELY")


def test_the_same_members(scene: Scene) -> None:
    printed = scene.java.mqadmin("consumerConnection", "-g", GROUP)
    ours = scene.ours("group", "clients", GROUP)
    assert [row for row in printed.rows() if "@" in row[0]] == [
        [each["client_id"], each["address"], each["language"], each["version"]] for each in ours["clients"]
    ]
    for name, value in (
        ("ConsumeType", ours["type"]), ("MessageModel", ours["model"]), ("ConsumeFromWhere", ours["from"])
    ):  # fmt: skip
        assert f"{name}: {value}" in printed.lines()
    for each in ours["subscriptions"]:
        assert [each["topic"], each["expression"]] in printed.rows()


@pytest.mark.parametrize(("key", "count"), [("key-6", 1), ("all", 8), ("nothing", 0)])
def test_the_same_messages_by_key(scene: Scene, key: str, count: int) -> None:
    ours = scene.ours("message", "key", TOPIC, key)["messages"]
    theirs = scene.theirs("queryMsgByKey", "-t", TOPIC, "-k", key) if count else []
    names = ("message_id", "queue_id", "queue_offset")
    assert sorted(row[:3] for row in theirs) == sorted([str(each[name]) for name in names] for each in ours)
    assert len(ours) == count


def test_aliases_take_the_same_words(scene: Scene) -> None:
    """What is typed to mqadmin does the same here."""
    for words in (
        ("topicRoute", "-t", TOPIC), ("topicStatus", "-t", TOPIC), ("clusterList",), ("topicList",),
        ("consumerProgress", "-g", GROUP), ("consumerConnection", "-g", GROUP),
        ("queryMsgByKey", "-t", TOPIC, "-k", "key-6"),
    ):  # fmt: skip
        ended = flaremq(*words, "-n", scene.namesrv.address)
        assert ended.status == 0, (words, ended.err)
        assert scene.java.mqadmin(*words).err == ""
