"""Whatever a peer sends, the answer is a sentence and not an accident."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from tests.broker.clients import Desk, a_member, desk, wants

from flaremq.broker.handlers.admin_group import AdminGroupHandlers
from flaremq.broker.handlers.admin_topic import AdminTopicHandlers
from flaremq.broker.handlers.clients import ClientHandlers
from flaremq.broker.handlers.consumers import ConsumerHandlers
from flaremq.broker.handlers.offset import OffsetHandlers
from flaremq.broker.handlers.progress import ProgressHandlers
from flaremq.broker.role import Role
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode
from flaremq.testing.fakes.builders import a_message

ROUNDS: Final = 40
TEXTS: Final = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "99999999999999999999",
        "true",
        "T",
        "g",
        "c1",
        "%RETRY%g",
        "../../x",
        "a;b;c",
    ),
    *("\0", "\x01\x02", "\ud800", "ü" * 200, "{", '{"counter":"x"}', "+a=1,-b", "SINGLE_TAG", "2147483648"),
    *("0A00000100002A9F0000000000000000", "NaN", "1e3", ";", ",", "@", "a@b"),
)
NAMES: Final = (
    *("topic", "group", "consumerGroup", "producerGroup", "groupName", "clientID", "clientId", "queueId"),
    *("commitOffset", "offset", "timestamp", "isForce", "perm", "readQueueNums", "writeQueueNums", "order"),
    *("topicFilterType", "attributes", "topicSysFlag", "defaultTopic", "topicSeq", "dataVersion", "isOrder"),
    *("maxTopicNum", "groupSeq", "maxGroupNum", "topicList", "compareGroup", "filterGroups", "srcGroup"),
    *("destGroup", "offline", "readable", "cleanOffset", "msgId", "clientAddr", "setZeroIfNotFound"),
)
MEMBERS: Final = (
    *("clientID", "clientId", "consumerGroup", "group", "groupName", "mqSet", "consumerDataSet"),
    *("producerDataSet", "subscriptionData", "subscriptionDataSet", "topicConfigList", "groupConfigList"),
    *("topic", "queueId", "brokerName", "subString", "codeSet", "tagsSet", "heartbeatFingerprint"),
    *("withoutSub", "attributes", "topicName", "perm", "retryQueueNums", "expressionType", "messageModel"),
)


def serve_all(made: Desk) -> None:
    topics, subscriptions, offsets = made.topics, made.subscriptions, made.offsets
    store, stats, offload = made.store, made.stats, made.offload
    made.serve(ClientHandlers(made.live, made.tables, made.clock, Role(is_slave=False)).table())
    made.serve(OffsetHandlers(topics, subscriptions, offsets, made.locks, store).table())
    made.serve(AdminTopicHandlers(made.tables, store, stats, offload).table())
    made.serve(AdminGroupHandlers(subscriptions, offsets, stats, offload).table())
    made.serve(ProgressHandlers(made.tables, store, stats, offload, made.clock, lambda: "here:1").table())
    made.serve(ConsumerHandlers(made.live, made.tables, store, offload).table())


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Desk]:
    with desk(tmp_path) as made, made.store:
        serve_all(made)
        made.topics.put(TopicConfig("T", read_queue_nums=2, write_queue_nums=2))
        made.store.put(a_message(topic=b"T"))
        made.store.dispatch()
        made.groups.heartbeat(a_member("c1"), wants("g", "T"))
        made.offsets.commit("g", "T", 0, 1)
        yield made


def a_value(chance: random.Random, depth: int = 0) -> str:
    kind = chance.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return str(chance.choice([0, 1, -1, 7, 1 << 31, 1 << 63, -(1 << 70)]))
    if kind == 1:
        return chance.choice(["true", "false", "null", "1.5", '"SQL92"', '"TAG"', '"a >"', '"*"', '"||"'])
    if kind in (2, 3, 4):
        text = chance.choice(["", "T", "g", "c1", "../x", "x" * 300, "%RETRY%g", "\\u0000", "\\ud800"])
        return f'"{text}"'
    if kind == 5:
        return f"[{','.join(a_value(chance, depth + 1) for _ in range(chance.randrange(3)))}]"
    members = chance.sample(MEMBERS, chance.randrange(1, 9))
    return "{" + ",".join(f'"{name}":{a_value(chance, depth + 1)}' for name in members) + "}"


async def test_no_request_makes_a_handler_stumble(made: Desk, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(20)
    codes = sorted(made.router.codes)
    assert len(codes) == 38
    with caplog.at_level(logging.ERROR, "flaremq.remoting.router"):
        for _ in range(ROUNDS):
            for code in codes:
                names = chance.sample(NAMES, chance.randrange(len(NAMES)))
                header = {name: chance.choice(TEXTS) for name in names}
                body = (
                    a_value(chance).encode()
                    if chance.random() < 0.8
                    else chance.choice([None, b"", b"\xff{"])
                )
                answer = await made.ask(RequestCode(code), header, body)
                assert answer.code == 0 or answer.remark
    assert not caplog.records, caplog.text[-3000:]
